//! One node of a real control plane, on containerd and Xebec.

mod cluster;
mod eviction;
mod restarts;
mod rollout;
mod secrets;

use std::time::Duration;

use anyhow::Result;

use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("kubernetes/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("secrets", secrets::run_case),
        case("eviction", eviction::run_case),
        case("restarts", restarts::run_case),
        case("rollout", rollout::run_case),
    ]
}
