//! Manifests and tags of an upstream, beside those that clients have pushed.

use crate::database::{DatabaseError, Transaction};
use crate::model::{NewManifest, PutManifest, TagRecord};
use crate::name::{RepositoryName, Tag};
use crate::records::manifests::{self, Refusal};
use crate::records::{repositories, tags};

/// Whether a tag is not the upstream's: a client pushed what it names, with it or after it was set.
pub(crate) fn is_own(
    tx: &mut dyn Transaction,
    repository: i64,
    tag: &TagRecord,
) -> Result<bool, DatabaseError> {
    let found = tx.first(
        "SELECT 1 FROM manifests WHERE repository = $1 AND digest = $2 AND pushed > 0 AND pushed >= $3",
        &[repository.into(), (&tag.digest).into(), tag.updated.into()],
    )?;
    Ok(found.is_some())
}

/// Takes a manifest of an upstream, and sets those of the tags that are the upstream's.
pub(crate) fn put(
    tx: &mut dyn Transaction,
    name: &RepositoryName,
    new: &NewManifest,
    new_tags: &[Tag],
    now: u64,
) -> Result<Result<PutManifest, Refusal>, DatabaseError> {
    let known = repositories::find(tx, name)?;
    let mut set = Vec::new();
    for tag in new_tags {
        let old = known.map_or(Ok(None), |id| tags::find(tx, id, tag))?;
        let stays = match (known, &old) {
            (Some(id), Some(old)) => {
                let is_immutable = new.immutable.contains(tag) && old.digest != new.digest;
                is_immutable || is_own(tx, id, old)?
            }
            _ => false,
        };
        if !stays {
            set.push((tag.clone(), None));
        }
    }
    manifests::put(tx, name, new, &set, now)
}
