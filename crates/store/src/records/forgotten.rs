//! Records that nothing needs and at which no collection would look, since nobody noted that something went. A program that does not
//! know of `unchecked` leaves such ones, when it serves beside a later one.

use crate::database::{DatabaseError, Transaction};
use xebec_objects::Digest;

/// Links that no manifest of their repository needs, after one.
pub(crate) fn links(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&(i64, Digest)>,
) -> Result<Vec<(i64, Digest)>, DatabaseError> {
    let (repository, digest) = after.map_or((0, String::new()), |(repository, digest)| {
        (*repository, digest.to_string())
    });
    let rows = tx.query(
        "SELECT repository, digest FROM repository_blobs
         WHERE unchecked = 0 AND (repository, digest) > ($1, $2)
         AND NOT EXISTS (SELECT 1 FROM manifest_references
             WHERE manifest_references.repository = repository_blobs.repository
             AND manifest_references.digest = repository_blobs.digest)
         ORDER BY repository, digest LIMIT $3",
        &[repository.into(), digest.into(), n.into()],
    )?;
    rows.into_iter()
        .map(|mut row| Ok((row.integer(0)?, row.parsed(1)?)))
        .collect()
}

/// The next collection looks at this link.
pub(crate) fn recall_link(
    tx: &mut dyn Transaction,
    (repository, digest): &(i64, Digest),
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE repository_blobs SET unchecked = 1 WHERE repository = $1 AND digest = $2",
        &[(*repository).into(), digest.into()],
    )?;
    Ok(())
}

/// Blobs that no repository has, after one.
pub(crate) fn blobs(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Digest>, DatabaseError> {
    let rows = tx.query(
        "SELECT digest FROM blobs WHERE unchecked = 0 AND digest > $1
         AND NOT EXISTS (SELECT 1 FROM repository_blobs WHERE repository_blobs.digest = blobs.digest)
         ORDER BY digest LIMIT $2",
        &[after.map(Digest::to_string).unwrap_or_default().into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// Recipes of blobs that are gone, after one: a program that does not know recipes has taken these blobs.
pub(crate) fn recipes(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Digest>, DatabaseError> {
    let rows = tx.query(
        "SELECT digest FROM recipes WHERE digest > $1
         AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.digest = recipes.digest) ORDER BY digest LIMIT $2",
        &[after.map(Digest::to_string).unwrap_or_default().into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// The recipe goes, and the next collection looks at its packs. It stays if its blob is here: somebody may have pushed it since it was looked
/// for.
pub(crate) fn recall_recipe(tx: &mut dyn Transaction, digest: &Digest) -> Result<(), DatabaseError> {
    let blob = tx.first("SELECT 1 FROM blobs WHERE digest = $1", &[digest.into()])?;
    match blob {
        Some(_) => Ok(()),
        None => super::recipes::forget(tx, digest, 0),
    }
}

/// The next collection looks at this blob.
pub(crate) fn recall_blob(tx: &mut dyn Transaction, digest: &Digest) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET unchecked = 1 WHERE digest = $1",
        &[digest.into()],
    )?;
    Ok(())
}

/// Repositories that have nothing, after one.
pub(crate) fn repositories(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&i64>,
) -> Result<Vec<i64>, DatabaseError> {
    let rows = tx.query(
        "SELECT id FROM repositories WHERE unchecked = 0 AND id > $1
         AND NOT EXISTS (SELECT 1 FROM manifests WHERE manifests.repository = repositories.id)
         AND NOT EXISTS (SELECT 1 FROM repository_blobs WHERE repository_blobs.repository = repositories.id)
         AND NOT EXISTS (SELECT 1 FROM uploads WHERE uploads.repository = repositories.id)
         ORDER BY id LIMIT $2",
        &[after.copied().unwrap_or_default().into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.integer(0)).collect()
}

/// The next collection looks at this repository.
pub(crate) fn recall_repository(tx: &mut dyn Transaction, id: &i64) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE repositories SET unchecked = 1 WHERE id = $1",
        &[(*id).into()],
    )?;
    Ok(())
}
