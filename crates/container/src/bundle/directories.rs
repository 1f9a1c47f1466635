//! The directories of a container: its bundle, and its layer, which is made anew or taken again.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::lock::try_lock_directory;

use super::Bundle;
use crate::layout::{MERGED, REMOVE_MARKER, UPPER, WORK};
use crate::network::set_mode;
use crate::removal::{remove_bundle, remove_layer};
use crate::{RunError, RunOptions};

impl Bundle {
    pub(super) fn make_directories(&mut self, options: &RunOptions) -> Result<(), RunError> {
        match self.record.is_kept {
            true => self.take_state(options)?,
            false => self.make_state()?,
        }
        self.saved.claimed()?;
        // A bundle of this name whose record was lost.
        remove_bundle(&self.dirs, self.id())?;
        fs::create_dir(&self.path).map_err(RunError::file("create", &self.path))?;
        close_to_others(&self.path)?;
        let mut new = vec![
            self.state.join(WORK),
            self.path.join(MERGED),
            self.path.join("etc"),
        ];
        if !self.record.is_kept {
            new.push(self.state.join(UPPER));
        }
        for path in new {
            fs::create_dir(&path).map_err(RunError::file("create", &path))?;
        }
        Ok(())
    }

    fn make_state(&mut self) -> Result<(), RunError> {
        match fs::create_dir(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RunError::Exists(self.id().to_owned()));
            }
            outcome => outcome.map_err(RunError::file("create", &self.state))?,
        }
        close_to_others(&self.state)?;
        let lock = try_lock_directory(&self.state);
        self.lock = Some(lock.map_err(RunError::file("lock", &self.state))?);
        if self.rm {
            let marker = self.state.join(REMOVE_MARKER);
            fs::write(&marker, b"").map_err(RunError::file("write", &marker))?;
        }
        Ok(())
    }

    /// Takes the directory of a container that is started again.
    fn take_state(&mut self, options: &RunOptions) -> Result<(), RunError> {
        let name = self.id().to_owned();
        self.lock = match try_lock_directory(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(RunError::Busy(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(RunError::Missing(name)),
            lock => Some(lock.map_err(RunError::file("lock", &self.state))?),
        };
        // It may have been removed meanwhile, and another one made.
        if !self.saved.take(options)? {
            self.lock = None;
            return Err(match self.state.exists() {
                true => RunError::MadeEarlier {
                    id: name,
                    path: self.state.clone(),
                },
                false => RunError::Missing(name),
            });
        }
        // A power cut leaves it.
        remove_layer(&self.state, false)
    }
}

/// Lets root alone enter a directory of a container: its layer may hold setuid programs (CVE-2021-41103).
fn close_to_others(path: &Path) -> Result<(), RunError> {
    set_mode(path, 0o700)
}
