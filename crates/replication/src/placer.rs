//! Carries out what is missing of blobs and packs, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use xebec_kernel::clock::milliseconds_since_1970 as now;
use xebec_placement::{PlaceName, Placement};
use xebec_store::{Digest, Held, PackKey, Placed, Postponed, Standing, Store, StoreError, Unplaced};

use crate::pauses::Pauses;
use crate::rules::Rules;
use crate::steps::{BY_RULE, Step, steps, wanted};

/// One that was taken is taken again after this time, if its placer has ended before it has said what came of it.
const LEASE: Duration = Duration::from_secs(300);
/// A recipe that was proven within so many milliseconds need not be proven again before the intact bytes go.
const FRESH: u64 = 60 * 60 * 1000;
/// So many are taken at once.
const AT_ONCE: usize = 16;
/// So many of each kind that wait are taken at once when a place is back, after what is new.
const HASTENED: usize = 256;

/// See the module.
pub struct Placer {
    store: Store,
    rules: Rules,
    pauses: Pauses,
    /// Whether a place is back for which something may wait, and how far that was taken.
    hastening: Mutex<Option<Hastening>>,
}

/// Times up to which what waits was taken.
struct Hastening {
    blobs: Option<u64>,
    packs: Option<u64>,
}

/// What came of one look.
#[derive(Debug, Default)]
pub struct Worked {
    /// Blobs and packs that were looked at.
    pub looked_at: u64,
    /// What was changed.
    pub placed: Placed,
    /// Blobs that were made intact, or wait to be taken apart, or have one form less.
    pub reformed: u64,
    /// Those that are looked at again later.
    pub failed: u64,
    /// The first of these reasons.
    pub problem: Option<StoreError>,
}

impl Placer {
    /// One that works by these rules once [`Placer::work_once`] is called.
    pub fn new(store: Store, rules: Rules) -> Self {
        Self {
            store,
            rules,
            pauses: Pauses::default(),
            hastening: Mutex::default(),
        }
    }

