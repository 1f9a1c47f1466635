//! Directories that are damaged, foreign, or made to lead elsewhere: each thing is named and skipped, and the rest comes.

use std::fs;
use std::os::unix::fs::symlink;

use xebec_transfer::{ImportOptions, Moved};

use crate::common::{Here, skipped};
use crate::import::run;
use crate::old::{Old, digest};

/// A directory with one image that is as it should be.
fn sound() -> Old {
    let old = Old::new();
    let image = old.image("sound", b"sound layer");
    old.tag("sound", "v1", &image);
    old
}

async fn import(old: &Old) -> (Here, Moved) {
    let here = Here::new().await;
    let moved = run(old, &here, &ImportOptions::default()).await;
    assert!(
        here.tag("sound", "v1").await.is_some(),
        "the rest goes on: {moved:?}"
    );
    (here, moved)
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_are_never_taken() {
    let old = sound();
    let image = old.image("a", b"layer");
    old.tag("a", "v1", &image);
    fs::write(old.data(&digest(b"layer")), b"LAYER").unwrap();
    let manifest = old.image("a", b"another");
    old.tag("a", "v2", &manifest);
    fs::write(old.data(&manifest), b"{}").unwrap();
    let (here, moved) = import(&old).await;
    assert!(
        skipped(&moved, &format!("{image} (v1)"), "data is damaged"),
        "{moved:?}"
    );
    assert!(
        skipped(&moved, &format!("{manifest} (v2)"), "is damaged"),
        "{moved:?}"
    );
    assert!(here.tag("a", "v1").await.is_none() && here.tag("a", "v2").await.is_none());
    assert!(here.blob("a", &digest(b"layer")).await.is_none());
    assert_eq!(here.store.usage("").await.unwrap().uploads, 0);
    assert_eq!(moved.skipped_count, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let old = sound();
    // Without its link, a blob is another repository's.
    let unlinked = old.image("a", b"unlinked");
    fs::remove_file(old.layer_link("a", &digest(b"unlinked"))).unwrap();
    let cut = old.image("a", b"cut");
    fs::remove_file(old.data(&digest(b"cut"))).unwrap();
    // As the other registry deletes a manifest.
    let deleted = old.image("a", b"deleted");
    fs::remove_file(old.revision_link("a", &deleted)).unwrap();
    old.tag("a", "dangling", &deleted);
    old.tag("a", "empty", &deleted);
    fs::remove_file(old.tag_link("a", "empty")).unwrap();
    let index = old.index("a", &[&unlinked]);
    let (here, moved) = import(&old).await;
    assert!(skipped(&moved, unlinked.hex(), "_layers"), "{moved:?}");
    assert!(skipped(&moved, cut.hex(), "is missing"), "{moved:?}");
    assert!(skipped(&moved, "tag dangling", "does not have"), "{moved:?}");
    assert!(skipped(&moved, "\"empty\"", "is missing"), "{moved:?}");
    assert!(skipped(&moved, index.hex(), "lacks"), "{moved:?}");
    assert_eq!((moved.skipped_count, moved.deleted), (5, 1), "{moved:?}");
    assert!(here.blob("a", &digest(b"unlinked")).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_manifests_are_named() {
    let old = sound();
    for (text, reason) in [
        (
            r#"{"schemaVersion": 1, "fsLayers": [], "history": []}"#,
            "schema 1",
        ),
        (
            r#"{"schemaVersion": 2, "mediaType": "application/x.new+json"}"#,
            "application/x.new",
        ),
        ("no JSON", "JSON"),
    ] {
        let foreign = old.manifest("a", text.as_bytes());
        let (_, moved) = import(&old).await;
        assert!(skipped(&moved, foreign.hex(), reason), "{moved:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_links_lead_nowhere_else() {
    let old = sound();
    let image = old.image("a", b"layer");
    for name in ["Upper", "..a", "a..b", "a b", "_hidden"] {
        fs::create_dir_all(old.repository(name).join("_manifests")).unwrap();
    }
    for (tag, link) in [
        ("up", "sha256:../../../../../../../../etc/passwd"),
        ("long", &"x".repeat(5000)),
        ("blank", ""),
        ("...", "sha256:00"),
        ("sound", &format!("{image}\n")),
    ] {
        let path = old.tag_link("a", tag);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, link).unwrap();
    }
    // A manifest's link that names another one, and a directory that is no digest.
    let other = old.image("a", b"other");
    fs::write(old.revision_link("a", &other), image.to_string()).unwrap();
    fs::create_dir_all(old.repository("a").join("_manifests/revisions/sha256/..x")).unwrap();
    let (here, moved) = import(&old).await;
    for (what, reason) in [
        ("Upper", "no name of a repository"),
        ("..a", "no name of a repository"),
        ("a..b", "no name of a repository"),
        ("\"up\"", "lower-case hexadecimal digits"),
        ("\"long\"", "5000 bytes"),
        ("\"blank\"", "no digest"),
        ("\"...\"", "no tag"),
        (other.hex(), "names something else"),
        ("..x", "no digest"),
    ] {
        assert!(skipped(&moved, what, reason), "{what}: {moved:?}");
    }
    assert_eq!(here.tag("a", "sound").await, Some(image));
    assert_eq!(here.repositories().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_links_are_not_followed() {
    let old = sound();
    let outside = tempfile::tempdir().unwrap();
    // The right bytes, but outside; and inside, by a link all the same.
    for layer in [&b"outside"[..], b"inside"] {
        old.image("a", layer);
        let data = old.data(&digest(layer));
        fs::remove_file(&data).unwrap();
        let target = match layer {
            b"outside" => outside.path().join("data"),
            _ => data.with_file_name("elsewhere"),
        };
        fs::write(&target, layer).unwrap();
        symlink(&target, &data).unwrap();
    }
    // Repositories that are links: out, to the one above, and to a sound one.
    let theirs = Old::new();
    theirs.image("b", b"secret");
    symlink(theirs.repository("b"), old.repository("stolen")).unwrap();
    symlink("..", old.repository("a").join("loop")).unwrap();
    symlink("sound", old.repository("alias")).unwrap();
    fs::create_dir_all(old.repository("c")).unwrap();
    symlink(
        theirs.repository("b").join("_manifests"),
        old.repository("c/_manifests"),
    )
    .unwrap();
    let (here, moved) = import(&old).await;
    let of_data = moved
        .skipped
        .iter()
        .filter(|skipped| skipped.reason.contains("data: it is a symbolic link"));
    assert_eq!(of_data.count(), 2, "{moved:?}");
    for what in ["stolen", "loop", "alias", "c/_manifests"] {
        assert!(skipped(&moved, what, "symbolic link"), "{what}: {moved:?}");
    }
    // The image's configuration came before its layer was refused.
    assert_eq!(here.repositories().await, 2);
    assert!(here.store.any_blob(&digest(b"secret")).await.unwrap().is_none());
    assert!(here.store.any_blob(&digest(b"outside")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_holds_nobody_up() {
    let old = sound();
    let image = old.image("a", b"layer");
    let data = old.data(&digest(b"layer"));
    fs::remove_file(&data).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&data).status().unwrap();
    assert!(made.success());
    let manifest = old.manifest("a", b"a manifest");
    fs::remove_file(old.data(&manifest)).unwrap();
    fs::create_dir(old.data(&manifest)).unwrap();
    let (_, moved) = import(&old).await;
    assert!(skipped(&moved, image.hex(), "no regular file"), "{moved:?}");
    assert!(skipped(&moved, manifest.hex(), "no regular file"), "{moved:?}");
}
