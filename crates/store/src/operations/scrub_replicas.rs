//! The part of a scrub that reads replicas, and that mends objects of the main place from them.

use super::copying::failed;
use super::verdict::{Pace, Verdict};
use crate::error::Result;
use crate::records::intact::main_key;
use crate::records::replicas;
use crate::replicas::{Held, Owner, Replica};
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
    /// Those that could not be read, and why.
    pub(super) unreadable: Vec<(Replica, String)>,
}

impl Store {
    /// Reads all replicas that were not read since that time. Those with wrong bytes are made again when somebody looks at the object.
    pub(super) async fn scrub_replicas(&self, unread_since: u64, pace: &mut Pace) -> Result<Replicas> {
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
                self.scrub_replica(replica, pace, &mut found).await?;
            }
            if listed.len() < STEP {
                return Ok(found);
            }
            after = listed.into_iter().next_back().map(|replica| replica.key);
        }
    }

    async fn scrub_replica(&self, replica: &Replica, pace: &mut Pace, found: &mut Replicas) -> Result<()> {
        found.read += 1;
        let objects = match self.objects_of(&replica.place).await {
            Ok(objects) => objects,
            Err(error) => {
                found.unreadable.push((replica.clone(), error.to_string()));
                return Ok(());
            }
        };
        let wanted = (&replica.checksum, replica.size);
        match self
            .verdict_of(objects, &replica.key, wanted, pace, &mut found.bytes)
            .await
        {
            Verdict::Sound => {
                self.note_replica(replica, true).await?;
            }
            Verdict::Damaged | Verdict::Missing => {
                found.damaged += u64::from(self.note_replica(replica, false).await?);
            }
            Verdict::Unreadable(why) => found.unreadable.push((replica.clone(), why)),
        }
        Ok(())
    }

    /// Looks for the cause when an object is said to have wrong bytes, or none: reads all that there is of it. A replica without right bytes is noted. If the
    /// main place lacks them, they come there again from a replica. Whether a cause was found, and right bytes are there now; never, if it has no
    /// replicas.
    pub(super) async fn recover(&self, held: &Held) -> bool {
        match self.find_cause(held).await {
            Ok(is_recovered) => is_recovered,
            Err(error) => {
                tracing::error!("cannot mend the object {} from another copy: {error}", held.name);
                false
            }
        }
    }

    async fn find_cause(&self, held: &Held) -> Result<bool> {
        let known = self.replicas_of(&held.name).await;
        let known = known.map_err(|source| failed("find the replicas of an object", &held.name, source))?;
        if known.is_empty() {
            return Ok(false);
        }
        let (mut pace, mut found) = (Pace::new(None), Replicas::default());
        for replica in &known {
            self.scrub_replica(replica, &mut pace, &mut found).await?;
        }
        let wanted = (&held.checksum, held.size);
        let of_main = self
            .verdict(&held.name, wanted, &mut pace, &mut found.bytes)
            .await;
        match (of_main, main_key(&held.name)) {
            // Of a pack, who has seen other bytes has read them elsewhere, or before they were mended. A recipe with right bytes may make wrong ones.
            (Verdict::Sound, _) => Ok(found.damaged > 0 || matches!(held.owner, Owner::Pack(_))),
            (Verdict::Damaged | Verdict::Missing, Some(_)) => {
                let home = self.bring_home(held).await?;
                if home.is_some() {
                    tracing::warn!(
                        "the object {} was damaged or gone, and is there again from another copy",
                        held.name
                    );
                }
                Ok(home.is_some())
            }
            _ => Ok(false),
        }
    }
}
