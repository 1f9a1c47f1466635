//! Commands of users on containers that exist: stop, kill, pause, wait, rename, remove.
//!
//! A process gets a signal only by a descriptor of it (a pidfd) whose start time is the recorded one, and all processes of a
//! container are killed by the container's own control groups. The supervisor notices that its container has ended, and keeps
//! how; without a supervisor these commands do the rest.
//!
//! The lock of a container's directory keeps actions apart that must not happen at once. The supervisor holds it, and so does a
//! command that renames or removes the container.

mod error;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use xebec_kernel::file::{is_same, sync_directory};
use xebec_kernel::lock::try_lock_directory;
use xebec_kernel::process::{send_signal as send_by_number, start_time};

pub use error::LifecycleError;

use crate::cleanup::cleanup_stale;
use crate::container::{self, Container, FindError, Status};
use crate::layout::REMOVE_MARKER;
use crate::name::is_container_name;
use crate::record::Record;
use crate::removal::{remove_layer, remove_unless_kept};
use crate::saved::{mark_stopped, open_exit_codes};
use crate::{Directories, ExitCode, RestartPolicy, RunError, StopSignal, control_groups, frozen_for_commit};

/// How long a supervisor may take to clean up after its container.
const CLEANING: Duration = Duration::from_secs(20);

/// How long a supervisor that has cleaned up is waited for, which gives the image's view back then. One that does more than to
/// supervise, as that of a recording, takes longer.
const CLOSING: Duration = Duration::from_secs(2);

/// The pause between two looks at a state that cannot be waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The time between the stop signal and `SIGKILL` of a container that did not say; docker's figure.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks a container to stop, kills it after `timeout` (by default what the container says), and returns when it has ended
/// and is cleaned up. Its restart policy does not start it again. A container that does not run is no error.
///
/// # Errors
/// [`LifecycleError`].
pub fn stop(
    dirs: &Directories,
    container: &Container,
    timeout: Option<Duration>,
) -> Result<(), LifecycleError> {
    let name = &container.name;
    if !container.is_active() {
        return Ok(());
    }
    // First, so that a supervisor does not start it again.
    let marked = mark_stopped(&container.directory);
    if container
        .saved
        .as_ref()
        .is_some_and(|saved| saved.restart != RestartPolicy::No)
    {
        marked?;
    }
    let processes = Processes::open(container)?;
    match &processes.first {
        Some(first) => {
            let saved = container.saved.as_ref();
            let signal = saved.map_or(0, |saved| saved.stop_signal);
            let signal = if signal == 0 {
                Signal::TERM.as_raw()
            } else {
                signal
            };
            let usual = saved.map_or(STOP_TIMEOUT, |saved| Duration::from_millis(saved.stop_timeout_ms));
            send(container, first, signal)?;
            if let Some(record) = &container.record {
                // A frozen process takes no signal.
                control_groups::set_frozen(&record.control_group(), false);
            }
            if !has_ended(first, Some(timeout.unwrap_or(usual))) {
                kill_all(container, first);
            }
        }
        // Its command does not run yet; or its supervisor waits to start it again, and finds what is noted.
        None => {
            if let (Some(supervisor), Some(_)) = (&processes.supervisor, &container.record) {
                let _ = pidfd_send_signal(supervisor, Signal::TERM);
            }
        }
    }
    finish(dirs, name, &processes)
}

/// Kills all processes of a container, and returns when it has ended and is cleaned up.
///
/// # Errors
/// [`LifecycleError`].
pub fn kill_at_once(dirs: &Directories, container: &Container) -> Result<(), LifecycleError> {
    stop(dirs, container, Some(Duration::ZERO))
}

/// Sends a signal to a container's first process, and does not wait. One that asks it to stop, or kills it, keeps its restart
/// policy from starting it again, as with docker.
///
/// # Errors
/// [`LifecycleError::NotRunning`], and others.
pub fn send_signal(container: &Container, signal: StopSignal) -> Result<(), LifecycleError> {
    let processes = Processes::open(container)?;
    let Some(first) = &processes.first else {
        return Err(LifecycleError::NotRunning(container.name.clone()));
    };
    let number = signal.number();
    let stops = container.saved.as_ref().map(|saved| saved.stop_signal);
    if number == Signal::KILL.as_raw() || Some(number) == stops {
        mark_stopped(&container.directory)?;
    }
    if number != Signal::KILL.as_raw() {
        return send(container, first, number);
    }
    kill_all(container, first);
    Ok(())
}

/// Freezes or thaws a container.
///
/// # Errors
/// If it does not run, or is frozen or thawed already.
pub fn set_paused(container: &Container, is_paused: bool) -> Result<(), LifecycleError> {
    set_frozen(container, is_paused, || {
        frozen_for_commit::forget(&container.directory)
    })
}

