//! Standard output and standard error of this program. Nothing else in this crate writes there: clippy denies
//! `println!` and its kin, which panic when the other end is gone.
//!
//! * Standard output whose reader is gone (`xebec images | head -1`) is no error. Further output is dropped, the command does the
//!   rest of its work, and its exit code is that of its work. A command that prints until somebody stops it calls
//!   [`end_with_reader`] first, and then ends quietly with 0.
//! * Any other failure of standard output, such as a full disk, is an error: the command does its work, then it says so on
//!   standard error and ends with 125 ([`finish`]).
//! * Failures of standard error are ignored: there is no place left to report them.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use xebec_protocol::failure::{Failure, FailureKind};

/// The state of standard output.
enum Output {
    /// All that was printed so far is written.
    Good,
    /// Its reader is gone.
    Unread,
    /// It takes nothing more, for this reason.
    Failed(io::Error),
}

static OUTPUT: Mutex<Output> = Mutex::new(Output::Good);
static FAILURES_ARE_JSON: AtomicBool = AtomicBool::new(false);
static ENDS_WITH_READER: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::print::out(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Prints on standard output.
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::print::out(format_args!($($argument)*))
    };
}

/// Prints a line on standard error.
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::print::err(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Behind `out!` and `outln!`.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    write_with(|| io::stdout().lock().write_fmt(text));
}

/// Behind `errln!`.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes stay whole.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// From here on failures are printed for programs: the command was told to print JSON.
pub(crate) fn failures_as_json() {
    FAILURES_ARE_JSON.store(true, Ordering::Relaxed);
}

/// Prints the failure of the command on standard error.
pub(crate) fn failure(failure: &Failure) {
    match FAILURES_ARE_JSON.load(Ordering::Relaxed) {
        true => errln!("{}", serde_json::json!({ "error": failure })),
        false => errln!("xebec: {failure}"),
    }
}

/// Writes on standard output with `write`, for code that formats and colours its text itself.
pub(crate) fn write_with(write: impl FnOnce() -> io::Result<()>) {
    let mut output = OUTPUT.lock();
    if !matches!(*output, Output::Good) {
        return;
    }
    let Err(error) = write() else { return };
    if error.kind() != io::ErrorKind::BrokenPipe {
        *output = Output::Failed(error);
        return;
    }
    *output = Output::Unread;
    if ENDS_WITH_READER.load(Ordering::Relaxed) {
        std::process::exit(0);
    }
}

/// From here on the command ends as soon as nobody reads its standard output any more. For commands that print until somebody
/// stops them, and leave nothing half done.
pub(crate) fn end_with_reader() {
    ENDS_WITH_READER.store(true, Ordering::Relaxed);
}

/// The exit code of this process, whose work came to `code`: a success is none if its output is not written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    write_with(|| io::stdout().lock().flush());
    let output = OUTPUT.lock();
    let Output::Failed(error) = &*output else {
        return code;
    };
    let unwritten = Failure::new(
        FailureKind::Host,
        format_args!("cannot write to standard output: {error}"),
    );
    failure(&unwritten);
    match code == ExitCode::SUCCESS {
        true => unwritten.kind.exit_code().into(),
        false => code,
    }
}
