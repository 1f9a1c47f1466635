//! The note that a container is frozen only while its layer is read (`xebec commit`), and what becomes of it when the reader is killed.
//!
//! The reader has the lock of the upper directory. It writes the note before it freezes the container, and removes it after the container goes on. The
//! kernel gives the lock back when the reader ends, however that happens. So a note without a lock is one of a reader that was killed: the
//! next command that looks at the container, or a cleanup, lets the container go on. A container that a user has paused has no note.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::lock::try_lock_directory;

use crate::control_groups;
use crate::layout::{FROZEN_MARKER, UPPER};
use crate::record::Record;

/// Writes the note. The caller has the lock. A full disk must not keep anybody from reading a layer: then the note is missing.
pub(crate) fn note(directory: &Path) {
    if let Err(error) = fs::write(directory.join(FROZEN_MARKER), b"") {
        tracing::warn!(
            directory = %directory.display(),
            %error,
            "if this process is killed now, the container stays paused until `xebec unpause`: that cannot be noted"
        );
    }
}

/// Removes the note: the container goes on, or a user wants it frozen from now on.
pub(crate) fn forget(directory: &Path) {
    if let Err(error) = fs::remove_file(directory.join(FROZEN_MARKER))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "cannot remove the note of a commit");
    }
}

/// Lets the container in this directory go on if its reader was killed while it was frozen.
pub(crate) fn let_go_on(directory: &Path, record: &Record) {
    if !directory.join(FROZEN_MARKER).exists() {
        return;
    }
    // Nobody begins to read it meanwhile.
    let Ok(_lock) = try_lock_directory(&directory.join(UPPER)) else {
        return;
    };
    // It may have been removed since.
    if directory.join(FROZEN_MARKER).exists() {
        let group = record.control_group();
        let is_frozen = control_groups::is_frozen(&group);
        let goes_on = is_frozen && control_groups::set_frozen(&group, false);
        if goes_on {
            tracing::warn!(
                container = record.id,
                "goes on: the `xebec commit` that paused it was killed"
            );
        }
        // Otherwise another process tries again: one that may write the control group, or that sees it.
        if goes_on || (!is_frozen && record.is_in_this_namespace()) {
            forget(directory);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn a_note_stays_while_nobody_has_seen_that_the_container_goes_on() {
        let top = tempfile::tempdir().unwrap();
        let note_file = top.path().join(FROZEN_MARKER);
        fs::create_dir(top.path().join(UPPER)).unwrap();
        note(top.path());
        let mut record = Record::new("web", top.path()).unwrap();
        let own = record.namespace.replace(1);
        let_go_on(top.path(), &record);
        assert!(note_file.exists(), "its control groups may not be seen here");
        record.namespace = own;
        let reader = try_lock_directory(&top.path().join(UPPER)).unwrap();
        let_go_on(top.path(), &record);
        assert!(note_file.exists(), "its reader lives");
        drop(reader);
        let_go_on(top.path(), &record);
        assert!(!note_file.exists());
    }
}
