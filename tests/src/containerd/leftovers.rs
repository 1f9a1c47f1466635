//! Things that a daemon and containerd leave behind: mounts, open files, directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::{ROOT, Snapshots};
use crate::world::World;

/// The mounts, open files and directories at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Mounts in the case's directory: where, and how often.
    pub(crate) mounts: BTreeMap<String, usize>,
    /// Files and directories of the case that keeper and worker have open, and the number of the keeper's descriptors.
    pub(crate) descriptors: BTreeMap<String, usize>,
    /// Directories of snapshots, of views, and of what is mounted for them.
    pub(crate) directories: Vec<PathBuf>,
}

impl Leftovers {
    /// The present ones.
    pub(crate) fn now(world: &World, snapshots: &Snapshots<'_>) -> Result<Self> {
        let top = world.directory.to_string_lossy().into_owned();
        let mut mounts = BTreeMap::new();
        for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
            let place = line.split(' ').nth(4).context("no mount point")?;
            if place.starts_with(&top) {
                *mounts.entry(place.to_owned()).or_default() += 1;
            }
        }
        let mut descriptors = BTreeMap::new();
        for name in ["keeper_pid", "worker_pid"] {
            for place in open_by(snapshots.pid(name)?)? {
                let place = place.to_string_lossy().into_owned();
                // Connections come and go. The history is opened when there is something to write, and stays open.
                if place.starts_with(&top) && !place.contains("/history/") {
                    *descriptors.entry(format!("{name} {place}")).or_default() += 1;
                }
            }
        }
        descriptors.insert("keeper".to_owned(), open_by(snapshots.pid("keeper_pid")?)?.len());
        let mut directories = snapshots.directories()?;
        let run = world.path(&format!("{ROOT}-run"));
        for place in [
            world.path(ROOT).join("views"),
            run.join("views"),
            run.join("arriving"),
            run.join("recordings"),
        ] {
            for entry in fs::read_dir(place).into_iter().flatten() {
                directories.push(entry?.path());
            }
        }
        Ok(Self {
            mounts,
            descriptors,
            directories,
        })
    }

    /// The things of which more are here than there were before.
    pub(crate) fn beyond(&self, before: &Self) -> String {
        let more = |now: &BTreeMap<String, usize>, before: &BTreeMap<String, usize>| {
            let is_more = |(name, count): &(&String, &usize)| before.get(*name).is_none_or(|had| had < count);
            let names = now.iter().filter(is_more);
            names
                .map(|(name, count)| format!("{name} ({count})"))
                .collect::<Vec<_>>()
        };
        let mut found = more(&self.mounts, &before.mounts);
        found.extend(more(&self.descriptors, &before.descriptors));
        let is_new = |path: &&PathBuf| !before.directories.contains(path);
        found.extend(
            self.directories
                .iter()
                .filter(is_new)
                .map(|path| path.display().to_string()),
        );
        found.join(", ")
    }
}

fn open_by(pid: Pid) -> Result<Vec<PathBuf>> {
    let directory = Path::new("/proc")
        .join(pid.as_raw_nonzero().to_string())
        .join("fd");
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    // One that is closed meanwhile is open no more.
    let open = entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(open.collect())
}
