//! Control groups, which no namespace of a case keeps apart and which outlive it. All that a case makes begin with its name
//! ([`World::name`](crate::world::World::name)).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::wait_until;

/// Where control groups are: by hierarchies, or all in one.
const TOP: &str = "/sys/fs/cgroup";
/// Longest that killed processes may take to leave theirs.
const GONE: Duration = Duration::from_secs(30);
/// Removes those whose names begin with `name`, once nothing runs in them.
pub(crate) fn remove(name: &str) -> Result<()> {
    let removed = wait_until(GONE, "its control groups are gone", || {
        found(name).iter().for_each(|group| remove_directories(group));
        Ok(found(name).is_empty())
    });
    removed.with_context(|| format!("left: {:?}", found(name)))
}

/// Those whose names begin with `name`.
fn found(name: &str) -> Vec<PathBuf> {
    let hierarchies = directories(Path::new(TOP));
    let places = hierarchies.iter().map(PathBuf::as_path).chain([Path::new(TOP)]);
    let is_named = |path: &PathBuf| {
        let found = path.file_name().and_then(|found| found.to_str());
        found.is_some_and(|found| found.starts_with(name))
    };
    places.flat_map(directories).filter(is_named).collect()
}

/// The directories below a place; a hierarchy may go by a second name, which is a link.
fn directories(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}

/// Removes a control group and those below it, as far as they are empty.
fn remove_directories(top: &Path) {
    directories(top)
        .iter()
        .for_each(|below| remove_directories(below));
    let _ = fs::remove_dir(top);
}
