//! Which restored blobs stay on the disk: S3-FIFO ("FIFO queues are all you need for cache eviction", SOSP 2023), by bytes instead of by number, and with
//! a queue before its two.
//!
//! A blob that is restored before somebody asks waits in the first queue until a client asks for it, and only goes for others of its kind, once these
//! have half of the room: a client takes a second or ten from the manifest to the layers. Then the blob goes into a small queue. If it is asked for
//! again by the time it reaches the end of that, it moves to the main queue, where each use buys one more round; else it goes, and is remembered
//! for a while: if it comes back soon, it goes to the main queue at once. Blobs that are pulled once, which are most, so pass through a tenth of the
//! room and push out nothing that is pulled again and again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// The share of the small queue: one of so many bytes.
const SMALL: u64 = 10;
/// More uses than these are not counted.
const MOST_USES: u8 = 3;
/// Keys that are remembered after they have gone, at most.
const MOST_REMEMBERED: usize = 1 << 16;

/// The keys that a cache has, and which of them goes next.
#[derive(Debug)]
pub(crate) struct Policy<K> {
    room: u64,
    entries: HashMap<K, Entry>,
    expected: Queue<K>,
    small: Queue<K>,
    main: Queue<K>,
    gone: VecDeque<K>,
    is_gone: HashSet<K>,
}

#[derive(Debug)]
struct Entry {
    size: u64,
    uses: u8,
    place: Place,
}

/// The queue that something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Expected,
    Small,
    Main,
}

/// Keys in the order in which they came, and the bytes of all.
#[derive(Debug)]
struct Queue<K> {
    keys: VecDeque<K>,
    bytes: u64,
}

impl<K: Eq> Queue<K> {
    fn new() -> Self {
        Self {
            keys: VecDeque::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, key: K, size: u64) {
        self.keys.push_back(key);
        self.bytes += size;
    }

    fn remove(&mut self, key: &K, size: u64) {
        if let Some(at) = self.keys.iter().position(|other| other == key) {
            self.keys.remove(at);
            self.bytes -= size;
        }
    }
}

impl<K: Clone + Eq + Hash> Policy<K> {
    /// One for so many bytes.
    pub(crate) fn new(room: u64) -> Self {
        Self {
            room,
            entries: HashMap::new(),
            expected: Queue::new(),
            small: Queue::new(),
            main: Queue::new(),
            gone: VecDeque::new(),
            is_gone: HashSet::new(),
        }
    }

    /// The bytes of all that is here.
    pub(crate) fn bytes(&self) -> u64 {
        self.expected.bytes + self.small.bytes + self.main.bytes
    }

    /// Whether something is here.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether something is here that will be asked for soon. Then it stays longer.
    pub(crate) fn expect(&mut self, key: &K) -> bool {
        let found = self.entries.get_mut(key);
        found.is_some_and(|entry| {
            if entry.place != Place::Expected {
                entry.uses = (entry.uses + 1).min(MOST_USES);
            }
            true
        })
    }

    /// Whether something is here that is asked for now.
    pub(crate) fn use_one(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        match entry.place {
            Place::Expected => {
                entry.place = Place::Small;
                self.expected.remove(key, entry.size);
                self.small.push(key.clone(), entry.size);
            }
            Place::Small | Place::Main => entry.uses = (entry.uses + 1).min(MOST_USES),
        }
        true
    }

    /// Whether something of this size may come at all.
    pub(crate) fn takes(&self, size: u64) -> bool {
        size <= self.room / 2
    }

    /// Something has come. Returns what has to go for it, which may be the thing itself.
    pub(crate) fn insert(&mut self, key: K, size: u64) -> Vec<K> {
        if self.entries.contains_key(&key) {
            return Vec::new();
        }
        let place = match self.is_gone.remove(&key) {
            true => Place::Main,
            false => Place::Expected,
        };
        self.queue(place).push(key.clone(), size);
        self.entries.insert(key, Entry { size, uses: 0, place });
        let mut gone = Vec::new();
        while self.bytes() > self.room {
            gone.extend(self.let_go());
        }
        gone
    }

    /// Something is gone by itself.
    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.queue(entry.place).remove(key, entry.size);
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue<K> {
        match place {
            Place::Expected => &mut self.expected,
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
        }
    }

