//! Puts packs together anew of which less than half is needed.
//!
//! Packs are looked at in turn, some each time. Looking means to read recipes until they need half of the pack. The few recipes that did are
//! remembered: as long as they are here, the pack is not looked at again, so recipes are read when they have come or gone, and not again and again.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use xebec_store::{Digest, PackKey, PackRecord, PackReplacement, Store, StoreError};

use crate::aside::aside;
use crate::damage;
use crate::error::DedupError;
use crate::joining::Joining;
use crate::needed::{Candidate, MOST_USERS, Need, Witness, look, still_need};
use crate::pack_files::{PACK, Written, drop_drafts};
use crate::settings::Settings;
use crate::stage::{Stage, reached};

/// Packs that are looked at each time.
const LOOKED_AT: usize = 64;
/// Packs that are put together each time, at most.
const TOGETHER: usize = 16;
/// Packs of which something is remembered. Each takes some kilobytes at most, and mostly 200 bytes.
const MOST_SEEN: usize = 1 << 14;
/// A pack of which nothing could be said is looked at again after this time.
const LATER: Duration = Duration::from_secs(3600);
/// How often it is done.
const EVERY: Duration = Duration::from_secs(60);

/// Packs that were put together anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repacked {
    /// How many packs went.
    pub old: usize,
    /// The bytes of their objects.
    pub old_bytes: u64,
    /// How many packs have what was needed of them.
    pub new: usize,
    /// The bytes of their objects.
    pub new_bytes: u64,
}

/// The memory of packs that were looked at.
pub(crate) struct Repacking {
    seen: tokio::sync::Mutex<Seen>,
    /// When it was done last.
    last: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Seen {
    /// The pack that was looked at last.
    after: Option<PackKey>,
    packs: HashMap<PackKey, Verdict>,
}

enum Verdict {
    /// Half of it is needed, as long as these recipes are here.
    Needed(Vec<Witness>),
    /// It is not looked at before then.
    NotBefore(Instant),
}

impl Repacking {
    pub(crate) fn new() -> Self {
        Self {
            seen: tokio::sync::Mutex::default(),
            last: Mutex::new(None),
        }
    }

    /// Whether it was not done lately.
    pub(crate) fn is_due(&self) -> bool {
        self.last.lock().is_none_or(|last| last.elapsed() >= EVERY)
    }

    /// See [`crate::Deduplicator::repack_once`].
    pub(crate) async fn once(
        &self,
        store: &Store,
        settings: &Settings,
    ) -> Result<Option<Repacked>, StoreError> {
        // One of the workers does it.
        let Ok(mut seen) = self.seen.try_lock() else {
            return Ok(None);
        };
        *self.last.lock() = Some(Instant::now());
        let candidates = seen.look(store).await?;
        if candidates.is_empty() {
            return Ok(None);
        }
        // If it fails, they are not looked at again at once: others change them all the time, or the disk is full.
        for candidate in &candidates {
            seen.remember(candidate.pack.key, Verdict::NotBefore(Instant::now() + LATER));
        }
        match replace(store, candidates, settings).await {
            Ok(repacked) => Ok(repacked),
            Err(error) if error.is_damage() => {
                tracing::warn!("packs are not put together anew: {error}");
                damage::note_pack(store, &error).await;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Seen {
    /// Looks at the next packs. Returns those of which little is needed, together one new pack at most, about.
    async fn look(&mut self, store: &Store) -> Result<Vec<Candidate>, StoreError> {
        let page = store.packs(LOOKED_AT, self.after).await?;
        let (mut candidates, mut bytes, mut users): (Vec<Candidate>, u64, usize) = (Vec::new(), 0, 0);
        for pack in &page.items {
            if let Some(candidate) = self.look_at(store, pack).await? {
                let is_too_much =
                    bytes + candidate.bytes > PACK || users + candidate.users.len() > MOST_USERS;
                if !candidates.is_empty() && is_too_much {
                    // The next time begins with it.
                    return Ok(candidates);
                }
                bytes += candidate.bytes;
                users += candidate.users.len();
                candidates.push(candidate);
            }
            self.after = Some(pack.key);
            if candidates.len() == TOGETHER {
                return Ok(candidates);
            }
        }
        if !page.next {
            self.after = None;
        }
        Ok(candidates)
    }

    async fn look_at(&mut self, store: &Store, pack: &PackRecord) -> Result<Option<Candidate>, StoreError> {
        let may_be_left = match self.packs.get(&pack.key) {
            Some(Verdict::Needed(witnesses)) => still_need(store, pack.key, witnesses).await?,
            Some(Verdict::NotBefore(then)) => *then > Instant::now(),
            None => false,
        };
        if may_be_left {
            return Ok(None);
        }
        let verdict = match look(store, pack).await {
            Ok(Need::Little(candidate)) => return Ok(Some(candidate)),
            Ok(Need::Enough(witnesses)) => Verdict::Needed(witnesses),
            Ok(Need::Unknown) => Verdict::NotBefore(Instant::now() + LATER),
            Err(error @ DedupError::Store(_)) => return Err(error.into()),
            Err(error) => {
                tracing::debug!(pack = %pack.key, "what is needed of a pack cannot be said: {error}");
                Verdict::NotBefore(Instant::now() + LATER)
            }
        };
        self.remember(pack.key, verdict);
        Ok(None)
    }

    fn remember(&mut self, key: PackKey, verdict: Verdict) {
        if self.packs.len() >= MOST_SEEN {
            // Packs that are gone are among them. The others are looked at once more.
            self.packs.clear();
        }
        self.packs.insert(key, verdict);
    }
}

/// Puts packs in the place of these. None if others have changed something meanwhile.
async fn replace(
    store: &Store,
    candidates: Vec<Candidate>,
    settings: &Settings,
) -> Result<Option<Repacked>, DedupError> {
    let old: Vec<PackKey> = candidates.iter().map(|candidate| candidate.pack.key).collect();
    let old_bytes = candidates.iter().map(|candidate| candidate.pack.size).sum();
    let users: BTreeMap<Digest, String> = candidates
        .iter()
        .flat_map(|candidate| candidate.users.clone())
        .collect();
    let written = Written::default();
    let joining = Joining::new(store.clone(), Handle::current(), settings.level, written.clone());
    let joined = aside("repack", "packs", settings.gives_way, move || {
        joining.run(&candidates)
    });
    let replaced = async {
        let new = joined.await.flatten()?;
        reached(Stage::Compared);
        let repacked = Repacked {
            old: old.len(),
            old_bytes,
            new: new.len(),
            new_bytes: new.iter().map(|pack| pack.draft.size).sum(),
        };
        let replaced = store.replace_packs(&PackReplacement { old, new, users }).await?;
        Ok(replaced.then_some(repacked))
    };
    let replaced = replaced.await;
    match &replaced {
        Ok(Some(_)) => reached(Stage::Replaced),
        _ => {
            let written = std::mem::take(&mut *written.lock());
            drop_drafts(store, written).await;
        }
    }
    replaced
}
