//! The names by which overlays of containerd's containers have the views below them.
//!
//! They do not name the views themselves, so that a view may be mounted anew. They name a link to each in the directory of
//! snapshots ([`xebec_snapshotter::directories`]). For containers in user namespaces they name containerd's copy of a directory in
//! which the view is bound ([`xebec_snapshotter::mapped`]).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use xebec_kernel::mount::MountInfo;
use xebec_snapshotter::mapped::Mapped;

/// The names below one directory of snapshots, as they are when this is made.
pub(super) struct Places {
    /// Where the directories of snapshots are, and the links to views.
    uppers: PathBuf,
    /// Where views are bound for containers in user namespaces.
    mapped: PathBuf,
    /// Links to views, and where they lead.
    links: HashMap<PathBuf, PathBuf>,
}

impl Places {
    /// Of the snapshots in this directory.
    pub(super) fn of_snapshots(snapshots: &Path) -> Places {
        let uppers = snapshots.join("u");
        let entries = fs::read_dir(&uppers).into_iter().flatten().flatten();
        let links = entries.filter_map(|entry| {
            let link = entry.path();
            Some((link.clone(), fs::read_link(&link).ok()?))
        });
        Places {
            links: links.collect(),
            mapped: Mapped::places(snapshots),
            uppers,
        }
    }

    /// The directories that a mount lies on, if it is an overlay: its lower directories, and the one that is bound for its snapshot, since
    /// containerd gives such containers a copy of that under a name that is soon gone.
    pub(super) fn below(&self, mount: &MountInfo) -> Vec<PathBuf> {
        if mount.filesystem != "overlay" {
            return Vec::new();
        }
        let options = mount.super_options.split(',');
        let directories = options.filter_map(|option| option.split_once('='));
        directories
            .flat_map(|(name, value)| match name {
                // containerd gives the last parts of the names only, if all are too long for the kernel.
                "lowerdir" | "lowerdir+" => value.split(':').map(|lower| self.uppers.join(lower)).collect(),
                "upperdir" => self.bound_for(Path::new(value)).into_iter().collect(),
                _ => Vec::new(),
            })
            .collect()
    }

    fn bound_for(&self, upper: &Path) -> Option<PathBuf> {
        let name = upper.strip_prefix(&self.uppers).ok()?;
        Some(self.mapped.join(name).join("v"))
    }

    /// Whether views are bound there for containers in user namespaces.
    pub(super) fn is_bound(&self, directory: &Path) -> bool {
        directory.starts_with(&self.mapped)
    }

    /// Where a directory leads, if it is one of the links, or else itself.
    pub(super) fn lead<'a>(&'a self, directory: &'a Path) -> &'a Path {
        self.links.get(directory).map_or(directory, PathBuf::as_path)
    }

    /// The names of the directories that show a view, which is also mounted at `targets`.
    pub(super) fn names_of(&self, view: &Path, targets: impl Iterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
        let links = self.links.iter().filter(|(_, to)| *to == view);
        let links = links.map(|(link, _)| link.clone());
        links.chain(targets).chain([view.to_owned()]).collect()
    }
}
