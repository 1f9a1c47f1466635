//! Facts about registries that outlive one call.
//!
//! A registry without the referrers API costs a start a request and a round trip that say nothing. So it is remembered that
//! it has none, where nothing else can be meant: for a day, since registries are upgraded, and only until it answers.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// How long it is remembered that a registry has no referrers API.
pub const LACK_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// Keeps what is known about servers, which are named by `host[:port][/path]`. It is asked in the tasks of calls, so it must not
/// block for longer than a small file takes.
pub trait RegistryMemory: Debug + Send + Sync {
    /// When the server was last seen to have no referrers API; `None` if it has one or that is not known.
    fn lacked_referrers(&self, server: &str) -> Option<SystemTime>;
    /// It was seen to have one (`true`), or to have none.
    fn saw_referrers(&self, server: &str, has: bool);
}

/// Whether a server is remembered to have no referrers API.
pub(crate) fn lacks_referrers(memory: &dyn RegistryMemory, server: &str) -> bool {
    let seen = memory.lacked_referrers(server);
    // A time that is yet to come is of a clock that was set back since.
    seen.and_then(|seen| seen.elapsed().ok())
        .is_some_and(|ago| ago < LACK_LASTS)
}

/// A memory that lasts as long as the client.
#[derive(Debug, Default)]
pub(crate) struct ShortMemory(Mutex<HashMap<String, SystemTime>>);

impl RegistryMemory for ShortMemory {
    fn lacked_referrers(&self, server: &str) -> Option<SystemTime> {
        let seen = self.0.lock();
        seen.get(server).copied()
    }

    fn saw_referrers(&self, server: &str, has: bool) {
        let mut seen = self.0.lock();
        match has {
            true => seen.remove(server),
            false => seen.insert(server.to_owned(), SystemTime::now()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_believed_for_a_day() {
        let memory = ShortMemory::default();
        let set = |time| {
            memory.0.lock().insert("r".to_owned(), time);
        };
        assert!(!lacks_referrers(&memory, "r"));
        memory.saw_referrers("r", false);
        assert!(lacks_referrers(&memory, "r"));
        assert!(!lacks_referrers(&memory, "other"));
        set(SystemTime::now() - LACK_LASTS);
        assert!(!lacks_referrers(&memory, "r"), "it may have been upgraded");
        set(SystemTime::now() + Duration::from_secs(60));
        assert!(!lacks_referrers(&memory, "r"), "nobody has seen that yet");
        memory.saw_referrers("r", false);
        memory.saw_referrers("r", true);
        assert!(!lacks_referrers(&memory, "r"));
    }
}
