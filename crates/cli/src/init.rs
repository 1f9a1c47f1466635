//! `--init`: this very program is the container's first process, if it is started by the name that a container
//! has for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xebec_kernel::process::{Linkage, linkage, own_linkage, run_as_init};

/// The name by which a container starts the program.
const NAME: &str = "docker-init";

/// Static programs that do the same: Debian's package tini, and docker's own.
const OTHERS: [&str; 3] = [
    "/usr/bin/tini-static",
    "/usr/bin/docker-init",
    "/usr/libexec/docker/docker-init",
];

/// Whether this process was started as the first one of a container.
pub(crate) fn is_first_process() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().is_some_and(|name| name == NAME)
}

/// Runs the command after `--`.
pub(crate) fn first_process() -> ExitCode {
    let mut command: Vec<OsString> = std::env::args_os().skip(1).collect();
    if command.first().is_some_and(|word| word == "--") {
        command.remove(0);
    }
    match run_as_init(&command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            errln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program of the host that is the first process: this one, or another one if this one needs libraries.
pub(crate) fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    if matches!(own_linkage(), Ok(Linkage::Static)) {
        return own;
    }
    let others = OTHERS.iter().map(Path::new);
    let mut others = others.filter(|path| matches!(linkage(path), Ok(Linkage::Static)));
    // The container's start reports the fault of this program.
    others.next().map_or(own, Path::to_owned)
}
