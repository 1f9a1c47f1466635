//! The second place of the directories below a container whose ids are mapped.
//!
//! containerd maps what is below such a container by a mapped copy of the mount in which the lower directories lie, with
//! the mounts in that directory (2.4 takes the directory that they have in common). A link does not lead out of such a
//! copy, and mounts of other containers would be copied along. So each of these containers gets a directory of its own:
//!
//! ```text
//! <root>/m/<id>/v       the view of the lazy layers, bound
//! <root>/m/<id>/u       <root>/u, bound, if there are unpacked layers on it
//! ```
//!
//! Containers without lazy layers need none. A bind mount here keeps its view from going, so it is taken away before the view is given
//! back. No directory here is ever deleted with its contents: it is unmounted, and then the empty directory goes.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use crate::error::SnapshotError;

/// The bound view, and the bound directories of layers.
const PARTS: [&str; 2] = ["v", "u"];

/// The part of the daemon that may mount.
pub trait Binder: Send + Sync + 'static {
    /// Binds the directory `from` to the directory `at`, if it is not bound there already; what else is mounted there goes.
    ///
    /// # Errors
    /// When it cannot.
    fn bind(&self, from: &Path, at: &Path) -> Result<(), SnapshotError>;

    /// Takes away what is bound at `at`; nothing happens if nothing is.
    fn unbind(&self, at: &Path);
}

/// The places of one snapshotter.
pub struct Mapped {
    root: PathBuf,
    binder: Arc<dyn Binder>,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("root", &self.root).finish()
    }
}

/// The directories below one container, where a mapped copy of them can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The view.
    pub view: PathBuf,
    /// The directory that holds those of unpacked layers.
    pub uppers: PathBuf,
}

impl Mapped {
    /// Where they are: `root/m`.
    pub fn places(root: &Path) -> PathBuf {
        root.join("m")
    }

    /// Those of the snapshotter at `root`.
    pub fn new(root: &Path, binder: Arc<dyn Binder>) -> Mapped {
        Mapped {
            root: Mapped::places(root),
            binder,
        }
    }

    fn directory(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// Binds a view, and what holds the unpacked layers if there are some, for a snapshot.
    ///
    /// # Errors
    /// When it cannot; then nothing is there.
    pub fn bind(&self, id: &str, view: &Path, uppers: Option<&Path>) -> Result<Place, SnapshotError> {
        let directory = self.directory(id);
        let [view_at, uppers_at] = PARTS.map(|part| directory.join(part));
        let bind = |from: &Path, at: &Path| {
            fs::create_dir_all(at).map_err(|error| SnapshotError::io("make", at, &error))?;
            self.binder.bind(from, at)
        };
        let bound = bind(view, &view_at).and_then(|()| uppers.map_or(Ok(()), |from| bind(from, &uppers_at)));
        if let Err(error) = bound {
            self.unbind(id);
            return Err(error);
        }
        Ok(Place {
            view: view_at,
            uppers: uppers_at,
        })
    }

    /// Takes away what is bound for a snapshot.
    pub fn unbind(&self, id: &str) {
        let directory = self.directory(id);
        if !directory.exists() {
            return;
        }
        for at in PARTS.map(|part| directory.join(part)).iter().chain([&directory]) {
            if at != &directory {
                self.binder.unbind(at);
            }
            match fs::remove_dir(at) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!("cannot remove {}: {error}", at.display());
                }
                _ => {}
            }
        }
    }

    /// Takes away what is bound for no snapshot.
    pub fn unbind_strangers(&self, ids: &BTreeSet<String>) {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            if !ids.contains(&name) {
                self.unbind(&name);
            }
        }
    }
}
