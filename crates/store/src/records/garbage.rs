//! Objects that are to be deleted, and blobs on their way there.
//!
//! Every object has one record at any time: its upload's, its blob's, or one here. What moves it from one to the other is one
//! transaction. So no object is forgotten, and none is deleted that a blob has.

use crate::database::{DatabaseError, Row, Transaction};
use crate::digest::Digest;
use crate::model::Garbage;

/// An object is garbage from now on.
pub(crate) fn throw_away(
    tx: &mut dyn Transaction,
    object: &str,
    size: u64,
    progress: Option<&[u8]>,
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO garbage (object, size, progress, since) VALUES ($1, $2, $3, $4)",
        &[
            object.into(),
            size.into(),
            progress.map(<[u8]>::to_vec).into(),
            now.into(),
        ],
    )?;
    Ok(())
}

/// So much garbage, in the order of its keys.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&str>,
) -> Result<Vec<Garbage>, DatabaseError> {
    let rows = tx.query(
        "SELECT object, size, progress, since FROM garbage WHERE object > $1 ORDER BY object LIMIT $2",
        &[after.unwrap_or_default().into(), n.into()],
    )?;
    let garbage = rows.into_iter().map(|mut row| {
        Ok(Garbage {
            object: row.text(0)?,
            size: row.unsigned(1)?,
            progress: row.optional_bytes(2)?,
            since: row.unsigned(3)?,
        })
    });
    garbage.collect()
}

/// The object is deleted.
pub(crate) fn forget(tx: &mut dyn Transaction, object: &str) -> Result<(), DatabaseError> {
    tx.execute("DELETE FROM garbage WHERE object = $1", &[object.into()])?;
    Ok(())
}

/// A blob of a repository that none of its manifests names.
pub(crate) struct Loose {
    pub(crate) repository: i64,
    pub(crate) digest: Digest,
}

/// Links that no manifest of their repository needs, and that were not promised since that time.
pub(crate) fn loose_links(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&Loose>,
) -> Result<Vec<Loose>, DatabaseError> {
    let (repository, digest) = after.map_or((0, String::new()), |loose| {
        (loose.repository, loose.digest.to_string())
    });
    let rows = tx.query(
        "SELECT repository, digest FROM repository_blobs
         WHERE (repository > $2 OR (repository = $2 AND digest > $3)) AND added < $1
         AND NOT EXISTS (SELECT 1 FROM manifest_references
             WHERE manifest_references.repository = repository_blobs.repository
             AND manifest_references.digest = repository_blobs.digest)
         ORDER BY repository, digest LIMIT $4",
        &[before.into(), repository.into(), digest.into(), n.into()],
    )?;
    let loose = rows.into_iter().map(|mut row| {
        Ok(Loose {
            repository: row.integer(0)?,
            digest: row.parsed(1)?,
        })
    });
    loose.collect()
}

fn digest_and_size(mut row: Row) -> Result<(Digest, u64), DatabaseError> {
    Ok((row.parsed(0)?, row.unsigned(1)?))
}

/// Blobs that no repository has, in this state since before that time.
pub(crate) fn unlinked(
    tx: &mut dyn Transaction,
    state: &str,
    before: u64,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<(Digest, u64)>, DatabaseError> {
    let rows = tx.query(
        "SELECT digest, size FROM blobs WHERE state = $1 AND changed < $2 AND digest > $4
         AND NOT EXISTS (SELECT 1 FROM repository_blobs WHERE repository_blobs.digest = blobs.digest)
         ORDER BY digest LIMIT $3",
        &[
            state.into(),
            before.into(),
            n.into(),
            after.map(Digest::to_string).unwrap_or_default().into(),
        ],
    )?;
    rows.into_iter().map(digest_and_size).collect()
}

/// Marks a blob that no repository has.
pub(crate) fn condemn(tx: &mut dyn Transaction, digest: &Digest, now: u64) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET state = 'condemned', changed = $2 WHERE digest = $1 AND state = 'present'",
        &[digest.into(), now.into()],
    )?;
    Ok(())
}

/// From here on the blob is absent, and its object is garbage.
pub(crate) fn claim(tx: &mut dyn Transaction, digest: &Digest, now: u64) -> Result<(), DatabaseError> {
    let row = tx.first(
        "DELETE FROM blobs WHERE digest = $1 AND state = 'condemned' RETURNING object, size",
        &[digest.into()],
    )?;
    match row {
        Some(mut row) => {
            let (object, size) = (row.text(0)?, row.unsigned(1)?);
            throw_away(tx, &object, size, None, now)
        }
        None => Ok(()),
    }
}
