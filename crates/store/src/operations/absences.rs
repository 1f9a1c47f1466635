//! Copies that a reader found cut short or gone, and went around: they are noted at once, and made again, and not only when a scrub comes by.

use std::io;

use xebec_objects::is_absence;

use crate::error::Result;
use crate::records::objects::{self, Kind};
use crate::replicas::{Owner, Replica};
use crate::store::Store;

/// So many copies are looked into at the same time. What is found of others meanwhile is left to a scrub.
const LOOKS: usize = 2;

impl Store {
    /// Has somebody look in the background into what a reader found of a copy of an object: a replica, or the one on the main place. Of each, one does at a time.
    pub(super) fn look_into_soon(&self, name: &str, replica: Option<&Replica>, error: &io::Error) {
        if !is_absence(error) || self.inner.places.is_empty() {
            return;
        }
        let copy = replica.map_or(name, |replica| &replica.key).to_owned();
        let mut looked_into = self.inner.looked_into.lock();
        if looked_into.len() >= LOOKS || !looked_into.insert(copy.clone()) {
            return;
        }
        drop(looked_into);
        let (store, name, replica) = (self.giving_up(), name.to_owned(), replica.cloned());
        tokio::spawn(async move {
            let noted = match &replica {
                Some(replica) => store.note_if_cut(replica).await,
                None => store.note_if_wrong(&name).await,
            };
            if let Err(error) = noted {
                tracing::warn!(
                    "a copy of {name} is cut short or gone, which is not noted: {error}; a scrub notes it"
                );
            }
            store.inner.looked_into.lock().remove(&copy);
        });
    }

    /// Notes a replica that is not there as its record says, if its place is the right one.
    async fn note_if_cut(&self, replica: &Replica) -> Result<()> {
        if matches!(self.is_replica_there(replica).await, Ok(false))
            && let Err(error) = self.note_wrong_replica(replica).await?
        {
            tracing::warn!("nothing is noted of what {} has: {error}", replica.place);
        }
        Ok(())
    }

    /// Reads an object again, and mends or notes it if the main place has not all of it. One that has another name by now says nothing.
    async fn note_if_wrong(&self, name: &str) -> Result<()> {
        let sought = name.to_owned();
        let owner = self
            .read_records("find which record has an object", move |tx| {
                for kind in [Kind::Blob, Kind::Pack, Kind::Recipe] {
                    if let Some(owner) = objects::owner(tx, kind, &sought)? {
                        return Ok(Some(owner));
                    }
                }
                Ok(None)
            })
            .await?;
        match owner {
            Some(owner) => self.note_damage(owner, name).await,
            None => Ok(()),
        }
    }

    /// Notes what a reader would that finds wrong bytes, or none: another copy mends the object, or what it is of counts as damaged.
    pub(super) async fn note_damage(&self, owner: Owner, name: &str) -> Result<()> {
        match owner {
            Owner::Blob(digest) => {
                let blob = self.any_blob(&digest).await?;
                if let Some(blob) = blob.filter(|blob| blob.object.as_deref() == Some(name)) {
                    self.note_lost(&blob).await?;
                }
            }
            Owner::Pack(key) => {
                self.note_pack_damaged(key).await?;
            }
            Owner::Recipe(digest) => {
                let recipe = self.recipe(&digest).await?;
                if let Some(recipe) = recipe.filter(|recipe| recipe.object == name) {
                    self.judge_recipe(&recipe).await?;
                }
            }
        }
        Ok(())
    }
}
