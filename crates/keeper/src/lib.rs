//! The keeper: the process that outlives every worker, so that no reader ever sees zeros; and the client of the daemon.
//!
//! It holds the fanotify group, the journal and the listening socket, and does nothing else: it knows no image,
//! opens no network connection, and never reads from the cache. If a worker dies, the keeper reaps it,
//! records its death, and starts a successor, which takes over the unanswered events. Readers wait
//! meanwhile. The keeper starts in this order:
//!
//! 1. the locks (`locks`): one keeper per run directory, one daemon per run directory and per root directory;
//! 2. the holdings (`holdings`): made anew, or handed down by the service manager or by the program that this one replaces, or
//!    copied from a worker that lost its keeper;
//! 3. the socket, last: a client that can connect may count on the rest.
//!
//! It ends in one of three ways:
//! * a worker reported before it ended that nothing needs events any more: the keeper takes everything down (`ending`), and denies
//!   events that are still unanswered; it never releases them;
//! * the service manager stops the service: the keeper leaves, and the worker goes on alone with the same holdings;
//! * `xebec daemon upgrade`: the keeper executes the new program, which keeps process id and holdings, lets the
//!   worker end, and starts one of its own.
//!
//! The keeper is one thread without a runtime, short enough to be read in one sitting: `state` is its start, `supervisor` its loop,
//! `waiting` has the events of the loop.
//!
//! A worker finds its inherited descriptors by [`descriptors`], and watches its keeper by [`watch`]. [`client`] is the command line's
//! side of the socket: it starts the daemon when there is none, asks, and listens.
//!
//! Promises: while a keeper or a worker lives, readers wait and never see zeros; an event that was read is answered by a worker, or
//! denied, never released.
//!
//! May use: `kernel`, and `protocol` for paths, settings and messages.

mod backoff;
pub mod client;
mod config;
mod containerd;
mod crash_attribution;
pub mod descriptors;
mod ending;
mod error;
mod files;
mod guard;
mod holdings;
mod locks;
mod manager;
mod poll;
mod process_file;
mod signals;
mod state;
mod supervisor;
mod waiting;
pub mod watch;

pub use config::KeeperConfig;
pub use containerd::listens;
pub use error::{KeeperError, LockError};
pub use locks::is_running;
pub use process_file::write_process;
pub use signals::{REPLACE, WORKER_SIGNALS};
pub use state::upgrade_file;
pub use supervisor::{run, say_ready};
/// Version of the journal that keepers and workers of this program share; one of another version cannot take it over.
pub use xebec_kernel::journal::VERSION as JOURNAL_VERSION;
