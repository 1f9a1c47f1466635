//! Which of the restored layers stay: the policy of the crate, and two others, played through a trace without restoring anything.

#[path = "../../src/policy.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod policy;

use std::collections::{HashMap, HashSet, VecDeque};

use policy::Policy;

use crate::workload::{Event, Request};

/// When layers come into a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coming {
    /// When a client reads a manifest that names it and lacks it.
    Ahead,
    /// When somebody asks for it.
    Asked,
}

/// A cache of keys with sizes.
pub(crate) trait Simulated {
    /// Whether it is here, and will be asked for soon.
    fn expect(&mut self, key: usize) -> bool;
    /// Whether it is here; that is a use.
    fn use_one(&mut self, key: usize) -> bool;
    /// It has come.
    fn insert(&mut self, key: usize, size: u64);
}

/// The part of requests of layers that find theirs. A restored layer is there at once.
pub(crate) fn play(events: &[Event], sizes: &[u64], cache: &mut dyn Simulated, coming: Coming) -> f64 {
    let (mut hits, mut all) = (0_u32, 0_u32);
    let mut pulled = HashSet::new();
    for event in events {
        match &event.request {
            Request::Manifest(_) if coming == Coming::Asked => {}
            Request::Manifest(layers) => {
                let lacking = layers
                    .iter()
                    .copied()
                    .filter(|layer| !pulled.contains(&(event.client, *layer)));
                for layer in lacking {
                    if !cache.expect(layer) {
                        cache.insert(layer, sizes[layer]);
                    }
                }
            }
            Request::Layer(layer) => {
                all += 1;
                pulled.insert((event.client, *layer));
                match cache.use_one(*layer) {
                    true => hits += 1,
                    false => cache.insert(*layer, sizes[*layer]),
                }
            }
        }
    }
    f64::from(hits) / f64::from(all.max(1))
}

/// S3-FIFO, as the crate has it.
pub(crate) struct S3Fifo(Policy<usize>);

impl S3Fifo {
    pub(crate) fn new(room: u64) -> Self {
        Self(Policy::new(room))
    }
}

impl Simulated for S3Fifo {
    fn expect(&mut self, key: usize) -> bool {
        self.0.expect(&key)
    }

    fn use_one(&mut self, key: usize) -> bool {
        self.0.use_one(&key)
    }

    fn insert(&mut self, key: usize, size: u64) {
        if self.0.takes(size) {
            self.0.insert(key, size);
        }
    }
}

/// A list of keys, the one that was used longest ago first.
#[derive(Default)]
struct List {
    keys: VecDeque<usize>,
    sizes: HashMap<usize, u64>,
    bytes: u64,
}

impl List {
    fn has(&self, key: usize) -> bool {
        self.sizes.contains_key(&key)
    }

    fn push(&mut self, key: usize, size: u64) {
        self.keys.push_back(key);
        self.sizes.insert(key, size);
        self.bytes += size;
    }

    fn remove(&mut self, key: usize) -> Option<u64> {
        let size = self.sizes.remove(&key)?;
        self.keys.retain(|other| *other != key);
        self.bytes -= size;
        Some(size)
    }

    fn pop(&mut self) -> Option<(usize, u64)> {
        let key = *self.keys.front()?;
        Some((key, self.remove(key)?))
    }

    /// Lets go what is at the front while there are more bytes.
    fn cut(&mut self, most: u64) {
        while self.bytes > most && self.pop().is_some() {}
    }
}

/// The layer that was used longest ago goes first.
pub(crate) struct Lru {
    room: u64,
    list: List,
}

impl Lru {
    pub(crate) fn new(room: u64) -> Self {
        Self {
            room,
            list: List::default(),
        }
    }
}

impl Simulated for Lru {
    fn expect(&mut self, key: usize) -> bool {
        self.use_one(key)
    }

    fn use_one(&mut self, key: usize) -> bool {
        let Some(size) = self.list.remove(key) else {
            return false;
        };
        self.list.push(key, size);
        true
    }

    fn insert(&mut self, key: usize, size: u64) {
        self.list.push(key, size);
        self.list.cut(self.room);
    }
}

/// ARC ("ARC: a self-tuning, low overhead replacement cache", FAST 2003), by bytes: what came once and what came again, and of both what has gone lately, which
/// moves the border between them.
pub(crate) struct Arc {
    room: u64,
    /// The bytes that what came once should have.
    once_wanted: u64,
    once: List,
    again: List,
    once_gone: List,
    again_gone: List,
}

impl Arc {
    pub(crate) fn new(room: u64) -> Self {
        Self {
            room,
            once_wanted: 0,
            once: List::default(),
            again: List::default(),
            once_gone: List::default(),
            again_gone: List::default(),
        }
    }

    /// Makes room for so many bytes.
    fn make_room(&mut self, size: u64, is_of_again: bool) {
        while self.once.bytes + self.again.bytes + size > self.room {
            let of_once =
                self.once.bytes > self.once_wanted || (is_of_again && self.once.bytes == self.once_wanted);
            let from_once = (of_once && self.once.bytes > 0) || self.again.bytes == 0;
            let (from, to) = match from_once {
                true => (&mut self.once, &mut self.once_gone),
                false => (&mut self.again, &mut self.again_gone),
            };
            let Some((key, size)) = from.pop() else { return };
            to.push(key, size);
        }
    }
}

impl Simulated for Arc {
    fn expect(&mut self, key: usize) -> bool {
        self.use_one(key)
    }

    fn use_one(&mut self, key: usize) -> bool {
        let found = self.once.remove(key).or_else(|| self.again.remove(key));
        let Some(size) = found else { return false };
        self.again.push(key, size);
        true
    }

    fn insert(&mut self, key: usize, size: u64) {
        if size > self.room {
            return;
        }
        let share = |one: u64, other: u64| size.max((size as f64 * other as f64 / one.max(1) as f64) as u64);
        let (is_once, is_again) = (self.once_gone.has(key), self.again_gone.has(key));
        if is_once {
            self.once_wanted = self
                .room
                .min(self.once_wanted + share(self.once_gone.bytes, self.again_gone.bytes));
        } else if is_again {
            let less = share(self.again_gone.bytes, self.once_gone.bytes);
            self.once_wanted = self.once_wanted.saturating_sub(less);
        }
        self.once_gone.remove(key);
        self.again_gone.remove(key);
        self.make_room(size, is_again);
        match is_once || is_again {
            true => self.again.push(key, size),
            false => self.once.push(key, size),
        }
        self.once_gone.cut(self.room.saturating_sub(self.once.bytes));
        let all = self.once.bytes + self.again.bytes + self.once_gone.bytes;
        self.again_gone.cut((2 * self.room).saturating_sub(all));
    }
}
