//! Output of this program on standard output and standard error. Clippy denies `println!` and its kin, which panic when the other end
//! is gone. Text that cannot be written is dropped: the log and the exit code say how a command ended.

use std::fmt;
use std::io::{self, Write as _};

/// Prints a line on standard output.
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::print::out(format_args!($($argument)*))
    };
}

/// Prints text on standard output as it is.
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::print::whole(format_args!($($argument)*))
    };
}

/// Prints a line on standard error.
macro_rules! errln {
    ($($argument:tt)*) => {
        $crate::print::err(format_args!($($argument)*))
    };
}

/// Behind `outln!`.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    let _ = io::stdout().lock().write_all(format!("{text}\n").as_bytes());
}

/// Behind `out!`.
pub(crate) fn whole(text: fmt::Arguments<'_>) {
    let _ = io::stdout().lock().write_all(text.to_string().as_bytes());
}

/// Behind `errln!`.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes stay whole.
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
