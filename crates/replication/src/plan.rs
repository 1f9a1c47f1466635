//! What carrying out the rules would change: copies, bytes, and about how long that takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use xebec_kernel::clock::milliseconds_since_1970 as now;
use xebec_placement::erasure::Layout;
use xebec_placement::{Form, PlaceName, Placement, Wanted};
use xebec_policy::copies::CopyRules;
use xebec_store::{Digest, Held, PackKey, PackRecord, Standing, Store, StoreError};

use crate::steps::{Step, steps, wanted};

/// So many records are looked up at once.
const STEP: usize = 256;
/// Bytes that are copied from place to place in a second, about. A network or a slow disk takes longer.
const COPIED: u64 = 100 << 20;
/// Bytes of blobs that are taken apart, proof included, or made intact in a second, about, by one processor (`docs/deduplication-figures.md`).
const TAKEN_APART: u64 = 20 << 20;
const MADE_INTACT: u64 = 40 << 20;

/// What would come to one place, or go from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Copies that would be made, shards included.
    pub made: u64,
    /// Their bytes.
    pub made_bytes: u64,
    /// Copies that would go.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

/// Blobs, and their bytes as they were pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// How many.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Planned {
    fn add(&mut self, size: u64) {
        self.blobs += 1;
        self.bytes += size;
    }
}

/// What would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Blobs that were looked at.
    pub looked_at: Planned,
    /// By place. Packs and recipes that taking apart would make are not among them: how large they are is known when they are there.
    pub places: BTreeMap<PlaceName, Change>,
    /// Blobs that would be made intact.
    pub made_intact: Planned,
    /// Blobs that would be taken apart, anew or for the first time.
    pub taken_apart: Planned,
    /// Blobs whose bytes as they were pushed would go.
    pub dropped_intact: Planned,
    /// How many places may be lost so that each blob stays, by how many blobs that is so for.
    pub survives: BTreeMap<usize, Planned>,
}

impl Plan {
    /// About how long it takes: copying, taking apart and restoring by one processor.
    pub fn time(&self) -> Duration {
        let copied: u64 = self.places.values().map(|change| change.made_bytes).sum();
        let seconds =
            copied / COPIED + self.taken_apart.bytes / TAKEN_APART + self.made_intact.bytes / MADE_INTACT;
        Duration::from_secs(seconds)
    }

    /// Whether nothing would change.
    pub fn is_nothing(&self) -> bool {
        let is_nothing = |change: &Change| change.made == 0 && change.dropped == 0;
        self.places.values().all(is_nothing)
            && self.made_intact.blobs == 0
            && self.taken_apart.blobs == 0
            && self.dropped_intact.blobs == 0
    }

    fn change(&mut self, place: &PlaceName) -> &mut Change {
        self.places.entry(place.clone()).or_default()
    }

    fn place(&mut self, size: u64, found: &BTreeSet<Placement>, wanted: &BTreeSet<Placement>) {
        if wanted.is_empty() {
            return;
        }
        for placement in wanted.difference(found) {
            for (place, bytes) in parts(placement, size) {
                let change = self.change(&place);
                (change.made, change.made_bytes) = (change.made + 1, change.made_bytes + bytes);
            }
        }
        self.drop(size, found.difference(wanted));
    }

    fn drop<'a>(&mut self, size: u64, placements: impl Iterator<Item = &'a Placement>) {
        for placement in placements {
            for (place, bytes) in parts(placement, size) {
                let change = self.change(&place);
                (change.dropped, change.dropped_bytes) = (change.dropped + 1, change.dropped_bytes + bytes);
            }
        }
    }
}

/// The places of a placement, and how many bytes of an object each has.
fn parts(placement: &Placement, size: u64) -> Vec<(PlaceName, u64)> {
    match placement {
        Placement::At(place) => vec![(place.clone(), size)],
        Placement::Spread { code, places, .. } => {
            let shard = Layout::new(*code, size).shard_size();
            places.iter().map(|place| (place.clone(), shard)).collect()
        }
    }
}

/// Adds up what these rules would change. It reads the records of all blobs, and changes nothing. `report` is called now and then with the number of
/// blobs so far.
///
/// # Errors
/// If the database fails.
pub async fn plan(
    store: &Store,
    rules: &CopyRules,
    mut report: impl FnMut(u64) + Send,
) -> Result<Plan, StoreError> {
    let mut planning = Planning {
        store,
        plan: Plan::default(),
        packs: BTreeMap::new(),
    };
    let mut after: Option<Digest> = None;
    loop {
        let page = store.blob_digests(STEP, after.as_ref()).await?;
        for digest in &page.items {
            if let Some(standing) = store.standing(digest).await? {
                planning.add(&standing, rules).await?;
            }
        }
        report(planning.plan.looked_at.blobs);
        after = page.items.into_iter().next_back();
        if !page.next {
            break;
        }
    }
    planning.finish().await
}

