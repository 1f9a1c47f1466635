//! The records and objects of one digest, as far as the protocol cares, and how old everything is.

use super::Variant;
use super::clients::Client;

/// The grace time, in ticks. Everything older is as old as that.
pub(super) const GRACE: u8 = 2;
pub(super) const OLD: u8 = GRACE + 1;
/// Uploads that are older are given up.
pub(super) const TIMEOUT: u8 = 2;
/// No client takes longer between two steps that belong together: half of either time.
pub(super) const PATIENCE: u8 = 1;
/// Keys of objects: one for each client, and one that was there before.
pub(super) const KEYS: usize = 4;
pub(super) const FIRST_KEY: usize = KEYS - 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Object {
    #[default]
    Absent,
    Part,
    Whole,
}

/// The blob's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Blob {
    pub(super) key: usize,
    pub(super) condemned: bool,
    /// Whether a collection has to look at it.
    pub(super) unchecked: bool,
    pub(super) age: u8,
}

impl Blob {
    pub(super) fn old(condemned: bool) -> Self {
        Self {
            key: FIRST_KEY,
            condemned,
            unchecked: true,
            age: OLD,
        }
    }
}

/// The step of the collector with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sweep {
    pub(super) key: usize,
    /// The record goes after this.
    pub(super) is_last: bool,
    /// One of the two is done.
    pub(super) is_half_done: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) blob: Option<Blob>,
    /// How old the link of each repository is.
    pub(super) links: [Option<u8>; 2],
    /// Whether a collection has to look at the link of each repository.
    pub(super) unchecked: [bool; 2],
    /// Which repository has a manifest that names the blob.
    pub(super) manifests: [bool; 2],
    /// From which repository a user has taken the blob: what a manifest lacks there is not the protocol's fault.
    pub(super) taken: [bool; 2],
    /// How long ago each upload was touched.
    pub(super) uploads: [Option<u8>; KEYS],
    /// How old each garbage is.
    pub(super) garbage: [Option<u8>; KEYS],
    pub(super) objects: [Object; KEYS],
    pub(super) clients: Vec<Client>,
    /// Whether writes may come late. Where none does, garbage may be as old as it likes, which makes fewer states.
    pub(super) has_late_writes: bool,
    /// A write whose client has died, and that the store is still busy with, and for how long.
    pub(super) late: Option<(usize, u8)>,
    pub(super) sweeping: Option<Sweep>,
    /// The repository whose link a collection has seen to be needed, if it notes that in a transaction of its own.
    pub(super) seen: Option<usize>,
    /// Whether a collection has seen that a repository has the blob, if it notes that in a transaction of its own.
    pub(super) is_blob_seen: bool,
    /// The fault that a client found.
    pub(super) complaint: Option<&'static str>,
}

impl State {
    pub(super) fn with_blob(&self, blob: Blob) -> Self {
        let mut state = self.clone();
        state.objects[blob.key] = Object::Whole;
        state.blob = Some(blob);
        state
    }

    /// The transaction by which a repository has the blob.
    pub(super) fn link(&mut self, repository: usize, variant: Variant) {
        self.unchecked[repository] |= self.links[repository].is_none() && variant != Variant::LinkUnnoted;
        self.links[repository] = Some(0);
        self.taken[repository] = false;
        if let Some(blob) = self.blob.as_mut().filter(|blob| blob.condemned || blob.unchecked) {
            (blob.condemned, blob.unchecked, blob.age) = (false, false, 0);
        }
    }

    /// No collection looks at the blob again until a repository loses it.
    pub(super) fn check_blob(&mut self) {
        self.is_blob_seen = false;
        if let Some(blob) = self.blob.as_mut().filter(|blob| !blob.condemned) {
            blob.unchecked = false;
        }
    }

    /// The part of a transaction by which a repository loses the blob.
    pub(super) fn unlink(&mut self, repository: usize, variant: Variant) {
        self.links[repository] = None;
        if let Some(blob) = self.blob.as_mut().filter(|blob| !blob.condemned) {
            blob.age = 0;
            blob.unchecked |= variant != Variant::LossUnnoted;
        }
    }

    /// The object of this key is garbage from now on.
    pub(super) fn throw_away(&mut self, key: usize) {
        self.garbage[key] = Some(if self.has_late_writes { 0 } else { OLD });
    }

    /// The store ends a write whose client has died, even over an object that is there by now.
    pub(super) fn arrive(&mut self) {
        if let Some((key, _)) = self.late.take() {
            self.objects[key] = Object::Part;
        }
    }

    /// One tick; `None` if nothing gets older by it. No write stays on its way for longer than a client may take.
    pub(super) fn later(&self) -> Option<Self> {
        if self.late.is_some_and(|(_, age)| age >= PATIENCE) {
            return None;
        }
        let mut later = self.clone();
        let grow = |age: &mut u8| *age = OLD.min(*age + 1);
        later.blob.iter_mut().for_each(|blob| grow(&mut blob.age));
        later.links.iter_mut().flatten().for_each(grow);
        later.uploads.iter_mut().flatten().for_each(grow);
        later.garbage.iter_mut().flatten().for_each(grow);
        later.late.iter_mut().for_each(|(_, age)| grow(age));
        later.clients.iter_mut().for_each(|client| grow(&mut client.age));
        (later != *self).then_some(later)
    }

    /// All processes are gone.
    pub(super) fn end(&mut self) {
        self.clients.clear();
        self.sweeping = None;
        self.seen = None;
        self.is_blob_seen = false;
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.complaint.is_some() {
            return self.complaint;
        }
        if self
            .blob
            .is_some_and(|blob| self.objects[blob.key] != Object::Whole)
        {
            return Some("a blob has no whole object");
        }
        if self.blob.is_none() && self.links.iter().any(Option::is_some) {
            return Some("a repository has a blob that is not there");
        }
        if self.blob.is_some_and(|blob| !blob.unchecked) && self.links == [None, None] {
            return Some("no collection looks at a blob that no repository has");
        }
        for repository in 0..2 {
            if self.manifests[repository] && self.links[repository].is_none() && !self.taken[repository] {
                return Some("a manifest lacks its blob");
            }
            let is_passed_over = self.links[repository].is_some() && !self.unchecked[repository];
            if is_passed_over && !self.manifests[repository] {
                return Some("no collection looks at a link that no manifest needs");
            }
        }
        None
    }
}
