//! Which containers there are, and what became of those whose supervisor was killed.
//!
//! A record is one JSON file per container. It is written atomically, first before anything of the container
//! exists and again when its process is known. A process is named by its id *and* its start time, so that a
//! number that the kernel has given to somebody else is not taken for it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde::{Deserialize, Serialize};
use xebec_kernel::file::remove_abandoned;
use xebec_kernel::process::start_time;

use super::bundle::{self, REMOVE_MARKER};
use super::control_groups;
use super::runtime::{self, Runtime};
use super::{Directories, RunError};

/// Largest record that is read; what is written is far smaller, as [`COMMAND_LIMIT`] has it.
const RECORD_LIMIT: u64 = 4 << 20;
/// What of a command line is kept, in bytes; people read it. An image's may have megabytes, and JSON makes six bytes of one.
const COMMAND_LIMIT: usize = 64 << 10;
/// What each argument costs beside its bytes: quotes, a comma, and the beginning of a line.
const ARGUMENT: usize = 16;

/// What is known about a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The container's name.
    pub id: String,
    /// The image's name as the user gave it.
    pub image: String,
    /// The container's first process on the host; absent until the runtime has made it.
    pub pid: Option<i32>,
    /// When that process began, in clock ticks since the host was started (`proc_pid_stat(5)`, `starttime`).
    pub pid_started: Option<u64>,
    /// Whether its command was told to run. One that was not never will be without its supervisor. Absent from records of
    /// versions that did not note it.
    #[serde(default)]
    pub has_begun: Option<bool>,
    /// The process that runs and watches the container.
    pub supervisor: i32,
    /// When that process began, in the same unit.
    pub supervisor_started: u64,
    /// The namespace in which all these are process ids, by its inode: elsewhere they say nothing. Absent as above.
    #[serde(default)]
    pub namespace: Option<u64>,
    /// Where its control groups are, as `cgroupsPath` has it. Absent as above; then they have the container's name alone.
    #[serde(default)]
    pub control_group: Option<String>,
    /// The runtime that made the container.
    pub runtime: PathBuf,
    /// The image view that the container is on.
    pub view: PathBuf,
    /// The container's own directory.
    pub state: PathBuf,
    /// Whether that directory goes when the container has ended.
    pub rm: bool,
    /// Seconds since 1970 when the container was asked for.
    pub created: u64,
    /// Its command line, for people: the end of a very long one is left out.
    pub command: Vec<String>,
}

/// The containers that are running.
#[derive(Debug, Default)]
pub struct Running {
    /// By name.
    pub records: Vec<Record>,
    /// Records that cannot be read: of these it is not known.
    pub unreadable: Vec<RecordError>,
}

/// A record could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Its file could not be handled.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A running container has that name.
    #[error("a container named {0} is running already, or about to; choose another name")]
    Running(String),
    /// A process could not be looked at.
    #[error("cannot find out when process {0} was started; is /proc mounted?")]
    NoStartTime(i32),
    /// The kernel gives no random bytes.
    #[error("cannot get random bytes to name the control groups of container {id}: {source}")]
    Random {
        /// The container.
        id: String,
        /// The error.
        source: io::Error,
    },
    /// What a container left cannot be removed.
    #[error("cannot clean up after container {id}: {message}")]
    Stale {
        /// The container.
        id: String,
        /// What failed.
        message: String,
    },
}

impl Record {
    /// A record of this process's container `id`, with nothing else in it yet.
    pub(super) fn new(id: &str, state: &Path) -> Result<Self, RecordError> {
        let supervisor = rustix::process::getpid().as_raw_pid();
        let group = control_groups::new_path(id).map_err(|source| RecordError::Random {
            id: id.to_owned(),
            source,
        })?;
        Ok(Record {
            id: id.to_owned(),
            image: String::new(),
            pid: None,
            pid_started: None,
            has_begun: Some(false),
            supervisor,
            supervisor_started: start_time(supervisor).ok_or(RecordError::NoStartTime(supervisor))?,
            namespace: own_namespace(),
            control_group: Some(group),
            runtime: PathBuf::new(),
            view: PathBuf::new(),
            state: state.to_owned(),
            rm: false,
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            command: Vec::new(),
        })
    }

    /// Where its control groups are. What nobody wrote here is not believed.
    pub(super) fn control_group(&self) -> String {
        let noted = self.control_group.clone();
        let noted = noted.filter(|path| control_groups::is_path_of(&self.id, path));
        noted.unwrap_or_else(|| control_groups::early_path(&self.id))
    }

    pub(super) fn set_pid(&mut self, pid: i32) -> Result<(), RecordError> {
        self.pid_started = Some(start_time(pid).ok_or(RecordError::NoStartTime(pid))?);
        self.pid = Some(pid);
        Ok(())
    }