struct Planning<'a> {
    store: &'a Store,
    plan: Plan,
    /// The packs of all recipes.
    packs: BTreeMap<PackKey, Needed>,
}

/// A pack that a recipe needs now.
struct Needed {
    pack: PackRecord,
    /// What is wanted of the blobs whose recipes stay, all together.
    wanted: Wanted,
    /// Whether one of these stays. Otherwise a collection takes the pack.
    stays: bool,
}

impl Planning<'_> {
    async fn add(&mut self, standing: &Standing, rules: &CopyRules) -> Result<(), StoreError> {
        let wanted = wanted(standing, rules, now());
        let size = standing.blob.size;
        self.plan.looked_at.add(size);
        if !wanted.is_empty() {
            self.plan.survives.entry(wanted.survives()).or_default().add(size);
        }
        let steps = steps(standing, &wanted);
        if standing.waits && wanted.form().is_some() {
            self.plan.taken_apart.add(size);
        }
        for step in steps {
            self.add_step(standing, &wanted, step).await?;
        }
        if let Some((recipe, form)) = &standing.recipe {
            let is_other = matches!((form, wanted.form()), (Some(found), Some(form)) if *found != form);
            let stays = wanted.is_empty() || (wanted.form().is_some() && !is_other);
            if !stays {
                let found = self
                    .store
                    .placements(&Held::of_recipe(recipe), wanted.apart())
                    .await?;
                self.plan.drop(recipe.size, found.iter());
            }
            for pack in &recipe.packs {
                let entry = self.packs.entry(pack.key);
                let of_pack = entry.or_insert_with(|| Needed {
                    pack: pack.clone(),
                    wanted: Wanted::default(),
                    stays: false,
                });
                if stays {
                    of_pack.wanted = of_pack.wanted.union(&wanted);
                    of_pack.stays = true;
                }
            }
        }
        Ok(())
    }

    async fn add_step(&mut self, standing: &Standing, wanted: &Wanted, step: Step) -> Result<(), StoreError> {
        let size = standing.blob.size;
        match step {
            Step::MakeIntact => {
                self.plan.made_intact.add(size);
                // Another form comes after it.
                match wanted.form() {
                    Some(form) if is_other(standing, form) => self.plan.taken_apart.add(size),
                    _ => self.plan.place(size, &BTreeSet::new(), wanted.intact()),
                }
            }
            Step::TakeApart(_) => self.plan.taken_apart.add(size),
            // The recipe that goes is counted with its packs.
            Step::StayIntact => {}
            Step::DropIntact => {
                self.plan.dropped_intact.add(size);
                let found = self.found(Held::of_blob(&standing.blob), wanted.intact()).await?;
                self.plan.drop(size, found.iter());
            }
            Step::PlaceIntact(places) => {
                let found = self.found(Held::of_blob(&standing.blob), wanted.intact()).await?;
                self.plan.place(size, &found, &places);
            }
            Step::PlaceRecipe(places) => {
                if let Some((recipe, _)) = &standing.recipe {
                    let found = self
                        .store
                        .placements(&Held::of_recipe(recipe), wanted.apart())
                        .await?;
                    self.plan.place(recipe.size, &found, &places);
                }
            }
        }
        Ok(())
    }

    async fn found(
        &self,
        held: Option<Held>,
        wanted: &BTreeSet<Placement>,
    ) -> Result<BTreeSet<Placement>, StoreError> {
        match held {
            Some(held) => self.store.placements(&held, wanted).await,
            None => Ok(BTreeSet::new()),
        }
    }

    async fn finish(mut self) -> Result<Plan, StoreError> {
        for Needed { pack, wanted, stays } in std::mem::take(&mut self.packs).into_values() {
            let found = self
                .store
                .placements(&Held::of_pack(&pack), wanted.apart())
                .await?;
            match stays {
                true => self.plan.place(pack.size, &found, wanted.apart()),
                false => self.plan.drop(pack.size, found.iter()),
            }
        }
        Ok(self.plan)
    }
}

fn is_other(standing: &Standing, form: Form) -> bool {
    let found = standing.recipe.as_ref().and_then(|(_, form)| *form);
    found.is_some_and(|found| found != form)
}
