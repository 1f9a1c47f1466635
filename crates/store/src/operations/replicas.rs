//! Replicas made and dropped, and objects that leave the main place or come back to it.
//!
//! See docs/formats/store.md for the protocol, and `crates/model/tests/protocol/replicas` for its proof.

use std::collections::BTreeSet;
use std::io;

use futures_util::StreamExt as _;
use xebec_objects::{Algorithm, BlobReader, Digest, Hasher};
use xebec_placement::{PlaceName, Placement};

use super::copying::{at, failed, wrong_bytes};
use super::reading::Source;
use crate::error::{Result, StoreError, Unplaced};
use crate::records::intact::main_key;
use crate::records::replicas;
use crate::replicas::{Held, Part, Placed, Replica};
use crate::store::{Store, now};

impl Store {
    /// Has an object where it is to be, and nowhere else: makes what is missing, then drops what nobody wants. An object that is wanted nowhere stays where it
    /// is. Nothing is dropped before all that is wanted is there.
    ///
    /// # Errors
    /// If the object cannot be read from anywhere, a place does not answer or has no room, or the database fails. What was made stays, and this can be
    /// tried again.
    pub async fn place(&self, held: &Held, wanted: &BTreeSet<Placement>) -> Result<Placed> {
        Ok(self.place_without(held, wanted, &BTreeSet::new()).await?)
    }