    /// Notes its command line, so much of it as is read by people.
    pub(super) fn set_command(&mut self, arguments: &[String]) {
        self.command.clear();
        let mut left = COMMAND_LIMIT;
        for argument in arguments {
            if argument.len() + ARGUMENT > left {
                let part = (0..=left).rev().find_map(|end| argument.get(..end));
                let part = part.unwrap_or_default();
                self.command.push(format!("{part}…"));
                return;
            }
            left -= argument.len() + ARGUMENT;
            self.command.push(argument.clone());
        }
    }

    /// Whether there is a place for records: whether there ever was a container since this host was started.
    pub fn are_kept(run: &Path) -> bool {
        directory(run).exists()
    }

    /// Whether the container's first process is there and has not ended.
    pub fn is_running(&self) -> bool {
        matches!((self.pid, self.pid_started), (Some(pid), Some(started)) if start_time(pid) == Some(started))
    }

    /// Whether the process is there that runs and watches it.
    pub fn is_supervised(&self) -> bool {
        start_time(self.supervisor) == Some(self.supervisor_started)
    }

    /// Whether it can be told from here that nothing of it goes on, or will: its supervisor is gone, and its command has ended
    /// or never began. One that serves on without a supervisor is nobody's to end.
    fn is_dead(&self) -> bool {
        let is_here = self.namespace.is_none() || self.namespace == own_namespace();
        is_here && !self.is_supervised() && (!self.is_running() || self.has_begun == Some(false))
    }

    /// Writes the record for the first time. Only one process gets a name.
    pub(super) fn claim(&self, run: &Path) -> Result<(), RecordError> {
        let directory = directory(run);
        fs::create_dir_all(&directory).map_err(failed("create", &directory))?;
        let (temporary, path) = (self.write_temporary(run)?, file(run, &self.id));
        let outcome = fs::hard_link(&temporary, &path);
        let _ = fs::remove_file(&temporary);
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(RecordError::Running(self.id.clone()))
            }
            outcome => outcome.map_err(failed("write", &path)),
        }
    }

    /// Writes the record again.
    pub(super) fn save(&self, run: &Path) -> Result<(), RecordError> {
        let (temporary, path) = (self.write_temporary(run)?, file(run, &self.id));
        fs::rename(&temporary, &path).map_err(failed("write", &path))
    }

    fn write_temporary(&self, run: &Path) -> Result<PathBuf, RecordError> {
        // The name tells who writes, for `remove_abandoned`; a supervisor writes one at a time.
        let path = directory(run).join(format!(".{}.{}.0", self.id, self.supervisor));
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|error| failed("write", &path)(error.into()))?;
        text.push(b'\n');
        fs::File::create(&path)
            .and_then(|mut file| file.write_all(&text))
            .map_err(failed("write", &path))?;
        Ok(path)
    }
}

/// The containers that are running.
///
/// # Errors
/// If the directory cannot be read. One that is not there has no containers.
pub fn list(run: &Path) -> Result<Running, RecordError> {
    let (mut records, unreadable) = all(run)?;
    records.retain(Record::is_running);
    records.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(Running { records, unreadable })
}

/// Whether a process that is gone supervised a container that serves on. It may have, where a record cannot be read: what
/// is held for nobody costs less than a container whose root goes under it.
pub fn outlived(run: &Path, supervisor: u32, started: u64) -> bool {
    let is_its = |record: &Record| {
        record.supervisor.unsigned_abs() == supervisor
            && record.supervisor_started == started
            && !record.is_dead()
    };
    all(run).is_ok_and(|(records, unreadable)| !unreadable.is_empty() || records.iter().any(is_its))
}

