//! A place is tried as the store uses it, for those who look for what does not work.

use std::io;

use xebec_placement::PlaceName;

use super::copying::at;
use super::reading::read_mark;
use crate::error::Result;
use crate::places::MARK;
use crate::records::replicas;
use crate::store::Store;

/// The key of what is written to try a place. No key of an object is like it.
const TRIED: &str = "do/doctor";

impl Store {
    /// Tries a place beside the main one: whether it has the mark that the records know, and takes in, gives back and deletes some bytes. One that the store has
    /// never used is not taken into use: of that, it is seen whether another store uses it. Whether the store has used it comes back.
    ///
    /// # Errors
    /// The place does not work, or the database does not; why.
    pub async fn try_place(&self, name: &PlaceName) -> Result<bool> {
        let wanted = name.clone();
        let known = self
            .read_records("find the mark of a place", move |tx| {
                replicas::mark_of(tx, &wanted)
            })
            .await?;
        let tried = match known {
            Some(_) => self.try_used(name).await,
            None => self.try_unused(name).await,
        };
        tried.map_err(|source| at(name, source))
    }

    async fn try_used(&self, name: &PlaceName) -> io::Result<bool> {
        let objects = self.objects_to_write(name).await?;
        // What another one has left here that was ended.
        objects.delete(TRIED, None).await?;
        objects.put(TRIED, vec![TRIED.into()]).await?;
        let found = objects.size(TRIED).await?;
        objects.delete(TRIED, None).await?;
        match found == Some(TRIED.len() as u64) {
            true => Ok(true),
            false => Err(io::Error::other("it does not give back what it has taken in")),
        }
    }

    async fn try_unused(&self, name: &PlaceName) -> io::Result<bool> {
        let Some(place) = self.inner.places.get(name) else {
            return Err(io::Error::other("the configuration has no such place"));
        };
        let objects = &place.objects;
        // A directory of objects that is not there yet has none.
        if objects.directory().is_some() && objects.answers(MARK).await.is_err() {
            return Ok(false);
        }
        match read_mark(objects).await? {
            None => Ok(false),
            Some(_) => Err(io::Error::other(
                "another registry uses it, or an earlier database of this one; give this registry a directory or prefix of its own",
            )),
        }
    }
}
