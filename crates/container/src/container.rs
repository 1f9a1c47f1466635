//! The containers of a host, whether they run or not, and finding one by its name or id.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::layout::REMOVE_MARKER;
use crate::name::is_container_name;
use crate::record::{self, Record};
use crate::saved::{Saved, SavedProcess, SavedStatus, stopped_in_boot};
use crate::{Again, Directories, ExitCode, RecordError, control_groups, frozen_for_commit, saved_run};

/// A container: its record, and the record of its run.
#[derive(Clone, Debug)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its record. `None` if an earlier version made it, or if its file cannot be read.
    pub saved: Option<Saved>,
    /// The record of its run, or of one that is about to begin.
    pub record: Option<Record>,
    /// Why its file cannot be read.
    pub trouble: Option<String>,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether the directory is removed with the container.
    is_marked: bool,
}

/// The status of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is being made or about to be started, and its command does not run yet.
    Created,
    /// Its command runs.
    Running,
    /// Its processes are frozen.
    Paused,
    /// It has ended, and its supervisor starts it again after a pause.
    Restarting,
    /// It has ended.
    Exited,
    /// It is being removed.
    Removing,
    /// It does not run, and an earlier version of Xebec made it.
    MadeEarlier,
}

impl Status {
    /// The name of the status, as in `ps --filter status=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Restarting => "restarting",
            Self::Exited => "exited",
            Self::Removing => "removing",
            Self::MadeEarlier => "unknown",
        }
    }
}

/// The containers of a host.
#[derive(Debug, Default)]
pub struct Containers {
    /// Those that are there, the newest first.
    pub containers: Vec<Container>,
    /// Records that cannot be read. Their containers may be running.
    pub unreadable: Vec<RecordError>,
}

/// No container, or more than one, is meant.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("no container has the name or id {0:?}; `xebec ps -a` lists all")]
    Missing(String),
    /// There are several.
    #[error("the ids of {count} containers begin with {wanted:?}; give more of the id, or the name")]
    Ambiguous {
        /// The beginning of an id that was looked for.
        wanted: String,
        /// How many are meant.
        count: usize,
    },
    /// The containers cannot be listed.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
}

impl Container {
    /// Its id. Containers of earlier versions have their name for an id.
    pub fn id(&self) -> &str {
        self.saved.as_ref().map_or(&self.name, |saved| &saved.id)
    }

    /// The image's name as the user gave it.
    pub fn image(&self) -> &str {
        let saved = self.saved.as_ref().map(|saved| saved.image.as_str());
        saved
            .or(self.record.as_ref().map(|record| record.image.as_str()))
            .unwrap_or_default()
    }

    /// Its command line, for people to read.
    pub fn command(&self) -> &[String] {
        let saved = self.saved.as_ref().map(|saved| saved.command.as_slice());
        saved
            .or(self.record.as_ref().map(|record| record.command.as_slice()))
            .unwrap_or_default()
    }

    /// When it was made, in milliseconds since 1970; 0 if that is not known.
    pub fn created_ms(&self) -> u64 {
        let saved = self.saved.as_ref().map(|saved| saved.created_ms);
        let record = self
            .record
            .as_ref()
            .map(|record| record.created.saturating_mul(1000));
        saved.or(record).unwrap_or_default()
    }

    /// Its status now.
    pub fn status(&self) -> Status {
        if let Some(record) = self.record.as_ref().filter(|record| !record.is_dead()) {
            // In another namespace process ids mean nothing.
            let is_running = record.is_running() || !record.is_in_this_namespace();
            let has_begun = record.has_begun != Some(false) || self.says(SavedStatus::Running);
            return match is_running && has_begun {
                true if control_groups::is_frozen(&record.control_group()) => Status::Paused,
                true => Status::Running,
                // Its policy starts it again: between the end of a run and the beginning of the next.
                false if self.says(SavedStatus::Restarting) => Status::Restarting,
                // Between its end and the removal of its record.
                false if has_begun && record.pid.is_some() => Status::Exited,
                false => Status::Created,
            };
        }
        let Some(saved) = &self.saved else {
            return if self.is_marked {
                Status::Removing
            } else {
                Status::MadeEarlier
            };
        };
        let is_supervised = saved.supervisor.as_ref().is_some_and(SavedProcess::is_alive);
        match saved.status {
            _ if self.is_marked => Status::Removing,
            SavedStatus::Restarting if is_supervised => Status::Restarting,
            SavedStatus::Created if saved.started_ms.is_none() => Status::Created,
            _ => Status::Exited,
        }
    }

    /// Whether it runs, or is about to without a user's doing.
    pub fn is_active(&self) -> bool {
        match self.status() {
            Status::Running | Status::Paused | Status::Restarting => true,
            Status::Created => self.record.as_ref().is_some_and(|record| !record.is_dead()),
            Status::Exited | Status::Removing | Status::MadeEarlier => false,
        }
    }

