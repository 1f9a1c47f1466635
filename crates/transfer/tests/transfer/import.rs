//! A directory comes over: whole, once more, by patterns, and by links.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use xebec_settings::pattern::RepositoryPattern;
use xebec_store::{Digest, NewManifest, ScrubOptions};
use xebec_transfer::{ImportError, ImportOptions, Moved, Rules, Taking, Tally, import};

use crate::common::{Here, skipped};
use crate::old::{Old, digest};

pub(crate) async fn run(old: &Old, here: &Here, options: &ImportOptions) -> Moved {
    let tally = Arc::new(Tally::default());
    import(&here.store, old.root(), options, &tally).await.unwrap();
    tally.read(0)
}

fn taking(taking: Taking) -> ImportOptions {
    ImportOptions {
        taking,
        ..ImportOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_and_a_second_run_passes_over_it() {
    let old = Old::new();
    let amd = old.image("team/app", b"layer of amd64");
    let arm = old.image("team/app", b"layer of arm64");
    let index = old.index("team/app", &[&amd, &arm]);
    let nested = old.index("team/app", &[&index]);
    let signature = old.artifact("team/app", &index, "application/x.signature");
    old.tag("team/app", "v1", &index);
    old.tag("team/app", "latest", &index);
    old.tag("team/app", "all", &nested);
    let other = old.image("library/other", b"layer of amd64");
    old.tag("library/other", "v1", &other);
    let here = Here::new().await;
    let moved = run(&old, &here, &ImportOptions::default()).await;
    assert_eq!(moved.skipped, []);
    assert_eq!((moved.repositories, moved.manifests, moved.tags), (2, 6, 4));
    assert_eq!((moved.blobs, moved.bytes), (3, 2 + 14 + 14));
    assert_eq!(here.tag("team/app", "v1").await, Some(index.clone()));
    assert_eq!(here.tag("team/app", "latest").await, Some(index.clone()));
    assert_eq!(here.tag("team/app", "all").await, Some(nested));
    assert_eq!(here.tag("library/other", "v1").await, Some(other));
    let layer = digest(b"layer of arm64");
    assert_eq!(here.blob("team/app", &layer).await.unwrap(), b"layer of arm64");
    assert_eq!(here.referrers("team/app", &index).await, [signature]);
    let again = run(&old, &here, &ImportOptions::default()).await;
    assert_eq!(
        (again.manifests, again.tags, again.blobs, again.bytes),
        (0, 0, 0, 0)
    );
    assert_eq!((again.manifests_here, again.tags_here), (6, 4));
    assert_eq!(again.skipped, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_pattern_covers_comes() {
    let old = Old::new();
    for name in ["team/app", "team/deep/app", "other"] {
        let image = old.image(name, name.as_bytes());
        old.tag(name, "v1", &image);
    }
    let here = Here::new().await;
    let options = ImportOptions {
        repositories: vec![RepositoryPattern::parse("team/**").unwrap()],
        ..ImportOptions::default()
    };
    assert_eq!(run(&old, &here, &options).await.repositories, 2);
    assert!(here.tag("team/deep/app", "v1").await.is_some());
    assert!(here.tag("other", "v1").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_and_writes_nothing() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    old.image("b", b"layer");
    let here = Here::new().await;
    let options = ImportOptions {
        dry_run: true,
        ..ImportOptions::default()
    };
    let moved = run(&old, &here, &options).await;
    assert_eq!((moved.repositories, moved.manifests, moved.tags), (2, 2, 1));
    assert_eq!(
        (moved.blobs, moved.bytes),
        (2, 7),
        "a blob of two repositories counts once"
    );
    assert_eq!(here.repositories().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_leave_the_directory_as_it_is() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    let here = Here::new().await;
    let moved = run(&old, &here, &taking(Taking::HardLink)).await;
    assert_eq!((moved.skipped.len(), moved.blobs, moved.bytes), (0, 2, 7));
    let theirs = fs::metadata(old.data(&digest(b"layer"))).unwrap();
    assert_eq!(theirs.nlink(), 2);
    assert_eq!(here.blob("a", &digest(b"layer")).await.unwrap(), b"layer");
    // A blob that was taken does not need its file any more.
    fs::remove_file(old.data(&digest(b"layer"))).unwrap();
    assert_eq!(here.blob("a", &digest(b"layer")).await.unwrap(), b"layer");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_moved_stay_until_an_image_is_here() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    let broken = old.image("b", b"gone");
    fs::remove_file(old.data(&digest(b"gone"))).unwrap();
    let here = Here::new().await;
    let moved = run(&old, &here, &taking(Taking::Move)).await;
    assert!(skipped(&moved, broken.hex(), "is missing"), "{moved:?}");
    assert!(!old.data(&digest(b"layer")).exists());
    assert!(
        old.data(&image).exists(),
        "manifests are read again by a second run"
    );
    let again = run(&old, &here, &taking(Taking::Move)).await;
    assert_eq!(
        (again.manifests, again.manifests_here, again.skipped_count),
        (0, 1, 1)
    );
    assert_eq!(here.blob("a", &digest(b"layer")).await.unwrap(), b"layer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_did_not_come_keeps_its_file() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    // To the other registry, the layer is another repository's.
    fs::remove_file(old.layer_link("a", &digest(b"layer"))).unwrap();
    let here = Here::new().await;
    let mut options = taking(Taking::Move);
    options.rules.sparse = true;
    let moved = run(&old, &here, &options).await;
    assert_eq!((moved.manifests, moved.blobs), (1, 1), "{moved:?}");
    assert!(here.blob("a", &digest(b"layer")).await.is_none());
    assert!(old.data(&digest(b"layer")).exists());
    assert!(!old.data(&digest(b"{}")).exists(), "the configuration came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_whose_object_is_lost_keeps_its_file() {
    let old = Old::new();
    old.image("a", b"layer");
    let here = Here::new().await;
    run(&old, &here, &ImportOptions::default()).await;
    let layer = digest(b"layer");
    let blob = here.store.any_blob(&layer).await.unwrap().unwrap();
    let object = here
        .store
        .config()
        .root
        .join("objects")
        .join(blob.object.unwrap());
    fs::remove_file(object).unwrap();
    let moved = run(&old, &here, &taking(Taking::Move)).await;
    assert!(skipped(&moved, layer.hex(), "has lost its bytes"), "{moved:?}");
    assert!(old.data(&layer).exists());
    // The scrub sees that it is missing, and the next import brings it again.
    here.store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
    assert_eq!(run(&old, &here, &taking(Taking::Move)).await.skipped, []);
    assert_eq!(here.blob("a", &layer).await.unwrap(), b"layer");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_words_about_a_tag_the_later_one_counts() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    let here = Here::new().await;
    run(&old, &here, &ImportOptions::default()).await;
    // There it is moved: the second run moves it here.
    let second = old.image("a", b"second layer");
    old.tag("a", "v1", &second);
    later(&old, "v1");
    run(&old, &here, &ImportOptions::default()).await;
    assert_eq!(here.tag("a", "v1").await, Some(second.clone()));
    // Here it is moved after that: it stays.
    let ours = push_again(&here, &image, "v1").await;
    let before = SystemTime::now() - Duration::from_secs(100);
    fs::File::open(old.tag_link("a", "v1"))
        .unwrap()
        .set_modified(before)
        .unwrap();
    let moved = run(&old, &here, &ImportOptions::default()).await;
    assert!(skipped(&moved, "tag v1", "later"), "{moved:?}");
    assert_eq!(here.tag("a", "v1").await, Some(ours));
}

/// Else rules that keep the newest tags would keep any of them: all would be set at about the same time, and in no order.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_counts_as_set_when_it_was_set_there() {
    let old = Old::new();
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 60 * 60);
    let times = [
        ("v1", now - 2 * day),
        ("v2", now - 9 * day),
        ("v3", now - 5 * day),
        ("wrong-clock", now + 9 * day),
    ];
    for (tag, time) in times {
        let image = old.image("a", tag.as_bytes());
        old.tag("a", tag, &image);
        let link = fs::File::open(old.tag_link("a", tag)).unwrap();
        link.set_modified(time).unwrap();
    }
    let here = Here::new().await;
    let began = milliseconds(SystemTime::now());
    run(&old, &here, &ImportOptions::default()).await;
    for (tag, time) in &times[..3] {
        let found = here.record("a", tag).await;
        assert_eq!(
            (found.created, found.updated),
            (milliseconds(*time), milliseconds(*time))
        );
    }
    let ahead = here.record("a", "wrong-clock").await.updated;
    assert!((began..=milliseconds(SystemTime::now())).contains(&ahead));
    // Another run changes nothing of that.
    run(&old, &here, &ImportOptions::default()).await;
    assert_eq!(here.record("a", "v2").await.updated, milliseconds(times[1].1));
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// Files have the time of the kernel's last tick, which may lie before what the store has noted.
fn later(old: &Old, tag: &str) {
    let soon = SystemTime::now() + Duration::from_millis(50);
    fs::File::open(old.tag_link("a", tag))
        .unwrap()
        .set_modified(soon)
        .unwrap();
    std::thread::sleep(Duration::from_millis(60));
}

/// Has a tag name a manifest that is here.
async fn push_again(here: &Here, digest: &Digest, tag: &str) -> Digest {
    let repository = "a".parse().unwrap();
    let manifest = here.store.manifest(&repository, digest).await.unwrap().unwrap();
    let new = NewManifest {
        digest: manifest.digest.clone(),
        media_type: manifest.media_type,
        content: manifest.content,
        references: Vec::new(),
        subject: None,
        artifact_type: None,
        annotations: Default::default(),
        immutable: Vec::new(),
        is_pushed: true,
    };
    here.store
        .put_manifest(&repository, &new, &[tag.parse().unwrap()])
        .await
        .unwrap();
    manifest.digest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_may_not_be_moved_stays() {
    let old = Old::new();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    let here = Here::new().await;
    let options = ImportOptions {
        rules: Rules {
            sparse: false,
            immutable: Arc::new(|_, tag| tag.as_str() == "v1"),
        },
        ..ImportOptions::default()
    };
    assert_eq!(run(&old, &here, &options).await.skipped, []);
    let second = old.image("a", b"second layer");
    old.tag("a", "v1", &second);
    later(&old, "v1");
    let moved = run(&old, &here, &options).await;
    assert!(skipped(&moved, "tag v1", "immutable"), "{moved:?}");
    assert_eq!((here.tag("a", "v1").await, moved.manifests), (Some(image), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_something_else_is_refused() {
    let here = Here::new().await;
    let empty = tempfile::tempdir().unwrap();
    let tally = Arc::new(Tally::default());
    let outcome = import(&here.store, empty.path(), &ImportOptions::default(), &tally).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("docker/registry/v2"), "{error}");
    let outcome = import(
        &here.store,
        &empty.path().join("none"),
        &ImportOptions::default(),
        &tally,
    )
    .await;
    assert!(matches!(outcome, Err(ImportError::Directory { .. })));
}
