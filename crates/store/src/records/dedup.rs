//! The blobs that wait to be taken apart, and why others stay intact.
//!
//! The state of a blob is `waiting`, `done` (it has a recipe), `kept` (it stays intact, and why) or `small`.

use crate::database::{DatabaseError, Transaction};
use crate::model::Blob;
use crate::recipes::DedupTask;
use crate::records::{intact, placing, replicas};
use crate::space::{RepositorySpace, Space};
use xebec_objects::Digest;

/// So many blobs that wait are looked at in one transaction.
const LOOKED_AT: usize = 32;
/// One that cannot be taken apart now is looked at again after so many milliseconds: nobody has it, or it is damaged.
const LATER: u64 = 60 * 60 * 1000;
/// So many reasons are listed.
const REASONS: usize = 64;

/// The outcome of looking for a blob.
pub(crate) enum Taken {
    Task(DedupTask),
    /// Those that were looked at are none, and there may be more.
    LookAgain,
    Nothing,
}

/// The blob that has waited longest and is due, which nobody else takes before `until`. Blobs that cannot be taken apart are passed over, and
/// not looked at again soon.
pub(crate) fn take(
    tx: &mut dyn Transaction,
    least_size: u64,
    now: u64,
    until: u64,
) -> Result<Taken, DatabaseError> {
    let rows = tx.query(
        "SELECT digest, size, object, dedup_tries, CASE WHEN state = 'present' AND damaged = 0 AND EXISTS
             (SELECT 1 FROM repository_blobs WHERE repository_blobs.digest = blobs.digest) THEN 1 ELSE 0 END
         FROM blobs WHERE dedup_state = 'waiting' AND dedup_due <= $1
         ORDER BY dedup_due, changed, digest LIMIT $2",
        &[now.into(), LOOKED_AT.into()],
    )?;
    let may_be_more = rows.len() == LOOKED_AT;
    for mut row in rows {
        let (digest, size, tries): (Digest, u64, u64) = (row.parsed(0)?, row.unsigned(1)?, row.unsigned(3)?);
        let (object, is_in_use) = (intact::object(row.text(2)?), row.integer(4)? > 0);
        if object.is_none() {
            set_state(tx, &digest, "done")?;
        } else if size < least_size {
            set_state(tx, &digest, "small")?;
        } else if is_in_use {
            let tries = tries + 1;
            tx.execute(
                "UPDATE blobs SET dedup_due = $2, dedup_tries = $3 WHERE digest = $1",
                &[(&digest).into(), until.into(), tries.into()],
            )?;
            let blob = Blob { digest, size, object };
            return Ok(Taken::Task(DedupTask { blob, tries }));
        } else {
            tx.execute(
                "UPDATE blobs SET dedup_due = $2 WHERE digest = $1",
                &[(&digest).into(), now.saturating_add(LATER).into()],
            )?;
        }
    }
    Ok(if may_be_more {
        Taken::LookAgain
    } else {
        Taken::Nothing
    })
}

fn set_state(tx: &mut dyn Transaction, digest: &Digest, state: &str) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET dedup_state = $2, unplaced = unplaced + 1, placing_due = 0 WHERE digest = $1",
        &[digest.into(), state.into()],
    )?;
    Ok(())
}

/// The blob stays intact. Nothing is done if it has another object by now.
pub(crate) fn keep(tx: &mut dyn Transaction, blob: &Blob, reason: &str) -> Result<(), DatabaseError> {
    let column = intact::column(&blob.digest, blob.object.as_deref());
    tx.execute(
        "UPDATE blobs SET dedup_state = 'kept', dedup_problem = $3, unplaced = unplaced + 1, placing_due = 0
         WHERE digest = $1 AND object = $2 AND dedup_state = 'waiting'",
        &[(&blob.digest).into(), column.into(), reason.into()],
    )?;
    Ok(())
}

/// The blob is taken again, not before `due`. Nothing is done if it has another object by now.
pub(crate) fn postpone(
    tx: &mut dyn Transaction,
    blob: &Blob,
    due: u64,
    problem: &str,
) -> Result<(), DatabaseError> {
    let column = intact::column(&blob.digest, blob.object.as_deref());
    tx.execute(
        "UPDATE blobs SET dedup_due = $3, dedup_problem = $4
         WHERE digest = $1 AND object = $2 AND dedup_state = 'waiting'",
        &[(&blob.digest).into(), column.into(), due.into(), problem.into()],
    )?;
    Ok(())
}

/// Everything that waits is due: the process that had taken it is gone. So is what was too small for an earlier limit.
pub(crate) fn release(tx: &mut dyn Transaction, least_size: u64) -> Result<u64, DatabaseError> {
    let released = tx.execute(
        "UPDATE blobs SET dedup_due = 0 WHERE dedup_state = 'waiting' AND dedup_due > 0",
        &[],
    )?;
    let grown = tx.execute(
        "UPDATE blobs SET dedup_state = 'waiting', dedup_due = 0 WHERE dedup_state = 'small' AND size >= $1",
        &[least_size.into()],
    )?;
    Ok(released + grown)
}

