//! Containers that run, by the names and ids that a user writes.

use xebec_container::{Record, RunningError, find as find_container, list};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::container_lookup::{directories, not_found};

/// The containers that run.
pub(crate) fn all(paths: &Paths) -> Result<Vec<Record>, Failure> {
    let listed = list(paths.run()).map_err(|error| Failure::host("list containers", error))?;
    Ok(listed.records)
}

/// The container of that name, id or beginning of an id, if it runs.
pub(crate) fn find(paths: &Paths, wanted: &str) -> Result<Record, Failure> {
    let container = find_container(&directories(paths), wanted).map_err(not_found)?;
    let name = container.name;
    let not_running = || Failure::new(FailureKind::NotFound, RunningError::NotRunning(name));
    container.record.ok_or_else(not_running)
}
