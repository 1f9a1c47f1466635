//! The record of a container for as long as it exists, whether it runs or not: `container.json` in its directory.
//!
//! The file appears whole or not at all. Only the process that has the lock of the container's directory writes it: the
//! supervisor, or a command that works on a container that does not run. So no writer overwrites what another one has
//! just written. Requests of a user to a running container are therefore noted in files of their own
//! ([`crate::layout`]).
//!
//! `docs/formats/container.md` describes the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_kernel::file::{read_limited, sync_files, write_privately, write_privately_for_this_boot};
use xebec_kernel::process::{boot_id, start_time};

use crate::layout::{CONTAINER, EXIT_CODES, STOP_MARKER};
use crate::{ExitCode, RecordError, RestartPolicy};

/// The version of the file that this crate writes, and the only one that it reads.
const VERSION: u32 = 1;

/// Largest file that is read. The longest command line of Linux has 2 MiB for each string.
const LIMIT: u64 = 64 << 20;

/// The record of a container for as long as it exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The version of the format.
    version: u32,
    /// The container's id: 12 random hexadecimal digits. The name of its directory is the container's name.
    pub id: String,
    /// The image's name as the user gave it.
    pub image: String,
    /// The digest of the image's manifest, since the container ran for the first time.
    pub manifest: Option<String>,
    /// The command line of the container's first process.
    pub command: Vec<String>,
    /// When the container was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last started.
    pub started_ms: Option<u64>,
    /// When it last ended.
    pub finished_ms: Option<u64>,
    /// Its status at the last write. [`Container::status`](crate::Container::status) also knows what runs now.
    pub status: SavedStatus,
    /// The last exit code, if it is known.
    pub exit_code: Option<u8>,
    /// Why the container last ended or did not start, if that is not its own exit code.
    pub reason: Option<String>,
    /// Whether the kernel killed a process of it because its limit of memory was reached.
    pub oom_killed: bool,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// How often it was started again by that policy since a user started it.
    pub restarts: u32,
    /// The pause before the next of these starts, or the last one, in milliseconds.
    pub pause_ms: Option<u64>,
    /// The process that runs and watches the container, and starts it again.
    pub supervisor: Option<SavedProcess>,
    /// Labels, by `--label`.
    pub labels: BTreeMap<String, String>,
    /// Whether its output goes to its log.
    pub detached: bool,
    /// The number of the signal that asks it to stop.
    pub stop_signal: i32,
    /// How long it may take to stop, in milliseconds.
    pub stop_timeout_ms: u64,
    /// The caller's own data for starting the container again.
    pub caller: serde_json::Value,
}

/// The status of a container at the last write of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedStatus {
    /// Made or about to be started, and its command has not run since.
    Created,
    /// Its command was told to run.
    Running,
    /// It has ended, and its supervisor starts it again after a pause.
    Restarting,
    /// It has ended.
    Exited,
}

/// A process by its id and start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProcess {
    /// Its id.
    pub pid: i32,
    /// When it started, in clock ticks since the host's boot.
    pub started: u64,
    /// The boot id of the host then: after another boot a process may have the same id and start time.
    pub boot: String,
}

impl SavedProcess {
    /// This process.
    pub(crate) fn own() -> Option<Self> {
        let pid = rustix::process::getpid().as_raw_pid();
        let boot = boot_id().ok()?;
        start_time(pid).map(|started| Self { pid, started, boot })
    }

    /// Whether it exists and has not ended.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started) && boot_id().is_ok_and(|boot| boot == self.boot)
    }
}

impl Saved {
    pub(crate) fn new(id: String, image: String, created_ms: u64) -> Self {
        Self {
            version: VERSION,
            id,
            image,
            manifest: None,
            command: Vec::new(),
            created_ms,
            started_ms: None,
            finished_ms: None,
            status: SavedStatus::Created,
            exit_code: None,
            reason: None,
            oom_killed: false,
            restart: RestartPolicy::No,
            restarts: 0,
            pause_ms: None,
            supervisor: None,
            labels: BTreeMap::new(),
            detached: false,
            stop_signal: 0,
            stop_timeout_ms: 0,
            caller: serde_json::Value::Null,
        }
    }

