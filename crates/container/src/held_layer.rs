//! A container's layer that is held still while somebody reads it: `xebec commit`.
//!
//! A container that runs is frozen meanwhile. It cannot end then but by SIGKILL, and its supervisor keeps its directory. Of one that does
//! not run the lock of the directory is held, so that nobody starts or removes it. After that the container is looked at again: what was
//! read counts only if it is still as it was.
//!
//! One process at a time holds a layer: it has the lock of the upper directory. Otherwise the first of two would let the container go on
//! while the second one reads. A signal ends a process that has a container frozen only after the container goes on. After SIGKILL the
//! next command that looks at the container lets it go on (`frozen_for_commit`).

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use xebec_kernel::lock::try_lock_directory;

use crate::container::{self, Container, Status};
use crate::layout::UPPER;
use crate::lifecycle::{LifecycleError, lock, set_frozen};
use crate::{Directories, control_groups, frozen_for_commit};

/// The signals that end a process unless it is prepared for them.
const SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// How long the processes of a container may take until they are frozen. One that waits in the kernel is frozen after that.
const FREEZING: Duration = Duration::from_secs(10);
/// Of a container that somebody let go on while its layer was read.
const WAS_LET_GO: &str =
    "not paused any more: it went on while its layer was read; nothing was kept, commit it again";
/// Of a container that is not frozen yet when this process is to end.
const WAS_ENDED: &str = "not paused yet, and a signal ended the wait for that; nothing was kept";
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// How many containers this process has frozen, and whether a signal asks it to end. To freeze one more, and to end by a signal, takes the
/// lock.
static FROZEN: Mutex<Frozen> = Mutex::new(Frozen {
    containers: 0,
    is_ending: false,
});

struct Frozen {
    containers: usize,
    is_ending: bool,
}

/// A container's layer that is held still. Dropped, it lets the container go on.
#[derive(Debug)]
pub struct HeldLayer {
    dirs: Directories,
    container: Container,
    /// Whether it runs.
    is_active: bool,
    /// Whether it was frozen for this.
    is_frozen: bool,
    /// Whether it must be frozen all the time, by this process or by somebody before.
    must_be_frozen: bool,
    /// The lock of the directory of a container that does not run.
    _lock: Option<File>,
    /// The lock of the upper directory.
    _upper: File,
}

