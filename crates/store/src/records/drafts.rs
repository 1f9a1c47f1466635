//! Objects that are written for packs and recipes. The record is there before the object, as it is of uploads.

use crate::database::{DatabaseError, Transaction};
use crate::recipes::Draft;
use crate::records::garbage;

/// Notes that an object is being written.
pub(crate) fn begin(tx: &mut dyn Transaction, draft: &Draft, now: u64) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO drafts (object, size, since) VALUES ($1, $2, $3)",
        &[draft.object.as_str().into(), draft.size.into(), now.into()],
    )?;
    Ok(())
}

/// Whether all of them are still there.
pub(crate) fn are_here<'a>(
    tx: &mut dyn Transaction,
    mut drafts: impl Iterator<Item = &'a Draft>,
) -> Result<bool, DatabaseError> {
    drafts.try_fold(true, |so_far, draft| {
        let found = tx.first(
            "SELECT 1 FROM drafts WHERE object = $1",
            &[draft.object.as_str().into()],
        )?;
        Ok(so_far && found.is_some())
    })
}

/// The object has another record from now on, which the caller makes in the same transaction; `false` if it is no draft any more.
pub(crate) fn end(tx: &mut dyn Transaction, object: &str) -> Result<bool, DatabaseError> {
    let ended = tx.execute("DELETE FROM drafts WHERE object = $1", &[object.into()])?;
    Ok(ended > 0)
}

/// The object is garbage from now on; `false` if it is no draft any more.
pub(crate) fn give_up(tx: &mut dyn Transaction, draft: &Draft, now: u64) -> Result<bool, DatabaseError> {
    let is_ended = end(tx, &draft.object)?;
    if is_ended {
        garbage::throw_away(tx, &draft.object, draft.size, None, now)?;
    }
    Ok(is_ended)
}

/// So many drafts that were begun before that time, the oldest first, and when each was begun.
pub(crate) fn abandoned(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&(Draft, i64)>,
) -> Result<Vec<(Draft, i64)>, DatabaseError> {
    let (object, since) = after.map_or(("", -1), |(draft, since)| (draft.object.as_str(), *since));
    let rows = tx.query(
        "SELECT object, size, since FROM drafts WHERE since < $1 AND (since, object) > ($2, $3)
         ORDER BY since, object LIMIT $4",
        &[before.into(), since.into(), object.into(), n.into()],
    )?;
    let drafts = rows.into_iter().map(|mut row| {
        let draft = Draft {
            object: row.text(0)?,
            size: row.unsigned(1)?,
        };
        Ok((draft, row.integer(2)?))
    });
    drafts.collect()
}