/// The same. `before` is called once it is known that this can be done.
pub(crate) fn set_frozen(
    container: &Container,
    is_paused: bool,
    before: impl FnOnce(),
) -> Result<(), LifecycleError> {
    let name = container.name.clone();
    let record = container.record.as_ref();
    match (container.status(), record, is_paused) {
        (Status::Running, Some(record), true) | (Status::Paused, Some(record), false) => {
            before();
            match control_groups::set_frozen(&record.control_group(), is_paused) {
                true => Ok(()),
                false => Err(LifecycleError::NoFreezer(name)),
            }
        }
        (Status::Paused, ..) => Err(LifecycleError::Paused(name, "paused already")),
        (Status::Running, ..) => Err(LifecycleError::Paused(name, "not paused")),
        _ => Err(LifecycleError::NotRunning(name)),
    }
}

/// Waits until a container has ended and is not started again. Returns its exit code if that is known.
///
/// # Errors
/// If the containers cannot be read.
pub fn wait(dirs: &Directories, container: &Container) -> Result<Option<ExitCode>, LifecycleError> {
    let (name, id) = (&container.name, container.id());
    // Opened while it is there: a container that is removed at its end takes its file along.
    let mut codes = open_exit_codes(&container.directory).ok();
    loop {
        let now = container::by_name(dirs, name)?;
        let Some(now) = now.filter(|now| now.id() == id) else {
            return Ok(codes.as_mut().and_then(last_code));
        };
        if codes.is_none() {
            codes = open_exit_codes(&container.directory).ok();
        }
        if !now.is_active() && !now.is_closing() {
            let is_removed = now.status() == Status::Removing;
            return Ok(now
                .exit_code()
                .or_else(|| codes.as_mut().filter(|_| is_removed).and_then(last_code)));
        }
        match Processes::open(&now)
            .ok()
            .and_then(|processes| processes.first.or(processes.supervisor))
        {
            Some(process) => drop(has_ended(&process, Some(Duration::from_secs(1)))),
            None => std::thread::sleep(LOOK),
        }
        std::thread::sleep(LOOK);
    }
}

fn last_code(codes: &mut File) -> Option<ExitCode> {
    let mut text = String::new();
    codes.read_to_string(&mut text).ok()?;
    text.lines().next_back()?.parse().ok().map(ExitCode)
}

/// Gives a container that does not run another name.
///
/// # Errors
/// If it runs, or the name is taken or cannot be one.
pub fn rename(dirs: &Directories, container: &Container, new: &str) -> Result<(), LifecycleError> {
    if !is_container_name(new) {
        return Err(LifecycleError::Name(new.to_owned()));
    }
    let inactive = |container: &Container| match container.is_active() {
        true => Err(LifecycleError::Active {
            name: container.name.clone(),
            status: container.status().name(),
        }),
        false => Ok(()),
    };
    // Its supervisor holds the lock as long as it runs.
    inactive(container)?;
    let (_lock, container) = lock(dirs, container)?;
    let name = container.name.clone();
    inactive(&container)?;
    if container::by_name(dirs, new)?.is_some() {
        return Err(LifecycleError::Taken(new.to_owned()));
    }
    let to = dirs.state.join(new);
    match renameat_with(CWD, &container.directory, CWD, &to, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => Err(LifecycleError::Taken(new.to_owned())),
        renamed => {
            let renamed = renamed
                .map_err(io::Error::from)
                .and_then(|()| sync_directory(&dirs.state));
            renamed
                .map_err(RunError::file("rename", &container.directory))
                .map_err(of_file(&name))
        }
    }
}

/// How a container is removed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Removal {
    /// Whether one that runs is stopped before that by `SIGKILL`.
    pub force: bool,
    /// Whether its anonymous volumes go with it.
    pub volumes: bool,
}

/// Removes a container.
///
/// # Errors
/// [`LifecycleError`].
pub fn remove(dirs: &Directories, container: &Container, how: Removal) -> Result<(), LifecycleError> {
    let (name, id) = (container.name.clone(), container.id());
    if container.is_active() {
        let status = container.status().name();
        if !how.force {
            return Err(LifecycleError::InUse { name, status });
        }
        kill_at_once(dirs, container)?;
    } else if container.record.is_some() {
        // It has ended, and its supervisor cleans up, or was killed.
        finish(dirs, &name, &Processes::open(container)?)?;
    }
    // One that is removed at its end is gone already.
    let Some(left) = container::by_name(dirs, &name)?.filter(|left| left.id() == id) else {
        return Ok(());
    };
    let (_lock, left) = match lock(dirs, &left) {
        Err(LifecycleError::Find(FindError::Missing(_))) => return Ok(()),
        locked => locked?,
    };
    if left.is_active() {
        let status = left.status().name();
        return Err(LifecycleError::InUse { name, status });
    }
    // A process that is killed in between leaves a directory that a cleanup removes. A full disk must not keep this from making room.
    if let Err(error) = fs::write(left.directory.join(REMOVE_MARKER), b"") {
        tracing::debug!(%error, name, "cannot mark a container that is removed");
    }
    match how.volumes {
        true => remove_unless_kept(dirs, &left.directory, true),
        false => remove_layer(&left.directory, true),
    }
    .map_err(of_file(&name))
}

fn of_file(name: &str) -> impl FnOnce(RunError) -> LifecycleError {
    let name = name.to_owned();
    move |source| LifecycleError::File {
        name,
        source: Box::new(source),
    }
}

