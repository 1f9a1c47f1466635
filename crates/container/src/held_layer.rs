//! A container's layer that is held still while somebody reads it: `xebec commit`.
//!
//! A container that runs is frozen meanwhile. It cannot end then but by SIGKILL, and its supervisor keeps its directory. Of one that does
//! not run the lock of the directory is held, so that nobody starts or removes it. After that the container is looked at again: what was
//! read counts only if it is still as it was.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::container::{self, Container, Status};
use crate::layout::UPPER;
use crate::lifecycle::{LifecycleError, lock, set_paused};
use crate::{Directories, control_groups};

/// How long the processes of a container may take until they are frozen. One that waits in the kernel is frozen after that.
const FREEZING: Duration = Duration::from_secs(10);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// A container's layer that is held still. Dropped, it lets the container go on.
#[derive(Debug)]
pub struct HeldLayer {
    dirs: Directories,
    container: Container,
    /// Whether it runs.
    is_active: bool,
    /// Whether it was frozen for this.
    is_frozen: bool,
    /// The lock of the directory of a container that does not run.
    _lock: Option<File>,
}

impl HeldLayer {
    /// Holds the layer of a container still. With `pause` one that runs is frozen; otherwise it may change its files meanwhile.
    ///
    /// # Errors
    /// [`LifecycleError`]: it is being made, started or removed, or cannot be frozen.
    pub fn hold(dirs: &Directories, container: &Container, pause: bool) -> Result<Self, LifecycleError> {
        let name = container.name.clone();
        let held = |container, is_active, lock| Self {
            dirs: dirs.clone(),
            container,
            is_active,
            is_frozen: false,
            _lock: lock,
        };
        match container.status() {
            // It waits to be started again, and its supervisor has the lock: nothing writes to its layer, and `release` sees it start.
            Status::Running | Status::Paused | Status::Restarting => {
                let mut held = held(container.clone(), true, None);
                if pause && container.status() == Status::Running {
                    held.freeze()?;
                }
                Ok(held)
            }
            Status::Exited => {
                let (lock, container) = lock(dirs, container)?;
                match container.status() {
                    Status::Exited => Ok(held(container, false, Some(lock))),
                    _ => Err(LifecycleError::Busy(name)),
                }
            }
            Status::Created | Status::Removing | Status::MadeEarlier => Err(LifecycleError::NoLayer {
                name,
                status: container.status().name(),
            }),
        }
    }

    /// The upper directory of the container's overlay.
    pub fn upper(&self) -> PathBuf {
        self.container.directory.join(UPPER)
    }

    /// The container as it was found.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Lets the container go on.
    ///
    /// # Errors
    /// [`LifecycleError::Changed`] if it ended, started or was removed meanwhile: what was read of its layer may not be all.
    pub fn release(self) -> Result<(), LifecycleError> {
        let now = container::by_name(&self.dirs, &self.container.name)?;
        let is_same = now.is_some_and(|now| {
            let run = |container: &Container| {
                container
                    .record
                    .as_ref()
                    .map(|record| (record.pid, record.pid_started))
            };
            now.id() == self.container.id()
                && run(&now) == run(&self.container)
                && now.status() != Status::Removing
                && now.is_active() == self.is_active
                && self.upper().is_dir()
        });
        match is_same {
            true => Ok(()),
            false => Err(LifecycleError::Changed(self.container.name.clone())),
        }
    }

    fn freeze(&mut self) -> Result<(), LifecycleError> {
        set_paused(&self.container, true)?;
        self.is_frozen = true;
        let Some(group) = self
            .container
            .record
            .as_ref()
            .map(|record| record.control_group())
        else {
            return Ok(());
        };
        let until = Instant::now() + FREEZING;
        while !control_groups::has_frozen(&group) {
            if Instant::now() > until {
                return Err(LifecycleError::NotFrozen(
                    self.container.name.clone(),
                    FREEZING.as_secs(),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for HeldLayer {
    fn drop(&mut self) {
        if self.is_frozen
            && let Some(record) = &self.container.record
        {
            control_groups::set_frozen(&record.control_group(), false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Saved;
    use crate::saved::SavedStatus;

    fn ended(dirs: &Directories) -> Container {
        let directory = dirs.state.join("web");
        fs::create_dir_all(directory.join(UPPER)).unwrap();
        let mut saved = Saved::new("ab0000000001".into(), "image:1".into(), 1000);
        (saved.status, saved.started_ms) = (SavedStatus::Exited, Some(2000));
        saved.write(&directory).unwrap();
        container::find(dirs, "web").unwrap()
    }

    #[test]
    fn a_container_that_has_ended_is_locked_until_its_layer_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let container = ended(&dirs);
        let held = HeldLayer::hold(&dirs, &container, true).unwrap();
        assert!(held.upper().ends_with(UPPER));
        let refused = crate::lifecycle::remove(&dirs, &container, crate::Removal::default()).unwrap_err();
        assert!(matches!(refused, LifecycleError::Busy(_)), "{refused}");
        held.release().unwrap();
        let held = HeldLayer::hold(&dirs, &container, true).unwrap();
        fs::remove_dir(held.upper()).unwrap();
        assert!(matches!(held.release(), Err(LifecycleError::Changed(_))));
        crate::lifecycle::remove(&dirs, &container, crate::Removal::default()).unwrap();
        assert!(HeldLayer::hold(&dirs, &container, true).is_err());
    }
}
