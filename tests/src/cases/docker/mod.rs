//! Docker Engine on lazy images.

mod commands;
mod host;
mod inspected;
mod restarts;

use std::time::Duration;

use anyhow::Result;

use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    [
        (
            "docker/commands",
            commands::usual as fn(&World) -> Result<Outcome>,
        ),
        ("docker/save-and-push", commands::blobs),
        ("docker/pulled-again", commands::pulled_again),
        ("docker/dead-registry", commands::dead_registry),
        ("docker/inspected", inspected::run_case),
        ("docker/restarts", restarts::live),
        ("docker/daemon-lost", restarts::daemon_lost),
        ("docker/restart-policies", restarts::policies),
        ("docker/without-xebec", restarts::without),
    ]
    .into_iter()
    .map(|(name, run)| Case {
        name: name.to_owned(),
        limit: LIMIT,
        run: Box::new(run),
    })
    .collect()
}