impl HeldLayer {
    /// Holds the layer of a container still. With `pause` one that runs is frozen; otherwise it may change its files meanwhile.
    ///
    /// # Errors
    /// [`LifecycleError`]: it is being made, started or removed, or cannot be frozen.
    pub fn hold(dirs: &Directories, container: &Container, pause: bool) -> Result<Self, LifecycleError> {
        let name = container.name.clone();
        let status = container.status();
        let (lock, container) = match status {
            // One that waits to be started again has a supervisor, which has the lock: nothing writes to its layer, and `release` sees it
            // start.
            Status::Running | Status::Paused | Status::Restarting => (None, container.clone()),
            Status::Exited => {
                let (lock, container) = lock(dirs, container)?;
                match container.status() {
                    Status::Exited => (Some(lock), container),
                    _ => return Err(LifecycleError::Busy(name)),
                }
            }
            Status::Created | Status::Removing | Status::MadeEarlier => {
                return Err(LifecycleError::NoLayer {
                    name,
                    status: status.name(),
                });
            }
        };
        let upper = try_lock_directory(&container.directory.join(UPPER));
        let mut held = Self {
            dirs: dirs.clone(),
            container,
            is_active: lock.is_none(),
            is_frozen: false,
            must_be_frozen: pause && matches!(status, Status::Running | Status::Paused),
            _lock: lock,
            _upper: upper.map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => LifecycleError::Busy(name.clone()),
                _ => LifecycleError::Changed(name.clone()),
            })?,
        };
        if held.must_be_frozen {
            held.freeze(status == Status::Running)?;
        }
        Ok(held)
    }

    /// From now on a signal that would end this process ends it at once only while it has no container frozen. Otherwise it sets the flag
    /// that this gives, and the caller is to drop what it holds. Signals that are ignored stay so.
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub fn watch_signals() -> io::Result<Arc<AtomicBool>> {
        let ignored = ignored_signals();
        let is_told = Arc::new(AtomicBool::new(false));
        let wanted = SIGNALS
            .iter()
            .filter(|&&signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(wanted)?;
        let told = is_told.clone();
        let listen = move || {
            for signal in signals.forever() {
                told.store(true, Ordering::Relaxed);
                end_unless_frozen(&mut || _ = emulate_default_handler(signal));
            }
        };
        thread::Builder::new().name("signals".into()).spawn(listen)?;
        Ok(is_told)
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
    /// [`LifecycleError::Changed`] if it ended, started or was removed meanwhile, and [`LifecycleError::Paused`] if somebody let it go on:
    /// what was read of its layer may not be all.
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
        let name = self.container.name.clone();
        match (is_same, self.must_be_frozen && !self.has_frozen()) {
            (false, _) => Err(LifecycleError::Changed(name)),
            (true, true) => Err(LifecycleError::Paused(name, WAS_LET_GO)),
            (true, false) => Ok(()),
        }
    }

    fn has_frozen(&self) -> bool {
        let record = self.container.record.as_ref();
        record.is_some_and(|record| control_groups::has_frozen(&record.control_group()))
    }

    /// Waits until all processes of the container are frozen; `is_to_be` if they are not about to be.
    fn freeze(&mut self, is_to_be: bool) -> Result<(), LifecycleError> {
        let name = || self.container.name.clone();
        if is_to_be {
            let mut frozen = FROZEN.lock();
            set_frozen(&self.container, true, || {
                frozen_for_commit::note(&self.container.directory)
            })?;
            self.is_frozen = true;
            frozen.containers += 1;
        }
        let until = Instant::now() + FREEZING;
        while !self.has_frozen() {
            if Instant::now() > until {
                return Err(LifecycleError::NotFrozen(name(), FREEZING.as_secs()));
            }
            if FROZEN.lock().is_ending {
                return Err(LifecycleError::Paused(name(), WAS_ENDED));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Ends this process by `end`, unless it has containers frozen: it is to let them go on first.
fn end_unless_frozen(end: &mut dyn FnMut()) {
    // Nobody freezes one meanwhile.
    let mut frozen = FROZEN.lock();
    frozen.is_ending = true;
    if frozen.containers == 0 {
        end();
    }
}

/// The set of signals that this process ignores, such as a hangup below `nohup`: `SigIgn` of `proc_pid_status(5)`. None if it cannot be
/// read.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

impl Drop for HeldLayer {
    fn drop(&mut self) {
        if self.is_frozen
            && let Some(record) = &self.container.record
        {
            let group = record.control_group();
            // Otherwise the note has another process try again.
            if control_groups::set_frozen(&group, false) || !control_groups::is_frozen(&group) {
                frozen_for_commit::forget(&self.container.directory);
            }
            FROZEN.lock().containers -= 1;
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

    #[test]
    fn one_process_at_a_time_holds_a_layer() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let container = ended(&dirs);
        // As a commit of a container that ran has it, whose directory its supervisor has locked.
        let other = try_lock_directory(&container.directory.join(UPPER)).unwrap();
        let refused = HeldLayer::hold(&dirs, &container, true).unwrap_err();
        assert!(matches!(refused, LifecycleError::Busy(_)), "{refused}");
        drop(other);
        HeldLayer::hold(&dirs, &container, true)
            .unwrap()
            .release()
            .unwrap();
    }

    #[test]
    fn a_layer_counts_only_if_the_container_was_frozen_to_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let mut held = HeldLayer::hold(&dirs, &ended(&dirs), true).unwrap();
        // Of this one no process is frozen.
        held.must_be_frozen = true;
        let refused = held.release().unwrap_err();
        assert!(matches!(refused, LifecycleError::Paused(..)), "{refused}");
    }

    #[test]
    fn a_signal_ends_a_process_once_nothing_is_frozen() {
        let mut ended = 0;
        FROZEN.lock().containers += 1;
        end_unless_frozen(&mut || ended += 1);
        assert_eq!(ended, 0);
        FROZEN.lock().containers -= 1;
        end_unless_frozen(&mut || ended += 1);
        assert_eq!(ended, 1);
    }
}
