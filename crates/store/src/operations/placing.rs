//! Which blobs and packs have copies that are to be looked at, and the steps by which a blob gets another form.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use xebec_objects::Digest;
use xebec_placement::{Code, PlaceName, Placement, Wanted};

use super::reading::Source;
use crate::error::{Result, StoreError};
use crate::model::{Blob, Page};
use crate::name::PackKey;
use crate::records::intact::main_key;
use crate::records::{blobs, placing, replicas};
use crate::replicas::{Held, Owner, PackStanding, Part, PlaceSpace, Postponed, Replica, Standing};
use crate::store::{Store, milliseconds, now};

/// So many records are changed in one transaction.
const STEP: usize = 256;

impl Store {
    /// Some blobs whose copies are to be looked at, which nobody else takes for this time. New links of repositories to blobs count.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn take_unplaced(&self, n: usize, lease: Duration) -> Result<Vec<Digest>> {
        loop {
            let gathered = self
                .write_records("find new blobs of repositories", |tx| placing::gather(tx, STEP))
                .await?;
            if gathered < STEP as u64 {
                break;
            }
        }
        self.write_records("take blobs whose copies are to be looked at", move |tx| {
            placing::take_blobs(tx, n, now(), now().saturating_add(milliseconds(lease)))
        })
        .await
    }

    /// The same of packs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn take_unplaced_packs(&self, n: usize, lease: Duration) -> Result<Vec<PackKey>> {
        self.write_records("take packs whose copies are to be looked at", move |tx| {
            placing::take_packs(tx, n, now(), now().saturating_add(milliseconds(lease)))
        })
        .await
    }

    /// Has one that was taken and has failed taken again at that time, in milliseconds since 1970, or once it has changed.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn postpone_placing(&self, what: Postponed, until: u64) -> Result<()> {
        self.write_records("have copies looked at later", move |tx| {
            placing::postpone(tx, &what, until)
        })
        .await
    }

    /// Has about so many blobs taken soon, after those that are new, that were to be taken after that time; the time of the last of them, which is for the
    /// next call, and none if there are no more.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn hasten_blobs(&self, n: usize, after: Option<u64>) -> Result<Option<u64>> {
        let Some(after) = after else {
            return Ok(None);
        };
        self.write_records("have blobs looked at sooner", move |tx| {
            placing::hasten_blobs(tx, n, after)
        })
        .await
    }

    /// The same of packs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn hasten_packs(&self, n: usize, after: Option<u64>) -> Result<Option<u64>> {
        let Some(after) = after else {
            return Ok(None);
        };
        self.write_records("have packs looked at sooner", move |tx| {
            placing::hasten_packs(tx, n, after)
        })
        .await
    }

    /// All that decides where the copies of a blob are to be; `None` if it is gone or damaged.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn standing(&self, blob: &Digest) -> Result<Option<Standing>> {
        let blob = blob.clone();
        self.read_records("see where a blob is to be", move |tx| {
            placing::standing(tx, &blob)
        })
        .await
    }

    /// The same of a pack.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pack_standing(&self, key: PackKey) -> Result<Option<PackStanding>> {
        self.read_records("see where a pack is to be", move |tx| {
            placing::pack_standing(tx, key)
        })
        .await
    }

    /// Notes what is wanted of a blob. The packs of its recipe are looked at again.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn want(&self, blob: &Digest, wanted: &Wanted) -> Result<()> {
        let (blob, wanted) = (blob.clone(), wanted.clone());
        self.write_records("note where a blob is to be", move |tx| {
            placing::want(tx, &blob, &wanted)
        })
        .await
    }

    /// Notes that a blob is where it is to be, as of this change; `false` if there was another one since: it is taken again.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn placed(&self, blob: &Digest, seen: i64) -> Result<bool> {
        let blob = blob.clone();
        self.write_records("note that a blob is where it is to be", move |tx| {
            placing::placed(tx, &blob, seen)
        })
        .await
    }

    /// The same of a pack.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pack_placed(&self, key: PackKey, seen: i64) -> Result<bool> {
        self.write_records("note that a pack is where it is to be", move |tx| {
            placing::pack_placed(tx, key, seen)
        })
        .await
    }

    /// How many blobs, packs and links of repositories are still to be looked at.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn unplaced(&self) -> Result<u64> {
        self.read_records("count what is to be looked at", |tx| placing::unplaced(tx))
            .await
    }

    /// Whether anybody has ever had copies placed by rules. Otherwise nobody looks at anything.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn was_placed(&self) -> Result<bool> {
        let rules = self.read_records("find the rules for copies", |tx| {
            placing::rules(tx, placing::COPIES)
        });
        Ok(rules.await?.is_some())
    }

    /// Has everything looked at, if these rules are others than those of the last time; whether they are.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn place_by(&self, fingerprint: &str) -> Result<bool> {
        let last = self
            .read_records("find the rules for copies", |tx| {
                placing::rules(tx, placing::COPIES)
            })
            .await?;
        if last.as_deref() == Some(fingerprint) {
            return Ok(false);
        }
        self.place_anew().await?;
        let rules = fingerprint.to_owned();
        self.write_records("note the rules for copies", move |tx| {
            placing::set_rules(tx, placing::COPIES, &rules)
        })
        .await?;
        Ok(true)
    }

    /// Has the copies of everything looked at.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn place_anew(&self) -> Result<()> {
        let mut after = None;
        loop {
            let from: Option<Digest> = after.take();
            after = self
                .write_records("have blobs looked at", move |tx| {
                    placing::look_at_some(tx, STEP, from.as_ref())
                })
                .await?;
            if after.is_none() {
                break;
            }
        }
        self.write_records("have packs looked at", |tx| placing::look_at_packs(tx))
            .await
    }

    /// Notes that a blob is popular for this time from now on.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn note_popular(&self, blob: &Digest, lasting: Duration) -> Result<()> {
        let (blob, until) = (blob.clone(), now().saturating_add(milliseconds(lasting)));
        self.write_records("note that a blob is popular", move |tx| {
            placing::popular(tx, &blob, until, now())
        })
        .await
    }

    /// Has those blobs looked at that are popular no longer; how many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn forget_unpopular(&self) -> Result<u64> {
        let mut all = 0;
        loop {
            let some = self
                .write_records("find what is popular no longer", |tx| {
                    placing::unpopular(tx, STEP, now())
                })
                .await?;
            all += some;
            if some < STEP as u64 {
                return Ok(all);
            }
        }
    }

    /// Makes a blob intact again that is kept by its recipe alone, which stays; `false` if it is intact by now, or gone.
    ///
    /// # Errors
    /// If it cannot be restored, the disk has no room but its reserve, or the database fails.
    pub async fn make_intact(&self, blob: &Blob) -> Result<bool> {
        if blob.object.is_some() {
            return Ok(false);
        }
        let held = Held {
            owner: Owner::Blob(blob.digest.clone()),
            name: blob.digest.to_string(),
            size: blob.size,
            checksum: blob.digest.clone(),
        };
        let (restored, digest) = ([Source::Restored(blob.clone())], blob.digest.clone());
        let made = self
            .write_home(&held, &restored, move |tx, key| {
                placing::make_intact(tx, &digest, key)
            })
            .await?;
        Ok(made.is_some())
    }

    /// Reads the bytes of an intact blob again, wherever they are, and compares them with its digest.
    ///
    /// # Errors
    /// If they are wrong, or cannot be read: then nothing should go that gives the same bytes. [`StoreError::Lost`] if it is not intact any more.
    pub async fn prove_intact(&self, blob: &Digest) -> Result<()> {
        let found = self.any_blob(blob).await?;
        match found.as_ref().and_then(Held::of_blob) {
            Some(held) => self.prove_all(&held).await,
            None => Err(StoreError::Lost(blob.clone())),
        }
    }

    /// Whether a blob comes out of its recipe and packs as they are stored; if not, that is noted as damage.
    ///
    /// # Errors
    /// If something cannot be read now, or this program cannot restore blobs.
    pub async fn prove_by_recipe(&self, blob: &Digest) -> Result<bool> {
        let (Some(found), Some(recipe)) = (self.any_blob(blob).await?, self.recipe(blob).await?) else {
            return Ok(false);
        };
        let restorer = self.inner.restorer.get();
        let restorer = restorer.ok_or_else(|| StoreError::NoRestorer(blob.clone()))?;
        let apart = Blob {
            object: None,
            ..found
        };
        let is_exact = restorer.is_exact(&self.giving_up(), &apart).await?;
        if !is_exact {
            self.note_recipe_damaged(&recipe).await?;
        }
        Ok(is_exact)
    }

    /// Lets the recipe of an intact blob go: it waits to be taken apart, or stays intact for this reason. `false` if it is not intact, or damaged.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn drop_recipe(&self, blob: &Digest, stays: Option<&str>) -> Result<bool> {
        let (blob, stays) = (blob.clone(), stays.map(str::to_owned));
        self.write_records("let a recipe go", move |tx| {
            placing::drop_recipe(tx, &blob, stays.as_deref(), now())
        })
        .await
    }

    /// Where an object is, as the records say: on the main place, and in replicas that are not known to be damaged. Shards count if all of a code are
    /// there. Several copies by one code are told from each other by what is `wanted`.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn placements(&self, held: &Held, wanted: &BTreeSet<Placement>) -> Result<BTreeSet<Placement>> {
        let name = held.name.clone();
        let mut found = self
            .read_records("find replicas", move |tx| replicas::of_object(tx, &name))
            .await?;
        found.retain(|replica| !replica.is_damaged);
        let home = main_key(&held.name).map(|_| Placement::At(PlaceName::main()));
        let mut placements: BTreeSet<Placement> = home.into_iter().collect();
        let mut shards: BTreeSet<(Code, u8, PlaceName)> = BTreeSet::new();
        for Replica { place, part, .. } in found {
            match part {
                Part::Whole => {
                    placements.insert(Placement::At(place));
                }
                Part::Shard { code, index } => {
                    shards.insert((code, index, place));
                }
            }
        }
        let mut rest = shards.clone();
        for placement in wanted {
            let parts = shards_of(placement);
            if !parts.is_empty() && parts.is_subset(&shards) {
                rest = rest.difference(&parts).cloned().collect();
                placements.insert(placement.clone());
            }
        }
        let mut by_code: BTreeMap<Code, BTreeMap<u8, PlaceName>> = BTreeMap::new();
        for (code, index, place) in rest {
            by_code.entry(code).or_default().insert(index, place);
        }
        for (code, shards) in by_code {
            placements.extend(Placement::spread(code, shards.into_values().collect()).ok());
        }
        Ok(placements)
    }

    /// The digests of blobs, in their order.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn blob_digests(&self, n: usize, after: Option<&Digest>) -> Result<Page<Digest>> {
        let after = after.cloned();
        let found = self
            .read_records("list blobs", move |tx| {
                blobs::list(tx, n.saturating_add(1), after.as_ref(), u64::MAX)
            })
            .await?;
        let digests = found.into_iter().map(|blob| blob.digest).collect();
        Ok(Page::cut(digests, n))
    }

    /// How many objects would be lost if a place were: they have no other copy.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn only_on(&self, place: &PlaceName) -> Result<u64> {
        let place = place.clone();
        self.read_records("find what has no other copy", move |tx| {
            replicas::only_on(tx, &place)
        })
        .await
    }

    /// Whether a place of the configuration is there, and has the mark that the records know.
    pub async fn has_place(&self, place: &PlaceName) -> bool {
        let is_known = self
            .place_space()
            .await
            .is_ok_and(|known| known.iter().any(|space| space.place == *place));
        is_known && self.objects_of(place).await.is_ok()
    }

    /// What each place of the records has, those included that the configuration does not name.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn place_space(&self) -> Result<Vec<PlaceSpace>> {
        self.read_records("add up what places have", |tx| replicas::space(tx))
            .await
    }

    /// Forgets all that a lost place had. What is wanted there is made anew, once the place is there again, empty. Returns how many replicas
    /// there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn lose_place(&self, place: &PlaceName) -> Result<u64> {
        let mut all = 0;
        loop {
            let lost = place.clone();
            let some = self
                .write_records("forget what a place had", move |tx| {
                    let some = replicas::forget_some(tx, &lost, STEP)?;
                    // In one transaction with the last ones: nobody records another between.
                    if some < STEP as u64 {
                        replicas::forget_place(tx, &lost)?;
                    }
                    Ok(some)
                })
                .await?;
            all += some;
            if some < STEP as u64 {
                return Ok(all);
            }
        }
    }
}

/// The shards of a placement, and where each is.
fn shards_of(placement: &Placement) -> BTreeSet<(Code, u8, PlaceName)> {
    match placement {
        Placement::Spread { code, places, .. } => {
            let shards = (0..).zip(places);
            shards
                .map(|(index, place)| (*code, index, place.clone()))
                .collect()
        }
        Placement::At(_) => BTreeSet::new(),
    }
}
