//! The progress of a command, in one line on the terminal, and notices. Without a terminal there are only notices.
//!
//! The line appears when a command takes longer than a second. A thread draws it anew some times a second, so that it counts on
//! while nothing is heard. It is the last line of the terminal at all times: code that prints takes it away first
//! ([`Progress::show`], [`Progress::end`]).

mod line;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::termios::tcgetwinsize;
use xebec_images::images::Report;
use xebec_protocol::wire::Reply;

use crate::print;
use line::Line;

/// How often the line is drawn.
const EACH: Duration = Duration::from_millis(200);
/// Columns of a terminal that does not say how many it has.
const USUAL_COLUMNS: u16 = 80;
/// Takes the line away: back to its begin, and erase to its end (ECMA-48).
const ERASE: &str = "\r\x1b[K";

/// Set once: the user wants neither progress nor notices.
static QUIET: AtomicBool = AtomicBool::new(false);
/// Set once: log lines are printed, which would be mixed with the line.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// Sets the notices and progress of all commands of this process: with `quiet`, neither progress nor notices; with log lines, no progress.
pub(crate) fn set(quiet: bool, logs: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    PLAIN.store(logs, Ordering::Relaxed);
}

/// Whether progress is shown: on a terminal only.
pub(crate) fn is_shown() -> bool {
    std::io::stderr().is_terminal() && !QUIET.load(Ordering::Relaxed) && !PLAIN.load(Ordering::Relaxed)
}

/// See the module.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    drawing: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    line: Line,
    is_drawn: bool,
    has_ended: bool,
}

impl Progress {
    /// Begins to show the progress of `what`, such as "pull nginx".
    pub(crate) fn of(what: impl Into<String>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                line: Line::new(what.into(), Instant::now()),
                is_drawn: false,
                has_ended: false,
            }),
            ended: Condvar::new(),
        });
        let drawing = is_shown().then(|| {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("progress".to_owned());
            thread.spawn(move || shared.draw_on()).ok()
        });
        Self {
            shared,
            drawing: drawing.flatten(),
        }
    }

    /// Shows a progress reply or a notice.
    pub(crate) fn show(&self, reply: &Reply) {
        let mut state = self.shared.state.lock();
        match reply {
            Reply::Notice { text } => {
                state.erase();
                if !QUIET.load(Ordering::Relaxed) {
                    errln!("note: {text}");
                }
            }
            reply => state.line.note(reply, Instant::now()),
        }
    }

    /// Shows nothing more: later output stays on the terminal.
    pub(crate) fn end(&self) {
        let mut state = self.shared.state.lock();
        state.has_ended = true;
        state.erase();
        self.shared.ended.notify_all();
    }

    /// The report that functions of other crates call while they work.
    pub(crate) fn report(self: &Arc<Self>) -> Report {
        let this = self.clone();
        Arc::new(move |reply| this.show(&reply))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join();
        }
    }
}

impl Shared {
    /// Draws the line until the end.
    fn draw_on(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            state.draw();
            self.ended.wait_for(&mut state, EACH);
        }
    }
}

impl State {
    fn draw(&mut self) {
        let size = tcgetwinsize(rustix::stdio::stderr());
        let columns = size.map_or(0, |size| size.ws_col);
        let columns = if columns == 0 { USUAL_COLUMNS } else { columns };
        match self.line.text(Instant::now(), usize::from(columns) - 1) {
            Some(text) => {
                print::err(format_args!("{ERASE}{text}"));
                self.is_drawn = true;
            }
            None => self.erase(),
        }
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            print::err(format_args!("{ERASE}"));
        }
    }
}
