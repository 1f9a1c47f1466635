//! Carries out what is missing of blobs and packs, one after the other.

use std::time::Duration;

use xebec_kernel::clock::milliseconds_since_1970 as now;
use xebec_store::{Digest, Held, PackKey, Placed, Standing, Store, StoreError};

use crate::rules::Rules;
use crate::steps::{BY_RULE, Step, steps, wanted};

/// One that was taken is taken again after this time, unless it is where it is to be: a place may be away.
const LEASE: Duration = Duration::from_secs(300);
/// A recipe that was proven within so many milliseconds need not be proven again before the intact bytes go.
const FRESH: u64 = 60 * 60 * 1000;
/// So many are taken at once.
const AT_ONCE: usize = 16;

/// See the module.
pub struct Placer {
    store: Store,
    rules: Rules,
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
        Self { store, rules }
    }

    /// Whether there is anything to do: there are rules, or there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn is_needed(&self) -> Result<bool, StoreError> {
        Ok(!self.rules.get().is_empty() || self.store.was_placed().await?)
    }

    /// Has everything looked at if the rules are others than those of the last time; whether they are. Call it before anything else, and when the rules
    /// have changed.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn begin(&self) -> Result<bool, StoreError> {
        self.store.place_by(&self.rules.get().fingerprint()).await
    }

    /// Has those blobs looked at that are popular no longer; how many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn forget_unpopular(&self) -> Result<u64, StoreError> {
        self.store.forget_unpopular().await
    }

    /// Looks at some blobs and packs of which something has changed; none if there were none.
    ///
    /// # Errors
    /// If the database fails. What fails for one blob or pack alone is counted, and tried again later.
    pub async fn work_once(&self) -> Result<Option<Worked>, StoreError> {
        let mut worked = Worked::default();
        for digest in self.store.take_unplaced(AT_ONCE, LEASE).await? {
            worked.looked_at += 1;
            let done = self.look_at(&digest, &mut worked).await;
            worked.count(done);
        }
        // After blobs: what is wanted of a pack is what is wanted of them.
        for key in self.store.take_unplaced_packs(AT_ONCE, LEASE).await? {
            worked.looked_at += 1;
            let done = self.look_at_pack(key, &mut worked).await;
            worked.count(done);
        }
        Ok((worked.looked_at > 0).then_some(worked))
    }

    async fn look_at(&self, digest: &Digest, worked: &mut Worked) -> Result<(), StoreError> {
        let Some(standing) = self.store.standing(digest).await? else {
            return Ok(());
        };
        let wanted = wanted(&standing, &self.rules.get(), now());
        if wanted != standing.wanted {
            self.store.want(digest, &wanted).await?;
        }
        let mut failure = None;
        for step in steps(&standing, &wanted) {
            // Nothing goes before all that is wanted is there. What can be made is made.
            if failure.is_some() && !step.only_makes() {
                break;
            }
            match self.carry_out(&standing, step, worked).await {
                Ok(is_reformed) => worked.reformed += u64::from(is_reformed),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
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
    ) -> Result<bool, StoreError> {
        let (blob, store) = (&standing.blob, &self.store);
        match step {
            Step::MakeIntact => store.make_intact(blob).await,
            Step::TakeApart(_) => {
                self.prove_intact(standing).await?;
                store.drop_recipe(&blob.digest, None).await
            }
            Step::StayIntact => {
                self.prove_intact(standing).await?;
                store.drop_recipe(&blob.digest, Some(BY_RULE)).await
            }
            Step::DropIntact => {
                // Its packs are where they are to be before the bytes go that they stand for.
                for pack in standing.recipe.iter().flat_map(|(recipe, _)| &recipe.packs) {
                    self.look_at_pack(pack.key, worked).await?;
                }
                let is_fresh = standing.proven.saturating_add(FRESH) > now();
                match is_fresh || store.prove_by_recipe(&blob.digest).await? {
                    true => store.drop_intact(&blob.digest).await,
                    false => Ok(false),
                }
            }
            Step::PlaceIntact(places) => {
                if let Some(held) = Held::of_blob(blob) {
                    worked.placed += store.place(&held, &places).await?;
                }
                Ok(false)
            }
            Step::PlaceRecipe(places) => {
                if let Some((recipe, _)) = &standing.recipe {
                    worked.placed += store.place(&Held::of_recipe(recipe), &places).await?;
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

    async fn look_at_pack(&self, key: PackKey, worked: &mut Worked) -> Result<(), StoreError> {
        let Some(standing) = self.store.pack_standing(key).await? else {
            return Ok(());
        };
        let held = Held::of_pack(&standing.pack);
        worked.placed += self.store.place(&held, standing.wanted.apart()).await?;
        self.store.pack_placed(key, standing.seen).await?;
        Ok(())
    }
}

impl Worked {
    fn count(&mut self, done: Result<(), StoreError>) {
        if let Err(error) = done {
            self.failed += 1;
            self.problem.get_or_insert(error);
        }
    }
}