/// Locks the directory of a container, and looks at the container again, which may be another one now.
pub(crate) fn lock(dirs: &Directories, container: &Container) -> Result<(File, Container), LifecycleError> {
    let name = container.name.clone();
    let missing = || LifecycleError::Find(FindError::Missing(name.clone()));
    let until = Instant::now() + Duration::from_secs(2);
    let lock = loop {
        match try_lock_directory(&container.directory) {
            // A supervisor that has just removed its record ends at once.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(LOOK);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(LifecycleError::Busy(name));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            lock => {
                break lock
                    .map_err(RunError::file("lock", &container.directory))
                    .map_err(of_file(&name))?;
            }
        }
    };
    let locked = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lock));
    let now = container::by_name(dirs, &name)?.filter(|now| now.id() == container.id());
    match now.filter(|now| is_same(locked.as_ref(), &now.directory)) {
        Some(now) => Ok((lock, now)),
        None => Err(missing()),
    }
}

/// Descriptors of a container's first process and of its supervisor, while these run.
struct Processes {
    first: Option<OwnedFd>,
    supervisor: Option<OwnedFd>,
}

impl Processes {
    fn open(container: &Container) -> Result<Self, LifecycleError> {
        let record = container.record.as_ref();
        let elsewhere = record.filter(|record| !record.is_in_this_namespace());
        if elsewhere.is_some_and(|record| !record.is_dead()) {
            return Err(LifecycleError::Elsewhere(container.name.clone()));
        }
        // Ids of another namespace or boot are those of other processes here.
        let record = record.filter(|record| record.is_in_this_namespace() && record.is_of_this_boot());
        let first = record.and_then(|record| open_process(record.pid?, record.pid_started?));
        let recorded = |record: &Record| open_process(record.supervisor, record.supervisor_started);
        let saved = || {
            container
                .saved
                .as_ref()?
                .supervisor
                .as_ref()
                .filter(|process| process.is_alive())
        };
        let supervisor = match record {
            Some(record) => recorded(record),
            None => saved().and_then(|process| open_process(process.pid, process.started)),
        };
        Ok(Self { first, supervisor })
    }
}

/// A descriptor of the process with that id and start time.
fn open_process(pid: i32, started: u64) -> Option<OwnedFd> {
    let opened = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // Looked at after it was opened: it had the id all the time.
    (start_time(pid) == Some(started)).then_some(opened)
}

/// Waits until a process has ended. Returns whether it has.
fn has_ended(process: &OwnedFd, patience: Option<Duration>) -> bool {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => return false,
            _ => return true,
        }
    }
}

fn send(container: &Container, first: &OwnedFd, signal: i32) -> Result<(), LifecycleError> {
    let failed = |source| LifecycleError::Signal {
        name: container.name.clone(),
        signal,
        source,
    };
    match send_by_number(first.as_fd(), signal) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
        sent => sent.map_err(failed),
    }
}

/// Kills all processes of a container, whatever they wait for.
fn kill_all(container: &Container, first: &OwnedFd) {
    let _ = pidfd_send_signal(first, Signal::KILL);
    if let Some(record) = &container.record {
        control_groups::kill(&record.control_group());
    }
}

/// Waits until the container has ended and nothing of it is left that is not kept. Without a supervisor it is cleaned up here.
fn finish(dirs: &Directories, name: &str, processes: &Processes) -> Result<(), LifecycleError> {
    for process in [&processes.first, &processes.supervisor].into_iter().flatten() {
        if !has_ended_or_left(dirs, name, process) {
            return Err(LifecycleError::Stays(name.to_owned(), CLEANING.as_secs()));
        }
    }
    if processes.supervisor.is_none()
        || container::by_name(dirs, name)?.is_some_and(|now| now.record.is_some())
    {
        cleanup_stale(dirs)?;
    }
    if let Some(supervisor) = &processes.supervisor {
        // The next command that removes the image must not find it in use.
        has_ended(supervisor, Some(CLOSING));
    }
    Ok(())
}

/// Waits until a process has ended, or the container has no record any more: a supervisor may start another one.
fn has_ended_or_left(dirs: &Directories, name: &str, process: &OwnedFd) -> bool {
    let until = Instant::now() + CLEANING;
    while !has_ended(process, Some(LOOK)) {
        let is_active = container::by_name(dirs, name)
            .ok()
            .flatten()
            .is_some_and(|now| now.record.is_some() || now.status() == Status::Restarting);
        if !is_active {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// It uses the image until it has given the view back, which it does after it has removed its record.
    #[test]
    fn a_container_is_finished_when_its_supervisor_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let dirs = Directories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let mut process = std::process::Command::new("sleep").arg("0.3").spawn().unwrap();
        let pid = Pid::from_raw(process.id() as i32).unwrap();
        let processes = Processes {
            first: None,
            supervisor: Some(pidfd_open(pid, PidfdFlags::empty()).unwrap()),
        };
        finish(&dirs, "web", &processes).unwrap();
        assert!(process.try_wait().unwrap().is_some());
    }
}
