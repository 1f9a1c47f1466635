//! How a call is carried out, apart from what it asks for: how long it tries, which mirror it asks last, what observes it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Fault;

/// Tries of a call that has little time.
const HASTY_ATTEMPTS: u32 = 2;
/// How long a registry is asked again of which nothing is known here, and at whose address nobody listens: as long as one takes
/// that is just being started.
const NOBODY_THERE: Duration = Duration::from_secs(3);
/// The same while there is no answer at all: from its name server, or from its address.
const SILENCE: Duration = Duration::from_secs(30);

/// The thing that a call is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A place among the requests under way to that registry, or the end of a `Retry-After`.
    Place,
    /// A token, its credential helper included.
    Token,
    /// The connection and the head of an answer.
    Head,
    /// The body of an answer.
    Body,
    /// The time of the next try, after a fault.
    Pause,
}

/// Watches one call: what it waits for, from the moment when that begins until it waits for something else.
///
/// This is how readers are told why they wait. It is called from the tasks of the call and must not block.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// The call begins to wait for this, and no longer waits for what it said before.
    fn waits(&self, wait: Wait);
    /// These bytes of content came from that registry or mirror (`host[:port]`), perhaps by a redirect.
    fn received(&self, from: &str, bytes: u64);
    /// A try failed and another will follow.
    fn retries(&self, fault: &Fault);
}

/// How long a call tries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Patience {
    /// As [`crate::config::Budget`] says: a person waits.
    #[default]
    Budget,
    /// The same, but not for long while nobody is there at all: nothing that was asked before depends on it, and the name may be
    /// wrong.
    FirstContact,
    /// A try or two within this time: there is something else to fall back on.
    Hasty(Duration),
    /// Again and again until then: a program waits that would rather wait than fail.
    Until(Instant),
}

impl Patience {
    /// Tries without progress.
    pub(crate) fn attempts(self, budget: u32) -> u32 {
        match self {
            Self::Budget | Self::FirstContact => budget,
            Self::Hasty(_) => HASTY_ATTEMPTS.min(budget),
            Self::Until(_) => u32::MAX,
        }
    }

    /// Time for a call that begins now.
    pub(crate) fn time(self, budget: Duration) -> Duration {
        match self {
            Self::Budget | Self::FirstContact => budget,
            Self::Hasty(time) => time.min(budget),
            Self::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
        }
    }

    /// For how long a call goes on that meets this fault; no limit of its own when absent.
    pub(crate) fn bears(self, fault: &Fault) -> Option<Duration> {
        match (self, fault) {
            (Self::FirstContact, Fault::NobodyThere(_)) => Some(NOBODY_THERE),
            (Self::FirstContact, Fault::Connect(_) | Fault::Timeout(..)) => Some(SILENCE),
            _ => None,
        }
    }

    /// Whether what a person has to mend is waited for, too.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Self::Until(_))
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallOptions {
    pub(crate) patience: Patience,
    pub(crate) avoided: Arc<[String]>,
}
