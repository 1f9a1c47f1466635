//! One start of a container as it is kept: which process writes what into `container.json`, and when.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use xebec_kernel::clock::milliseconds_since_1970;
use xebec_kernel::lock::try_lock_directory;

use crate::restart_policy::pause_after;
use crate::saved::{
    self, Saved, SavedProcess, SavedStatus, add_exit_code, clear_exit_codes, stopped_in_boot, unmark_stopped,
};
use crate::{Again, ExitCode, RunError, RunOptions, StopSignal};

/// The record of a container while this process runs it.
pub(crate) struct SavedRun {
    directory: PathBuf,
    saved: Saved,
    again: Again,
    /// Whether the end of this start is kept.
    is_over: bool,
    syncing: Option<JoinHandle<()>>,
}

impl SavedRun {
    /// Of a new container.
    pub(crate) fn new(directory: &Path, id: String, options: &RunOptions) -> Self {
        let mut saved = Saved::new(id, options.image.clone(), milliseconds_since_1970());
        saved.set_options(options);
        Self {
            directory: directory.to_owned(),
            saved,
            again: options.again,
            is_over: false,
            syncing: None,
        }
    }

    /// Takes the record of a container that exists. Returns whether there is one.
    pub(crate) fn take(&mut self, options: &RunOptions) -> Result<bool, RunError> {
        let Some(mut saved) = Saved::read(&self.directory)? else {
            return Ok(false);
        };
        saved.set_options(options);
        match self.again {
            Again::ByPolicy => saved.restarts = saved.restarts.saturating_add(1),
            Again::No | Again::ByUser => {
                (saved.restarts, saved.pause_ms) = (0, None);
                unmark_stopped(&self.directory);
                // Without it `wait` takes the code from the container's file.
                let _ = clear_exit_codes(&self.directory);
            }
        }
        self.saved = saved;
        Ok(true)
    }

    /// The container's directory is this process's.
    pub(crate) fn claimed(&mut self) -> Result<(), RunError> {
        self.saved.supervisor = SavedProcess::own();
        Ok(self.saved.write(&self.directory)?)
    }

    pub(crate) fn id(&self) -> &str {
        &self.saved.id
    }

    pub(crate) fn set_command(&mut self, command: &[String]) {
        self.saved.command = command.to_vec();
    }

    pub(crate) fn set_manifest(&mut self, manifest: String) {
        self.saved.manifest = Some(manifest);
    }

    pub(crate) fn set_stop_signal(&mut self, signal: StopSignal) {
        self.saved.stop_signal = signal.number();
    }

    /// The container's command was told to run. The disk is not waited for.
    pub(crate) fn begun(&mut self, is_kept: bool) {
        self.saved.status = SavedStatus::Running;
        self.saved.started_ms = Some(milliseconds_since_1970());
        (self.saved.exit_code, self.saved.reason) = (None, None);
        (self.saved.finished_ms, self.saved.oom_killed) = (None, false);
        self.write(|saved, directory| saved.write(directory));
        if self.again == Again::No {
            let _ = clear_exit_codes(&self.directory);
        }
        if is_kept {
            let directory = self.directory.clone();
            let thread = std::thread::Builder::new().name("container-sync".into());
            self.syncing = thread.spawn(move || saved::sync(&directory)).ok();
        }
    }

    /// The container has ended. If it is removed, only the exit code is kept, for commands that wait.
    pub(crate) fn ended(&mut self, outcome: &Result<ExitCode, RunError>, oom_killed: bool, is_kept: bool) {
        let code = outcome.as_ref().map_or_else(RunError::exit_code, |code| *code);
        let is_interrupted = matches!(outcome, Err(RunError::Interrupted(_)));
        self.saved.oom_killed = oom_killed;
        self.finish(
            code,
            outcome.as_ref().err().map(ToString::to_string),
            !is_interrupted,
            is_kept,
        );
    }

    /// A container that existed before could not be started.
    pub(crate) fn failed(&mut self, reason: &str) {
        let is_by_policy = self.again == Again::ByPolicy;
        self.finish(ExitCode(125), Some(reason.to_owned()), is_by_policy, true);
    }

    fn finish(&mut self, code: ExitCode, reason: Option<String>, may_restart: bool, is_kept: bool) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let now = milliseconds_since_1970();
        self.saved.finished_ms = Some(now);
        self.saved.exit_code = Some(code.0);
        self.saved.reason = reason;
        let is_stopped = || stopped_in_boot(&self.directory).is_some();
        let policy = self.saved.restart;
        let restarts = may_restart && policy.applies(Some(code), self.saved.restarts) && !is_stopped();
        self.saved.status = match restarts {
            true => SavedStatus::Restarting,
            false => SavedStatus::Exited,
        };
        if restarts {
            let ran = now.saturating_sub(self.saved.started_ms.unwrap_or(now));
            let last = self.saved.pause_ms.map(Duration::from_millis);
            let pause = pause_after(last, Duration::from_millis(ran)).as_millis();
            self.saved.pause_ms = u64::try_from(pause).ok();
        }
        if is_kept {
            if let Some(syncing) = self.syncing.take() {
                let _ = syncing.join();
            }
            self.write(|saved, directory| saved.write_durably(directory));
        }
        if let Err(error) = add_exit_code(&self.directory, code) {
            tracing::debug!(%error, "cannot note a container's exit code for processes that wait for it");
        }
    }

    fn write(&self, write: impl FnOnce(&Saved, &Path) -> Result<(), crate::RecordError>) {
        if let Err(error) = write(&self.saved, &self.directory) {
            tracing::warn!(%error, "the record of the container is not up to date");
        }
    }
}

/// Keeps why a container that existed before could not be started again. Nothing is kept if another process has the
/// container.
pub(crate) fn keep_failure(directory: &Path, again: Again, reason: &str) {
    if again == Again::No {
        return;
    }
    let Ok(_lock) = try_lock_directory(directory) else {
        return;
    };
    let Ok(Some(mut saved)) = Saved::read(directory) else {
        return;
    };
    if again == Again::ByPolicy {
        saved.restarts = saved.restarts.saturating_add(1);
    }
    let mut run = SavedRun {
        directory: directory.to_owned(),
        saved,
        again,
        is_over: false,
        syncing: None,
    };
    run.failed(reason);
}

impl Saved {
    fn set_options(&mut self, options: &RunOptions) {
        self.restart = options.restart;
        self.labels.clone_from(&options.labels);
        self.detached = options.detached.is_some();
        self.stop_timeout_ms = u64::try_from(options.stop_timeout.as_millis()).unwrap_or(u64::MAX);
        self.caller.clone_from(&options.caller);
    }
}
