//! A real kubelet on containerd and Xebec.

mod full;
mod logins;
mod namespaces;
mod pods;
pub(super) mod room;
mod support;
mod uninstalled;

use std::time::Duration;

use anyhow::Result;

use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("kubelet/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("pods", pods::run_case),
        case("logins", logins::run_case),
        case("room", room::run_case),
        case("namespaces", namespaces::run_case),
        case("full", full::run_case),
        case("uninstalled", uninstalled::run_case),
    ]
}
