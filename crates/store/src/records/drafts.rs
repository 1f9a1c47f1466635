//! Objects that are written for packs, recipes and replicas. The record is there before the object, as it is of uploads.

use crate::database::{DatabaseError, Transaction};
use crate::recipes::Draft;
use crate::records::garbage;
use xebec_objects::Note;
use xebec_placement::PlaceName;

/// Notes that an object is being written.
pub(crate) fn begin(tx: &mut dyn Transaction, draft: &Draft, now: u64) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO drafts (object, size, since) VALUES ($1, $2, $3)",
        &[draft.object.as_str().into(), draft.size.into(), now.into()],
    )?;
    Ok(())
}

/// The same of an object on any place; `false` if the store does not use that place any more, since it is lost.
pub(crate) fn begin_at(
    tx: &mut dyn Transaction,
    place: &PlaceName,
    draft: &Draft,
    now: u64,
) -> Result<bool, DatabaseError> {
    let found = tx.first("SELECT 1 FROM places WHERE name = $1", &[place.into()])?;
    if found.is_none() && !place.is_main() {
        return Ok(false);
    }
    tx.execute(
        "INSERT INTO drafts (object, size, since, place) VALUES ($1, $2, $3, $4)",
        &[
            draft.object.as_str().into(),
            draft.size.into(),
            now.into(),
            place.into(),
        ],
    )?;
    Ok(true)
}

/// Notes how far the writing of a draft is: it has this key and this progress from now on, and what it has no more is garbage of its place.
/// `false` if it is no draft any more.
pub(crate) fn note(
    tx: &mut dyn Transaction,
    place: &PlaceName,
    draft: &Draft,
    note: &Note,
    now: u64,
) -> Result<bool, DatabaseError> {
    let noted = tx.execute(
        "UPDATE drafts SET object = $2, progress = $3, since = $4 WHERE object = $1",
        &[
            draft.object.as_str().into(),
            note.object.as_str().into(),
            note.progress.clone().into(),
            now.into(),
        ],
    )?;
    for released in note.released.iter().filter(|_| noted > 0) {
        garbage::throw_away_at(tx, place, (&released.key, released.size, None), now)?;
    }
    Ok(noted > 0)
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
    let row = tx.first(
        "DELETE FROM drafts WHERE object = $1 RETURNING place, progress",
        &[draft.object.as_str().into()],
    )?;
    let Some(mut row) = row else {
        return Ok(false);
    };
    let (place, progress): (PlaceName, _) = (row.parsed(0)?, row.optional_bytes(1)?);
    garbage::throw_away_at(tx, &place, (&draft.object, draft.size, progress.as_deref()), now)?;
    Ok(true)
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