    /// Whether there is anything to do: there are rules, or there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn is_needed(&self) -> Result<bool, StoreError> {
        Ok(!self.rules.get().is_empty() || self.store.was_placed().await?)
    }

    /// Has everything looked at if the rules are others than those of the last time; whether they are. Call it before anything else, and when the rules
    /// have changed. Places that could not be written are asked again at once.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn begin(&self) -> Result<bool, StoreError> {
        self.pauses.end();
        // What waits says in the database until when, also to a process that starts.
        self.hasten_from(now());
        self.store.place_by(&self.rules.get().fingerprint()).await
    }

    /// Has those blobs looked at that are popular no longer; how many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn forget_unpopular(&self) -> Result<u64, StoreError> {
        self.store.forget_unpopular().await
    }

    /// Looks at some blobs and packs of which something has changed; none if there were none. What is new comes first. What has failed comes again after a
    /// pause, or when its place is back, some hundreds at a time.
    ///
    /// # Errors
    /// If the database fails. What fails for one blob or pack alone is counted, and tried again later.
    pub async fn work_once(&self) -> Result<Option<Worked>, StoreError> {
        loop {
            let worked = self.look_at_some().await?;
            if worked.looked_at > 0 {
                return Ok(Some(worked));
            }
            if !self.hasten().await? {
                return Ok(None);
            }
        }
    }

    async fn look_at_some(&self) -> Result<Worked, StoreError> {
        let mut worked = Worked::default();
        for digest in self.store.take_unplaced(AT_ONCE, LEASE).await? {
            worked.looked_at += 1;
            let done = self.look_at(&digest, &mut worked).await;
            self.settle(Postponed::Blob(digest), done, &mut worked).await?;
        }
        // After blobs: what is wanted of a pack is what is wanted of them.
        for key in self.store.take_unplaced_packs(AT_ONCE, LEASE).await? {
            worked.looked_at += 1;
            let done = self.look_at_pack(key, &mut worked).await;
            self.settle(Postponed::Pack(key), done, &mut worked).await?;
        }
        Ok(worked)
    }

    /// Notes what came of one.
    async fn settle(
        &self,
        what: Postponed,
        done: Result<(), Unplaced>,
        worked: &mut Worked,
    ) -> Result<(), StoreError> {
        let name = format!("{what:?}");
        match &done {
            Ok(()) => self.pauses.forget(&name),
            Err(failed) => {
                let until = self.pauses.after(&name, failed, now());
                self.store.postpone_placing(what, until).await?;
            }
        }
        worked.count(done);
        Ok(())
    }

    /// Has some of what waits taken, if a place is back; whether there was any.
    async fn hasten(&self) -> Result<bool, StoreError> {
        let Some(Hastening { blobs, packs }) = self.hastening.lock().take() else {
            return Ok(false);
        };
        let next = async {
            Ok(Hastening {
                blobs: self.store.hasten_blobs(HASTENED, blobs).await?,
                packs: self.store.hasten_packs(HASTENED, packs).await?,
            })
        };
        let next = next.await.inspect_err(|_: &StoreError| {
            // The next look goes on from here.
            self.hastening.lock().get_or_insert(Hastening { blobs, packs });
        })?;
        let is_over = next.blobs.is_none() && next.packs.is_none();
        if !is_over {
            // Unless a place has come back meanwhile: then it begins anew.
            self.hastening.lock().get_or_insert(next);
        }
        Ok(!is_over)
    }

    /// Has an object where it is to be, but for places that are not asked now.
    async fn place(
        &self,
        held: &Held,
        wanted: &BTreeSet<Placement>,
        worked: &mut Worked,
    ) -> Result<(), Unplaced> {
        let paused: BTreeSet<PlaceName> = self.pauses.places(now());
        let placed = self.store.place_without(held, wanted, &paused).await?;
        worked.placed += placed;
        if placed.made > 0 && self.pauses.written(wanted) {
            // Other nodes have some of it just now: that costs work that is done twice, and nothing else.
            self.hasten_from(now());
        }
        Ok(())
    }

    /// Has what waits until after this time taken, in steps.
    fn hasten_from(&self, from: u64) {
        *self.hastening.lock() = Some(Hastening {
            blobs: Some(from),
            packs: Some(from),
        });
    }

    async fn look_at(&self, digest: &Digest, worked: &mut Worked) -> Result<(), Unplaced> {
        let Some(standing) = self.store.standing(digest).await? else {
            return Ok(());
        };
        let wanted = wanted(&standing, &self.rules.get(), now());
        if wanted != standing.wanted {
            self.store.want(digest, &wanted).await?;
        }
        let mut failure = None::<Unplaced>;
        for step in steps(&standing, &wanted) {
            // Nothing goes before all that is wanted is there. What can be made is made.
            if failure.is_some() && !step.only_makes() {
                break;
            }
            match self.carry_out(&standing, step, worked).await {
                Ok(is_reformed) => worked.reformed += u64::from(is_reformed),
                Err(failed) => failure = Some(failed.after(failure)),
            }
        }
        if let Some(failed) = failure {
            return Err(failed);
        }
        self.store.placed(digest, standing.seen).await?;
        Ok(())
    }

    /// Carries a step out; whether the blob has another form than before.
    async fn carry_out(
        &self,
        standing: &Standing,
        step: Step,
        worked: &mut Worked,
    ) -> Result<bool, Unplaced> {
        let (blob, store) = (&standing.blob, &self.store);
        match step {
            Step::MakeIntact => Ok(store.make_intact(blob).await?),
            Step::TakeApart(_) => {
                self.prove_intact(standing).await?;
                Ok(store.drop_recipe(&blob.digest, None).await?)
            }
            Step::StayIntact => {
                self.prove_intact(standing).await?;
                Ok(store.drop_recipe(&blob.digest, Some(BY_RULE)).await?)
            }
            Step::DropIntact => {
                // Its packs are where they are to be before the bytes go that they stand for.
                for pack in standing.recipe.iter().flat_map(|(recipe, _)| &recipe.packs) {
                    self.look_at_pack(pack.key, worked).await?;
                }
                let is_fresh = standing.proven.saturating_add(FRESH) > now();
                match is_fresh || store.prove_by_recipe(&blob.digest).await? {
                    true => Ok(store.drop_intact(&blob.digest).await?),
                    false => Ok(false),
                }
            }
            Step::PlaceIntact(places) => {
                if let Some(held) = Held::of_blob(blob) {
                    self.place(&held, &places, worked).await?;
                }
                Ok(false)
            }
            Step::PlaceRecipe(places) => {
                if let Some((recipe, _)) = &standing.recipe {
                    self.place(&Held::of_recipe(recipe), &places, worked).await?;
                }
                Ok(false)
            }
        }
    }

    /// Reads the bytes of a blob again before the recipe goes that gives the same.
    async fn prove_intact(&self, standing: &Standing) -> Result<(), StoreError> {
        match standing.recipe {
            Some(_) => self.store.prove_intact(&standing.blob.digest).await,
            None => Ok(()),
        }
    }

    async fn look_at_pack(&self, key: PackKey, worked: &mut Worked) -> Result<(), Unplaced> {
        let Some(standing) = self.store.pack_standing(key).await? else {
            return Ok(());
        };
        let held = Held::of_pack(&standing.pack);
        self.place(&held, standing.wanted.apart(), worked).await?;
        self.store.pack_placed(key, standing.seen).await?;
        Ok(())
    }
}

impl Worked {
    fn count(&mut self, done: Result<(), Unplaced>) {
        if let Err(failed) = done {
            self.failed += 1;
            self.problem.get_or_insert(failed.first);
        }
    }
}
