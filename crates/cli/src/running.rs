//! Containers that run, by the names and ids that a user writes.

use xebec_container::{Container, Record, RunningError, Status, find as find_container, list};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::container_lookup::{directories, not_found};

/// The containers that run.
pub(crate) fn all(paths: &Paths) -> Result<Vec<Record>, Failure> {
    let listed = list(paths.run()).map_err(|error| Failure::host("list containers", error))?;
    Ok(listed.records)
}

/// The container of that name, id or beginning of an id, if it runs. One that is there and does not run is found all the
/// same: the failure is the host's, as of `kill` and `pause`.
pub(crate) fn find(paths: &Paths, wanted: &str) -> Result<Record, Failure> {
    running(look_up(paths, wanted)?)
}

/// The same, if it is not paused: a command could join it, and would stand still.
pub(crate) fn find_going_on(paths: &Paths, wanted: &str) -> Result<Record, Failure> {
    let container = look_up(paths, wanted)?;
    if container.status() == Status::Paused {
        let name = container.name;
        let message = format!("container {name} is paused; let it go on first (`xebec unpause {name}`)");
        return Err(Failure::new(FailureKind::Host, message));
    }
    running(container)
}

fn look_up(paths: &Paths, wanted: &str) -> Result<Container, Failure> {
    find_container(&directories(paths), wanted).map_err(not_found)
}

fn running(container: Container) -> Result<Record, Failure> {
    let name = container.name;
    let not_running = || Failure::new(FailureKind::Host, RunningError::NotRunning(name));
    container.record.ok_or_else(not_running)
}
