//! A directory for one check, that is removed on drop.

use std::io;
use std::path::{Path, PathBuf};

use super::check::Trouble;

/// See the module.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(super) fn new(directory: &Path) -> io::Result<Scratch> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..100 {
            let path = directory.join(format!(".check-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str, contents: &[u8]) -> Result<PathBuf, Trouble> {
        let path = self.path.join(name);
        std::fs::write(&path, contents).map_err(|error| format!("write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = crate::remove::remove_tree(&self.path);
    }
}
