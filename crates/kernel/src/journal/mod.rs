//! The journal: every event that is owed an answer is on record, from the instant it is read.
//!
//! A reader that waits for bytes is released by an answer that names the *number* of the descriptor which came
//! with its event. If the worker that read the event dies, its successor can still answer, provided that it
//! knows the number, and provided that nobody else's event has the same number. Hence the rules (numbers as in
//! the design's "Keeper"), each held by the code named here:
//!
//! 1. Events are `read(2)` straight into the journal's raw buffer, which is zeroed before each read: the
//!    kernel's own copy is the record. Then each goes into the pending table with its file's identity, and only
//!    then is the raw buffer cleared ([`Intake::read`]).
//! 2. An answered event: answer, free the entry, close the descriptor, in this order ([`Owed::answer`]). The
//!    number of an owed event is never reused: a successor first occupies every owed number in its descriptor
//!    table, before it opens anything ([`Journal::adopt`]).
//! 3. An entry whose file was not yet known says so ([`Owed::file`] is `None`): its range must be filled in
//!    every file it could be.
//! 4. One descriptor table owes answers at a time: the old worker must be gone before a successor adopts. The keeper
//!    waits for that; and a worker that adopts holds a lock on the journal until its process ends, so that a keeper which
//!    does not know of a worker cannot set another beside it ([`Journal::adopt`]).
//! 5. An entry that was being filled when a worker died remembers it ([`Journal::record_end`],
//!    [`Owed::is_condemned`]).
//!
//! Other facts that must outlive any one process stand here too: the keeper's and the worker's process id, and how the last worker ended
//! ([`LastWord`], [`Custody`]).
//!
//! Proven by killing workers at every step under load: `crates/fill/tests/keeper`.

mod clock;
mod error;
mod intake;
mod layout;
mod limits;
mod owed;
mod shared;
mod stage;

pub use clock::waited_since;
pub use error::JournalError;
pub use intake::Intake;
pub use limits::{CAPACITY, RAW_BYTES};
pub use owed::{Owed, Verdict};
pub use shared::{Counters, Custody, DEFAULT_DEATHS_ALLOWED, Journal, LastWord, PREDECESSOR};
pub use stage::{Stage, observe_stages};

/// Version of the journal's layout: a program of another version cannot take it over.
pub const VERSION: u32 = layout::VERSION;
