//! The keeper and its workers, killed at every point under load: readers block, then get the right bytes.
//!
//! Without the standard harness: this executable is test, keeper, worker and reader, by its first argument, so
//! that a worker's `main` can take over its descriptors before anything else. Everything runs in a world of its own (see
//! `isolation`), so that nothing is left behind.
//!
//! `XEBEC_KILL_SECONDS` sets how long the kill test runs (10 by default). Files filled page by page at random are
//! slow to remove once they were written to disk, which a short run is over before: for a long one, let `TMPDIR`
//! be on a disk that may be busy for some minutes afterwards (ext4, xfs or btrfs; a tmpfs raises no events).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "all of this is a test, although not one that the lints recognise"
)]

#[path = "../../../kernel/tests/isolation/mod.rs"]
mod isolation;
mod load;
mod reader;
mod scenarios;
mod service;
mod stage_kills;
mod succession;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use xebec_keeper::KeeperConfig;

/// How long the kill test runs when nothing else is said.
const DEFAULT_KILL_SECONDS: u64 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["as-worker", directory, behaviour] => worker::main(&PathBuf::from(directory), behaviour),
        ["as-keeper", directory, behaviour] => keep(PathBuf::from(directory), behaviour),
        ["as-reader", directory, seed] => reader::main(&PathBuf::from(directory), seed),
        ["as-scenario", name, directory] => scenarios::run(name, directory),
        ["--list", ..] => {
            scenarios::names().for_each(|name| println!("{name}: test"));
            ExitCode::SUCCESS
        }
        words => all(words.iter().find(|word| !word.starts_with('-')).copied()),
    }
}

/// Runs every scenario whose name contains `filter`, each in its own world.
fn all(filter: Option<&str>) -> ExitCode {
    let limit = kill_time() + Duration::from_secs(60);
    let mut failed = Vec::new();
    for name in scenarios::names().filter(|name| filter.is_none_or(|filter| name.contains(filter))) {
        println!("test {name} ...");
        // Removed here, outside, when no mount is left in it.
        let directory = tempfile::Builder::new()
            .prefix("xebec-keeper-")
            .tempdir()
            .unwrap();
        let place = directory.path().to_str().unwrap();
        match isolation::run_isolated(&["as-scenario", name, place], limit) {
            Some(status) if !status.success() => failed.push(name),
            Some(_) => println!("test {name} ok"),
            None => {}
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}

fn kill_time() -> Duration {
    let seconds = std::env::var("XEBEC_KILL_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(DEFAULT_KILL_SECONDS))
}

fn keep(directory: PathBuf, behaviour: &str) -> ExitCode {
    let arguments = [
        "as-worker".into(),
        directory.clone().into_os_string(),
        behaviour.into(),
    ];
    let mut config = KeeperConfig::new(directory.join("root"), directory.join("run"), arguments.to_vec());
    config.longest_delay = Duration::ZERO;
    match xebec_keeper::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("keeper: {problem}");
            ExitCode::FAILURE
        }
    }
}
