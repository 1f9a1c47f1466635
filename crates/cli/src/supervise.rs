//! `xebec run`, and the supervisor of a detached container: this process runs it, and starts it again as its restart policy
//! says.

use std::cell::OnceCell;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use xebec_container::{
    Again, Container, RestartPolicy, find, is_stopped, keep_failed_restart, pause_before_restart,
};
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::RunArgs;
use crate::container_lookup::{directories, not_found};
use crate::detach;
use crate::origin::Origin;
use crate::report::Report;
use crate::run::{Problem, Start, run_container};

/// How often a pause looks whether a user has stopped the container.
const LOOK: Duration = Duration::from_millis(50);

/// `xebec run IMAGE [CMD…]`.
pub(crate) fn run(paths: &Paths, mut args: RunArgs, report: Option<Report>) -> Result<ExitCode, Failure> {
    if args.kept.restart != RestartPolicy::No && args.rm {
        let message =
            "--restart cannot be used with --rm: a container that is removed at its end is not started again";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.kept.restart != RestartPolicy::No && !args.kept.detach {
        let message = "--restart needs --detach: a command that waits for its container ends with it";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.kept.detach && report.is_none() {
        return detach::run();
    }
    if let Some(file) = &mut args.stats {
        let absolute = std::path::absolute(&*file);
        *file = absolute.map_err(|error| Failure::host("find the current directory", error))?;
    }
    let start = Start {
        origin: Origin::of_this_command(&args)?,
        name: args.name.clone(),
        args,
        again: Again::No,
        manifest: None,
        claimed: OnceCell::new(),
    };
    match report {
        None => run_container(paths, &start, None).map_or_else(Problem::end, |code| Ok(code.into())),
        Some(report) => supervise(paths, start, report),
    }
}

/// Runs a container in the background for as long as it is to run. Returns the exit code of this process, which matters
/// only if the container was never started.
pub(crate) fn supervise(paths: &Paths, start: Start, mut report: Report) -> Result<ExitCode, Failure> {
    xebec_kernel::process::set_name("xebec-container");
    let mut outcome = run_container(paths, &start, Some(&mut report));
    let directories = directories(paths);
    let name = start.claimed.get().cloned().unwrap_or_default();
    while report.is_made() {
        let Some(pause) = pause_before_restart(&directories, &name) else {
            break;
        };
        if !pause_unless_stopped(&paths.containers().join(&name), pause) {
            break;
        }
        outcome = match saved_start(paths, &name, Again::ByPolicy) {
            Ok(again) => run_container(paths, &again, Some(&mut report)),
            Err(failure) => {
                keep_failed_restart(&directories, &name, &failure.message);
                Err(failure.into())
            }
        };
    }
    outcome.map_or_else(Problem::end, |code| match report.is_made() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(code.into()),
    })
}

/// `xebec start NAME`, in the supervisor.
pub(crate) fn start_again(paths: &Paths, name: &str, report: Report) -> Result<ExitCode, Failure> {
    let start = saved_start(paths, name, Again::ByUser)?;
    supervise(paths, start, report)
}

/// Waits. Returns false once a user has stopped the container, or removed it.
fn pause_unless_stopped(directory: &Path, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        if is_stopped(directory) || !directory.exists() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The start of a container that exists, as it was started before.
fn saved_start(paths: &Paths, name: &str, again: Again) -> Result<Start, Failure> {
    let container = find(&directories(paths), name).map_err(not_found)?;
    let origin = Origin::of(&container)?;
    origin.enter_directory()?;
    let manifest = manifest_of(&container)?;
    let mut args = origin.args()?;
    // They are of the first start.
    args.stats = None;
    Ok(Start {
        args,
        origin,
        again,
        manifest,
        name: Some(container.name),
        claimed: OnceCell::new(),
    })
}

/// The manifest of a container's image, once it has run.
fn manifest_of(container: &Container) -> Result<Option<Digest>, Failure> {
    let saved = container.saved.as_ref();
    let manifest = saved.and_then(|saved| saved.manifest.as_deref());
    let manifest = manifest.map(str::parse).transpose();
    manifest.map_err(|error| {
        Failure::host(
            format!("find the image of the container {}", container.name),
            error,
        )
    })
}
