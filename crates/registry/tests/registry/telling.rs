//! Records of what happened: the audit log.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use xebec_access::{Action, Need, Observer, Peer, Refusal};
use xebec_events::audit::{Audit, AuditSettings, MAX_LINE, Pulls};
use xebec_events::{Event, EventKind, Gone, Listener, Origin, Thing};

pub(crate) fn event(kind: EventKind) -> Event {
    Event {
        kind,
        time: SystemTime::now(),
        repository: "team/app".to_owned(),
        digest: Some(format!("sha256:{}", "a".repeat(64))),
        tags: vec!["v1".to_owned(), "latest".to_owned()],
        media_type: Some("application/vnd.oci.image.manifest.v1+json".to_owned()),
        size: Some(1234),
        from: None,
        origin: Origin {
            user: Some("anna".to_owned()),
            peer: Some("192.0.2.7:4711".parse().unwrap()),
            request_id: "r1".to_owned(),
            host: "registry.example".to_owned(),
            user_agent: "docker/29".to_owned(),
            method: "PUT".to_owned(),
        },
    }
}

/// Waits until something is so, since a thread or a task brings it about.
fn eventually(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn audit(directory: &tempfile::TempDir, pulls: Pulls) -> (Arc<Audit>, std::path::PathBuf) {
    let path = directory.path().join("audit.log");
    let file = Some(path.clone());
    (Audit::open(&AuditSettings { file, pulls }).unwrap(), path)
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_change_is_a_line_and_pulls_as_wished() {
    for (pulls, expected) in [
        (Pulls::None, &["push-manifest", "delete-tag"][..]),
        (
            Pulls::Manifests,
            &["push-manifest", "pull-manifest", "delete-tag"],
        ),
        (
            Pulls::All,
            &["push-manifest", "pull-manifest", "pull-blob", "delete-tag"],
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (audit, path) = audit(&directory, pulls);
        for kind in [
            EventKind::PushManifest,
            EventKind::PullManifest,
            EventKind::PullBlob,
            EventKind::DeleteTag,
        ] {
            audit.happened(&event(kind));
        }
        eventually(|| lines(&path).len() == expected.len());
        let written = lines(&path);
        let kinds: Vec<&str> = written
            .iter()
            .map(|line| line["event"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, expected);
        let first = &written[0];
        assert_eq!(first["user"], "anna");
        assert_eq!(first["address"], "192.0.2.7:4711");
        assert_eq!(first["repository"], "team/app");
        assert_eq!(first["tags"][1], "latest");
        assert_eq!(first["request_id"], "r1");
    }
}

#[test]
fn a_line_is_bounded_and_one_line_whatever_clients_say() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::All);
    let mut large = event(EventKind::PushManifest);
    // Six bytes each, once written as JSON.
    large.origin.user_agent = "\u{1}\n\"".repeat(100_000);
    large.origin.host = "\u{1}".repeat(100_000);
    large.repository = "\u{1}".repeat(100_000);
    large.tags = vec!["\u{1}".repeat(1000); 5000];
    large.media_type = Some("\u{1}".repeat(1000));
    audit.happened(&large);
    audit.happened(&event(EventKind::PushManifest));
    eventually(|| {
        std::fs::read(&path)
            .unwrap()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            == 2
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.len() < MAX_LINE));
    assert_eq!(lines(&path)[0]["shortened"], true);
    assert_eq!(lines(&path)[0]["user"], "anna");
}

#[test]
fn the_log_may_be_moved_away() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::All);
    let old = directory.path().join("audit.log.1");
    audit.happened(&event(EventKind::PushManifest));
    eventually(|| lines(&path).len() == 1);
    std::fs::rename(&path, &old).unwrap();
    audit.happened(&event(EventKind::DeleteTag));
    eventually(|| lines(&path).len() == 1);
    assert_eq!(lines(&old)[0]["event"], "push-manifest");
    assert_eq!(lines(&path)[0]["event"], "delete-tag");
    // Lines that cannot be written are counted, and told when they can.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    audit.happened(&event(EventKind::DeleteTag));
    eventually(|| audit.lost() == 1);
    std::fs::remove_dir(&path).unwrap();
    audit.happened(&event(EventKind::PushBlob));
    eventually(|| lines(&path).len() == 2);
    assert_eq!(lines(&path)[1]["lines"], 1);
}

#[test]
fn what_the_registry_lets_go_is_a_line_with_the_rule() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::None);
    let tags: Vec<String> = (0..12).map(|number| format!("v{number}")).collect();
    for what in [
        Thing::Tag("ci-1".to_owned()),
        Thing::Manifest,
        Thing::Copy { tags, manifests: 3 },
    ] {
        audit.let_go(&Gone {
            repository: "team/app".to_owned(),
            what,
            digest: "sha256:1".to_owned(),
            why: "[[retention]] 1".to_owned(),
        });
    }
    assert_eq!(audit.finish(), 0);
    let lines = lines(&path);
    let of = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("event"), ["delete-tag", "delete-manifest", "delete-copy"]);
    assert_eq!(of("rule"), ["[[retention]] 1"; 3]);
    assert_eq!(of("digest"), ["sha256:1"; 3]);
    assert_eq!(of("manifests"), [Value::Null, Value::Null, 3.into()]);
    let tags = of("tags").into_iter().map(|tags| tags.as_array().unwrap().len());
    assert_eq!(tags.collect::<Vec<_>>(), [1, 0, 10]);
}

#[test]
fn refusals_are_written_down_once_somebody_showed_who_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::None);
    let request = |authorization: Option<&str>| {
        let mut request = hyper::Request::put("/v2/team/app/manifests/v1").header("user-agent", "crane");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(Peer("192.0.2.7:1".parse().unwrap()));
        parts
    };
    let needs = [Need {
        repository: "team/app".to_owned(),
        action: Action::Push,
    }];
    let unauthorized = Refusal::Unauthorized {
        challenge: String::new(),
        detail: "the name or the password is wrong".to_owned(),
    };
    audit.refused(&request(None), &needs, &unauthorized);
    audit.refused(&request(Some("Basic YW5uYTpzZWNyZXQ=")), &needs, &unauthorized);
    audit.refused(
        &request(Some("Bearer a.b.c")),
        &needs,
        &Refusal::Denied {
            detail: "no".to_owned(),
        },
    );
    eventually(|| lines(&path).len() == 2);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("secret") && !text.contains("YW5u") && !text.contains("a.b.c"),
        "{text}"
    );
    let lines = lines(&path);
    assert_eq!(lines[0]["claimed_user"], "anna");
    assert_eq!(lines[0]["outcome"], "unauthorized");
    assert_eq!(lines[0]["needs"][0], "push team/app");
    assert_eq!(lines[0]["address"], "192.0.2.7:1");
    assert_eq!(lines[1]["outcome"], "denied");
}

#[test]
fn the_audit_log_is_written_to_its_end_though_others_still_have_it() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::All);
    let other = Arc::clone(&audit);
    for _ in 0..3000 {
        other.happened(&event(EventKind::PushManifest));
    }
    assert!(audit.flush(Duration::from_secs(60)));
    assert_eq!(lines(&path).len(), 3000);
    assert_eq!(audit.lost(), 0);
    drop(other);
}