/// Cleans up after supervisors that were killed: unmounts the overlays of their containers that have ended, and removes
/// the directories that were to go. Containers whose supervisor is alive are left alone, and so are those that serve on
/// without one. Returns how many were cleaned up.
///
/// # Errors
/// The first failure, after everything else was tried.
pub fn cleanup_stale(dirs: &Directories) -> Result<usize, RecordError> {
    let directory = directory(&dirs.run);
    fs::create_dir_all(&directory).map_err(failed("create", &directory))?;
    // One cleaner at a time; the lock goes with the descriptor.
    let _lock = lock(&directory).map_err(failed("lock", &directory))?;
    remove_abandoned(&directory, 0);
    let mut cleaned = 0;
    let (records, unreadable) = all(&dirs.run)?;
    let mut outcome = unreadable.into_iter().next().map_or(Ok(()), Err);
    for record in records.into_iter().filter(Record::is_dead) {
        // It may have ended in order meanwhile, and another one may have its name.
        if read(&file(&dirs.run, &record.id)).ok().flatten().as_ref() != Some(&record) {
            continue;
        }
        match clean(&record, dirs) {
            Ok(()) => cleaned += 1,
            Err(error) => outcome = outcome.and(Err(stale(&record.id, &error))),
        }
    }
    // A runtime that outlived its supervisor may have finished its work after that was cleaned up.
    for id in runtime::containers(dirs) {
        if !file(&dirs.run, &id).exists() && runtime::delete_unknown(dirs, &id) {
            cleaned += 1;
        }
    }
    for id in bundle::with_bundles(&dirs.run) {
        if let Err(error) = remove_unknown_bundle(&dirs.run, &id) {
            outcome = outcome.and(Err(stale(&id, &error)));
        }
    }
    // After a reboot the records are gone, and the directories are not.
    for path in marked_directories(&dirs.state) {
        // Of one that serves on without a supervisor nobody holds it locked.
        let id = path.file_name().unwrap_or_default().to_string_lossy();
        if file(&dirs.run, &id).exists() {
            continue;
        }
        match remove_unowned(&path) {
            Ok(removed) => cleaned += usize::from(removed),
            Err(error) => outcome = outcome.and(Err(stale(&path.display().to_string(), &error))),
        }
    }
    outcome.map(|()| cleaned)
}

fn clean(record: &Record, dirs: &Directories) -> Result<(), RunError> {
    tracing::info!(
        id = record.id,
        "cleaning up after a container whose supervisor is gone"
    );
    // What waits for its root can do nothing else, and holds up who goes there.
    let group = record.control_group();
    control_groups::kill(&group);
    // A runtime that has been removed since leaves its container to the next best.
    let runtime = Runtime::find(Some(&record.runtime), dirs).or_else(|_| Runtime::find(None, dirs));
    match runtime {
        Ok(runtime) => runtime.delete(&record.id),
        Err(error) => tracing::warn!(%error, id = record.id, "the container cannot be ended"),
    }
    // A runtime that was killed before it noted that there is a container has left them.
    control_groups::remove(&group);
    bundle::remove_bundle(&dirs.run, &record.id)?;
    // The directory is only believed to be a container's if it carries its name.
    if record.state.file_name() == Some(record.id.as_ref()) {
        // Nothing was written to the layer of a container that has not begun.
        bundle::remove_layer(&record.state, record.rm || record.pid.is_none())?;
    }
    let _ = fs::remove_file(directory(&dirs.run).join(format!("{}.tty", record.id)));
    remove(&dirs.run, &record.id);
    Ok(())
}

fn marked_directories(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.join(REMOVE_MARKER).exists())
        .collect()
}

/// A supervisor holds its container's directory locked, whichever run directory it keeps its record in.
fn remove_unowned(path: &Path) -> Result<bool, RunError> {
    match lock_now(path) {
        Ok(_lock) => bundle::remove_layer(path, true).map(|()| true),
        Err(_) => Ok(false),
    }
}

/// A bundle is made after its record and removed before it. While it is removed here nobody else gets its name; by a record
/// without a layer, since there may be one of that name that is to be kept.
fn remove_unknown_bundle(run: &Path, id: &str) -> Result<(), RunError> {
    if Record::new(id, Path::new(""))?.claim(run).is_err() {
        return Ok(());
    }
    let removed = bundle::remove_bundle(run, id);
    remove(run, id);
    removed
}

fn stale(id: &str, error: &RunError) -> RecordError {
    RecordError::Stale {
        id: id.to_owned(),
        message: error.to_string(),
    }
}

/// Every record, and why others cannot be read. One that vanishes meanwhile has been removed by its supervisor.
fn all(run: &Path) -> Result<(Vec<Record>, Vec<RecordError>), RecordError> {
    let directory = directory(run);
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((records, unreadable)),
        entries => entries.map_err(failed("read", &directory))?,
    };
    for entry in entries {
        let path = entry.map_err(failed("read", &directory))?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(id) = name.strip_suffix(".json").filter(|id| bundle::is_name(id)) {
            match read(&path) {
                Ok(record) => records.extend(record.filter(|record| record.id == id)),
                Err(error) => unreadable.push(error),
            }
        }
    }
    Ok((records, unreadable))
}