/// So many blobs at most that stayed intact wait again; how many it were.
pub(crate) fn retry(tx: &mut dyn Transaction, n: usize) -> Result<u64, DatabaseError> {
    tx.execute(
        "UPDATE blobs SET dedup_state = 'waiting', dedup_due = 0, dedup_tries = 0, dedup_problem = ''
         WHERE digest IN (SELECT digest FROM blobs WHERE dedup_state = 'kept' LIMIT $1)",
        &[n.into()],
    )
}

/// Intact blobs that were taken apart, in the order of their digests.
pub(crate) fn intact_and_done(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Digest>, DatabaseError> {
    let sql = format!(
        "SELECT digest FROM blobs WHERE dedup_state = 'done' AND digest > $1 AND {} ORDER BY digest LIMIT $2",
        intact::IS_INTACT
    );
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(&sql, &[after.into(), n.into()])?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// Four figures in one row.
fn figures(tx: &mut dyn Transaction, sql: &str) -> Result<[u64; 4], DatabaseError> {
    let mut found = [0; 4];
    if let Some(mut row) = tx.first(sql, &[])? {
        for (place, figure) in found.iter_mut().enumerate() {
            *figure = row.unsigned(place)?;
        }
    }
    Ok(found)
}

/// The room that everything takes up. Reads all blobs, packs and recipes.
pub(crate) fn space(tx: &mut dyn Transaction) -> Result<Space, DatabaseError> {
    let sum = |column: &str| format!("CAST(COALESCE(SUM({column}), 0) AS BIGINT)");
    let if_intact = |value: &str| {
        sum(&format!(
            "CASE WHEN {} THEN {value} ELSE 0 END",
            intact::IS_INTACT
        ))
    };
    let (size, plain, chunks) = (sum("size"), sum("plain"), sum("chunks"));
    let (one, its_size) = (if_intact("1"), if_intact("size"));
    let sql = format!("SELECT COUNT(*), {size}, {one}, {its_size} FROM blobs");
    let [blobs, blob_bytes, intact, intact_bytes] = figures(tx, &sql)?;
    let sql = format!("SELECT COUNT(*), {size}, {chunks}, {plain} FROM packs");
    let [packs, pack_bytes, chunks, chunk_bytes] = figures(tx, &sql)?;
    let sql = format!("SELECT COUNT(*), {size}, {plain}, 0 FROM recipes");
    let [recipes, recipe_bytes, plain_bytes, _] = figures(tx, &sql)?;
    let away = format!("substr(object, 1, {}) = '{}'", intact::AWAY.len(), intact::AWAY);
    let sql = format!(
        "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT), 0, 0, 0 FROM (SELECT size FROM blobs WHERE {away}
         UNION ALL SELECT size FROM packs WHERE {away} UNION ALL SELECT size FROM recipes WHERE {away}) AS away"
    );
    let [away_bytes, ..] = figures(tx, &sql)?;
    let of_state = |state: &str| format!("(SELECT COUNT(*) FROM blobs WHERE dedup_state = '{state}')");
    let states = ["waiting", "small", "kept"].map(of_state).join(", ");
    let [waiting, small, kept_blobs, _] = figures(tx, &format!("SELECT {states}, 0"))?;
    let reasons = tx.query(
        "SELECT dedup_problem, COUNT(*) FROM blobs WHERE dedup_state = 'kept'
         GROUP BY dedup_problem ORDER BY COUNT(*) DESC, dedup_problem LIMIT $1",
        &[REASONS.into()],
    )?;
    let kept = reasons
        .into_iter()
        .map(|mut row| Ok((row.text(0)?, row.unsigned(1)?)));
    Ok(Space {
        blobs,
        blob_bytes,
        intact,
        intact_bytes,
        packs,
        pack_bytes,
        chunks,
        chunk_bytes,
        recipes,
        recipe_bytes,
        plain_bytes,
        waiting,
        small,
        kept_blobs,
        kept: kept.collect::<Result<_, DatabaseError>>()?,
        away_bytes,
        places: replicas::space(tx)?,
        unplaced: match placing::rules(tx, placing::COPIES)? {
            Some(_) => placing::unplaced(tx)?,
            None => 0,
        },
    })
}

/// The room of a repository's blobs; none if it has more than `most`. Reads as many records as it has blobs, `most` and one at most.
pub(crate) fn repository_space(
    tx: &mut dyn Transaction,
    repository: i64,
    most: usize,
) -> Result<Option<RepositorySpace>, DatabaseError> {
    let recipe = intact::IS_NOT_INTACT;
    let found = tx.first(
        &format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(blobs.size), 0) AS BIGINT),
             CAST(COALESCE(SUM(CASE WHEN {recipe} THEN 1 ELSE 0 END), 0) AS BIGINT),
             CAST(COALESCE(SUM(CASE WHEN {recipe} THEN blobs.size ELSE 0 END), 0) AS BIGINT)
             FROM (SELECT digest FROM repository_blobs WHERE repository = $1 LIMIT $2) AS those
             JOIN blobs ON blobs.digest = those.digest"
        ),
        &[repository.into(), most.saturating_add(1).into()],
    )?;
    let Some(mut row) = found else {
        return Ok(None);
    };
    let space = RepositorySpace {
        blobs: row.unsigned(0)?,
        bytes: row.unsigned(1)?,
        recipes: row.unsigned(2)?,
        recipe_bytes: row.unsigned(3)?,
    };
    Ok((space.blobs <= most as u64).then_some(space))
}
