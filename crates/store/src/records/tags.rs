//! Tags.

use crate::database::{DatabaseError, Row, Transaction};
use crate::model::TagRecord;
use crate::name::Tag;
use xebec_objects::Digest;

fn record(row: &mut Row) -> Result<TagRecord, DatabaseError> {
    Ok(TagRecord {
        name: row.parsed(0)?,
        digest: row.parsed(1)?,
        created: row.unsigned(2)?,
        updated: row.unsigned(3)?,
        pulled: row.unsigned(4)?,
    })
}

pub(crate) fn find(
    tx: &mut dyn Transaction,
    repository: i64,
    tag: &Tag,
) -> Result<Option<TagRecord>, DatabaseError> {
    let row = tx.first(
        "SELECT name, digest, created, updated, pulled FROM tags WHERE repository = $1 AND name = $2",
        &[repository.into(), tag.into()],
    )?;
    row.map(|mut row| record(&mut row)).transpose()
}

/// The tag names this manifest, since that time.
pub(crate) fn set(
    tx: &mut dyn Transaction,
    repository: i64,
    tag: &Tag,
    digest: &Digest,
    at: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO tags (repository, name, digest, created, updated, pulled) VALUES ($1, $2, $3, $4, $4, 0)
         ON CONFLICT (repository, name) DO UPDATE SET digest = excluded.digest, updated = excluded.updated",
        &[repository.into(), tag.into(), digest.into(), at.into()],
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &mut dyn Transaction, repository: i64, tag: &Tag) -> Result<bool, DatabaseError> {
    let deleted = tx.execute(
        "DELETE FROM tags WHERE repository = $1 AND name = $2",
        &[repository.into(), tag.into()],
    )?;
    Ok(deleted > 0)
}

pub(crate) fn list(
    tx: &mut dyn Transaction,
    repository: i64,
    n: usize,
    after: Option<&str>,
) -> Result<Vec<TagRecord>, DatabaseError> {
    let rows = tx.query(
        "SELECT name, digest, created, updated, pulled FROM tags
         WHERE repository = $1 AND name > $2 ORDER BY name LIMIT $3",
        &[repository.into(), after.unwrap_or_default().into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| record(&mut row)).collect()
}

/// The tags that name a manifest, `n` at most.
pub(crate) fn of_manifest(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    n: usize,
) -> Result<Vec<TagRecord>, DatabaseError> {
    let rows = tx.query(
        "SELECT name, digest, created, updated, pulled FROM tags
         WHERE repository = $1 AND digest = $2 ORDER BY name LIMIT $3",
        &[repository.into(), digest.into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| record(&mut row)).collect()
}

/// The first tag that `is_held` names of those that lead to a manifest or a blob: they name the manifest itself, a manifest that names
/// the blob, or an index above.
pub(crate) fn holding(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    is_held: &(dyn Fn(&Tag) -> bool + Send),
) -> Result<Option<TagRecord>, DatabaseError> {
    let rows = tx.query(
        "WITH RECURSIVE above (digest) AS (
             SELECT digest FROM manifests WHERE repository = $1 AND digest = $2
             UNION SELECT manifest FROM manifest_references WHERE repository = $1 AND digest = $2
             UNION SELECT manifest_references.manifest FROM above
                 JOIN manifest_references ON manifest_references.digest = above.digest
                 WHERE manifest_references.repository = $1)
         SELECT tags.name, tags.digest, created, updated, pulled FROM above
         JOIN tags ON tags.digest = above.digest WHERE tags.repository = $1 ORDER BY tags.name",
        &[repository.into(), digest.into()],
    )?;
    for mut row in rows {
        let tag = record(&mut row)?;
        if is_held(&tag.name) {
            return Ok(Some(tag));
        }
    }
    Ok(None)
}

/// How many tags there are, `n` at most, and when the one of them that was set last was.
pub(crate) fn summary(
    tx: &mut dyn Transaction,
    repository: i64,
    n: usize,
) -> Result<(u64, Option<u64>), DatabaseError> {
    let row = tx.first(
        "SELECT COUNT(*), COALESCE(MAX(updated), -1) FROM (SELECT updated FROM tags WHERE repository = $1 LIMIT $2) AS looked_at",
        &[repository.into(), n.into()],
    )?;
    row.map_or(Ok((0, None)), |mut row| {
        Ok((row.unsigned(0)?, u64::try_from(row.integer(1)?).ok()))
    })
}

/// Notes when a tag was pulled last.
pub(crate) fn note_pull(
    tx: &mut dyn Transaction,
    repository: i64,
    tag: &Tag,
    at: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE tags SET pulled = $3 WHERE repository = $1 AND name = $2 AND pulled < $3",
        &[repository.into(), tag.into(), at.into()],
    )?;
    Ok(())
}
