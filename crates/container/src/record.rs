//! The record of a container: one JSON file in the run directory.
//!
//! A record appears whole or not at all. It is written first before anything else of the container exists,
//! and again when the container's process is known. It names a process by its id *and* its start time, so
//! that a later process with the same id is not taken for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_kernel::clock::seconds_since_1970;
use xebec_kernel::file::read_limited;
use xebec_kernel::file::{create_for_this_boot, write_for_this_boot};
use xebec_kernel::process::{boot_id, start_time};

use crate::layout::records;
use crate::name::is_container_name;
use crate::network::RecordedNetwork;
use crate::other_namespace::own_namespace;
use crate::{RecordError, control_groups, other_namespace};

/// Largest record that is read. [`COMMAND_LIMIT`] keeps those that are written far below it.
const RECORD_LIMIT: u64 = 4 << 20;

/// How many bytes of a command line a record keeps, for people to read. The command line of an image may have
/// megabytes, and JSON may need six bytes for one of its bytes.
const COMMAND_LIMIT: usize = 64 << 10;

/// Bytes of each argument beside its own: quotes, a comma, and the indentation of its line.
const ARGUMENT: usize = 16;

/// The record of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The container's name.
    pub id: String,
    /// The image's name as the user gave it.
    pub image: String,
    /// Process id of the container's first process on the host. Absent until the runtime has created it.
    pub pid: Option<i32>,
    /// When that process started, in clock ticks since the host's boot (`proc_pid_stat(5)`, `starttime`).
    pub pid_started: Option<u64>,
    /// Whether the container's command was told to run. If not, it never runs once the supervisor is gone.
    /// Absent from records of versions that did not note it.
    #[serde(default)]
    pub has_begun: Option<bool>,
    /// Process id of the supervisor: the process that runs and watches the container.
    pub supervisor: i32,
    /// When the supervisor started, in the same unit.
    pub supervisor_started: u64,
    /// The namespace of these process ids, by its inode. In another namespace they mean nothing. Absent as
    /// above.
    #[serde(default)]
    pub namespace: Option<u64>,
    /// The boot of the host in which the record was made, by its id. Nothing of it outlived that boot. Absent as
    /// above.
    #[serde(default)]
    pub boot: Option<String>,
    /// The path of the container's control groups, as in `cgroupsPath`. Absent as above; then the container's
    /// name alone names them.
    #[serde(default)]
    pub control_group: Option<String>,
    /// The runtime that created the container.
    pub runtime: PathBuf,
    /// The image view that the container runs on.
    pub view: PathBuf,
    /// The container's directory, which holds its layer. Earlier versions read it; this one goes by the container's name.
    pub state: PathBuf,
    /// Whether that directory is removed when the container has ended.
    pub rm: bool,
    /// Whether that directory holds files of an earlier start, and is then kept in any case.
    #[serde(default)]
    pub is_kept: bool,
    /// The container's network. Absent from records of versions that did not note it.
    #[serde(default)]
    pub network: RecordedNetwork,
    /// When the container was requested, in seconds since 1970.
    pub created: u64,
    /// The container's command line, for people to read. The end of a very long one is left out.
    pub command: Vec<String>,
}

/// The containers that are running.
#[derive(Debug, Default)]
pub struct Running {
    /// Their records, sorted by name.
    pub records: Vec<Record>,
    /// Records that cannot be read. Their containers may be running.
    pub unreadable: Vec<RecordError>,
}

