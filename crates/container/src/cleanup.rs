//! Cleans up after containers whose supervisor was killed.
//!
//! A supervisor writes the record of its container before anything else and removes it after everything else.
//! So the records of supervisors that are gone lead to everything that is left: processes, mounts, bundles and
//! layers.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;
use xebec_kernel::file::remove_abandoned;
use xebec_kernel::lock::{lock_directory, try_lock_directory};
use xebec_kernel::process::has_capability;
use xebec_network::Attachment;

use crate::layout::{REMOVE_MARKER, records};
use crate::name::is_container_name;
use crate::record::{self, Record};
use crate::removal::{remove_bundle, remove_layer, remove_unless_kept};
use crate::runtime::{self, Runtime};
use crate::{Directories, RecordError, RunError, control_groups, frozen_for_commit};

/// Cleans up after supervisors that were killed: unmounts the overlays of their containers that have ended,
/// and removes the directories that are removed with a container.
///
/// It leaves containers alone whose supervisor lives, and those that run on without one. Returns how many
/// containers it cleaned up.
///
/// # Errors
/// The first failure, after everything else was tried.
pub fn cleanup_stale(dirs: &Directories) -> Result<usize, RecordError> {
    let cleaned = cleanup_locked(dirs);
    // A plugin may hang, and must not keep others from cleaning up, or from starting their containers.
    let detached = detach_unrecorded(dirs).into_iter().next();
    match detached {
        Some((id, error)) => cleaned.and(Err(stale(&id, &error))),
        None => cleaned,
    }
}

/// All but the networks of containers without a record.
fn cleanup_locked(dirs: &Directories) -> Result<usize, RecordError> {
    let directory = records(&dirs.run);
    fs::create_dir_all(&directory).map_err(RecordError::file("create", &directory))?;
    // One process cleans up at a time. The lock ends with the descriptor.
    let _lock = lock_directory(&directory).map_err(RecordError::file("lock", &directory))?;
    remove_abandoned(&directory, 0);
    let mut cleaned = 0;
    let (records, unreadable) = record::read_all(&dirs.run)?;
    let mut outcome = unreadable.into_iter().next().map_or(Ok(()), Err);
    for record in records.iter().filter(|record| !record.is_dead()) {
        frozen_for_commit::let_go_on(&dirs.state.join(&record.id), record);
    }
    for record in records.into_iter().filter(Record::is_dead) {
        // Its supervisor may have removed it meanwhile, and another container may have its name.
        let path = record::path(&dirs.run, &record.id);
        if record::read(&path).ok().flatten().as_ref() != Some(&record) {
            continue;
        }
        match clean(&record, dirs) {
            Ok(()) => cleaned += 1,
            Err(error) => outcome = outcome.and(Err(stale(&record.id, &error))),
        }
    }
    // A runtime that outlived its supervisor may have created its container after the record was cleaned up.
    for id in runtime::containers(dirs) {
        if !record::path(&dirs.run, &id).exists() && runtime::delete_unrecorded(dirs, &id) {
            cleaned += 1;
        }
    }
    for id in containers_with_bundles(dirs) {
        if let Err(error) = remove_unrecorded_bundle(dirs, &id) {
            outcome = outcome.and(Err(stale(&id, &error)));
        }
    }
    // After a reboot the records are gone, and the directories are not.
    for path in marked_directories(&dirs.state) {
        // A container that runs on without its supervisor has a record, and no lock.
        let id = path.file_name().unwrap_or_default().to_string_lossy();
        if record::path(&dirs.run, &id).exists() {
            continue;
        }
        match remove_unlocked(&path) {
            Ok(removed) => cleaned += usize::from(removed),
            Err(error) => outcome = outcome.and(Err(stale(&path.display().to_string(), &error))),
        }
    }
    outcome.map(|()| cleaned)
}

fn clean(record: &Record, dirs: &Directories) -> Result<(), RunError> {
    tracing::info!(
        id = record.id,
        "cleans up after a container whose supervisor was killed"
    );
    // A process that waits for the container's root takes no other signal, and keeps others from entering the
    // root.
    let group = record.control_group();
    control_groups::kill(&group);
    // If the runtime was uninstalled since, another one deletes its container.
    let runtime = Runtime::find(Some(&record.runtime), dirs).or_else(|_| Runtime::find(None, dirs));
    match runtime {
        Ok(runtime) => runtime.delete(&record.id),
        Err(error) => {
            tracing::warn!(%error, id = record.id, "cannot delete a container: its runtime is missing");
        }
    }
    // A runtime that was killed before it wrote its state does not know of them.
    control_groups::remove(&group);
    remove_bundle(dirs, &record.id)?;
    // The directory in the record does not count. Nothing has written to the layer of a container without a process.
    remove_unless_kept(
        dirs,
        &dirs.state.join(&record.id),
        record.rm || (record.pid.is_none() && !record.is_kept),
    )?;
    let _ = fs::remove_file(dirs.console_socket(&record.id));
    // Without it the container is detached from its network, if it had one of its own.
    record::remove(&dirs.run, &record.id);
    Ok(())
}

/// Whether this process may change networks. The daemon's service may not: then a later command removes the
/// attachments that containers left.
fn can_detach() -> bool {
    has_capability(CapabilitySet::NET_ADMIN)
}

