//! Room on a full disk: before a write fails, the cache asks its owner (the daemon) to evict layers.
//!
//! Readers ask again and again for pages that cannot be kept. So room is promised before bytes are fetched (`Room::promise`),
//! and it is remembered that there was none: the cache is not looked through for each of them. A registry may never send the bytes
//! that room was promised for, so no fetch waits long for that: one that has waited goes on if the disk has the room.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Pause after an eviction that made no room: to look for layers to evict reads the whole cache.
const ASKING_PAUSE: Duration = Duration::from_secs(5);
/// After a write failed on a disk that says that it has room (a quota, mostly), one is tried so often.
const TRIAL_PAUSE: Duration = Duration::from_secs(30);

/// How long it is remembered that a fetch waited in vain for room promised to others. Fetches that come meanwhile do not wait.
const OVERDRAWN: Duration = Duration::from_secs(30);

/// Bytes that are kept free for the bitmaps of pages that come, and for the daemon's own files: without them, pages that came
/// would be fetched again.
pub(crate) const KEPT_BACK: u64 = 1 << 20;

/// Makes room on the cache's file system.
pub trait MakeRoom: Send + Sync {
    /// Frees at least `bytes` if it can; false when nothing could be freed. Called by one thread at a time, which may hold layers
    /// that are being filled.
    fn make_room(&self, bytes: u64) -> bool;
}

/// Where a store's writers ask for room, and what is known about the room there is.
#[derive(Default)]
pub struct Room {
    maker: OnceLock<Arc<dyn MakeRoom>>,
    known: Mutex<Known>,
    /// Held by the thread that has room made.
    making: Mutex<()>,
    /// Held by the caller that is about to ask for room. Without it all callers could wait in threads that decode.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// Bytes that are being fetched, and not yet written as far as is known.
    promised: u64,
    /// When no room could be made.
    asked_in_vain: Option<Instant>,
    /// When a fetch had waited in vain for room promised to others.
    overdrawn: Option<Instant>,
    /// A write failed although the file system said that it had room.
    refused: Option<Refused>,
}

struct Refused {
    /// Free bytes that the file system reported.
    free: Option<u64>,
    /// When the write failed, or the latest trial since began.
    at: Instant,
}

/// The answer of [`Room::promise`].
pub(crate) enum Answer {
    /// There is room.
    Promised(Promise),
    /// There is as much, but it is promised to other fetches, which may need less than they asked for.
    Taken,
    /// There is none.
    None,
}

/// Room that is promised to a fetch, until this is dropped.
pub(crate) struct Promise {
    room: Arc<Room>,
    bytes: u64,
    since: Instant,
}

impl Room {
    /// Sets the function that makes room; the first one stays.
    pub fn set(&self, maker: Arc<dyn MakeRoom>) {
        let _ = self.maker.set(maker);
    }

    /// Asks for room. False if no layer can be evicted, or none could a moment ago.
    pub fn make(&self, bytes: u64) -> bool {
        let Some(maker) = self.maker.get() else {
            return false;
        };
        // The result counts for all that waited for it.
        let _one = self.making.lock();
        let is_vain = |at: Instant| at.elapsed() < ASKING_PAUSE;
        if self.known.lock().asked_in_vain.is_some_and(is_vain) {
            return false;
        }
        let made = maker.make_room(bytes);
        self.known.lock().asked_in_vain = (!made).then(Instant::now);
        made
    }

    /// Waits until no other caller is about to ask for room.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes that the room that was made was not enough.
    pub(crate) fn made_in_vain(&self) {
        self.known.lock().asked_in_vain = Some(Instant::now());
    }

    /// Promises `bytes` of the `free` ones that the file system reports. A fetch that has waited long enough also gets room that is
    /// promised to others.
    pub(crate) fn promise(
        self: &Arc<Self>,
        bytes: u64,
        free: impl FnOnce() -> Option<u64>,
        has_waited: bool,
    ) -> Answer {
        let mut known = self.known.lock();
        let since = Instant::now();
        let promised = || {
            Answer::Promised(Promise {
                room: self.clone(),
                bytes,
                since,
            })
        };
        // A fetch that only compares shows nothing about the disk.
        if bytes == 0 {
            return promised();
        }
        // Asked now: what others write in between would be free, and no longer promised.
        let free = free().map(|free| free.saturating_sub(KEPT_BACK));
        if let Some(refused) = &mut known.refused {
            let grown = refused.free.zip(free);
            let has_grown = grown.is_some_and(|(then, now)| now >= then.saturating_add(bytes));
            if !has_grown && since.duration_since(refused.at) < TRIAL_PAUSE {
                return Answer::None;
            }
            // The others wait for the outcome of this one.
            refused.at = since;
            refused.free = free;
        }
        if free.is_some_and(|free| free < bytes) {
            return Answer::None;
        }
        if free.is_some_and(|free| free < known.promised.saturating_add(bytes)) {
            if has_waited {
                known.overdrawn = Some(since);
            }
            if known.overdrawn.is_none_or(|at| at.elapsed() >= OVERDRAWN) {
                return Answer::Taken;
            }
        }
        known.promised = known.promised.saturating_add(bytes);
        promised()
    }