impl Record {
    /// A record of the container `id` of this process, with nothing else in it yet.
    pub(crate) fn new(id: &str, state: &Path) -> Result<Self, RecordError> {
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
            boot: boot_id().ok(),
            control_group: Some(group),
            runtime: PathBuf::new(),
            view: PathBuf::new(),
            state: state.to_owned(),
            rm: false,
            is_kept: false,
            network: RecordedNetwork::default(),
            created: seconds_since_1970(),
            command: Vec::new(),
        })
    }

    /// The path of the container's control groups. A path in the record that this crate does not write is
    /// ignored.
    pub(crate) fn control_group(&self) -> String {
        let noted = self.control_group.clone();
        let noted = noted.filter(|path| control_groups::is_path_of(&self.id, path));
        noted.unwrap_or_else(|| control_groups::path_of_earlier_versions(&self.id))
    }

    /// Notes the container's first process.
    pub(crate) fn set_pid(&mut self, pid: i32) -> Result<(), RecordError> {
        self.pid_started = Some(start_time(pid).ok_or(RecordError::NoStartTime(pid))?);
        self.pid = Some(pid);
        Ok(())
    }

    /// Notes the container's command line, up to [`COMMAND_LIMIT`].
    pub(crate) fn set_command(&mut self, arguments: &[String]) {
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

    /// Whether the process ids in this record mean something to this process.
    pub fn is_in_this_namespace(&self) -> bool {
        self.namespace.is_none() || self.namespace == own_namespace()
    }

    /// Whether the record was made since the host's last boot. After it a process may have the same id and start
    /// time.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        let boot = self.boot.as_ref().zip(boot_id().ok());
        boot.is_none_or(|(recorded, now)| *recorded == now)
    }

    /// Whether the container's first process exists and has not ended.
    pub fn is_running(&self) -> bool {
        matches!((self.pid, self.pid_started), (Some(pid), Some(started)) if start_time(pid) == Some(started))
            && self.is_of_this_boot()
    }

    /// Whether the container's supervisor exists and has not ended.
    pub fn is_supervised(&self) -> bool {
        start_time(self.supervisor) == Some(self.supervisor_started) && self.is_of_this_boot()
    }

    /// Whether a process, by its id and start time, is or was the container's supervisor.
    pub fn is_supervised_by(&self, process: u32, started: u64) -> bool {
        self.supervisor.unsigned_abs() == process && self.supervisor_started == started
    }

    /// Whether it is certain that nothing of the container runs, or will: its supervisor is gone, and its
    /// command has ended or was never told to run. A container that runs on without its supervisor is left
    /// alone. So is one in another namespace of process ids, until it is shown that nothing of it is left.
    pub(crate) fn is_dead(&self) -> bool {
        match self.namespace {
            _ if !self.is_of_this_boot() => true,
            Some(namespace) if !self.is_in_this_namespace() => {
                other_namespace::is_gone(namespace, &self.state, &self.control_group())
            }
            _ => !self.is_supervised() && (!self.is_running() || self.has_begun == Some(false)),
        }
    }

    /// Writes the record for the first time. Only one process gets a name.
    pub(crate) fn claim(&self, run: &Path) -> Result<(), RecordError> {
        let directory = records(run);
        fs::create_dir_all(&directory).map_err(RecordError::file("create", &directory))?;
        let path = path(run, &self.id);
        match create_for_this_boot(&path, &self.to_json(&path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(RecordError::Running(self.id.clone()))
            }
            outcome => outcome.map_err(RecordError::file("write", &path)),
        }
    }

    /// Replaces the record.
    pub(crate) fn save(&self, run: &Path) -> Result<(), RecordError> {
        let path = path(run, &self.id);
        write_for_this_boot(&path, &self.to_json(&path)?).map_err(RecordError::file("write", &path))
    }

    fn to_json(&self, path: &Path) -> Result<Vec<u8>, RecordError> {
        let text = serde_json::to_vec_pretty(self);
        let mut text = text.map_err(|error| RecordError::file("write", path)(error.into()))?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Whether a run directory has a directory of records: whether a container was started since the host's boot.
pub fn has_records(run: &Path) -> bool {
    records(run).exists()
}

/// The containers that are running.
///
/// # Errors
/// If the directory of records cannot be read. Without such a directory there are no containers.
pub fn list(run: &Path) -> Result<Running, RecordError> {
    let (mut records, unreadable) = read_all(run)?;
    records.retain(Record::is_running);
    records.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(Running { records, unreadable })
}

/// Whether a container may run on of which this process, by its id and start time, was the supervisor.
///
/// A record that cannot be read counts as such a container: to keep a view that nothing uses costs less than
/// to take the root away from a container.
pub fn may_have_orphan(run: &Path, supervisor: u32, started: u64) -> bool {
    let is_its = |record: &Record| record.is_supervised_by(supervisor, started) && !record.is_dead();
    read_all(run).is_ok_and(|(records, unreadable)| !unreadable.is_empty() || records.iter().any(is_its))
}

/// Every record that can be read, and an error for each of the others. A record that is removed meanwhile is
/// in neither list.
pub(crate) fn read_all(run: &Path) -> Result<(Vec<Record>, Vec<RecordError>), RecordError> {
    let directory = records(run);
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((records, unreadable)),
        entries => entries.map_err(RecordError::file("read", &directory))?,
    };
    for entry in entries {
        let path = entry.map_err(RecordError::file("read", &directory))?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(id) = name.strip_suffix(".json").filter(|id| is_container_name(id)) {
            match read(&path) {
                Ok(record) => records.extend(record.filter(|record| record.id == id)),
                Err(error) => unreadable.push(error),
            }
        }
    }
    Ok((records, unreadable))
}

/// The record in a file. `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Record>, RecordError> {
    match read_limited(path, RECORD_LIMIT) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| RecordError::file("read", path)(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RecordError::file("read", path)(error)),
    }
}

/// Removes a container's record, and frees its name with that.
pub(crate) fn remove(run: &Path, id: &str) {
    let path = path(run, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "cannot remove the record of a container that has ended");
        }
        _ => {}
    }
}

/// The path of a container's record.
pub(crate) fn path(run: &Path, id: &str) -> PathBuf {
    records(run).join(format!("{id}.json"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn record(id: &str) -> Record {
        let new = Record::new(id, &Path::new("/nowhere").join(id)).unwrap();
        Record { rm: true, ..new }
    }

    #[test]
    fn a_name_is_taken_once_and_again_when_it_is_free() {
        let directory = tempfile::tempdir().unwrap();
        record("a").claim(directory.path()).unwrap();
        assert!(matches!(record("a").claim(directory.path()), Err(RecordError::Running(id)) if id == "a"));
        remove(directory.path(), "a");
        record("a").claim(directory.path()).unwrap();
        assert_eq!(
            fs::read_dir(records(directory.path())).unwrap().count(),
            1,
            "a temporary file stays"
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
            "another process has the id of one that has ended"
        );
    }

    #[test]
    fn nothing_of_another_boot_runs_whatever_has_its_ids_now() {
        let mut record = record("a");
        record.set_pid(std::process::id() as i32).unwrap();
        record.has_begun = Some(true);
        assert!(record.is_running() && record.is_supervised() && !record.is_dead());
        record.boot = None;
        assert!(!record.is_dead(), "an earlier version does not note the boot");
        record.boot = Some("another".into());
        assert!(!record.is_running() && !record.is_supervised() && record.is_dead());
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
            assert!(fs::metadata(path(run, "long")).unwrap().len() < RECORD_LIMIT);
            assert_eq!(read(&path(run, "long")).unwrap(), Some(long));
            remove(run, "long");
        }
        let mut short = record("short");
        short.set_command(&["sh".to_owned(), "-c".to_owned()]);
        assert_eq!(short.command, ["sh", "-c"]);
    }
}
