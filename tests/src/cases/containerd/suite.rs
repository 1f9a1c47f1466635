//! containerd's own tests of snapshotters (`core/snapshots/testsuite`), through its proxy client.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::containerd::Snapshots;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one run of the suite may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Tests that the suite of this version has. Fewer would mean that some were left out.
const TESTS: usize = 21;

pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, program: &'static str| Case {
        name: format!("containerd/{name}"),
        limit: LIMIT * u32::try_from(runs()).unwrap_or(u32::MAX),
        run: Box::new(move |world| suite(world, program)),
    };
    vec![
        case("suite", "snapshotter-suite"),
        case("suite-race", "snapshotter-suite-race"),
    ]
}

/// How often the suite is run, each time on an empty root: `make test-snapshotter` sets it.
fn runs() -> usize {
    let value = std::env::var("XEBEC_SUITE_RUNS").ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(1)
}

/// Runs the suite, all of its tests at the same time as it does, and looks for what it left.
fn suite(world: &World, program: &str) -> Result<Outcome> {
    for round in 0..runs() {
        let snapshots = Snapshots::start(world)?;
        let before = snapshots.directories()?;
        let mut command = Command::new(World::go_tool(program)?);
        command
            .args(["-test.v", "-test.count=1"])
            .env("XEBEC_SNAPSHOTTER", snapshots.socket());
        let output = run(&mut command).with_context(|| format!("run {round}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = text.matches("    --- PASS: TestSnapshotter/").count();
        ensure!(passed == TESTS, "{passed} tests passed, of {TESTS}:\n{text}");
        ensure!(!text.contains("--- SKIP"), "{text}");
        ensure!(text.contains("--- PASS: TestRemoveAll"), "{text}");
        snapshots.has_only(&before)?;
        drop(snapshots);
        std::fs::remove_dir_all(world.path("root"))?;
    }
    Ok(Outcome::Passed(format!("{TESTS} tests, {} times", runs())))
}
