//! The part of a scrub that reads replicas, and that mends objects of the main place from them.

use super::shards::Shards;
use super::verdict::{Pass, Verdict};
use crate::error::Result;
use crate::records::intact::main_key;
use crate::records::replicas;
use crate::replicas::{Held, Part, Replica};
use crate::store::Store;

/// So many records are looked up at once.
const STEP: usize = 64;

/// The findings of that part.
#[derive(Default)]
pub(super) struct Replicas {
    pub(super) read: u64,
    pub(super) bytes: u64,
    /// Those with wrong bytes or none.
    pub(super) damaged: u64,
    /// Those that could not be read, and why: one of each place that does not answer.
    pub(super) unreadable: Vec<(Replica, String)>,
}

/// What came of looking for the cause when an object is said to have wrong bytes, or none.
#[derive(Debug)]
pub(super) enum Finding {
    /// Something was wrong, and right bytes are there now.
    Mended,
    /// All that there is of it is right.
    Sound,
    /// A place does not answer that may have right bytes.
    Unknown(String),
    /// There are no right bytes. These are the keys of all replicas that were looked at.
    Damaged(Vec<String>),
}

impl Store {
    /// Reads all replicas that were not read since that time. Those with wrong bytes are made again when somebody looks at the object.
    pub(super) async fn scrub_replicas(&self, unread_since: u64, pass: &mut Pass) -> Result<Replicas> {
        let mut found = Replicas::default();
        let mut after: Option<String> = None;
        loop {
            let from = after.take();
            let listed = self
                .read_records("list replicas", move |tx| {
                    replicas::list(tx, STEP, from.as_deref(), unread_since)
                })
                .await?;
            for replica in &listed {
                self.scrub_replica(replica, pass, &mut found).await?;
            }
            if listed.len() < STEP {
                return Ok(found);
            }
            after = listed.into_iter().next_back().map(|replica| replica.key);
        }
    }

    /// Reads these replicas, and notes which are wrong or gone; how many are.
    pub(super) async fn scrub_some(&self, replicas: impl Iterator<Item = &Replica>) -> Result<u64> {
        let (mut pass, mut found) = (Pass::new(None), Replicas::default());
        for replica in replicas {
            self.scrub_replica(replica, &mut pass, &mut found).await?;
        }
        Ok(found.damaged)
    }

    /// Whether it has right bytes.
    async fn scrub_replica(&self, replica: &Replica, pass: &mut Pass, found: &mut Replicas) -> Result<bool> {
        if pass.silent.contains(&replica.place) {
            return Ok(false);
        }
        found.read += 1;
        if let Err(error) = self.objects_of(&replica.place).await {
            pass.silent.insert(replica.place.clone());
            found.unreadable.push((replica.clone(), error.to_string()));
            return Ok(false);
        }
        let wanted = (&replica.checksum, replica.size);
        let place = &replica.place;
        match self
            .verdict_at(place, &replica.key, wanted, pass, &mut found.bytes)
            .await
        {
            Verdict::Sound => return self.note_replica(replica, true).await,
            Verdict::Damaged | Verdict::Missing => match self.note_wrong_replica(replica).await? {
                Ok(is_here) => found.damaged += u64::from(is_here),
                Err(error) => {
                    pass.silent.insert(replica.place.clone());
                    found.unreadable.push((replica.clone(), error.to_string()));
                }
            },
            Verdict::Unreadable(why) => found.unreadable.push((replica.clone(), why)),
            Verdict::Unread => {}
        }
        Ok(false)
    }

    /// Looks for the cause when an object is said to have wrong bytes, or none: reads all that there is of it. A replica without right bytes is noted. If the
    /// main place lacks them, they come there again from a replica; or the object leaves that place, if that has no room.
    pub(super) async fn recover(&self, held: &Held) -> Finding {
        match self.find_cause(held).await {
            Ok(finding) => finding,
            Err(error) => {
                tracing::error!("cannot mend the object {} from another copy: {error}", held.name);
                Finding::Unknown(error.to_string())
            }
        }
    }

    async fn find_cause(&self, held: &Held) -> Result<Finding> {
        let known = self.sound_replicas(held).await?;
        // Without other places, the object is where its reader looked for it.
        if known.is_empty() && self.inner.places.is_empty() {
            return Ok(Finding::Damaged(Vec::new()));
        }
        let (mut pass, mut found) = (Pass::new(None), Replicas::default());
        let seen = known.iter().map(|replica| replica.key.clone()).collect();
        let mut sound = Vec::new();
        for replica in known {
            if self.scrub_replica(&replica, &mut pass, &mut found).await? {
                sound.push(replica);
            }
        }
        let wanted = (&held.checksum, held.size);
        let of_main = self
            .verdict(&held.name, wanted, &mut pass, &mut found.bytes)
            .await;
        let unread = found.unreadable.into_iter().next();
        match (of_main, main_key(&held.name)) {
            (Verdict::Sound, _) if found.damaged > 0 => Ok(Finding::Mended),
            (Verdict::Sound, _) => Ok(Finding::Sound),
            (Verdict::Unreadable(why), _) => Ok(Finding::Unknown(why)),
            (Verdict::Unread, _) => Ok(Finding::Unknown("its place does not answer".to_owned())),
            (of_main, Some(_)) if self.mend_main(held, &sound).await? => {
                let was = if matches!(of_main, Verdict::Missing) {
                    "gone"
                } else {
                    "damaged"
                };
                tracing::warn!(
                    "the object {} was {was}, and is there again from another copy",
                    held.name
                );
                Ok(Finding::Mended)
            }
            // Wrong bytes are not shown to anybody while a place is away. One who looks since a reader found less waits for a scrub.
            (of_main, _) => Ok(match unread {
                Some((replica, why)) if self.gives_up || matches!(of_main, Verdict::Missing) => {
                    Finding::Unknown(format!("on {}: {why}", replica.place))
                }
                _ => Finding::Damaged(seen),
            }),
        }
    }

    /// Has right bytes in place of those that the main place lacks; `false` if no replicas have them, or the object has another name by now.
    async fn mend_main(&self, held: &Held, sound: &[Replica]) -> Result<bool> {
        let is_whole = sound.iter().any(|replica| replica.part == Part::Whole);
        if !is_whole && Shards::complete(sound).is_empty() {
            return Ok(false);
        }
        match self.bring_home(held).await {
            Ok(home) => Ok(home.is_some()),
            Err(error) => {
                tracing::warn!("{error}; until that can be done, it is read from other places");
                let sound = sound.iter().map(|replica| replica.key.clone()).collect();
                Ok(self.leave_main(held, &sound).await?.is_some())
            }
        }
    }
}
