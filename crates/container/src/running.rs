//! A container that runs, from the outside: its first process and its root directory.
//!
//! A record names the process by its id and its start time. The kernel may give the id to another process as
//! soon as the first one has been waited for. So the process is opened first, and is compared after everything
//! that is reached by its id: if it still runs then, the id was its own all the time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};

use crate::{Record, RunningError};

impl Record {
    /// The container's first process, if it runs.
    pub(crate) fn running_pid(&self) -> Result<i32, RunningError> {
        if !self.is_in_this_namespace() && !self.is_dead() {
            return Err(RunningError::OtherNamespace(self.id.clone()));
        }
        let pid = self
            .pid
            .filter(|_| self.is_in_this_namespace() && self.is_running());
        pid.ok_or_else(|| RunningError::NotRunning(self.id.clone()))
    }

    /// A file of the container's first process in /proc.
    pub(crate) fn proc_file(&self, name: &str) -> Result<PathBuf, RunningError> {
        let pid = self.running_pid()?;
        Ok(Path::new("/proc").join(pid.to_string()).join(name))
    }

    /// The container's root directory with all its mounts, as the container sees it. The descriptor (`O_PATH`)
    /// stays valid after the container has ended.
    ///
    /// # Errors
    /// [`RunningError`].
    pub fn open_root(&self) -> Result<OwnedFd, RunningError> {
        let path = self.proc_file("root")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty());
        // The process still runs, so its id did not become another process's before.
        self.running_pid()?;
        root.map_err(|error| RunningError::Root {
            id: self.id.clone(),
            source: error.into(),
        })
    }
}

/// Whether a process's root directory is that of its mount namespace, so that nothing is above it (path_resolution(7)).
pub(crate) fn is_root_of_mounts(root: BorrowedFd<'_>) -> bool {
    let number = |path: &str, flags| {
        let status = statx(root, path, flags, StatxFlags::INO | StatxFlags::MNT_ID).ok()?;
        Some((
            status.stx_mnt_id,
            status.stx_dev_major,
            status.stx_dev_minor,
            status.stx_ino,
        ))
    };
    let own = number("", AtFlags::EMPTY_PATH);
    own.is_some() && own == number("..", AtFlags::empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::other_namespace::tests::OtherNamespace;

    #[test]
    fn only_the_recorded_process_is_reached() {
        let mut record = Record::new("box", Path::new("/nowhere/box")).unwrap();
        let error = record.open_root().unwrap_err().to_string();
        assert!(error.contains("box") && error.contains("not running"), "{error}");
        record.set_pid(std::process::id().try_into().unwrap()).unwrap();
        record.open_root().unwrap();
        let other = Record {
            pid_started: record.pid_started.map(|ticks| ticks + 1),
            ..record.clone()
        };
        assert!(matches!(other.open_root(), Err(RunningError::NotRunning(_))));
    }

    #[test]
    fn a_directory_is_not_the_root_of_its_namespace() {
        let open = |path: &Path| std::fs::File::open(path).unwrap();
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_root_of_mounts(open(directory.path()).as_fd()));
        // A root of a file system, but not the first.
        assert!(!is_root_of_mounts(open(Path::new("/proc")).as_fd()));
        assert!(is_root_of_mounts(open(Path::new("/")).as_fd()));
    }

    #[test]
    fn a_container_of_another_namespace_is_named_as_such_while_that_is_there() {
        let Some(other) = OtherNamespace::new() else {
            return;
        };
        let mut record = Record::new("box", Path::new("/nowhere/box")).unwrap();
        record.set_pid(std::process::id().try_into().unwrap()).unwrap();
        record.namespace = Some(other.inode());
        assert!(matches!(record.open_root(), Err(RunningError::OtherNamespace(_))));
    }
}