    /// Notes that `bytes` could not be written while the file system said that `free` were there.
    pub(crate) fn refused(&self, bytes: u64, free: Option<u64>) {
        // If the file system says so itself, it will also say when there is room again.
        let free = free.map(|free| free.saturating_sub(KEPT_BACK));
        if free.is_none_or(|free| free >= bytes) {
            self.known.lock().refused = Some(Refused {
                free,
                at: Instant::now(),
            });
        }
    }
}

impl Promise {
    /// The promised bytes are written.
    pub(crate) fn kept(self) {
        if self.bytes == 0 {
            return;
        }
        let mut known = self.room.known.lock();
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
        let mut known = self.room.known.lock();
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

    fn ask(room: &Arc<Room>, bytes: u64, free: u64) -> Answer {
        room.promise(bytes, || told(free), false)
    }

    #[test]
    fn after_a_refusal_one_tries_and_the_others_wait_for_it() {
        let room = Arc::new(Room::default());
        room.refused(10, told(100));
        assert!(matches!(ask(&room, 10, 100), Answer::None));
        // More is free: one may try, the next ones not before the outcome of that try is known.
        let Answer::Promised(trial) = ask(&room, 10, 110) else {
            panic!("there is more than when it failed");
        };
        assert!(matches!(ask(&room, 10, 110), Answer::None));
        trial.kept();
        assert!(matches!(ask(&room, 10, 100), Answer::Promised(_)));
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let room = Arc::new(Room::default());
        let Answer::Promised(promise) = ask(&room, 60, 100) else {
            panic!("there is room");
        };
        assert!(matches!(ask(&room, 60, 100), Answer::Taken));
        assert!(matches!(ask(&room, 101, 100), Answer::None));
        drop(promise);
        assert!(matches!(ask(&room, 60, 100), Answer::Promised(_)));
    }

    #[test]
    fn the_last_byte_is_promised_and_none_that_is_kept_back() {
        let room = Arc::new(Room::default());
        assert!(matches!(ask(&room, 100, 100), Answer::Promised(_)));
        let Answer::Promised(_most) = ask(&room, 60, 100) else {
            panic!("there is room");
        };
        assert!(matches!(ask(&room, 40, 100), Answer::Promised(_)));
        assert!(matches!(ask(&room, 41, 100), Answer::Taken));
        let unknown = room.promise(1 << 40, || None, false);
        assert!(matches!(unknown, Answer::Promised(_)), "nobody knows better");
        let kept_back = room.promise(1, || Some(KEPT_BACK), false);
        assert!(matches!(kept_back, Answer::None));
    }

    #[test]
    fn nobody_waits_long_for_what_may_never_come() {
        let room = Arc::new(Room::default());
        let Answer::Promised(_silent) = ask(&room, 90, 100) else {
            panic!("there is room");
        };
        assert!(matches!(ask(&room, 20, 100), Answer::Taken));
        let waited = room.promise(20, || told(100), true);
        assert!(matches!(waited, Answer::Promised(_)), "the disk has it");
        assert!(
            matches!(ask(&room, 20, 100), Answer::Promised(_)),
            "the next one waits"
        );
        assert!(matches!(room.promise(101, || told(100), true), Answer::None));
    }

    #[test]
    fn what_needs_no_room_says_nothing_of_it() {
        let room = Arc::new(Room::default());
        room.refused(10, told(100));
        let Answer::Promised(nothing) = ask(&room, 0, 0) else {
            panic!("it needs none");
        };
        nothing.kept();
        assert!(
            matches!(ask(&room, 10, 100), Answer::None),
            "it is forgotten that a write failed"
        );
    }

    #[test]
    fn a_waiter_for_another_does_not_look_again() {
        struct Slow(std::sync::atomic::AtomicUsize);
        impl MakeRoom for Slow {
            fn make_room(&self, _: u64) -> bool {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200));
                false
            }
        }
        let (room, maker) = (Arc::new(Room::default()), Arc::new(Slow(Default::default())));
        room.set(maker.clone());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(!room.make(1)));
            }
        });
        assert_eq!(maker.0.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
