//! When manifests and tags were pulled, collected in memory: a pull itself waits for no write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use xebec_names::{RepositoryName, Tag};
use xebec_objects::Digest;

/// So many pulls are remembered at most between two writes. More are not noted: they say when something was used, nothing else.
const MOST: usize = 65_536;

/// A manifest, and the tag by which it was pulled.
pub type Pull = (RepositoryName, Digest, Option<Tag>);

/// Pulls that are in no record yet.
#[derive(Default)]
pub struct Pulls {
    noted: Mutex<HashMap<Pull, u64>>,
    /// Somebody is about to write them down.
    is_awaited: AtomicBool,
    /// Held by the one that does. Others wait: what that one has taken is in no record yet.
    pub writing: tokio::sync::Mutex<()>,
}

impl Pulls {
    /// Notes a pull, unless there are too many.
    pub fn note(&self, pull: Pull, at: u64) {
        let mut noted = self.noted.lock();
        if let Some(known) = noted.get_mut(&pull) {
            *known = at.max(*known);
        } else if noted.len() < MOST {
            noted.insert(pull, at);
        }
    }

    /// Those that were noted, which the caller writes down.
    pub fn take(&self) -> Vec<(Pull, u64)> {
        let mut noted = self.noted.lock();
        std::mem::take(&mut *noted).into_iter().collect()
    }

    /// Whether the caller is the one that writes soon. If so, it must call [`Pulls::begin`].
    pub fn await_write(&self) -> bool {
        !self.is_awaited.swap(true, Ordering::AcqRel)
    }

    /// The write begins: what is noted from now on may not be in it.
    pub fn begin(&self) {
        self.is_awaited.store(false, Ordering::Release);
    }
}
