//! `xebec start`, `stop`, `restart`, `kill`, `rm`, `wait`, `rename`, `pause`, `unpause` and `container prune`.
//!
//! A command of several containers goes on after a failure: it names each that failed, and ends with the code of the first failure.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use xebec_container::{
    Container, Directories, FindError, LifecycleError, Removal, Status, StopSignal, cleanup_stale,
    containers, find, to_restore,
};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{AgainArgs, KillArgs, NamesArgs, RenameArgs, RmArgs, StopArgs};
use crate::container_lookup::{directories, not_found};
use crate::failures::Failures;
use crate::slow_readers::tell_failed;
use crate::{detach, logs, prompt};

/// How often it is looked for containers to start again; as often as the daemon looks after containers.
const LOOK: Duration = Duration::from_secs(20);

/// How many containers are stopped, killed or paused at once.
const AT_ONCE: usize = 32;

/// `xebec stop`.
pub(crate) fn stop(paths: &Paths, args: &StopArgs) -> Result<(), Failure> {
    each(paths, &args.names, |directories, container| {
        xebec_container::stop(directories, container, args.timeout)
    })
}

/// `xebec kill`.
pub(crate) fn send_signal(paths: &Paths, args: &KillArgs) -> Result<(), Failure> {
    let signal: StopSignal = args.signal;
    each(paths, &args.names, |_, container| {
        xebec_container::send_signal(container, signal)
    })
}

/// `xebec pause` and `xebec unpause`.
pub(crate) fn set_paused(paths: &Paths, names: &NamesArgs, is_paused: bool) -> Result<(), Failure> {
    each(paths, names, |_, container| {
        xebec_container::set_paused(container, is_paused)
    })
}

/// `xebec rm`.
pub(crate) fn remove(paths: &Paths, args: &RmArgs) -> Result<(), Failure> {
    let directories = directories(paths);
    let how = Removal {
        force: args.force,
        volumes: args.volumes,
    };
    all(&args.names, |name| {
        let container = match find(&directories, name) {
            // As docker has it.
            Err(FindError::Missing(_)) if args.force => return Ok(()),
            found => found.map_err(not_found)?,
        };
        xebec_container::remove(&directories, &container, how).map_err(failure)?;
        outln!("{name}");
        Ok(())
    })
}

/// `xebec rename`.
pub(crate) fn rename(paths: &Paths, args: &RenameArgs) -> Result<(), Failure> {
    let directories = directories(paths);
    let container = find(&directories, &args.container).map_err(not_found)?;
    xebec_container::rename(&directories, &container, &args.name).map_err(failure)
}

/// `xebec wait`.
pub(crate) fn wait(paths: &Paths, names: &NamesArgs) -> Result<(), Failure> {
    let directories = directories(paths);
    all(names, |name| {
        let container = find(&directories, name).map_err(not_found)?;
        match xebec_container::wait(&directories, &container).map_err(failure)? {
            Some(code) => outln!("{}", code.0),
            None => {
                let why = "its supervisor was killed before it ended";
                return Err(Failure::host(
                    format!("the exit code of {name} is not known"),
                    why,
                ));
            }
        }
        Ok(())
    })
}

/// `xebec restart`.
pub(crate) fn restart(paths: &Paths, args: &StopArgs) -> Result<ExitCode, Failure> {
    let directories = directories(paths);
    start_each(&args.names, |name| {
        let container = find(&directories, name).map_err(not_found)?;
        xebec_container::stop(&directories, &container, args.timeout).map_err(failure)?;
        detach::start_again(paths, &container.name)
    })
}

/// `xebec start`.
pub(crate) fn start(paths: &Paths, args: &AgainArgs) -> Result<ExitCode, Failure> {
    let directories = directories(paths);
    if args.attach {
        return start_attached(paths, &args.names);
    }
    start_each(&args.names, |name| {
        let container = find(&directories, name).map_err(not_found)?;
        match container.status() {
            // As docker has it.
            Status::Running | Status::Paused => Ok(Ok(container.id().to_owned())),
            _ => detach::start_again(paths, &container.name),
        }
    })
}

