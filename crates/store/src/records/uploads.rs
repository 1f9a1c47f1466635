//! Uploads under way. The record is there before the object, so that no object is without one.

use crate::database::{DatabaseError, Transaction};
use crate::name::{RepositoryName, UploadId};
use crate::records::{garbage, repositories};
use xebec_objects::{Note, Released};

/// An upload under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadRecord {
    pub(crate) repository: RepositoryName,
    pub(crate) object: String,
    pub(crate) size: u64,
    pub(crate) progress: Option<Vec<u8>>,
    pub(crate) touched: u64,
}

/// Begins an upload, whose bytes go to `object`.
pub(crate) fn begin(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    id: &UploadId,
    object: &str,
    now: u64,
) -> Result<(), DatabaseError> {
    let repository = repositories::find_or_make(tx, repository, now)?;
    tx.execute(
        "INSERT INTO uploads (id, repository, object, size, started, touched) VALUES ($1, $2, $3, 0, $4, $4)",
        &[id.into(), repository.into(), object.into(), now.into()],
    )?;
    Ok(())
}

/// The number of uploads that a repository has under way, or `most` if that is less.
pub(crate) fn count(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    most: u32,
) -> Result<u32, DatabaseError> {
    let row = tx.first(
        "SELECT COUNT(*) FROM (SELECT 1 FROM uploads JOIN repositories ON repositories.id = repository
         WHERE name = $1 LIMIT $2) AS begun",
        &[repository.into(), i64::from(most).into()],
    )?;
    let count = row.map_or(Ok(0), |mut row| row.unsigned(0))?;
    Ok(u32::try_from(count).unwrap_or(most))
}

pub(crate) fn find(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    id: &UploadId,
) -> Result<Option<UploadRecord>, DatabaseError> {
    let row = tx.first(
        "SELECT name, object, size, progress, touched FROM uploads JOIN repositories ON repositories.id = repository
         WHERE uploads.id = $1 AND name = $2",
        &[id.into(), repository.into()],
    )?;
    row.map(|mut row| {
        Ok(UploadRecord {
            repository: row.parsed(0)?,
            object: row.text(1)?,
            size: row.unsigned(2)?,
            progress: row.optional_bytes(3)?,
            touched: row.unsigned(4)?,
        })
    })
    .transpose()
}

/// Notes that a writer under this key continues an upload, and how far it is; `false` if it is gone, or somebody else's by now.
pub(crate) fn note(
    tx: &mut dyn Transaction,
    id: &UploadId,
    object: &str,
    note: &Note,
    now: u64,
) -> Result<bool, DatabaseError> {
    let changed = tx.execute(
        "UPDATE uploads SET object = $3, size = $4, progress = $5, touched = $6 WHERE id = $1 AND object = $2",
        &[
            id.into(),
            object.into(),
            note.object.as_str().into(),
            note.size.into(),
            note.progress.clone().into(),
            now.into(),
        ],
    )?;
    if changed > 0 {
        release(tx, &note.released, now)?;
    }
    Ok(changed > 0)
}

fn release(tx: &mut dyn Transaction, released: &[Released], now: u64) -> Result<(), DatabaseError> {
    let mut released = released.iter();
    released.try_for_each(|object| garbage::throw_away(tx, &object.key, object.size, None, now))
}

/// Ends an upload of which all is under this key; `false` if it is gone already, or somebody else's. Its other objects become garbage.
/// The caller records its object elsewhere, in the same transaction.
pub(crate) fn end(
    tx: &mut dyn Transaction,
    id: &UploadId,
    object: &str,
    released: &[Released],
    now: u64,
) -> Result<bool, DatabaseError> {
    let ended = tx.execute(
        "DELETE FROM uploads WHERE id = $1 AND object = $2",
        &[id.into(), object.into()],
    )?;
    if ended > 0 {
        release(tx, released, now)?;
    }
    Ok(ended > 0)
}

/// Ends one of which no blob comes.
pub(crate) fn give_up(tx: &mut dyn Transaction, id: &UploadId) -> Result<(), DatabaseError> {
    let ended = tx.first(
        "DELETE FROM uploads WHERE id = $1 RETURNING repository",
        &[id.into()],
    )?;
    match ended {
        Some(mut row) => repositories::look_at(tx, row.integer(0)?),
        None => Ok(()),
    }
}

/// So many of those that nobody has touched since that time, those that have waited longest first.
pub(crate) fn abandoned(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&(UploadId, u64)>,
) -> Result<Vec<(UploadId, UploadRecord)>, DatabaseError> {
    let (id, touched) = after.map_or(("", -1), |(id, touched)| {
        (id.as_str(), i64::try_from(*touched).unwrap_or(i64::MAX))
    });
    let rows = tx.query(
        "SELECT uploads.id, name, object, size, progress, touched FROM uploads
         JOIN repositories ON repositories.id = repository
         WHERE touched < $1 AND (touched, uploads.id) > ($3, $4) ORDER BY touched, uploads.id LIMIT $2",
        &[before.into(), n.into(), touched.into(), id.into()],
    )?;
    let records = rows.into_iter().map(|mut row| {
        let record = UploadRecord {
            repository: row.parsed(1)?,
            object: row.text(2)?,
            size: row.unsigned(3)?,
            progress: row.optional_bytes(4)?,
            touched: row.unsigned(5)?,
        };
        Ok((row.parsed(0)?, record))
    });
    records.collect()
}

/// Forgets all that is under way, in a copy of the records: the objects are not copied.
pub(crate) fn forget_all(tx: &mut dyn Transaction) -> Result<(), DatabaseError> {
    tx.batch(
        "UPDATE repositories SET unchecked = 1 WHERE id IN (SELECT repository FROM uploads);
         DELETE FROM uploads; DELETE FROM drafts; DELETE FROM garbage;",
    )
}
