//! Things that the rules let go before a collection: tags, manifests without one, and copies of upstreams' images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::StatusCode;
use tokio::sync::Notify;
use xebec_events::{Gone, Thing};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_policy::eviction::{self, Copied, Limits, Why};
use xebec_policy::immutability::Immutability;
use xebec_registry_server::config::Config;
use xebec_registry_server::upkeep::{Tidied, Upkeep};
use xebec_store::{Algorithm, Digest, Holding, Store, TagRecord};
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::Upstreams;

use crate::commands;
use crate::images;
use crate::running::{Running, artifact};

const DAY: u64 = 86_400_000;

fn digest(text: &str) -> Digest {
    Digest::of(Algorithm::Sha256, text.as_bytes())
}

fn holding(name: &str, used: u64, blobs: &[(&str, u64)]) -> Holding {
    Holding {
        digest: digest(name),
        size: 1,
        subject: None,
        created: 1,
        pushed: 0,
        pulled: used,
        children: Vec::new(),
        blobs: blobs.iter().map(|(name, size)| (digest(name), *size)).collect(),
    }
}

fn tag(name: &str, of: &str) -> TagRecord {
    TagRecord {
        name: name.parse().unwrap(),
        digest: digest(of),
        created: 1,
        updated: 1,
        pulled: 0,
    }
}

fn of(copies: &[Copied], name: &str) -> Copied {
    let has = |copy: &&Copied| copy.manifests.contains(&digest(name));
    copies.iter().find(has).unwrap().clone()
}

#[test]
fn what_belongs_together_is_one_copy() {
    let mut index = holding("index", 5, &[]);
    index.children = vec![digest("amd64"), digest("absent")];
    let mut signature = holding("signature", 7, &[("s", 3)]);
    signature.subject = Some(digest("amd64"));
    let held = [
        index,
        signature,
        holding("amd64", 2, &[("l", 10)]),
        holding("by tag", 1, &[]),
        holding("alone", 9, &[]),
    ];
    let companion = format!("{}.sig", digest("alone").to_string().replace(':', "-"));
    let tags = [tag("v1", "index"), tag(&companion, "by tag")];
    let copies = eviction::copies("hub/app", &held, &tags, &Immutability::default());
    assert_eq!(copies.len(), 2);
    let whole = of(&copies, "index");
    assert_eq!(
        (whole.manifests.len(), whole.used, whole.own, whole.blobs.len()),
        (3, 7, 3, 2)
    );
    assert_eq!(whole.tags, ["v1"]);
    let alone = of(&copies, "alone");
    assert_eq!((alone.manifests.len(), alone.used, alone.stays), (2, 9, false));
    // A client pushes a signature of its own: all of it stays.
    let mut held = held;
    held[1].pushed = 1;
    let copies = eviction::copies("hub/app", &held, &tags, &Immutability::default());
    assert!(of(&copies, "index").stays && !of(&copies, "alone").stays);
    let immutable = Immutability::new(vec![
        toml::from_str("repositories = 'hub/**'\ntags = ['sha256-*']").unwrap(),
    ]);
    let copies = eviction::copies("hub/app", &held, &tags, &immutable);
    assert!(of(&copies, "alone").stays);
}

#[test]
fn the_longest_unused_go_until_the_rest_fits() {
    let held = [
        holding("old", 100, &[("shared", 50), ("a", 30)]),
        holding("middle", 200, &[("shared", 50), ("b", 30)]),
        holding("new", 300, &[("c", 30)]),
        holding("pushed", 50, &[("c", 30), ("mine", 1000)]),
    ];
    let mut copies = eviction::copies("hub/app", &held, &[], &Immutability::default());
    for copy in &mut copies {
        copy.stays = copy.manifests == [digest("pushed")];
    }
    let going = |keep: Option<u64>, keep_for: Option<u64>, grace: u64| {
        let limits = Limits {
            keep,
            keep_for,
            grace,
        };
        let plan = eviction::plan(&copies, &limits, 1000);
        let names = ["old", "middle", "new", "pushed"];
        let name = |copy: &Copied| {
            *names
                .iter()
                .find(|name| copy.manifests == [digest(name)])
                .unwrap()
        };
        plan.into_iter()
            .map(|(copy, why)| (name(copy), why))
            .collect::<Vec<_>>()
    };
    // 50 + 30 + 30 of blobs and 3 of manifests; what a client pushed does not count, and neither does what it shares.
    assert!(going(Some(113), None, 0).is_empty());
    assert_eq!(going(Some(112), None, 0), [("old", Why::TooMuch)]);
    assert_eq!(
        going(Some(82), None, 0),
        [("old", Why::TooMuch)],
        "the shared blob stays for the other"
    );
    assert_eq!(
        going(Some(81), None, 0),
        [("old", Why::TooMuch), ("middle", Why::TooMuch)]
    );
    let all = [
        ("old", Why::TooMuch),
        ("middle", Why::TooMuch),
        ("new", Why::TooMuch),
    ];
    assert_eq!(going(Some(0), None, 0), all, "never what was pushed");
    assert_eq!(
        going(Some(0), None, 801),
        [("old", Why::TooMuch)],
        "nothing within the grace time"
    );
    assert_eq!(
        going(None, Some(800), 0),
        [("old", Why::Unused), ("middle", Why::Unused)]
    );
    assert_eq!(
        going(Some(0), Some(900), 750),
        [("old", Why::Unused), ("middle", Why::TooMuch)]
    );
    assert!(going(None, Some(800), 1001).is_empty());
}

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("r.toml"), &|_| None).unwrap()
}

