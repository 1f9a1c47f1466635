//! Blobs whose objects are gone though their records are here, as after a fault of a disk, or a restore of one without the other.
//!
//! Such a blob is absent from the moment at which somebody notices, as after a scrub: a client that asks for it is told so and sends it,
//! and a registry that has it from an upstream fetches it. A scrub that finds the object again takes the mark away. A blob that is not
//! intact needs the objects of its recipe and of its packs; if one of them is gone, so are all blobs that need it.

use std::io;

use futures_util::{StreamExt, stream};

use super::scrub_replicas::Finding;
use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::name::PackKey;
use crate::recipes::{PackRecord, RecipeRecord};
use crate::records::{blobs, recipes, replicas};
use crate::replicas::Held;
use crate::store::{Store, now};

/// So many objects are asked for at the same time.
const AT_ONCE: usize = 16;

/// Where a blob is, as far as its records and the sizes of its objects say.
enum Found {
    /// It is in this object, or this is the object of its recipe.
    Whole(String),
    /// Its own object is gone or cut, or there is no sound recipe in place of it.
    Nothing,
    /// The object of its recipe is gone or cut.
    NoRecipe(RecipeRecord),
    /// A pack is gone or cut that its recipe needs.
    NoPack(PackKey),
}

impl Store {
    /// Whether a blob's object is there and has as many bytes as its record says, which are not read; the same of the objects of its
    /// recipe and its packs, if it is not intact. If not, the blob is absent from now on.
    ///
    /// # Errors
    /// If the object store does not say, or the database fails.
    pub async fn is_whole(&self, blob: &Blob) -> Result<bool> {
        match self.find_objects(blob).await? {
            Found::Whole(_) => Ok(true),
            found => Ok(!self.note_as(blob, found).await?),
        }
    }

    /// The object of a blob or of its recipe, if all is there.
    pub(crate) async fn sound_object(&self, blob: &Blob) -> Option<String> {
        match self.find_objects(blob).await {
            Ok(Found::Whole(object)) => Some(object),
            _ => None,
        }
    }

    async fn find_objects(&self, blob: &Blob) -> Result<Found> {
        let Some(object) = &blob.object else {
            return self.find_pieces(blob).await;
        };
        Ok(match self.is_there(object, blob.size).await? {
            true => Found::Whole(object.clone()),
            false => Found::Nothing,
        })
    }

    async fn find_pieces(&self, blob: &Blob) -> Result<Found> {
        let recipe = self.recipe(&blob.digest).await?;
        let Some(recipe) = recipe.filter(|recipe| !recipe.is_damaged) else {
            return Ok(Found::Nothing);
        };
        if !self.is_there(&recipe.object, recipe.size).await? {
            return Ok(Found::NoRecipe(recipe));
        }
        let asked: Vec<_> = recipe.packs.iter().map(|pack| self.pack_is_there(pack)).collect();
        let missing = stream::iter(asked).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        for (pack, is_there) in missing.await {
            if !is_there? {
                return Ok(Found::NoPack(pack));
            }
        }
        Ok(Found::Whole(recipe.object))
    }

    async fn pack_is_there(&self, pack: &PackRecord) -> (PackKey, Result<bool>) {
        (pack.key, self.is_there(&pack.object, pack.size).await)
    }

    async fn is_there(&self, object: &str, size: u64) -> Result<bool> {
        let found = self.is_somewhere(object, size).await;
        found.map_err(|source: io::Error| StoreError::Object {
            doing: "look for an object of a blob",
            key: object.to_owned(),
            source,
        })
    }

    /// Notes that a blob is absent since an object is not there; `false` if that is not so, or not any more.
    pub(crate) async fn note_lost(&self, blob: &Blob) -> Result<bool> {
        let found = match blob.object {
            Some(_) => Found::Nothing,
            None => self.find_pieces(blob).await?,
        };
        self.note_as(blob, found).await
    }

    async fn note_as(&self, blob: &Blob, found: Found) -> Result<bool> {
        match found {
            Found::Whole(_) => Ok(false),
            Found::NoRecipe(recipe) => {
                let finding = self.judge_recipe(&recipe).await?;
                Ok(matches!(finding, Some(Finding::Damaged(_))))
            }
            Found::NoPack(pack) => self.note_pack_damaged(pack).await,
            Found::Nothing => self.note_nothing(blob).await,
        }
    }

    /// Looks for the cause of what the object of an intact blob is said to be. One without right bytes is kept by its recipe from now on, if that
    /// gives them.
    pub(super) async fn judge_blob(&self, blob: &Blob, held: &Held) -> Result<Finding> {
        let seen = match self.recover(held).await {
            Finding::Damaged(seen) => seen,
            finding => return Ok(finding),
        };
        let apart = Blob {
            object: None,
            ..blob.clone()
        };
        let recipe = self.recipe(&blob.digest).await?;
        let recipe = recipe.filter(|recipe| !recipe.is_damaged);
        let is_exact = match (self.inner.restorer.get(), recipe) {
            (Some(restorer), Some(_)) => restorer.is_exact(&self.giving_up(), &apart).await,
            _ => Ok(false),
        };
        Ok(match is_exact {
            Ok(true) if self.give_up_intact(blob).await? => Finding::Mended,
            Ok(_) => Finding::Damaged(seen),
            Err(error) => Finding::Unknown(error.to_string()),
        })
    }

    /// Lets the object of a blob go that is gone or wrong, if it still has it, and a recipe that the records call sound.
    async fn give_up_intact(&self, blob: &Blob) -> Result<bool> {
        let given_up = blob.clone();
        let garbage = self
            .write_records(
                "keep a blob by its recipe alone",
                move |tx| match recipes::has_blob(tx, &given_up)? {
                    true => recipes::drop_intact(tx, &given_up.digest, now()),
                    false => Ok(None),
                },
            )
            .await?;
        if garbage.is_some() {
            tracing::error!(
                "{}: its object is gone or has wrong bytes; it is kept by its recipe from now on",
                blob.digest
            );
        }
        Ok(garbage.is_some())
    }

    async fn note_nothing(&self, blob: &Blob) -> Result<bool> {
        let seen = match Held::of_blob(blob) {
            Some(held) => match self.judge_blob(blob, &held).await? {
                Finding::Damaged(seen) => seen,
                _ => return Ok(false),
            },
            None => Vec::new(),
        };
        let noted = blob.clone();
        let is_current = self
            .write_records("note that an object is gone", move |tx| match &noted.object {
                Some(object) if replicas::has_new(tx, object, &seen)? => Ok(false),
                Some(_) => blobs::note_scrub(tx, &noted, false, now()),
                None => Ok(recipes::note_blob(tx, &noted.digest, now())? == Some(false)),
            })
            .await?;
        if is_current {
            let object = blob.object.as_deref().unwrap_or("or recipe");
            tracing::error!(
                "{}: its object {object} is gone or cut; it counts as absent until it is fetched or pushed again",
                blob.digest
            );
        }
        Ok(is_current)
    }
}
