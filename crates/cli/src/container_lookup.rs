//! Containers by the names and ids that a user writes, and the failure if one is not found.

use xebec_container::{Container, Directories, FindError, Record, RunningError, Status};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

/// The directories of containers.
pub(crate) fn directories(paths: &Paths) -> Directories {
    Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    }
}

/// A container that is not there, or not the only one.
pub(crate) fn not_found(error: FindError) -> Failure {
    let kind = match error {
        FindError::Missing(_) => FailureKind::NotFound,
        FindError::Ambiguous { .. } => FailureKind::Usage,
        FindError::Unreadable(_) => FailureKind::Host,
    };
    Failure::new(kind, error)
}

/// The containers that run.
pub(crate) fn all(paths: &Paths) -> Result<Vec<Record>, Failure> {
    let listed =
        xebec_container::list(paths.run()).map_err(|error| Failure::host("list containers", error))?;
    Ok(listed.records)
}

/// The container of that name or id, if it runs. If it is there and does not, the failure is the host's, as of `kill` and `pause`.
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
    xebec_container::find(&directories(paths), wanted).map_err(not_found)
}

fn running(container: Container) -> Result<Record, Failure> {
    let name = container.name;
    let not_running = || Failure::new(FailureKind::Host, RunningError::NotRunning(name));
    container.record.ok_or_else(not_running)
}
