//! Tests of which start is told for a name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::json;

use super::*;

fn start(container: &str, run: &str, image: &str, began_ms: u64) -> StartReport {
    let report = json!({
        "reference": image, "manifest": Digest::of(image.as_bytes()), "command": ["app"], "container": container,
        "container_run": run, "began_ms": began_ms, "watched_ms": 1, "end": "ready", "loaded": null, "recorded": null,
        "missed_pages": 0, "local_pages": 0, "waits": 0, "waited_ms": 0.0, "missed_files": [], "more_files": 0,
        "with_read_ahead": false, "shared": false, "truncated": false, "learned": null, "advice": null,
    });
    serde_json::from_value(report).unwrap()
}

fn starts() -> Vec<StartReport> {
    vec![
        start("web", "aaaaaaaaaaaa", "r.lan/one:1", 100),
        start("web", "bbbbbbbbbbbb", "r.lan/two:1", 200),
        start("db", "cccccccccccc", "r.lan/two:1", 300),
    ]
}

/// The directories with the record of the container "web", made at that time, if any.
fn dirs(made: Option<u64>) -> (tempfile::TempDir, Directories) {
    let top = tempfile::tempdir().unwrap();
    let dirs = Directories {
        state: top.path().join("state"),
        run: top.path().join("run"),
    };
    if let Some(created_ms) = made {
        let saved = json!({
            "version": 1, "id": "0123456789ab", "image": "r.lan/two:1", "manifest": null, "command": [],
            "created_ms": created_ms, "started_ms": null, "finished_ms": null, "status": "created", "exit_code": null,
            "reason": null, "oom_killed": false, "restart": "no", "restarts": 0, "pause_ms": null, "supervisor": null,
            "labels": {}, "detached": false, "stop_signal": 0, "stop_timeout_ms": 0, "caller": null,
        });
        std::fs::create_dir_all(dirs.state.join("web")).unwrap();
        std::fs::write(dirs.state.join("web/container.json"), saved.to_string()).unwrap();
    }
    (top, dirs)
}

/// When the start began that is told for a name, and how many earlier ones there are.
fn told(name: Option<&str>, dirs: &Directories) -> Result<(u64, u64), Failure> {
    let meant = Meant::of(name, dirs, &starts())?;
    last_start(starts(), &meant, true).map(|start| (start.began_ms, start.earlier))
}

#[test]
fn the_container_that_there_is_now_is_meant_before_an_earlier_one() {
    let (_top, none) = dirs(None);
    assert_eq!(told(Some("web"), &none).unwrap(), (200, 1));
    let (_top, second) = dirs(Some(150));
    for name in ["web", "0123456789ab", "0123"] {
        assert_eq!(told(Some(name), &second).unwrap(), (200, 1), "{name}");
    }
    // Its start goes on.
    let (_top, third) = dirs(Some(250));
    let failure = told(Some("web"), &third).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
    for word in [
        "container web",
        "goes on",
        "xebec explain --start web@bbbbbbbbbbbb",
    ] {
        assert!(failure.message.contains(word), "{word}: {failure}");
    }
    assert_eq!(told(Some("web@bbbbbbbbbbbb"), &third).unwrap(), (200, 0));
    assert_eq!(told(None, &third).unwrap(), (300, 0));
}

#[test]
fn an_image_is_named_by_reference_digest_and_first_digits() {
    let (_top, dirs) = dirs(None);
    let manifest = Digest::of(b"r.lan/one:1");
    for name in ["r.lan/one:1", &manifest.to_string(), &manifest.short()] {
        assert_eq!(told(Some(name), &dirs).unwrap(), (100, 0), "{name}");
    }
    let failure = told(Some("ffffffffffff"), &dirs).unwrap_err();
    assert!(failure.message.contains("of ffffffffffff"), "{failure}");
}