fn read(path: &Path) -> Result<Option<Record>, RecordError> {
    use io::Read;
    let mut text = Vec::new();
    match fs::File::open(path).and_then(|file| file.take(RECORD_LIMIT).read_to_end(&mut text)) {
        Ok(_) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| failed("read", path)(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Forgets a container.
pub(super) fn remove(run: &Path, id: &str) {
    let path = file(run, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a container's record cannot be removed");
        }
        _ => {}
    }
}

/// Where the records are.
pub(super) fn directory(run: &Path) -> PathBuf {
    run.join("containers")
}

pub(super) fn file(run: &Path, id: &str) -> PathBuf {
    directory(run).join(format!("{id}.json"))
}

fn lock(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let directory = open_directory(path)?;
    flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Locks a directory if nobody else has.
pub(super) fn lock_now(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let directory = open_directory(path)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn open_directory(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    Ok(open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn own_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid")
        .ok()
        .map(|namespace| namespace.ino())
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::File { doing, path, source }
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
    fn a_name_is_given_once_and_again_when_it_is_free() {
        let directory = tempfile::tempdir().unwrap();
        record("a").claim(directory.path()).unwrap();
        assert!(matches!(record("a").claim(directory.path()), Err(RecordError::Running(id)) if id == "a"));
        remove(directory.path(), "a");
        record("a").claim(directory.path()).unwrap();
        assert_eq!(
            fs::read_dir(super::directory(directory.path())).unwrap().count(),
            1,
            "nothing temporary stays"
        );
    }

    #[test]
    fn only_running_containers_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        assert_eq!(list(run).unwrap().records, []);
        let mut running = record("b");
        running.claim(run).unwrap();
        assert_eq!(list(run).unwrap().records, [], "no process yet");
        running.set_pid(std::process::id() as i32).unwrap();
        running.save(run).unwrap();
        assert_eq!(list(run).unwrap().records, [running.clone()]);
        let other = Record {
            id: "a".into(),
            pid_started: Some(1),
            ..running
        };
        other.claim(run).unwrap();
        assert_eq!(
            list(run).unwrap().records.len(),
            1,
            "the number of a process that has ended was given out again"
        );
    }

    #[test]
    fn records_without_a_supervisor_are_cleaned_up_and_the_others_are_not() {
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
        let (left, _) = all(&dirs.run).unwrap();
        let left: Vec<String> = left.into_iter().map(|record| record.id).collect();
        assert_eq!(left, ["alive"]);
        assert_eq!(cleanup_stale(&dirs).unwrap(), 0);
    }

    #[test]
    fn directories_whose_record_is_lost_go_only_if_marked_and_unlocked() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        for name in ["kept", "marked", "locked"] {
            fs::create_dir_all(dirs.state.join(name)).unwrap();
        }
        for name in ["marked", "locked"] {
            fs::write(dirs.state.join(name).join(REMOVE_MARKER), "").unwrap();
        }
        let _lock = lock_now(&dirs.state.join("locked")).unwrap();
        assert_eq!(cleanup_stale(&dirs).unwrap(), 1);
        assert!(dirs.state.join("kept").exists() && dirs.state.join("locked").exists());
        assert!(!dirs.state.join("marked").exists());
    }

    #[test]
    fn a_record_that_is_none_is_named_and_hides_no_other() {
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
            let path = super::directory(run).join(name);
            fs::write(&path, text).unwrap();
            let listed = list(run).unwrap();
            assert_eq!(listed.records, [fine.clone()]);
            assert_eq!(listed.unreadable.len(), 1);
            assert!(listed.unreadable[0].to_string().contains(name));
            assert!(cleanup_stale(&dirs).unwrap_err().to_string().contains(name));
            assert!(!file(run, "dead").exists(), "cleaned up beside {name}");
            assert!(path.exists() && file(run, "fine").exists());
            assert!(outlived(run, 1, 1), "perhaps that of {name}");
            fs::remove_file(path).unwrap();
            assert!(!outlived(run, 1, 1));
        }
        let path = super::directory(run).join("..json");
        fs::write(&path, "{").unwrap();
        let listed = list(run).unwrap();
        assert!(listed.unreadable.is_empty(), "no name, no record");
    }

    #[test]
    fn the_record_of_a_very_long_command_line_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        for (arguments, kept) in [
            (vec!["sh".to_owned(), "\u{1}".repeat(1 << 20)], 2),
            (vec!["é".repeat(1 << 20)], 1),
            (vec![String::new(); 1 << 20], COMMAND_LIMIT / ARGUMENT + 1),
            (vec!["sh".to_owned(), "-c".to_owned()], 2),
        ] {
            let mut long = record("long");
            long.set_command(&arguments);
            assert_eq!(long.command.len(), kept);
            long.claim(run).unwrap();
            assert!(fs::metadata(file(run, "long")).unwrap().len() < RECORD_LIMIT);
            assert_eq!(read(&file(run, "long")).unwrap(), Some(long));
            remove(run, "long");
        }
        let mut short = record("short");
        short.set_command(&["sh".to_owned(), "-c".to_owned()]);
        assert_eq!(short.command, ["sh", "-c"]);
    }
}