/// Detaches containers without a record: a supervisor records its container before it attaches it, and detaches
/// it before it removes the record. Returns those that could not be detached. One process does so at a time; others
/// leave it to that one.
fn detach_unrecorded(dirs: &Directories) -> Vec<(String, RunError)> {
    let places = dirs.network_places();
    if !can_detach() {
        return Vec::new();
    }
    let Some(_lock) = places.try_lock_attachments() else {
        return Vec::new();
    };
    let (attachments, unreadable) = match Attachment::all(&places) {
        Ok(found) => found,
        Err(error) => return vec![("(any)".to_owned(), error.into())],
    };
    let mut failed: Vec<(String, RunError)> = Vec::new();
    for attachment in attachments {
        let record = record::read(&record::path(&dirs.run, &attachment.container));
        let is_its = |record: &Record| record.network.attachment.as_ref() == Some(&attachment.id);
        // A record that cannot be read may be that of a container that runs.
        if record.map_or(true, |record| record.as_ref().is_some_and(is_its)) {
            continue;
        }
        if let Err(error) = places.detach(&attachment.id) {
            failed.push((attachment.container, error.into()));
        }
    }
    failed.extend(
        unreadable
            .into_iter()
            .map(|error| ("(any)".to_owned(), error.into())),
    );
    failed
}

/// The names of the containers that have a bundle.
fn containers_with_bundles(dirs: &Directories) -> Vec<String> {
    let entries = fs::read_dir(dirs.bundles()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|id| is_container_name(id)).collect()
}

fn marked_directories(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.join(REMOVE_MARKER).exists())
        .collect()
}

/// Removes a container's directory unless its supervisor holds the lock of it. Supervisors of other run
/// directories hold it, too.
fn remove_unlocked(path: &Path) -> Result<bool, RunError> {
    match try_lock_directory(path) {
        Ok(_lock) => remove_layer(path, true).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Removes a bundle without a record: a supervisor makes its bundle after its record, and removes it before
/// that.
///
/// Meanwhile a record reserves the name. That record names no layer, since a layer of that name may be one to
/// keep.
fn remove_unrecorded_bundle(dirs: &Directories, id: &str) -> Result<(), RunError> {
    if Record::new(id, Path::new(""))?.claim(&dirs.run).is_err() {
        return Ok(());
    }
    let removed = remove_bundle(dirs, id);
    record::remove(&dirs.run, id);
    removed
}

fn stale(id: &str, error: &RunError) -> RecordError {
    RecordError::Stale {
        id: id.to_owned(),
        message: error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record(id: &str) -> Record {
        let new = Record::new(id, &Path::new("/nowhere").join(id)).unwrap();
        Record { rm: true, ..new }
    }

    fn dirs(directory: &tempfile::TempDir) -> Directories {
        Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        }
    }

    #[test]
    fn only_records_without_a_supervisor_are_cleaned_up() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        record("alive").claim(&dirs.run).unwrap();
        let path = dirs.state.join("dead");
        fs::create_dir_all(path.join("upper")).unwrap();
        Record {
            supervisor_started: 1,
            state: path.clone(),
            ..record("dead")
        }
        .claim(&dirs.run)
        .unwrap();
        assert_eq!(cleanup_stale(&dirs).unwrap(), 1);
        assert!(!path.exists());
        let (left, _) = record::read_all(&dirs.run).unwrap();
        let left: Vec<String> = left.into_iter().map(|record| record.id).collect();
        assert_eq!(left, ["alive"]);
        assert_eq!(cleanup_stale(&dirs).unwrap(), 0);
    }

    #[test]
    fn a_record_leads_to_no_directory_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        let theirs = directory.path().join("theirs/dead");
        for path in [&theirs, &dirs.state.join("dead")] {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        }
        Record {
            supervisor_started: 1,
            state: theirs.clone(),
            ..record("dead")
        }
        .claim(&dirs.run)
        .unwrap();
        let found = crate::find(&dirs, "dead").unwrap();
        assert_eq!(found.directory, dirs.state.join("dead"));
        assert_eq!(cleanup_stale(&dirs).unwrap(), 1);
        assert!(theirs.join("file").exists());
        assert!(!dirs.state.join("dead").exists());
    }

    #[test]
    fn directories_without_a_record_are_removed_if_marked_and_unlocked() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        for name in ["kept", "marked", "locked"] {
            fs::create_dir_all(dirs.state.join(name)).unwrap();
        }
        for name in ["marked", "locked"] {
            fs::write(dirs.state.join(name).join(REMOVE_MARKER), "").unwrap();
        }
        let _lock = try_lock_directory(&dirs.state.join("locked")).unwrap();
        assert_eq!(cleanup_stale(&dirs).unwrap(), 1);
        assert!(dirs.state.join("kept").exists() && dirs.state.join("locked").exists());
        assert!(!dirs.state.join("marked").exists());
    }

    #[test]
    fn an_unreadable_record_is_named_and_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        let run = &dirs.run;
        let mut fine = record("fine");
        fine.claim(run).unwrap();
        fine.set_pid(std::process::id() as i32).unwrap();
        fine.save(run).unwrap();
        let dead = Record {
            supervisor_started: 1,
            ..record("dead")
        };
        for (name, text) in [("bad.json", "{"), ("other.json", "{}")] {
            dead.claim(run).unwrap();
            let path = records(run).join(name);
            fs::write(&path, text).unwrap();
            let listed = record::list(run).unwrap();
            assert_eq!(listed.records, [fine.clone()]);
            assert_eq!(listed.unreadable.len(), 1);
            assert!(listed.unreadable[0].to_string().contains(name));
            assert!(cleanup_stale(&dirs).unwrap_err().to_string().contains(name));
            assert!(!record::path(run, "dead").exists(), "cleaned up beside {name}");
            assert!(path.exists() && record::path(run, "fine").exists());
            assert!(record::may_have_orphan(run, 1, 1), "{name} may be its record");
            fs::remove_file(path).unwrap();
            assert!(!record::may_have_orphan(run, 1, 1));
        }
        let path = records(run).join("..json");
        fs::write(&path, "{").unwrap();
        let listed = record::list(run).unwrap();
        assert!(listed.unreadable.is_empty(), ".. is no container's name");
    }
}