    /// Whether it runs on although its supervisor was killed.
    pub fn is_orphan(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| {
            record.is_running() && record.is_in_this_namespace() && !record.is_supervised()
        })
    }

    /// Whether it has ended, and its supervisor has not yet cleaned up after it.
    pub fn is_closing(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.is_in_this_namespace() && record.is_supervised())
    }

    /// Whether its end is not written down yet: it has ended just now, and its supervisor is about to do so.
    pub fn is_between_states(&self) -> bool {
        self.status() == Status::Exited && self.exit_code().is_none() && self.is_closing()
    }

    /// The exit code of its last run. `None` while it runs, and if its supervisor was killed before it ended.
    pub fn exit_code(&self) -> Option<ExitCode> {
        let saved = self.saved.as_ref()?;
        let is_known = matches!(saved.status, SavedStatus::Exited | SavedStatus::Restarting);
        saved.exit_code.filter(|_| is_known).map(ExitCode)
    }

    /// The process id of its first process while it runs.
    pub fn pid(&self) -> Option<i32> {
        let record = self.record.as_ref()?;
        record
            .pid
            .filter(|_| record.is_in_this_namespace() && record.is_running())
    }

    fn says(&self, status: SavedStatus) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.status == status)
    }
}

/// The containers of a host, whether they run or not.
///
/// # Errors
/// If a directory cannot be read. Without it there are no containers.
pub fn containers(dirs: &Directories) -> Result<Containers, RecordError> {
    // Before the directories: a container that ends meanwhile is found by its directory.
    let (records, unreadable) = record::read_all(&dirs.run)?;
    let mut found: Vec<Container> = records
        .into_iter()
        .map(|record| of_record(record, dirs))
        .collect();
    for name in directories(&dirs.state)? {
        if !found.iter().any(|container| container.name == name) {
            found.push(of_directory(dirs.state.join(&name), name));
        }
    }
    found.sort_by(|one, other| {
        let newest_first = other.created_ms().cmp(&one.created_ms());
        newest_first.then_with(|| one.name.cmp(&other.name))
    });
    Ok(Containers {
        containers: found,
        unreadable,
    })
}

/// The container of that name or id, or whose id alone begins so.
///
/// # Errors
/// [`FindError`].
pub fn find(dirs: &Directories, wanted: &str) -> Result<Container, FindError> {
    if is_container_name(wanted)
        && let Some(container) = by_name(dirs, wanted)?
    {
        return Ok(container);
    }
    let all = containers(dirs)?.containers;
    let mut found: Vec<Container> = all
        .into_iter()
        .filter(|container| !wanted.is_empty() && container.id().starts_with(wanted))
        .collect();
    // A whole id may be the beginning of another one's name only.
    if let Some(at) = found.iter().position(|container| container.id() == wanted) {
        return Ok(found.swap_remove(at));
    }
    match found.len() {
        0 => Err(FindError::Missing(wanted.to_owned())),
        1 => Ok(found.swap_remove(0)),
        count => Err(FindError::Ambiguous {
            wanted: wanted.to_owned(),
            count,
        }),
    }
}

/// The container of that name, if there is one.
pub(crate) fn by_name(dirs: &Directories, name: &str) -> Result<Option<Container>, RecordError> {
    let record = record::read(&record::path(&dirs.run, name))?.filter(|record| record.id == name);
    if let Some(record) = record {
        return Ok(Some(of_record(record, dirs)));
    }
    let directory = dirs.state.join(name);
    let is_directory = fs::symlink_metadata(&directory).is_ok_and(|found| found.is_dir());
    Ok(is_directory.then(|| of_directory(directory, name.to_owned())))
}

/// The pause before this process starts a container again that it supervised. `None` if it does not.
pub fn pause_before_restart(dirs: &Directories, name: &str) -> Option<Duration> {
    let saved = by_name(dirs, name).ok().flatten()?.saved?;
    let is_own = saved.supervisor.is_some() && saved.supervisor == SavedProcess::own();
    (is_own && saved.status == SavedStatus::Restarting)
        .then(|| Duration::from_millis(saved.pause_ms.unwrap_or(0)))
}

/// Keeps why a restart policy could not start a container again, if that is known before [`crate::Prepared::begin`].
pub fn keep_failed_restart(dirs: &Directories, name: &str, reason: &str) {
    if is_container_name(name) {
        saved_run::keep_failure(&dirs.state.join(name), Again::ByPolicy, reason);
    }
}

/// Whether a user stopped the container in this directory, so that its restart policy rests.
pub fn is_stopped(directory: &Path) -> bool {
    stopped_in_boot(directory).is_some()
}

fn of_record(record: Record, dirs: &Directories) -> Container {
    // A run directory belongs to one state directory: the record is not trusted to name another.
    let directory = dirs.state.join(&record.id);
    frozen_for_commit::let_go_on(&directory, &record);
    Container {
        record: Some(record.clone()),
        ..of_directory(directory, record.id)
    }
}

