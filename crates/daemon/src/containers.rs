//! Containers whose supervisor was killed. The leftovers of one that has ended (above all its overlay, which keeps its image's
//! view and with it the daemon) are cleaned up here, since there may be no next `xebec run`. One that serves on is named in
//! the log, and left alone. Those whose restart policy asks for a start get one by a process of its own, `xebec container restore`,
//! unless this process is confined, as the service is, since they would inherit that. There another service does it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tracing::{info, warn};
use xebec_container::{Directories, Record, cleanup_stale, list, to_restore};
use xebec_protocol::paths::Paths;

use crate::background::run_without_turn;

/// How often it is looked for them.
const LOOK: Duration = Duration::from_secs(20);

/// Most looks that pass between two starts: an hour.
const MOST_PASSES: u32 = 180;

/// Runs until the worker ends.
pub(crate) async fn run(paths: Paths) {
    let mut named = BTreeSet::new();
    let mut restoring = Restoring::default();
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let paths = paths.clone();
        let looked = run_without_turn(move || {
            look_after_containers(&paths, &mut named);
            let asks =
                !is_confined() && to_restore(&directories(&paths)).is_ok_and(|found| !found.is_empty());
            (named, asks.then_some(paths))
        });
        match looked.await {
            Ok((names, asking)) => {
                named = names;
                asking.iter().for_each(|paths| restoring.go_on(|| restore(paths)));
            }
            Err(failure) => {
                warn!("{failure}");
                named = BTreeSet::new();
            }
        }
    }
}

/// The process that starts containers again: one at a time, and after one that failed later each time, up to an hour.
#[derive(Default)]
struct Restoring {
    child: Option<Child>,
    failures: u32,
    /// Looks that pass before the next.
    passes: u32,
}

impl Restoring {
    /// Called at each look at which a restart policy asks for a start.
    fn go_on(&mut self, start: impl FnOnce() -> Option<Child>) {
        if let Some(child) = &mut self.child {
            let Ok(Some(status)) = child.try_wait() else {
                return;
            };
            self.child = None;
            self.failures = match status.success() {
                true => 0,
                false => self.failures + 1,
            };
            self.passes = (1 << self.failures.min(8)) - 1;
        }
        match self.passes.checked_sub(1) {
            Some(left) => self.passes = left.min(MOST_PASSES),
            None => self.child = start(),
        }
    }
}

/// Starts the containers again whose restart policy asks for it. A user who ends one meanwhile wins.
fn restore(paths: &Paths) -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("--root")
        .arg(paths.root())
        .arg("--run")
        .arg(paths.run());
    command.args(["container", "restore"]).stdin(Stdio::null());
    let started = command.spawn();
    started
        .inspect_err(|error| warn!(%error, "cannot start containers again whose restart policy asks for it"))
        .ok()
}

/// Whether programs that this process starts may have fewer rights than root has.
fn is_confined() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    !status
        .lines()
        .any(|line| line.split_whitespace().eq(["NoNewPrivs:", "0"]))
}

/// The directories of containers.
pub(crate) fn directories(paths: &Paths) -> Directories {
    Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    }
}

/// Cleans up after those that have ended, and names those that serve on, each once.
fn look_after_containers(paths: &Paths, named: &mut BTreeSet<String>) {
    let directories = directories(paths);
    // Most hosts of containerd have none.
    if !xebec_container::has_records(&directories.run) {
        return;
    }
    match cleanup_stale(&directories) {
        Ok(0) => {}
        Ok(1) => info!("cleaned up after a container whose `xebec run` was killed"),
        Ok(cleaned) => info!("cleaned up after {cleaned} containers whose `xebec run` was killed"),
        Err(error) => warn!("{error}"),
    }
    let running = list(&directories.run).unwrap_or_default().records;
    let orphans: Vec<Record> = running.into_iter().filter(|one| !one.is_supervised()).collect();
    for orphan in &orphans {
        if named.insert(orphan.id.clone()) {
            warn!(
                container = orphan.id,
                pid = orphan.pid,
                "a container still runs although its `xebec run` was killed; `xebec stop` ends it"
            );
        }
    }
    named.retain(|id| orphans.iter().any(|orphan| orphan.id == *id));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `looks` start the program, each after the last one has ended.
    async fn starts(restoring: &mut Restoring, program: &str, looks: u32) -> Vec<u32> {
        let mut started = Vec::new();
        for look in 0..looks {
            restoring.go_on(|| {
                started.push(look);
                Command::new(program).kill_on_drop(true).spawn().ok()
            });
            if let Some(child) = &mut restoring.child {
                child.wait().await.unwrap();
            }
        }
        started
    }

    #[tokio::test]
    async fn one_process_at_a_time_restores_containers() {
        let mut restoring = Restoring::default();
        let mut started = 0;
        for _ in 0..3 {
            restoring.go_on(|| {
                started += 1;
                Command::new("sleep").arg("600").kill_on_drop(true).spawn().ok()
            });
        }
        assert_eq!(started, 1);
        assert_eq!(starts(&mut Restoring::default(), "true", 4).await, [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn after_failures_it_is_tried_later_each_time_and_at_least_every_hour() {
        let mut restoring = Restoring::default();
        assert_eq!(starts(&mut restoring, "false", 20).await, [0, 2, 6, 14]);
        let rare = starts(&mut restoring, "false", 2000).await;
        let longest = rare.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(
            longest.is_some_and(|looks| looks > 100 && LOOK * looks <= Duration::from_secs(3640)),
            "{rare:?}"
        );
    }
}
