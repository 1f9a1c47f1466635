//! The worker's intake of events: read into the journal, handed on, answered.
//!
//! A worker is started by the keeper with a fanotify group, the journal and the listening socket at agreed
//! numbers. The first thing that its `main` does is [`take_inherited`]: it takes them over and occupies the
//! number of every event that a dead predecessor left owed. Only then may anything else be opened.
//!
//! [`EventLoop::start`] then hands the left events to the [`EventHandler`], together with new ones, which one
//! thread reads. The handler answers each of them whenever it can, from any thread, through its [`Answer`].
//! Promises:
//! * Every event that was read is answered, by this worker or by a successor; see
//!   [`xebec_kernel::journal`] for the rules.
//! * Reading stops before the table of owed events is full or descriptors run short: readers then wait in the
//!   kernel's queue.
//! * An event that was being filled when as many workers died as are allowed is denied, and named in the log.
//!   One that is a death away from that is filled alone among its like, so that the next death points at it.
//!
//! Why the worker reads, and not the keeper: `docs/decisions/0003-who-reads-events.md`.

mod answer;
mod error;
mod event;
mod event_loop;
mod inherited;

pub use answer::Answer;
pub use error::EventError;
pub use event::Event;
pub use event_loop::EventLoop;
pub use inherited::{Inherited, LeftEvents, take_inherited};

use std::sync::Arc;

use xebec_kernel::file::FileIdentity;

/// Brings bytes in.
pub trait EventHandler: Send + Sync + 'static {
    /// Sees to it that `event`'s bytes are in its file, then answers.
    ///
    /// Called by the thread that reads events, so it must not block: it answers at once or hands both values
    /// on. It must never read through a guarded or lazy mount.
    fn handle(self: Arc<Self>, event: Event, answer: Answer);

    /// A name of a file for people, for log messages about events that are denied.
    fn describe(&self, file: FileIdentity) -> Option<String> {
        let _ = file;
        None
    }
}
