//! When manifests and tags were pulled, collected in memory: a pull itself writes nothing.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::digest::Digest;
use crate::name::{RepositoryName, Tag};

/// So many pulls are remembered at most between two writes. More are not noted: they say when something was used, nothing else.
const MOST: usize = 65_536;

/// A manifest, and the tag by which it was pulled.
pub(crate) type Pull = (RepositoryName, Digest, Option<Tag>);

#[derive(Default)]
pub(crate) struct Pulls(Mutex<HashMap<Pull, u64>>);

impl Pulls {
    pub(crate) fn note(&self, pull: Pull, at: u64) {
        let mut noted = self.0.lock();
        if noted.len() < MOST || noted.contains_key(&pull) {
            noted.insert(pull, at);
        }
    }

    pub(crate) fn take(&self) -> Vec<(Pull, u64)> {
        let mut noted = self.0.lock();
        std::mem::take(&mut *noted).into_iter().collect()
    }
}
