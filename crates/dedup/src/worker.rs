//! Takes one intact blob after the other apart, proves its recipe, and lets its intact bytes go.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use xebec_store::{Algorithm, Blob, DedupTask, Digest, NewRecipe, Recording, Store, StoreError};

use crate::damage;
use crate::error::DedupError;
use crate::forms::{Forms, How};
use crate::objects::{Objects, PackObject};
use crate::pack_files::drop_drafts;
use crate::proof::prove;
use crate::repack::{Repacked, Repacking};
use crate::settings::{Cutting, Settings};
use crate::stage::{Stage, reached};
use crate::take_apart::{TakenApart, take_apart};
use crate::threads::Threads;

/// A blob that a process took is taken again after this time, unless that process says in time that it is still at work.
const LEASE: Duration = Duration::from_secs(300);
/// So often a blob is tried if the reason is neither the blob nor the store. What the store does not do now, it does later: a disk that was full
/// has room again.
const MOST_TRIES: u64 = 6;
/// After the first try; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// So many blobs are looked up at once.
const STEP: usize = 256;
/// How often the store is asked for what is due, beside each time that something comes.
const LOOK: Duration = Duration::from_secs(30);

/// What came of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Its recipe is recorded and proven.
    Recorded,
    /// It stays intact; why, for people.
    Kept(String),
    /// It will be tried again; why, for people.
    Later(String),
    /// It was gone before it was done.
    Gone,
}

/// How long the two long steps have taken, of all blobs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reading blobs, taking them apart, and storing their new packs.
    pub taking_apart: Duration,
    /// Restoring them from what was stored.
    pub proof: Duration,
}

/// See the module.
pub struct Deduplicator {
    store: Store,
    settings: Settings,
    spent: Mutex<Spent>,
    /// Told when a blob has come.
    arrived: Arc<Notify>,
    repacking: Repacking,
    forms: Option<Arc<dyn Forms>>,
}

impl Deduplicator {
    /// One that works once [`Deduplicator::work_once`] is called. `arrived` wakes it.
    pub fn new(store: Store, settings: Settings, arrived: Arc<Notify>) -> Self {
        Self {
            store,
            settings,
            spent: Mutex::default(),
            arrived,
            repacking: Repacking::new(),
            forms: None,
        }
    }

    /// The same, which asks these how each blob is taken apart.
    #[must_use]
    pub fn with_forms(mut self, forms: Arc<dyn Forms>) -> Self {
        self.forms = Some(forms);
        self
    }

    /// How long taking apart and proofs have taken so far.
    pub fn spent(&self) -> Spent {
        *self.spent.lock()
    }

    /// How blobs are taken apart.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Waits until there may be something to do.
    pub async fn arrival(&self) {
        let _ = tokio::time::timeout(LOOK, self.arrived.notified()).await;
    }