fn of_directory(directory: PathBuf, name: String) -> Container {
    let (saved, trouble) = match Saved::read(&directory) {
        Ok(saved) => (saved, None),
        Err(error) => (None, Some(error.to_string())),
    };
    Container {
        name,
        saved,
        record: None,
        trouble,
        is_marked: directory.join(REMOVE_MARKER).exists(),
        directory,
    }
}

/// The names of the containers that have a directory.
fn directories(state: &Path) -> Result<Vec<String>, RecordError> {
    let entries = match fs::read_dir(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(RecordError::file("read", state))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(RecordError::file("read", state))?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().into_string().ok();
        names.extend(name.filter(|name| is_directory && is_container_name(name)));
    }
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn dirs(directory: &tempfile::TempDir) -> Directories {
        Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        }
    }

    fn make(dirs: &Directories, name: &str, id: &str, change: impl FnOnce(&mut Saved)) {
        let directory = dirs.state.join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut saved = Saved::new(id.into(), "image:1".into(), 1000);
        change(&mut saved);
        saved.write(&directory).unwrap();
    }

    #[test]
    fn a_container_is_found_by_name_id_and_the_beginning_of_its_id() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        assert!(matches!(find(&dirs, "web"), Err(FindError::Missing(_))));
        make(&dirs, "web", "ab0000000001", |_| {});
        make(&dirs, "db", "ab0000000002", |_| {});
        make(&dirs, "ab", "cd0000000003", |_| {});
        let name = |wanted| find(&dirs, wanted).map(|container| container.name);
        for (wanted, found) in [("web", "web"), ("ab0000000002", "db"), ("cd", "ab"), ("ab", "ab")] {
            assert_eq!(name(wanted).unwrap(), found, "{wanted}");
        }
        assert!(matches!(name("ab0"), Err(FindError::Ambiguous { count: 2, .. })));
        for wanted in ["", "..", "we", "/", "../state/web"] {
            assert!(matches!(name(wanted), Err(FindError::Missing(_))), "{wanted}");
        }
    }

    #[test]
    fn the_status_is_what_is_so_and_not_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        make(&dirs, "killed", "ab0000000001", |saved| {
            (saved.status, saved.started_ms) = (SavedStatus::Running, Some(2000));
        });
        let status = |name: &str| find(&dirs, name).unwrap().status();
        assert_eq!(status("killed"), Status::Exited, "its supervisor and it are gone");
        assert_eq!(find(&dirs, "killed").unwrap().exit_code(), None);
        let mut record = Record::new("killed", &dirs.state.join("killed")).unwrap();
        record.set_pid(std::process::id() as i32).unwrap();
        record.has_begun = Some(true);
        record.claim(&dirs.run).unwrap();
        assert_eq!(status("killed"), Status::Running);
        record.supervisor_started = 1;
        record.save(&dirs.run).unwrap();
        assert!(find(&dirs, "killed").unwrap().is_orphan());
        assert_eq!(status("killed"), Status::Running);
        record.pid_started = Some(1);
        record.save(&dirs.run).unwrap();
        assert_eq!(status("killed"), Status::Exited);
        make(&dirs, "again", "ab0000000002", |saved| {
            saved.status = SavedStatus::Restarting;
            saved.supervisor = SavedProcess::own();
            saved.exit_code = Some(3);
        });
        assert_eq!(status("again"), Status::Restarting);
        assert!(find(&dirs, "again").unwrap().is_active());
        assert_eq!(pause_before_restart(&dirs, "again"), Some(Duration::ZERO));
        assert_eq!(pause_before_restart(&dirs, "killed"), None);
        make(&dirs, "next", "ab0000000003", |saved| {
            saved.status = SavedStatus::Restarting
        });
        let mut next = Record::new("next", &dirs.state.join("next")).unwrap();
        next.has_begun = Some(false);
        next.claim(&dirs.run).unwrap();
        assert_eq!(status("next"), Status::Restarting, "its next run has not begun");
        next.set_pid(std::process::id() as i32).unwrap();
        next.pid_started = Some(1);
        next.has_begun = Some(true);
        next.save(&dirs.run).unwrap();
        assert_eq!(status("next"), Status::Restarting, "a run has ended");
        fs::create_dir_all(dirs.state.join("old/upper")).unwrap();
        assert_eq!(status("old"), Status::MadeEarlier);
        fs::write(dirs.state.join("again").join(REMOVE_MARKER), "").unwrap();
        assert_eq!(status("again"), Status::Removing);
    }

    #[test]
    fn a_file_that_cannot_be_read_hides_no_container() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = dirs(&directory);
        make(&dirs, "fine", "ab0000000001", |_| {});
        make(&dirs, "bad", "ab0000000002", |_| {});
        fs::write(dirs.state.join("bad/container.json"), "").unwrap();
        let all = containers(&dirs).unwrap().containers;
        assert_eq!(all.len(), 2);
        let bad = all.iter().find(|container| container.name == "bad").unwrap();
        assert!(bad.trouble.as_ref().unwrap().contains("container.json"));
        assert_eq!(bad.id(), "bad");
    }
}
