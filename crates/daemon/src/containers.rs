//! Containers whose `xebec run` was killed. What is left of one that has ended (its overlay, above all, which keeps its image's
//! view and with it the daemon) is cleaned up here, since there may be no next `xebec run`. One that serves on is named in
//! the log, and left alone.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{info, warn};
use xebec_container::{Directories, Record, cleanup_stale, list};
use xebec_protocol::paths::Paths;

use crate::background::run_without_turn;

/// How often it is looked for them.
const LOOK: Duration = Duration::from_secs(20);

/// Runs until the worker ends.
pub(crate) async fn run(paths: Paths) {
    let mut named = BTreeSet::new();
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let paths = paths.clone();
        let looked = run_without_turn(move || {
            look_after_containers(&paths, &mut named);
            named
        });
        match looked.await {
            Ok(names) => named = names,
            Err(failure) => {
                warn!("{failure}");
                named = BTreeSet::new();
            }
        }
    }
}

/// Cleans up after those that have ended, and names those that serve on, each once.
fn look_after_containers(paths: &Paths, named: &mut BTreeSet<String>) {
    let directories = Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    };
    // Most hosts of containerd have none.
    if !xebec_container::has_records(&directories.run) {
        return;
    }
    match cleanup_stale(&directories) {
        Ok(0) => {}
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
                "a container still runs although its `xebec run` was killed; kill its process to stop it"
            );
        }
    }
    named.retain(|id| orphans.iter().any(|orphan| orphan.id == *id));
}
