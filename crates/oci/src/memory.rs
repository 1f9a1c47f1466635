//! Facts about registries that outlive one call.
//!
//! A registry without the referrers API costs a start a request and a round trip that say nothing. So it is remembered that
//! it has none, where nothing else can be meant: for a day, since registries are upgraded, and only until it answers.
//!
//! A registry of Xebec says in each answer that it answers starts in advance. A start wants to know that before it asks for anything, so
//! it is remembered for a week, and until the registry has no such answer.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// How long it is remembered that a registry has no referrers API.
pub const LACK_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// How long it is remembered that a registry answers starts in advance.
pub const NATIVE_LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How old that memory is at least before it is renewed: an answer costs no write else.
const NATIVE_RENEWED: Duration = Duration::from_secs(24 * 60 * 60);

/// Keeps what is known about servers, which are named by `host[:port][/path]`. It is asked in the tasks of calls, so it must not
/// block for longer than a small file takes.
pub trait RegistryMemory: Debug + Send + Sync {
    /// When the server was last seen to have no referrers API; `None` if it has one or that is not known.
    fn lacked_referrers(&self, server: &str) -> Option<SystemTime>;
    /// It was seen to have one (`true`), or to have none.
    fn saw_referrers(&self, server: &str, has: bool);
    /// When the server was last seen to answer starts in advance; `None` if it does not or that is not known.
    fn seen_native(&self, server: &str) -> Option<SystemTime>;
    /// It was seen to do so (`true`), or not to.
    fn saw_native(&self, server: &str, is: bool);
}

/// Whether a server is remembered to have no referrers API.
pub(crate) fn lacks_referrers(memory: &dyn RegistryMemory, server: &str) -> bool {
    is_fresh(memory.lacked_referrers(server), LACK_LASTS)
}

/// Whether a server is remembered to answer starts in advance.
pub(crate) fn is_native(memory: &dyn RegistryMemory, server: &str) -> bool {
    is_fresh(memory.seen_native(server), NATIVE_LASTS)
}

/// A server says that it answers starts in advance.
pub(crate) fn note_native(memory: &dyn RegistryMemory, server: &str) {
    if !is_fresh(memory.seen_native(server), NATIVE_RENEWED) {
        memory.saw_native(server, true);
    }
}

fn is_fresh(seen: Option<SystemTime>, lasts: Duration) -> bool {
    // A time that is yet to come is of a clock that was set back since.
    seen.and_then(|seen| seen.elapsed().ok())
        .is_some_and(|ago| ago < lasts)
}

/// A memory that lasts as long as the client.
#[derive(Debug, Default)]
pub(crate) struct ShortMemory {
    lacking: Mutex<HashMap<String, SystemTime>>,
    native: Mutex<HashMap<String, SystemTime>>,
}

fn put(seen: &Mutex<HashMap<String, SystemTime>>, server: &str, is: bool) {
    match is {
        true => seen.lock().insert(server.to_owned(), SystemTime::now()),
        false => seen.lock().remove(server),
    };
}

impl RegistryMemory for ShortMemory {
    fn lacked_referrers(&self, server: &str) -> Option<SystemTime> {
        self.lacking.lock().get(server).copied()
    }

    fn saw_referrers(&self, server: &str, has: bool) {
        put(&self.lacking, server, !has);
    }

    fn seen_native(&self, server: &str) -> Option<SystemTime> {
        self.native.lock().get(server).copied()
    }

    fn saw_native(&self, server: &str, is: bool) {
        put(&self.native, server, is);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_believed_for_a_day() {
        let memory = ShortMemory::default();
        let set = |time| {
            memory.lacking.lock().insert("r".to_owned(), time);
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