fn start_attached(paths: &Paths, names: &NamesArgs) -> Result<ExitCode, Failure> {
    let [name] = names.containers.as_slice() else {
        return Err(Failure::new(FailureKind::Usage, "--attach takes one container"));
    };
    let directories = directories(paths);
    let container = find(&directories, name).map_err(not_found)?;
    let (following, began_ms) = (logs::from_now(&container), milliseconds_since_1970());
    if !container.is_active()
        && let Err(code) = detach::start_again(paths, &container.name)?
    {
        return Ok(code);
    }
    logs::follow(&directories, &container, following)?;
    let code = xebec_container::wait(&directories, &container).map_err(failure)?;
    if code != Some(xebec_container::ExitCode(0)) {
        tell_failed(paths, &container.name, began_ms);
    }
    Ok(code.map_or(ExitCode::from(125), ExitCode::from))
}

/// Starts each, and prints its name. The exit code is that of the first supervisor that failed.
fn start_each(
    names: &NamesArgs,
    mut start: impl FnMut(&str) -> Result<Result<String, ExitCode>, Failure>,
) -> Result<ExitCode, Failure> {
    let mut failed = None;
    all(names, |name| {
        match start(name)? {
            Ok(_) => outln!("{name}"),
            // It has said why.
            Err(code) => _ = failed.get_or_insert(code),
        }
        Ok(())
    })?;
    Ok(failed.unwrap_or(ExitCode::SUCCESS))
}

/// `xebec container prune`.
pub(crate) fn prune(paths: &Paths, force: bool) -> Result<(), Failure> {
    if !force && !is_confirmed()? {
        return Ok(());
    }
    let directories = directories(paths);
    // Removes the leftovers of containers that have ended, and whose supervisor was killed.
    if let Err(error) = cleanup_stale(&directories) {
        tracing::warn!("{error}");
    }
    let found = containers(&directories).map_err(|error| Failure::host("list containers", error))?;
    let mut failures = Failures::default();
    for container in found
        .containers
        .iter()
        .filter(|container| !container.is_active() && container.record.is_none())
    {
        match xebec_container::remove(&directories, container, Removal::default()) {
            Ok(()) => outln!("{}", container.name),
            Err(error) => failures.add(failure(error)),
        }
    }
    failures.end()
}

/// `xebec container restore`.
pub(crate) fn restore(paths: &Paths, watch: bool) -> Result<ExitCode, Failure> {
    let directories = directories(paths);
    loop {
        let found = to_restore(&directories).map_err(|error| Failure::host("list containers", error))?;
        let mut code = ExitCode::SUCCESS;
        for container in found {
            match detach::start_again(paths, &container.name) {
                Ok(Ok(_)) => outln!("{}", container.name),
                // It has said why.
                Ok(Err(failed)) => code = failed,
                Err(failure) => {
                    errln!("xebec: {}: {failure}", container.name);
                    code = ExitCode::from(failure.kind.exit_code());
                }
            }
        }
        if !watch {
            return Ok(code);
        }
        std::thread::sleep(LOOK);
    }
}

fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        let message = "container prune asks before it removes all containers that do not run; use --force without a terminal";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let question = "This removes all containers that do not run, with their layers and logs. Go on? [y/N] ";
    match prompt::line(question) {
        Ok(answer) => Ok(matches!(answer.as_str(), "y" | "Y" | "yes")),
        // Ctrl-D is no answer.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Failure::host("read the answer", error)),
    }
}

/// Does something to each container, and prints its name.
fn each(
    paths: &Paths,
    names: &NamesArgs,
    act: impl Fn(&Directories, &Container) -> Result<(), LifecycleError> + Sync,
) -> Result<(), Failure> {
    let directories = directories(paths);
    let one = |name: &str| {
        let container = find(&directories, name).map_err(not_found)?;
        act(&directories, &container).map_err(failure)
    };
    let mut failures = Failures::default();
    for names in names.containers.chunks(AT_ONCE) {
        // A container may take seconds to stop; the next one need not wait for it.
        std::thread::scope(|scope| {
            let running: Vec<_> = names.iter().map(|name| scope.spawn(|| one(name))).collect();
            for (name, running) in names.iter().zip(running) {
                match running.join() {
                    Ok(Ok(())) => outln!("{name}"),
                    Ok(Err(failure)) => failures.add(failure),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
    failures.end()
}

/// Does all, one after the other.
fn all(names: &NamesArgs, mut act: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for name in &names.containers {
        if let Err(failure) = act(name) {
            failures.add(failure);
        }
    }
    failures.end()
}

fn failure(error: LifecycleError) -> Failure {
    let kind = match error {
        LifecycleError::Find(error) => return not_found(error),
        LifecycleError::Name(_) => FailureKind::Usage,
        _ => FailureKind::Host,
    };
    Failure::new(kind, error)
}
