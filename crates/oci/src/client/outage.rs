//! Tells a caller that a call waits for a registry: a user at a terminal wants to know for which one, why, and for how long yet.
//!
//! A call does not know for whom it is made. So the code that carries out a user's command listens around the call ([`listening`]),
//! and hears of all calls that are made in the same task.

use std::sync::Arc;
use std::time::Duration;

tokio::task_local! {
    static LISTENER: Listener;
}

/// Is called from the tasks of calls and must not block.
pub type Listener = Arc<dyn Fn(Outage) + Send + Sync>;

/// A change in the state of a call whose tries fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outage {
    /// A try failed, and the call waits for the next one.
    Waits {
        /// The registry or mirror, `host[:port]`.
        registry: String,
        /// Why the last try failed.
        why: String,
        /// Tries so far.
        tried: u32,
        /// The most tries, if they are counted.
        tries: Option<u32>,
        /// When the next try is due.
        pause: Duration,
        /// When the call gives up at the latest.
        left: Duration,
    },
    /// The call goes on, or is given up.
    Over {
        /// The registry or mirror.
        registry: String,
    },
}

/// Has `listener` hear of the calls that `work` makes.
pub async fn listening<T>(listener: Listener, work: impl Future<Output = T>) -> T {
    LISTENER.scope(listener, work).await
}

/// Tells the listener, if there is one.
pub(crate) fn tell(outage: impl FnOnce() -> Outage) {
    // Outside of a task there is nobody.
    let _ = LISTENER.try_with(|listener| listener(outage()));
}
