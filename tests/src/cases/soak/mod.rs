//! Long runs under faults, a scenario a file. Ordinary runs take a short form of each, a minute in all;
//! `XEBEC_SOAK=full` (`make soak`) makes them as long as is worth it, and changes nothing else.

mod commands;
mod daemon;
mod density;
mod load;
mod registry;
mod rounds;
mod stages;
pub(super) mod support;
mod upgrades;
mod waits;
mod workers;

use std::time::Duration;

use anyhow::Result;

use self::support::sized;
use crate::runner::{Case, Outcome};
use crate::world::World;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, limit: u64, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("soak/{name}"),
        limit: Duration::from_secs(limit),
        run: Box::new(run),
    };
    vec![
        case("workers", sized(240, 3600), workers::run),
        case("stages", sized(240, 3600), stages::run),
        case("upgrades", sized(240, 3600), upgrades::run),
        case("density", sized(240, 1800), density::run),
        case("commands", sized(240, 3600), commands::run),
        case("registry", sized(240, 1200), registry::run),
    ]
}