async fn tidy(upkeep: &Upkeep, dry_run: bool, days: u64) -> (Tidied, Vec<Gone>) {
    let mut gone = Vec::new();
    let now = milliseconds_since_1970() + days * DAY;
    let tidied = upkeep
        .run(dry_run, now, &mut |thing: &Gone| gone.push(thing.clone()))
        .await;
    (tidied.unwrap(), gone)
}

async fn status(registry: &Running, path: &str) -> StatusCode {
    registry.get(path).await.status()
}

/// As [`status`], by a look that is no pull: retention leaves what a client pulls in this moment.
async fn looked_at(registry: &Running, path: &str) -> StatusCode {
    let request = registry.request(reqwest::Method::HEAD, path);
    request.send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_that_nobody_uses_and_come_again_when_they_are_asked_for() {
    let upstream = FaultyRegistry::start().unwrap();
    let mut images = Vec::new();
    for tag in ["v1", "v2"] {
        let image = images::image(tag.as_bytes());
        for blob in image.blobs() {
            upstream.put_blob("app", blob.bytes.clone());
        }
        let manifest = &image.manifest;
        upstream.put_manifest("app", tag, &manifest.media_type, manifest.bytes.clone());
        images.push(image);
    }
    let config = config(&format!(
        "[[upstream]]\nprefix = \"hub\"\nregistry = \"{}\"\nkeep_for = \"30d\"",
        upstream.host()
    ));
    let registry = Running::with(
        |_| {},
        |registry| {
            let arrived = Arc::new(Notify::new());
            registry.upstreams =
                Upstreams::new(&config.upstreams, &registry.store, &arrived, |_| None).unwrap();
        },
    )
    .await;
    for tag in ["v1", "v2"] {
        assert_eq!(
            status(&registry, &format!("/v2/hub/app/manifests/{tag}")).await,
            StatusCode::OK
        );
    }
    // Somebody signs the second one here.
    let signed: Digest = images[1].manifest.digest.to_string().parse().unwrap();
    let empty = registry.push_blob("hub/app", b"{}").await;
    let signature = artifact(&empty, &signed, "application/vnd.example.signature");
    assert_eq!(
        registry
            .push_manifest("hub/app", "signature", &signature)
            .await
            .status(),
        StatusCode::CREATED
    );
    registry.push_image("hub/app", "own", b"own").await;
    registry.push_image("team/app", "own", b"own").await;
    let upkeep = Upkeep::new(&registry.registry.store, &config);
    registry.registry.store.write_pulls().await.unwrap();
    assert!(
        tidy(&upkeep, false, 29).await.1.is_empty(),
        "all of it was used within the time"
    );
    let (would, named) = tidy(&upkeep, true, 31).await;
    assert_eq!(
        would,
        Tidied {
            copies: 1,
            ..Tidied::default()
        }
    );
    assert_eq!(
        named[0].what,
        Thing::Copy {
            tags: vec!["v1".to_owned()],
            manifests: 1
        }
    );
    assert!(named[0].why.contains("nobody used for 30d"), "{}", named[0].why);
    upstream.set_down(true);
    assert_eq!(
        status(&registry, "/v2/hub/app/manifests/v1").await,
        StatusCode::OK,
        "a dry run deletes nothing"
    );
    assert_eq!(tidy(&upkeep, false, 31).await.0.copies, 1);
    assert_eq!(
        status(&registry, "/v2/hub/app/manifests/v1").await,
        StatusCode::SERVICE_UNAVAILABLE
    );
    for kept in [
        "hub/app/manifests/v2",
        "hub/app/manifests/signature",
        "hub/app/manifests/own",
        "team/app/manifests/own",
    ] {
        assert_eq!(
            status(&registry, &format!("/v2/{kept}")).await,
            StatusCode::OK,
            "{kept}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_go_that_no_rule_keeps() {
    let registry = Running::start().await;
    let mut digests = Vec::new();
    for number in 1..=4 {
        let (_, digest) = registry
            .push_image("team/app", &format!("ci-{number}"), &[number])
            .await;
        digests.push(digest);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    registry.push_image("team/app", "v1", b"release").await;
    registry.push_image("other/app", "ci-1", b"other").await;
    let config = config(
        "[[retention]]\nrepositories = \"team/**\"\ntags = [\"ci-*\"]\nkeep_newest = 2\n[[retention]]\nrepositories = \
         \"**\"\ndelete_untagged_after = \"7d\"\n[[immutable]]\nrepositories = \"**\"\ntags = [\"ci-1\"]",
    );
    let store = &registry.registry.store;
    let upkeep = Upkeep::new(store, &config);
    let (would, named) = tidy(&upkeep, true, 8).await;
    assert_eq!((would.tags, would.manifests), (1, 1), "{named:?}");
    assert_eq!(named[0].what, Thing::Tag("ci-2".to_owned()));
    assert!(
        named[0].why.starts_with("[[retention]] 1 covers"),
        "{}",
        named[0].why
    );
    assert_eq!(
        (&named[1].what, &named[1].digest),
        (&Thing::Manifest, &digests[1].to_string())
    );
    assert!(named[1].why.contains("[[retention]] 2"), "{}", named[1].why);
    // The manifest is young today; its tag goes all the same.
    assert_eq!(
        tidy(&upkeep, false, 0).await.0,
        Tidied {
            tags: 1,
            ..Tidied::default()
        }
    );
    for (tag, wanted) in [
        ("ci-1", 200),
        ("ci-2", 404),
        ("ci-3", 200),
        ("ci-4", 200),
        ("v1", 200),
    ] {
        assert_eq!(
            status(&registry, &format!("/v2/team/app/manifests/{tag}"))
                .await
                .as_u16(),
            wanted,
            "{tag}"
        );
    }
    // A client that asks for it by its digest may be about to push an index that lists it.
    let path = format!("/v2/team/app/manifests/{}", digests[1]);
    let asked = registry
        .request(reqwest::Method::HEAD, &path)
        .send()
        .await
        .unwrap();
    assert_eq!(asked.status(), StatusCode::OK);
    store.write_pulls().await.unwrap();
    let pulled = store
        .manifest(&"team/app".parse().unwrap(), &digests[1])
        .await
        .unwrap()
        .unwrap()
        .pulled;
    assert!(pulled > 0);
    assert_eq!(tidy(&upkeep, false, 8).await.0.manifests, 1);
    assert_eq!(status(&registry, &path).await, StatusCode::NOT_FOUND);
}

/// Other processes learn of a client's pull soon, and not at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_stays_that_was_pulled_within_the_time_also_by_digest_and_from_another_process() {
    let registry = Running::start().await;
    let mut digests = Vec::new();
    for tag in ["ci-1", "ci-2", "ci-3"] {
        digests.push(registry.push_image("team/app", tag, tag.as_bytes()).await.1);
    }
    let config = config("[[retention]]\nrepositories = \"team/**\"\nkeep_pulled_within = \"14d\"");
    let other = Store::open(registry.registry.store.config()).await.unwrap();
    let upkeep = Upkeep::new(&other, &config);
    let by_digest = format!("/v2/team/app/manifests/{}", digests[1]);
    for path in ["/v2/team/app/manifests/ci-1", &by_digest] {
        assert_eq!(status(&registry, path).await, StatusCode::OK);
    }
    let goes = |gone: &[Gone]| gone.iter().map(|gone| gone.what.clone()).collect::<Vec<_>>();
    let only = vec![Thing::Tag("ci-3".to_owned())];
    for _ in 0..500 {
        let (_, named) = tidy(&upkeep, true, 0).await;
        if goes(&named) == only {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_, named) = tidy(&upkeep, false, 13).await;
    assert_eq!(goes(&named), only);
    // So long after the time, it is sure that nobody has pulled them since.
    let behind = u64::try_from(Store::PULLS_BEHIND.as_millis()).unwrap();
    let pulled = other
        .tag(&"team/app".parse().unwrap(), &"ci-1".parse().unwrap())
        .await;
    let pulled = pulled.unwrap().unwrap().pulled;
    let mut gone = Vec::new();
    for (late, wanted) in [(behind - 1, 0), (behind, 1)] {
        let now = pulled + 14 * DAY + late;
        let report = &mut |thing: &Gone| gone.push(thing.what.clone());
        upkeep.run(false, now, report).await.unwrap();
        let first = gone.iter().filter(|what| **what == Thing::Tag("ci-1".to_owned()));
        assert_eq!(first.count(), wanted);
    }
}

/// A registry with the tags ci-1 and ci-2.
async fn one_of_two_goes() -> Running {
    let registry = Running::start().await;
    for tag in ["ci-1", "ci-2"] {
        registry.push_image("team/app", tag, tag.as_bytes()).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    registry
}

/// A configuration for it by which ci-1 goes, and that is written down there.
fn with_audit_log(registry: &Running, directory: &tempfile::TempDir, log: &Path) -> PathBuf {
    let (file, root) = (
        directory.path().join("r.toml"),
        &registry.registry.store.config().root,
    );
    let text = format!(
        "[storage]\nroot = {root:?}\n[audit]\nfile = {log:?}\n[[retention]]\nrepositories = \"team/**\"\nkeep_newest = 1"
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_says_which_tags_would_go_and_by_which_rule() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let registry = one_of_two_goes().await;
    let file = with_audit_log(&registry, &directory, &log);
    let file = file.to_str().unwrap();
    let (said, code) = commands::run(&["gc", "--dry-run", "--config", file]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("team/app:ci-1 (sha256:"), "{said}");
    assert!(
        said.contains("would go: [[retention]] 1 covers it, and no rule keeps it"),
        "{said}"
    );
    assert!(!log.exists(), "nothing was done");
    assert_eq!(
        looked_at(&registry, "/v2/team/app/manifests/ci-1").await,
        StatusCode::OK
    );
    let (said, code) = commands::run(&["gc", "--config", file]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("is gone: [[retention]] 1"), "{said}");
    let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!(
        (&line["event"], &line["repository"], &line["tags"][0]),
        (&"delete-tag".into(), &"team/app".into(), &"ci-1".into())
    );
    assert_eq!(line["rule"], "[[retention]] 1 covers it, and no rule keeps it");
    assert_eq!((line.get("user"), line.get("manifests")), (None, None));
    assert_eq!(
        looked_at(&registry, "/v2/team/app/manifests/ci-1").await,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        looked_at(&registry, "/v2/team/app/manifests/ci-2").await,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_deletes_nothing_while_there_is_no_place_to_write_it_down() {
    let directory = tempfile::tempdir().unwrap();
    let registry = one_of_two_goes().await;
    let is_there = async || looked_at(&registry, "/v2/team/app/manifests/ci-1").await;
    let log = directory.path().join("nowhere/audit.log");
    let file = with_audit_log(&registry, &directory, &log);
    let file = file.to_str().unwrap();
    let (said, code) = commands::run(&["gc", "--dry-run", "--config", file]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("would go"), "{said}");
    let (said, code) = commands::run(&["gc", "--config", file]).await;
    assert_eq!(code, 1, "{said}");
    let problem = format!(
        "nothing was deleted: the audit log {} cannot be written",
        log.display()
    );
    assert!(
        said.contains(&problem) && said.contains("make its directory"),
        "{said}"
    );
    assert!(!said.contains("is gone"), "{said}");
    assert_eq!(is_there().await, StatusCode::OK);
    // Opened, and then full.
    with_audit_log(&registry, &directory, Path::new("/dev/full"));
    let (said, code) = commands::run(&["gc", "--config", file]).await;
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("is gone") && said.contains("the audit log lacks 1 of"),
        "{said}"
    );
    assert_eq!(is_there().await, StatusCode::NOT_FOUND);
}

/// A process that ends with this.
pub(crate) struct Serving(pub(crate) std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_registry_that_serves_lets_go_is_written_down() {
    let registry = one_of_two_goes().await;
    let directory = tempfile::tempdir().unwrap();
    let (file, log) = (
        directory.path().join("r.toml"),
        directory.path().join("audit.log"),
    );
    let root = registry.registry.store.config().root.clone();
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[storage]\nroot = {root:?}\n[collection]\nevery = \"1s\"\n[audit]\nfile = {log:?}\n\
         [[retention]]\nrepositories = \"team/**\"\nkeep_newest = 1"
    );
    std::fs::write(&file, text).unwrap();
    let mut serve = commands::program(&["serve", "--config", file.to_str().unwrap()]);
    let _serving = Serving(serve.stderr(std::process::Stdio::null()).spawn().unwrap());
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !read().ends_with('\n') {
        assert!(std::time::Instant::now() < deadline, "nothing is written");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let line: serde_json::Value = serde_json::from_str(read().lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["event"], &line["tags"][0]),
        (&"delete-tag".into(), &"ci-1".into())
    );
}
