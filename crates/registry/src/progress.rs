//! How far a command is, on a line of the terminal that is written again and again. Where standard error is no terminal, nothing is said.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The line is written no more often than this.
const EVERY: Duration = Duration::from_millis(200);
/// To the line's begin, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The line.
pub(crate) struct Progress {
    is_shown: bool,
    said: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            said: None,
        }
    }

    /// Says how far it is, unless that was said just now.
    pub(crate) fn say(&mut self, text: fmt::Arguments<'_>) {
        if !self.is_shown || self.said.is_some_and(|said| said.elapsed() < EVERY) {
            return;
        }
        self.said = Some(Instant::now());
        write(&format!("{CLEAR}{text}"));
    }
}

/// Takes the line away.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.said.is_some() {
            write(CLEAR);
        }
    }
}

/// Writes a text on standard error. Text that cannot be written is dropped.
fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}