    /// The file in a container's directory. `None` if there is none, as in directories of earlier versions.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, RecordError> {
        let path = path(directory);
        let text = match read_limited(&path, LIMIT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(RecordError::file("read", &path))?,
        };
        let saved: Self =
            serde_json::from_slice(&text).map_err(|error| RecordError::file("read", &path)(error.into()))?;
        match saved.version {
            VERSION => Ok(Some(saved)),
            other => Err(RecordError::Version { path, version: other }),
        }
    }

    /// Writes the file, which a power cut may take: a start does not wait for the disk.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), RecordError> {
        self.write_by(directory, write_privately_for_this_boot)
    }

    /// Writes the file so that it outlives a power cut.
    pub(crate) fn write_durably(&self, directory: &Path) -> Result<(), RecordError> {
        self.write_by(directory, write_privately)
    }

    fn write_by(
        &self,
        directory: &Path,
        write: impl FnOnce(&Path, &[u8]) -> io::Result<()>,
    ) -> Result<(), RecordError> {
        let path = path(directory);
        let text = serde_json::to_vec_pretty(self);
        let mut text = text.map_err(|error| RecordError::file("write", &path)(error.into()))?;
        text.push(b'\n');
        write(&path, &text).map_err(RecordError::file("write", &path))
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join(CONTAINER)
}

/// Brings a container's file to the disk, if it was written without that.
pub(crate) fn sync(directory: &Path) {
    if let Err(error) = sync_files(directory, &[CONTAINER]) {
        tracing::debug!(%error, "cannot sync the record of a container");
    }
}

/// Notes that a user stopped the container, so that its restart policy does not start it again.
pub(crate) fn mark_stopped(directory: &Path) -> Result<(), RecordError> {
    let path = directory.join(STOP_MARKER);
    let boot = boot_id().unwrap_or_default();
    match fs::write(&path, boot) {
        // On a full disk the file is there, and empty. Then it counts for every boot.
        Err(error) if !path.exists() => Err(RecordError::file("write", &path)(error)),
        _ => Ok(()),
    }
}

/// Forgets that a user stopped the container.
pub(crate) fn unmark_stopped(directory: &Path) {
    let _ = fs::remove_file(directory.join(STOP_MARKER));
}

/// Whether a user stopped the container, and in which boot of the host.
pub(crate) fn stopped_in_boot(directory: &Path) -> Option<String> {
    fs::read_to_string(directory.join(STOP_MARKER)).ok()
}

/// Adds an exit code to those that `wait` reads, also of a container that is removed at its end.
pub(crate) fn add_exit_code(directory: &Path, code: ExitCode) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options
        .append(true)
        .create(true)
        .open(directory.join(EXIT_CODES))?;
    file.write_all(format!("{}\n", code.0).as_bytes())
}

/// Makes the file for exit codes, empty, so that it can be opened before the container ends.
pub(crate) fn clear_exit_codes(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(EXIT_CODES), b"")
}

/// The exit codes of a container so far: a file that can still be read when the container is removed.
pub(crate) fn open_exit_codes(directory: &Path) -> io::Result<File> {
    File::open(directory.join(EXIT_CODES))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_and_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Saved::read(directory.path()).unwrap(), None);
        let mut saved = Saved::new("0123456789ab".into(), "web:1".into(), 7);
        saved.labels.insert("a".into(), "b".into());
        saved.restart = RestartPolicy::OnFailure(Some(3));
        saved.caller = serde_json::json!({ "arguments": ["run", "web:1"] });
        for write in [Saved::write, Saved::write_durably] {
            write(&saved, directory.path()).unwrap();
            assert_eq!(Saved::read(directory.path()).unwrap(), Some(saved.clone()));
            let mode = fs::metadata(path(directory.path())).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            saved.restarts += 1;
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut later = Saved::new("0123456789ab".into(), "web:1".into(), 7);
        later.version = VERSION + 1;
        later.write(directory.path()).unwrap();
        let error = Saved::read(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains(CONTAINER) && error.contains("newer version"),
            "{error}"
        );
        fs::write(path(directory.path()), "{").unwrap();
        assert!(
            Saved::read(directory.path())
                .unwrap_err()
                .to_string()
                .contains(CONTAINER)
        );
    }

    #[test]
    fn an_open_file_of_exit_codes_outlives_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        clear_exit_codes(directory.path()).unwrap();
        let mut file = open_exit_codes(directory.path()).unwrap();
        add_exit_code(directory.path(), ExitCode(3)).unwrap();
        drop(directory);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "3\n");
    }
}
