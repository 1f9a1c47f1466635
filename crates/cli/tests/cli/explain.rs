//! Answers of `xebec explain` when no daemon runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::program::Program;

/// The command tells, without a daemon, what a daemon wrote down before it was killed.
#[test]
fn waits_and_starts_are_explained_without_a_daemon() {
    let program = Program::new();
    let root = program.root();
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
    let digest = format!("sha256:{}", "a".repeat(64));
    let wait = |run: &str, began_ms: u64| {
        json!({
            "kind": "wait", "began": "", "began_ms": began_ms, "waited_ms": 12.5, "state": "refused", "pid": 7, "comm": "nginx",
            "container": "web", "container_run": run, "layer": digest, "index": digest, "file": null, "offset": 0,
            "count": 4096, "spans": 1, "joined": 0, "retries": 3, "waited_for_ms": {"pause": 12.5}, "phase": "pause",
            "sources": [], "problem": "no connection",
        })
    };
    let start = json!({
        "kind": "start", "reference": "registry.lan/app:1", "manifest": digest, "command": ["/bin/app"], "container": "web",
        "container_run": "bbbbbbbbbbbb", "began": "", "began_ms": 951_782_400_000_u64, "watched_ms": 121, "end": "ready",
        "loaded": null, "recorded": null, "missed_pages": 0, "local_pages": 0, "waits": 1, "waited_ms": 12.5,
        "missed_files": [], "more_files": 0, "with_read_ahead": false, "shared": false, "truncated": false, "learned": null,
        "advice": null,
    });
    let history = root.join("history");
    fs::create_dir(&history).unwrap();
    let log = |lines: &[Value]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        format!(
            "{{\"xebec_history\":1}}\n{}{{\"kind\":\"wait\",\"beg",
            lines.concat()
        )
    };
    let waits = [
        wait("aaaaaaaaaaaa", 951_782_300_000),
        wait("bbbbbbbbbbbb", 951_782_400_007),
    ];
    fs::write(history.join("waits.jsonl"), log(&waits)).unwrap();
    fs::write(history.join("starts.jsonl"), log(&[start])).unwrap();

    let output = program.output(&["explain", "web"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("container web of registry.lan/app:1: 1 wait"),
        "{text}"
    );
    assert!(
        text.contains("2000-02-29T00:00:00.007Z") && text.contains("EIO"),
        "{text}"
    );
    assert!(
        text.contains("1 earlier of that name: web@aaaaaaaaaaaa"),
        "{text}"
    );
    let output = program.output(&["explain", "--start", "web"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("began") && text.contains("2000-02-29T00:00:00.000Z"),
        "{text}"
    );
    let output = program.output(&["explain", "--json", "web@aaaaaaaaaaaa"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["waits"][0]["began_ms"], 951_782_300_000_u64);
    assert_eq!(program.output(&["explain", "nobody"]).status.code(), Some(3));
    assert!(
        !program.run().join("xebec.sock").exists(),
        "no daemon is started for that"
    );
}