    /// The same, but for places that are known to be away: they are not asked, and what is wanted there fails at once.
    ///
    /// # Errors
    /// As of [`Store::place`], of each place that has failed: one that is away keeps no other from being asked.
    pub async fn place_without(
        &self,
        held: &Held,
        wanted: &BTreeSet<Placement>,
        away: &BTreeSet<PlaceName>,
    ) -> Result<Placed, Unplaced> {
        let mut placed = Placed::default();
        if wanted.is_empty() {
            return Ok(placed);
        }
        let mut held = held.clone();
        let main = Placement::At(PlaceName::main());
        pass_over_main(&held, wanted, away)?;
        if wanted.contains(&main) && !self.is_home(&held).await? {
            let Some(home) = self.bring_home(&held).await? else {
                return Ok(placed);
            };
            held = home;
            placed.made += 1;
            placed.made_bytes += held.size;
        }
        let (mut kept, mut failure) = (BTreeSet::new(), None::<Unplaced>);
        for placement in wanted.iter().filter(|placement| **placement != main) {
            let replicated = match placement.places().iter().find(|place| away.contains(place)) {
                Some(place) => Err(StoreError::Paused(place.clone())),
                None => self.replicate(&held, placement, &mut placed).await,
            };
            match replicated {
                Ok(Some(keys)) => kept.extend(keys),
                Ok(None) => return Ok(placed),
                // A place that is away keeps others from nothing.
                Err(error) => failure = Some(Unplaced::from(error).after(failure)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let is_home = wanted.contains(&main);
        let leaves = !is_home && main_key(&held.name).is_some();
        let has_others = self.has_others(&held, &kept).await?;
        if placed.made > 0 || leaves || has_others {
            // Those that were just made, too: a disk may give back other bytes than it took.
            self.prove(&held, &kept).await?;
        }
        if leaves {
            let Some(away) = self.leave_main(&held, &kept).await? else {
                return Ok(placed);
            };
            held.name = away;
            placed.dropped += 1;
            placed.dropped_bytes += held.size;
        }
        if has_others {
            if is_home {
                self.prove_home(&held).await?;
            }
            self.drop_others(&held, &kept, is_home, &mut placed).await?;
        }
        Ok(placed)
    }

    /// Whether it has replicas beside these. Damaged ones count: nobody else would ever drop them.
    async fn has_others(&self, held: &Held, kept: &BTreeSet<String>) -> Result<bool> {
        let name = held.name.clone();
        let found = self
            .read_records("find replicas", move |tx| replicas::of_object(tx, &name))
            .await?;
        Ok(found.iter().any(|replica| !kept.contains(&replica.key)))
    }

    /// Reads these replicas again before others go.
    ///
    /// # Errors
    /// If one has wrong bytes or none: it is noted, and made again the next time.
    async fn prove(&self, held: &Held, kept: &BTreeSet<String>) -> Result<()> {
        let found = self.sound_replicas(held).await?;
        for replica in found.iter().filter(|replica| kept.contains(&replica.key)) {
            let bytes = self.read_replica(replica, 0..replica.size).await;
            let digest = match bytes {
                Ok(bytes) => digest_of(bytes, replica.checksum.algorithm()).await,
                Err(error) => Err(error),
            };
            match digest {
                Ok(digest) if digest == replica.checksum => {}
                Ok(_) => {
                    // Its mark need not be looked at: something is there.
                    self.note_replica(replica, false).await?;
                    return Err(at(&replica.place, wrong_bytes(&replica.key)));
                }
                Err(source) => return Err(at(&replica.place, source)),
            }
        }
        Ok(())
    }

    /// Reads an object again: on the main place, or all its replicas if it is away.
    pub(super) async fn prove_all(&self, held: &Held) -> Result<()> {
        if main_key(&held.name).is_some() {
            return self.prove_home(held).await;
        }
        let found = self.sound_replicas(held).await?;
        let keys: BTreeSet<String> = found.into_iter().map(|replica| replica.key).collect();
        match keys.is_empty() {
            true => Err(failed(
                "read an object again",
                &held.name,
                io::ErrorKind::NotFound.into(),
            )),
            false => self.prove(held, &keys).await,
        }
    }

    /// Reads an object on the main place again before its replicas go.
    async fn prove_home(&self, held: &Held) -> Result<()> {
        let key = main_key(&held.name).unwrap_or_default();
        let main = PlaceName::main();
        let found = match self.read_at(&main, key, 0..held.size).await {
            Ok(bytes) => digest_of(bytes, held.checksum.algorithm()).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) if found == held.checksum => Ok(()),
            Ok(_) => Err(at(&main, wrong_bytes(key))),
            Err(source) => Err(at(&main, source)),
        }
    }

    /// Whether the main place has the object, as far as its size says.
    async fn is_home(&self, held: &Held) -> Result<bool> {
        let Some(key) = main_key(&held.name) else {
            return Ok(false);
        };
        let (main, found) = (PlaceName::main(), self.size_at(&PlaceName::main(), key).await);
        let found = found.map_err(|source| at(&main, source))?;
        Ok(found == Some(held.size))
    }

    /// The keys of all replicas that a placement consists of, of which those were made that were missing; none if the object has another name by now.
    async fn replicate(
        &self,
        held: &Held,
        placement: &Placement,
        placed: &mut Placed,
    ) -> Result<Option<Vec<String>>> {
        let parts: Vec<(PlaceName, Part)> = match placement {
            Placement::At(place) => vec![(place.clone(), Part::Whole)],
            Placement::Spread { code, places, .. } => (0..)
                .zip(places)
                .map(|(index, place)| (place.clone(), Part::Shard { code: *code, index }))
                .collect(),
        };
        let here = self.replicas_there(held, &parts).await?;
        let find = |place: &PlaceName, part: Part| {
            here.iter()
                .find(|replica| replica.place == *place && replica.part == part)
                .map(|replica| replica.key.clone())
        };
        let missing: Vec<(PlaceName, Part)> = parts
            .iter()
            .filter(|(place, part)| find(place, *part).is_none())
            .cloned()
            .collect();
        let mut keys: Vec<String> = parts
            .iter()
            .filter_map(|(place, part)| find(place, *part))
            .collect();
        if !missing.is_empty() {
            let Some(made) = self.make_replicas(held, missing).await? else {
                return Ok(None);
            };
            placed.made += made.len() as u64;
            placed.made_bytes += made.iter().map(|replica| replica.size).sum::<u64>();
            keys.extend(made.into_iter().map(|replica| replica.key));
        }
        Ok(Some(keys))
    }

    /// Which of these parts of an object are there, as far as their sizes say. One that is not is noted as damaged. Other places need not answer: what they
    /// have is dropped in the records alone.
    async fn replicas_there(&self, held: &Held, parts: &[(PlaceName, Part)]) -> Result<Vec<Replica>> {
        let found = self.sound_replicas(held).await?;
        let mut there = Vec::new();
        let is_asked = |replica: &Replica| parts.contains(&(replica.place.clone(), replica.part));
        for replica in found.into_iter().filter(is_asked) {
            match self.is_replica_there(&replica).await {
                Ok(true) => there.push(replica),
                Ok(false) => {
                    let noted = self.note_wrong_replica(&replica).await?;
                    noted.map_err(|source| at(&replica.place, source))?;
                }
                Err(source) => return Err(at(&replica.place, source)),
            }
        }
        Ok(there)
    }

    /// Notes that a replica is wrong or gone, as [`Store::note_replica`] does, unless its place has lost its mark since it was looked at: a disk that is not
    /// mounted any more has lost nothing.
    pub(super) async fn note_wrong_replica(&self, replica: &Replica) -> Result<io::Result<bool>> {
        match self.look_again(&replica.place).await {
            Ok(()) => self.note_replica(replica, false).await.map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Notes whether a replica has the bytes that it should have; `false` if it is gone by now.
    pub(super) async fn note_replica(&self, replica: &Replica, is_sound: bool) -> Result<bool> {
        let key = replica.key.clone();
        let is_here = self
            .write_records("note what a replica is like", move |tx| {
                replicas::note(tx, &key, is_sound, now())
            })
            .await?;
        if is_here && !is_sound {
            tracing::error!(
                "the replica {} of {} on {} has wrong bytes or is gone; it is made again from another one",
                replica.key,
                replica.object,
                replica.place
            );
        }
        Ok(is_here)
    }

    /// Makes these parts of an object, which is read once, and compared with its digest; none if the object has another name by now.
    async fn make_replicas(
        &self,
        held: &Held,
        parts: Vec<(PlaceName, Part)>,
    ) -> Result<Option<Vec<Replica>>> {
        let (mut writings, sources) = (Vec::new(), self.sources(held).await?);
        let written = self.write_parts(held, &parts, &sources, &mut writings).await;
        let made = match written {
            Ok(made) => self.record_replicas(held, &made).await?.then_some(made),
            Err(error) => {
                self.give_up(&writings).await;
                return Err(error);
            }
        };
        if made.is_none() {
            self.give_up(&writings).await;
        }
        Ok(made)
    }

    async fn record_replicas(&self, held: &Held, made: &[Replica]) -> Result<bool> {
        let (held, made) = (held.clone(), made.to_vec());
        self.write_records("record replicas", move |tx| {
            for replica in &made {
                if !replicas::record(tx, &held, replica, now())? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Puts an object on the main place again, from a replica with right bytes. What it had there before is garbage. None if it has another name by now.
    ///
    /// # Errors
    /// If no replica has right bytes, or the disk has no room but its reserve.
    pub(crate) async fn bring_home(&self, held: &Held) -> Result<Option<Held>> {
        let others = self.others(held).await?;
        let moved = held.clone();
        let draft = self
            .write_home(held, &others, move |tx, key| {
                replicas::bring_home(tx, &moved, key, now())
            })
            .await?;
        let Some(draft) = draft else {
            return Ok(None);
        };
        self.sweep_main_soon(&held.name, held.size, now());
        Ok(Some(Held {
            name: draft.object,
            ..held.clone()
        }))
    }

    /// The replicas of an object that are not known to be damaged.
    pub(super) async fn sound_replicas(&self, held: &Held) -> Result<Vec<Replica>> {
        let found = self.replicas_of(&held.name).await;
        found.map_err(|source| failed("find the replicas of an object", &held.name, source))
    }

    /// All places beside the main one that may have an object.
    async fn others(&self, held: &Held) -> Result<Vec<Source>> {
        let others = self.other_sources(&held.name).await;
        others.map_err(|source| failed("find the replicas of an object", &held.name, source))
    }

    /// All places that may have an object.
    async fn sources(&self, held: &Held) -> Result<Vec<Source>> {
        let others = self.others(held).await?;
        let main = main_key(&held.name).map(|key| Source::Main(key.to_owned()));
        Ok(main.into_iter().chain(others).collect())
    }

    pub(super) async fn leave_main(&self, held: &Held, kept: &BTreeSet<String>) -> Result<Option<String>> {
        let (left, kept): (_, Vec<String>) = (held.clone(), kept.iter().cloned().collect());
        let since = now().saturating_add(self.lingering());
        let away = self
            .write_records("take an object from the main place", move |tx| {
                replicas::leave_main(tx, &left, &kept, since)
            })
            .await?;
        if away.is_some() {
            self.sweep_main_soon(&held.name, held.size, since);
        }
        Ok(away)
    }

    /// Drops the replicas of an object that are not among these, if all of these are sound. If there are none of these, the object has to be on the main place.
    /// Another placer may have put one of its own in the place of one of these: then nothing is dropped.
    async fn drop_others(
        &self,
        held: &Held,
        kept: &BTreeSet<String>,
        is_home: bool,
        placed: &mut Placed,
    ) -> Result<()> {
        let name = held.name.clone();
        let (held, kept): (_, Vec<String>) = (held.clone(), kept.iter().cloned().collect());
        let dropped = self
            .write_records("drop replicas that nobody wants", move |tx| {
                let is_enough = (is_home && kept.is_empty()) || replicas::are_sound(tx, &name, &kept)?;
                if !is_enough || !replicas::is_current(tx, &held)? {
                    return Ok(Vec::new());
                }
                let mut dropped = Vec::new();
                for replica in replicas::of_object(tx, &name)? {
                    if !kept.contains(&replica.key) {
                        dropped.extend(replicas::drop_one(tx, &replica.key, now())?);
                    }
                }
                if !dropped.is_empty() {
                    replicas::note_change(tx, &name)?;
                }
                Ok(dropped)
            })
            .await?;
        placed.dropped += dropped.len() as u64;
        placed.dropped_bytes += dropped.iter().sum::<u64>();
        Ok(())
    }
}

/// An error if the main place is not to be asked, and would have to be.
fn pass_over_main(
    held: &Held,
    wanted: &BTreeSet<Placement>,
    away: &BTreeSet<PlaceName>,
) -> Result<(), StoreError> {
    let main = PlaceName::main();
    let is_needed = main_key(&held.name).is_some() || wanted.contains(&Placement::At(main.clone()));
    match is_needed && away.contains(&main) {
        true => Err(StoreError::Paused(main)),
        false => Ok(()),
    }
}

async fn digest_of(mut pieces: BlobReader, algorithm: Algorithm) -> io::Result<Digest> {
    let mut hasher = Hasher::new(algorithm);
    while let Some(piece) = pieces.next().await {
        hasher.update(&piece?);
    }
    Ok(hasher.finish())
}
