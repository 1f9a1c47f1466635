//! Room on a full disk: whoever knows what may go is asked to evict, before a write fails.
//!
//! Readers ask again and again for what cannot be kept. So room is promised before bytes are fetched (`Room::promise`),
//! and it is remembered that there was none: the cache is not looked through for each of them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// After no room could be made, nobody is asked for so long: looking for what may go reads the whole cache.
const ASKING_PAUSE: Duration = Duration::from_secs(5);
/// After a write failed on a disk that says that it has room (a quota, mostly), one is tried so often.
const TRIAL_PAUSE: Duration = Duration::from_secs(30);

/// What is left for the bitmaps of what comes, and for what the daemon writes down: without them, pages that came would be
/// fetched again.
pub(crate) const KEPT_BACK: u64 = 1 << 20;

/// Makes room on the cache's file system.
pub trait MakeRoom: Send + Sync {
    /// Frees at least `bytes` if it can; false when nothing could be freed. May be called from several threads at
    /// once, which may hold layers that are being filled.
    fn make_room(&self, bytes: u64) -> bool;
}

/// Where a store's writers find who makes room, if anybody does, and what is known of the room there is.
#[derive(Default)]
pub struct Room {
    maker: OnceLock<Arc<dyn MakeRoom>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Bytes that are being fetched, and not yet written as far as is known.
    promised: u64,
    /// When no room could be made.
    asked_in_vain: Option<Instant>,
    /// A write failed although the file system said that it had room.
    refused: Option<Refused>,
}

struct Refused {
    /// What the file system said was free.
    free: Option<u64>,
    /// When the write failed, or the latest trial since began.
    at: Instant,
}

/// What [`Room::promise`] says.
pub(crate) enum Answer {
    /// There is room.
    Promised(Promise),
    /// There is as much, but it is promised to others, who may need less than they think.
    Taken,
    /// There is none.
    None,
}

/// Room that somebody counts on, until it is dropped.
pub(crate) struct Promise {
    room: Arc<Room>,
    bytes: u64,
    since: Instant,
}

impl Room {
    /// Names who makes room; the first to be named stays.
    pub fn set(&self, maker: Arc<dyn MakeRoom>) {
        let _ = self.maker.set(maker);
    }

    /// Asks for room. False when nobody can make any, or could not a moment ago.
    pub fn make(&self, bytes: u64) -> bool {
        let Some(maker) = self.maker.get() else {
            return false;
        };
        let is_vain = |at: Instant| at.elapsed() < ASKING_PAUSE;
        if self.lock().asked_in_vain.is_some_and(is_vain) {
            return false;
        }
        let made = maker.make_room(bytes);
        self.lock().asked_in_vain = (!made).then(Instant::now);
        made
    }

    /// Notes that what was made was not enough.
    pub(crate) fn made_in_vain(&self) {
        self.lock().asked_in_vain = Some(Instant::now());
    }

    /// Promises `bytes` of the `free` ones that the file system tells of.
    pub(crate) fn promise(self: &Arc<Self>, bytes: u64, free: Option<u64>) -> Answer {
        let free = free.map(|free| free.saturating_sub(KEPT_BACK));
        let mut known = self.lock();
        let since = Instant::now();
        if let Some(refused) = &mut known.refused {
            let grown = refused.free.zip(free);
            let has_grown = grown.is_some_and(|(then, now)| now >= then.saturating_add(bytes));
            if !has_grown && since.duration_since(refused.at) < TRIAL_PAUSE {
                return Answer::None;
            }
            // The others wait for what becomes of this one.
            refused.at = since;
            refused.free = free;
        }
        if free.is_some_and(|free| free < bytes) {
            return Answer::None;
        }
        if free.is_some_and(|free| free < known.promised.saturating_add(bytes)) {
            return Answer::Taken;
        }
        known.promised = known.promised.saturating_add(bytes);
        drop(known);
        Answer::Promised(Promise {
            room: self.clone(),
            bytes,
            since,
        })
    }

    /// Notes that `bytes` could not be written while the file system said that `free` were there.
    pub(crate) fn refused(&self, bytes: u64, free: Option<u64>) {
        // If the file system says so itself, it will also say when there is room again.
        let free = free.map(|free| free.saturating_sub(KEPT_BACK));
        if free.is_none_or(|free| free >= bytes) {
            self.lock().refused = Some(Refused {
                free,
                at: Instant::now(),
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promise {
    /// What was promised is written.
    pub(crate) fn kept(self) {
        let mut known = self.room.lock();
        if known
            .refused
            .as_ref()
            .is_some_and(|refused| self.since >= refused.at)
        {
            known.refused = None;
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut known = self.room.lock();
        known.promised = known.promised.saturating_sub(self.bytes);
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: u64) -> Option<u64> {
        Some(KEPT_BACK + bytes)
    }

    #[test]
    fn after_a_refusal_one_tries_and_the_others_wait_for_it() {
        let room = Arc::new(Room::default());
        room.refused(10, told(100));
        assert!(matches!(room.promise(10, told(100)), Answer::None));
        // More is free: one may try, the next ones not before it is known what became of that.
        let Answer::Promised(trial) = room.promise(10, told(110)) else {
            panic!("there is more than when it failed");
        };
        assert!(matches!(room.promise(10, told(110)), Answer::None));
        trial.kept();
        assert!(matches!(room.promise(10, told(100)), Answer::Promised(_)));
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let room = Arc::new(Room::default());
        let Answer::Promised(promise) = room.promise(60, told(100)) else {
            panic!("there is room");
        };
        assert!(matches!(room.promise(60, told(100)), Answer::Taken));
        assert!(matches!(room.promise(101, told(100)), Answer::None));
        drop(promise);
        assert!(matches!(room.promise(60, told(100)), Answer::Promised(_)));
    }
}
