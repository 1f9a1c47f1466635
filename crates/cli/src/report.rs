//! The report of a supervisor to the command that started it: that its container's command runs.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use xebec_protocol::failure::Failure;

/// The number at which a supervisor finds its pipe.
pub(crate) const REPORT: i32 = 3;

/// The pipe to the process that waits for the start.
pub(crate) struct Report(Option<File>);

impl Report {
    /// Takes the pipe that this process was started with.
    pub(crate) fn take() -> Result<Self, Failure> {
        let pipe = xebec_kernel::process::take_inherited(REPORT);
        let pipe = pipe.map_err(|error| Failure::host("take the pipe of the starting command", error))?;
        Ok(Self(Some(pipe.into())))
    }

    /// The container's command runs. From here on nothing leads from this process to the one that started it.
    pub(crate) fn started(&mut self, id: &str, container: &Path) {
        if let Some(mut pipe) = self.0.take() {
            if let Ok(log) = own_log(container) {
                let _ = xebec_kernel::process::replace_output(log);
            }
            // Nobody may wait for it any more.
            let _ = writeln!(pipe, "{id}");
        }
    }

    /// Whether it was made.
    pub(crate) fn is_made(&self) -> bool {
        self.0.is_none()
    }
}

/// The file for the messages of this process from now on, in the container's directory; anew with each start by a user. On a full
/// disk it goes nowhere.
fn own_log(container: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600);
    let log = options.open(container.join("supervisor.log"));
    let log = log.and_then(|log| log.set_len(0).map(|()| log));
    log.or_else(|_| File::options().write(true).open("/dev/null"))
}