    /// Takes up what a process that is gone has begun. Only for a single node.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn release(&self) -> Result<u64, StoreError> {
        self.store.release_dedup(self.settings.least_size).await
    }

    /// Tries blobs again that stayed intact, unless this version of the program, with this limit, did so before. This may be done beside other nodes. Returns how
    /// many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn retry(&self) -> Result<u64, StoreError> {
        let program = format!("{} {}", env!("CARGO_PKG_VERSION"), self.settings.most_plain);
        self.store.retry_dedup_by(&program).await
    }

    /// Lets the intact bytes go of blobs that have a recipe, unless they are to stay: a process has ended before it did so. Returns how many
    /// there were. This may be done beside other nodes; it reads the records of all blobs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn drop_leftovers(&self) -> Result<u64, StoreError> {
        let (mut dropped, mut after) = (0, None);
        if self.settings.keep_intact || self.forms.as_ref().is_some_and(|forms| forms.count()) {
            return Ok(0);
        }
        loop {
            let page = self.store.intact_and_taken_apart(STEP, after.as_ref()).await?;
            for digest in &page.items {
                dropped += u64::from(self.store.drop_intact(digest).await?);
            }
            after = page.items.into_iter().next_back();
            if !page.next {
                return Ok(dropped);
            }
        }
    }

    /// Looks at some packs, and puts those together anew of which less than half is needed; none if there were none. What is needed of several
    /// comes together. The packs that are not needed go with the next collection.
    ///
    /// # Errors
    /// If the store fails. Nothing is changed then.
    pub async fn repack_once(&self) -> Result<Option<Repacked>, StoreError> {
        self.repacking.once(&self.store, &self.settings).await
    }

    /// The same, unless it was done less than a minute ago.
    ///
    /// # Errors
    /// As of [`Deduplicator::repack_once`].
    pub async fn repack_if_due(&self) -> Result<Option<Repacked>, StoreError> {
        match self.repacking.is_due() {
            true => self.repack_once().await,
            false => Ok(None),
        }
    }

    /// Works on the next blob; none if none is due.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn work_once(&self) -> Result<Option<(Blob, Done)>, StoreError> {
        let Some(task) = self.store.take_dedup(LEASE, self.settings.least_size).await? else {
            return Ok(None);
        };
        let (cutting, keeps) = match self.how(&task).await? {
            How::Usual => (self.settings.cutting, self.settings.keep_intact),
            How::Cut(cutting) => (cutting, true),
            How::Stays(why) => {
                self.store.settle_dedup(&task, &why).await?;
                return Ok(Some((task.blob, Done::Kept(why))));
            }
        };
        let work = self.work(&task.blob, cutting);
        let done = match self.while_leased(&task, work).await {
            Ok(done) => done,
            Err(error @ DedupError::NotExact { .. }) => Done::Kept(error.to_string()),
            Err(error) if error.is_passing() || task.tries < MOST_TRIES => Done::Later(error.to_string()),
            Err(error) => Done::Kept(format!("given up after {} tries: {error}", task.tries)),
        };
        self.settle(&task, &done, keeps).await?;
        Ok(Some((task.blob, done)))
    }

    async fn how(&self, task: &DedupTask) -> Result<How, StoreError> {
        match &self.forms {
            Some(forms) => forms.of(&self.store, &task.blob.digest).await,
            None => Ok(How::Usual),
        }
    }

    /// Carries out work on a blob that nobody else takes meanwhile.
    async fn while_leased<T>(&self, task: &DedupTask, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.renew(task) => match never {},
        }
    }

    /// Says again and again that somebody is at work on a blob.
    async fn renew(&self, task: &DedupTask) -> Infallible {
        loop {
            tokio::time::sleep(LEASE / 3).await;
            if let Err(error) = self.store.postpone_dedup(task, LEASE, "").await {
                tracing::warn!("another node may take the same blob apart: {error}");
            }
        }
    }

    async fn settle(&self, task: &DedupTask, done: &Done, keeps: bool) -> Result<(), StoreError> {
        let digest = &task.blob.digest;
        match done {
            Done::Recorded if keeps => {}
            Done::Recorded => {
                self.store.drop_intact(digest).await?;
                reached(Stage::Dropped);
            }
            Done::Gone => {}
            Done::Kept(why) => self.store.settle_dedup(task, why).await?,
            Done::Later(why) => {
                self.store.postpone_dedup(task, pause(task.tries), why).await?;
            }
        }
        Ok(())
    }

    async fn work(&self, blob: &Blob, cutting: Cutting) -> Result<Done, DedupError> {
        let begun = Instant::now();
        let settings = Settings {
            cutting,
            ..self.settings.clone()
        };
        let taken_apart = take_apart(&self.store, blob, &settings).await;
        self.spent.lock().taking_apart += begun.elapsed();
        let (recipe, plain, packed) = match taken_apart? {
            TakenApart::Made {
                recipe,
                plain,
                packed,
            } => (recipe, plain, packed),
            TakenApart::Kept(why) => return Ok(Done::Kept(why)),
        };
        let checksum = Digest::of(Algorithm::Sha256, &recipe);
        let stored = async {
            let used = self.store.find_packs(&packed.uses).await?;
            let draft = self.store.put_draft(vec![Bytes::from(recipe)]).await?;
            Ok::<_, StoreError>((used, draft))
        };
        let (used, draft) = match stored.await {
            Ok(stored) => stored,
            Err(error) => {
                drop_drafts(&self.store, packed.packs.into_iter().map(|pack| pack.draft)).await;
                return Err(error.into());
            }
        };
        reached(Stage::RecipePut);
        let new = packed.packs.iter().map(|pack| PackObject {
            object: pack.draft.object.clone(),
            size: pack.draft.size,
            key: None,
        });
        let objects = Objects {
            recipe: draft.clone(),
            checksum: checksum.clone(),
            packs: new.chain(used.iter().map(PackObject::from)).collect(),
        };
        let recipe = NewRecipe {
            blob: blob.clone(),
            recipe: draft,
            checksum,
            plain,
            packs: packed.packs,
            uses: packed.uses,
            form: Some(cutting.form()),
        };
        let outcome = self.record(&recipe, &objects).await;
        if !matches!(outcome, Ok(Done::Recorded)) {
            let drafts = recipe.packs.into_iter().map(|pack| pack.draft);
            drop_drafts(&self.store, drafts.chain([recipe.recipe])).await;
        }
        outcome
    }

    /// Records a recipe after it has been proven.
    async fn record(&self, recipe: &NewRecipe, objects: &Objects) -> Result<Done, DedupError> {
        let threads = match self.settings.gives_way {
            true => Threads::Aside,
            false => Threads::Runtime(None),
        };
        let begun = Instant::now();
        let proof = prove(&self.store, &recipe.blob, objects, &threads).await;
        self.spent.lock().proof += begun.elapsed();
        if let Err(error) = proof {
            // Others that need the pack learn of it, and the next try does not use it.
            damage::note_pack(&self.store, &error).await;
            return Err(error);
        }
        reached(Stage::Proven);
        Ok(match self.store.record_recipe(recipe).await? {
            Recording::Recorded(_) => {
                reached(Stage::Recorded);
                Done::Recorded
            }
            Recording::BlobGone => Done::Gone,
            Recording::PacksGone => Done::Later("a pack that it needs was collected meanwhile".to_owned()),
            Recording::DraftsGone => Done::Later("it took too long".to_owned()),
        })
    }
}

/// How long to wait after so many tries.
fn pause(tries: u64) -> Duration {
    let doubled = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doubled));
    pause.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_an_hour() {
        let seconds: Vec<u64> = (1..=9).map(|tries| pause(tries).as_secs()).collect();
        assert_eq!(seconds, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert_eq!([pause(0), pause(u64::MAX)], [FIRST_PAUSE, LONGEST_PAUSE]);
    }
}