    /// Takes the first one out of the queue that has too much. It goes, or is put where it stays longer.
    fn let_go(&mut self) -> Option<K> {
        let has_small = !self.small.keys.is_empty();
        let place = if self.expected.bytes > self.room / 2 {
            Place::Expected
        } else if has_small && (self.small.bytes > self.room / SMALL || self.main.keys.is_empty()) {
            Place::Small
        } else if !self.main.keys.is_empty() {
            Place::Main
        } else {
            Place::Expected
        };
        let key = self.queue(place).keys.pop_front()?;
        let entry = self.entries.get_mut(&key)?;
        let size = entry.size;
        match place {
            Place::Small if entry.uses > 0 => {
                (entry.uses, entry.place) = (0, Place::Main);
                self.small.bytes -= size;
                self.main.push(key, size);
                return None;
            }
            Place::Main if entry.uses > 0 => {
                entry.uses -= 1;
                self.main.keys.push_back(key);
                return None;
            }
            _ => {}
        }
        self.queue(place).bytes -= size;
        self.entries.remove(&key);
        if place != Place::Main {
            self.remember(key.clone());
        }
        Some(key)
    }

    fn remember(&mut self, key: K) {
        if self.is_gone.insert(key.clone()) {
            self.gone.push_back(key);
        }
        let most = MOST_REMEMBERED.min(2 * self.entries.len() + 16);
        while self.gone.len() > most {
            if let Some(oldest) = self.gone.pop_front() {
                self.is_gone.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_outlives_what_is_used_once() {
        let mut policy = Policy::new(100);
        for key in 0..5 {
            assert!(policy.insert(key, 10).is_empty());
        }
        for key in [0, 1, 2, 3, 4, 0, 1, 2, 3, 4] {
            assert!(policy.use_one(&key));
        }
        let mut gone = Vec::new();
        for key in 100..200 {
            gone.extend(policy.insert(key, 10));
            policy.use_one(&key);
            assert!(policy.bytes() <= 100);
        }
        assert!(gone.iter().all(|key| *key >= 100), "{gone:?}");
        assert!((0..5).all(|key| policy.use_one(&key)));
    }

    #[test]
    fn what_nobody_has_asked_for_yet_outlives_what_was_asked_for_once() {
        let mut policy = Policy::new(100);
        policy.insert(1, 10);
        for key in 100..200 {
            policy.insert(key, 10);
            // Asked for at once: these pass through.
            assert!(policy.use_one(&key));
        }
        assert!(policy.has(&1));
        // Those that nobody asks for go for each other.
        for key in 200..205 {
            policy.insert(key, 10);
        }
        assert!(!policy.has(&1));
        assert!(policy.has(&204));
    }

    #[test]
    fn what_is_expected_again_stays_longer() {
        let mut policy = Policy::new(100);
        for key in 0..2 {
            policy.insert(key, 10);
            policy.use_one(&key);
        }
        assert!(policy.expect(&1));
        for key in 100..120 {
            policy.insert(key, 10);
            policy.use_one(&key);
        }
        assert!(!policy.has(&0));
        assert!(policy.has(&1));
    }

    #[test]
    fn what_comes_back_soon_stays_longer() {
        let mut policy = Policy::new(100);
        policy.insert(1, 10);
        let mut gone = Vec::new();
        for key in 100..110 {
            gone.extend(policy.insert(key, 10));
        }
        assert!(gone.contains(&1));
        policy.insert(1, 10);
        for key in 110..130 {
            policy.insert(key, 10);
        }
        assert!(policy.use_one(&1));
    }

    #[test]
    fn sums_are_those_of_what_is_here() {
        let mut policy = Policy::new(1000);
        let mut here: HashMap<u64, u64> = HashMap::new();
        let mut numbers = xebec_testkit::corpus::Numbers(9);
        for _ in 0..20_000 {
            let key = numbers.below(60) as u64;
            match numbers.below(9) {
                0 => {
                    policy.remove(&key);
                    here.remove(&key);
                }
                1 => assert_eq!(policy.expect(&key), here.contains_key(&key)),
                2..5 => assert_eq!(policy.use_one(&key), here.contains_key(&key)),
                _ => {
                    let size = 1 + numbers.below(400) as u64;
                    here.entry(key).or_insert(size);
                    for gone in policy.insert(key, size) {
                        assert!(here.remove(&gone).is_some());
                    }
                }
            }
            assert_eq!(policy.bytes(), here.values().sum::<u64>());
            assert!(policy.bytes() <= 1000);
            assert!(policy.gone.len() <= 2 * 60 + 17);
        }
    }
}
