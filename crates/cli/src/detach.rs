//! Starting a supervisor in the background: this program once more, in a session of its own.
//!
//! The supervisor gets `/dev/null` for its input and output, this process's standard error until the container's command
//! runs, and one pipe. It writes the container's id into the pipe once the command runs, and then has nothing of this
//! process's any more. If it ends before that, it has said why, and its exit code is this process's.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use xebec_kernel::process::{Child, Ending, Spawn};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::report::REPORT;

/// `xebec run --detach`: the supervisor gets the arguments of this process.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    match start_supervisor(std::env::args_os().skip(1).collect())? {
        Ok(id) => {
            outln!("{id}");
            Ok(ExitCode::SUCCESS)
        }
        Err(code) => Ok(code),
    }
}

/// Has a supervisor start the container of that name. Returns its exit code if it could not.
pub(crate) fn start_again(paths: &Paths, name: &str) -> Result<Result<String, ExitCode>, Failure> {
    let arguments: [OsString; 6] = [
        "--root".into(),
        paths.root().into(),
        "--run".into(),
        paths.run().into(),
        "start".into(),
        name.into(),
    ];
    start_supervisor(arguments.to_vec())
}

/// Starts a supervisor, and waits until the command of its container runs. Returns the container's id, or the exit code of a
/// supervisor that has ended before.
fn start_supervisor(arguments: Vec<OsString>) -> Result<Result<String, ExitCode>, Failure> {
    let failed = |error: io::Error| Failure::host("start a supervisor", error);
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    let (mut report, writer) = io::pipe().map_err(failed)?;
    forward_signals().map_err(failed)?;
    let error = io::stderr();
    let child = Spawn::own_executable()
        .argument("--supervisor")
        .arguments(arguments)
        .descriptor(null.as_fd(), 0)
        .descriptor(null.as_fd(), 1)
        .descriptor(error.as_fd(), 2)
        .descriptor(writer.as_fd(), REPORT)
        .new_session()
        .start();
    let child = Arc::new(child.map_err(|error| Failure::host("start a supervisor", error))?);
    drop(writer);
    *starting() = Some(child.clone());
    let mut id = String::new();
    let read = report.read_to_string(&mut id);
    *starting() = None;
    read.map_err(failed)?;
    match id.trim() {
        "" => ended(&child).map(Err),
        id => Ok(Ok(id.to_owned())),
    }
}

/// The supervisor that starts a container just now.
static STARTING: Mutex<Option<Arc<Child>>> = Mutex::new(None);

fn starting() -> MutexGuard<'static, Option<Arc<Child>>> {
    STARTING.lock()
}

/// From here on a signal goes to the supervisor that is starting a container, since the user may change their mind until the
/// container runs. At any other time it ends this process, as if it had never been caught.
fn forward_signals() -> io::Result<()> {
    static IS_FORWARDING: OnceLock<()> = OnceLock::new();
    if IS_FORWARDING.get().is_some() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let _ = IS_FORWARDING.set(());
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = match &*starting() {
                Some(child) => child.signal(signal),
                None => emulate_default_handler(signal),
            };
        }
    });
    Ok(())
}

fn ended(child: &Child) -> Result<ExitCode, Failure> {
    let ending = child
        .wait()
        .map_err(|error| Failure::host("wait for the supervisor", error))?;
    let code = match ending {
        Ending::Exited(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ending::Killed(signal) => {
            return Err(Failure::host(
                "start a container",
                format!("signal {signal} ended its supervisor"),
            ));
        }
        Ending::Unknown => u8::MAX,
    };
    Ok(ExitCode::from(code))
}
