//! Blobs and packs whose copies are to be looked at, and what is wanted of each blob.
//!
//! A blob or pack is `unplaced` from the transaction on that changes what is wanted of it, or what there is of it. The number grows with each change: a
//! placer that has looked at one says as of which change, and it stays unplaced if there was another one since.

use xebec_objects::Digest;
use xebec_placement::{Form, Wanted};

use crate::database::{DatabaseError, Row, Transaction, Value};
use crate::model::Blob;
use crate::name::PackKey;
use crate::name::RepositoryName;
use crate::recipes::PackRecord;
use crate::records::{drafts, intact, packs, recipes};
use crate::replicas::{PackStanding, Postponed, Standing};

/// The names of what everything was looked at by last: the rules for copies, and the program that takes blobs apart.
pub(crate) const COPIES: &str = "copies";
pub(crate) const DEDUPLICATION: &str = "deduplication";
/// So many repositories of a blob are looked at.
const REPOSITORIES: usize = 10_000;
/// So many blobs that need a pack are looked at for what is wanted of it; they want few different things.
const DIFFERENT: usize = 1024;

/// So many links at most that are new make their blobs unplaced; how many there were.
pub(crate) fn gather(tx: &mut dyn Transaction, n: usize) -> Result<u64, DatabaseError> {
    let rows = tx.query(
        "SELECT repository, digest FROM repository_blobs WHERE unplaced > 0 ORDER BY repository, digest LIMIT $1",
        &[n.into()],
    )?;
    let number = rows.len() as u64;
    for mut row in rows {
        let (repository, digest): (i64, Digest) = (row.integer(0)?, row.parsed(1)?);
        tx.execute(
            "UPDATE repository_blobs SET unplaced = 0 WHERE repository = $1 AND digest = $2",
            &[repository.into(), (&digest).into()],
        )?;
        look_at(tx, &digest)?;
    }
    Ok(number)
}

/// The copies of a blob are looked at again.
pub(crate) fn look_at(tx: &mut dyn Transaction, blob: &Digest) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET unplaced = unplaced + 1, placing_due = 0 WHERE digest = $1",
        &[blob.into()],
    )?;
    Ok(())
}

/// So many blobs after that one, and packs, are looked at again; the last blob, if there may be more.
pub(crate) fn look_at_some(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
) -> Result<Option<Digest>, DatabaseError> {
    let rows = tx.query(
        "SELECT digest FROM blobs WHERE digest > $1 ORDER BY digest LIMIT $2",
        &[after.map(Digest::to_string).unwrap_or_default().into(), n.into()],
    )?;
    let is_full = rows.len() == n;
    let mut last = None;
    for mut row in rows {
        let digest: Digest = row.parsed(0)?;
        look_at(tx, &digest)?;
        last = Some(digest);
    }
    Ok(last.filter(|_| is_full))
}

/// All packs are looked at again.
pub(crate) fn look_at_packs(tx: &mut dyn Transaction) -> Result<(), DatabaseError> {
    tx.execute("UPDATE packs SET unplaced = unplaced + 1, placing_due = 0", &[])?;
    Ok(())
}

/// So many unplaced blobs that are due, and nobody else takes before `until`.
pub(crate) fn take_blobs(
    tx: &mut dyn Transaction,
    n: usize,
    now: u64,
    until: u64,
) -> Result<Vec<Digest>, DatabaseError> {
    let rows = take(tx, ("blobs", "digest"), n, now, until)?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// The same of packs.
pub(crate) fn take_packs(
    tx: &mut dyn Transaction,
    n: usize,
    now: u64,
    until: u64,
) -> Result<Vec<PackKey>, DatabaseError> {
    let rows = take(tx, ("packs", "id"), n, now, until)?;
    rows.into_iter()
        .map(|mut row| row.integer(0).map(PackKey))
        .collect()
}

/// The keys of so many rows of a table, by its key.
fn take(
    tx: &mut dyn Transaction,
    (table, key): (&str, &str),
    n: usize,
    now: u64,
    until: u64,
) -> Result<Vec<Row>, DatabaseError> {
    let sql = format!(
        "UPDATE {table} SET placing_due = $3 WHERE {key} IN
         (SELECT {key} FROM {table} WHERE unplaced > 0 AND placing_due <= $1 ORDER BY placing_due, {key} LIMIT $2)
         RETURNING {key}"
    );
    tx.query(&sql, &[now.into(), n.into(), until.into()])
}

/// One that somebody has taken is not taken again before that time, unless it has changed since.
pub(crate) fn postpone(tx: &mut dyn Transaction, what: &Postponed, until: u64) -> Result<(), DatabaseError> {
    let (table, column, key): (_, _, Value) = match what {
        Postponed::Blob(digest) => ("blobs", "digest", digest.into()),
        Postponed::Pack(key) => ("packs", "id", (*key).into()),
    };
    let sql = format!("UPDATE {table} SET placing_due = $2 WHERE {column} = $1 AND placing_due > 0");
    tx.execute(&sql, &[key, until.into()])?;
    Ok(())
}

/// So many blobs that are due later than that time are due now, after those that are new; when the last of them was due, or none if there were none.
pub(crate) fn hasten_blobs(
    tx: &mut dyn Transaction,
    n: usize,
    after: u64,
) -> Result<Option<u64>, DatabaseError> {
    hasten(tx, "blobs", n, after)
}

/// The same of packs.
pub(crate) fn hasten_packs(
    tx: &mut dyn Transaction,
    n: usize,
    after: u64,
) -> Result<Option<u64>, DatabaseError> {
    hasten(tx, "packs", n, after)
}

fn hasten(tx: &mut dyn Transaction, table: &str, n: usize, after: u64) -> Result<Option<u64>, DatabaseError> {
    let sql = format!(
        "SELECT COALESCE(MAX(placing_due), 0) FROM (SELECT placing_due FROM {table} WHERE unplaced > 0 AND placing_due > $1
         ORDER BY placing_due LIMIT $2) AS later"
    );
    let row = tx.first(&sql, &[after.into(), n.into()])?;
    let last = row.map_or(Ok(0), |mut row| row.unsigned(0))?;
    let sql = format!(
        "UPDATE {table} SET placing_due = 1 WHERE unplaced > 0 AND placing_due > $1 AND placing_due <= $2"
    );
    tx.execute(&sql, &[after.into(), last.into()])?;
    Ok((last > 0).then_some(last))
}

/// How many blobs and packs are unplaced.
pub(crate) fn unplaced(tx: &mut dyn Transaction) -> Result<u64, DatabaseError> {
    let row = tx.first(
        "SELECT (SELECT COUNT(*) FROM blobs WHERE unplaced > 0) + (SELECT COUNT(*) FROM packs WHERE unplaced > 0)
         + (SELECT COUNT(*) FROM repository_blobs WHERE unplaced > 0)",
        &[],
    )?;
    row.map_or(Ok(0), |mut row| row.unsigned(0))
}

/// The blob is where it is to be, as far as its state at that change says; `false` if there was another one: it is looked at again, soon.
pub(crate) fn placed(tx: &mut dyn Transaction, blob: &Digest, seen: i64) -> Result<bool, DatabaseError> {
    note_placed(tx, ("blobs", "digest"), blob.into(), seen)
}

/// The same of a pack.
pub(crate) fn pack_placed(tx: &mut dyn Transaction, key: PackKey, seen: i64) -> Result<bool, DatabaseError> {
    note_placed(tx, ("packs", "id"), key.into(), seen)
}

/// In either case nobody has it any more who has taken it.
fn note_placed(
    tx: &mut dyn Transaction,
    (table, column): (&str, &str),
    key: Value,
    seen: i64,
) -> Result<bool, DatabaseError> {
    let sql = format!("UPDATE {table} SET unplaced = 0 WHERE {column} = $1 AND unplaced = $2");
    let noted = tx.execute(&sql, &[key.clone(), seen.into()])?;
    let sql = format!("UPDATE {table} SET placing_due = 0 WHERE {column} = $1");
    tx.execute(&sql, &[key])?;
    Ok(noted > 0)
}

fn wanted(text: &str) -> Result<Wanted, DatabaseError> {
    text.parse()
        .map_err(|error| DatabaseError::Damaged(format!("what is wanted of a blob: {error}")))
}

/// All that decides where the copies of a blob are to be; none if it is gone, or damaged.
pub(crate) fn standing(tx: &mut dyn Transaction, blob: &Digest) -> Result<Option<Standing>, DatabaseError> {
    let row = tx.first(
        "SELECT size, object, unplaced, wanted, dedup_state, dedup_problem, popular_until
         FROM blobs WHERE digest = $1 AND damaged = 0 AND state = 'present'",
        &[blob.into()],
    )?;
    let Some(row) = row else {
        return Ok(None);
    };
    let mut standing = of_row(blob, row)?;
    let rows = tx.query(
        "SELECT name FROM repository_blobs JOIN repositories ON repositories.id = repository_blobs.repository
         WHERE repository_blobs.digest = $1 LIMIT $2",
        &[blob.into(), REPOSITORIES.into()],
    )?;
    let names = rows.into_iter().map(|mut row| row.parsed(0));
    standing.repositories = names.collect::<Result<Vec<RepositoryName>, _>>()?;
    standing.has_all_repositories = standing.repositories.len() < REPOSITORIES;
    if recipes::sound(tx, blob)?.is_some()
        && let Some(recipe) = recipes::find(tx, blob)?
    {
        let row = tx.first(
            "SELECT form, proven FROM recipes WHERE digest = $1",
            &[blob.into()],
        )?;
        let mut form = String::new();
        if let Some(mut row) = row {
            (form, standing.proven) = (row.text(0)?, row.unsigned(1)?);
        }
        let form = [Form::Files, Form::Chunks]
            .into_iter()
            .find(|one| one.as_str() == form);
        standing.recipe = Some((recipe, form));
    }
    Ok(Some(standing))
}

fn of_row(blob: &Digest, mut row: Row) -> Result<Standing, DatabaseError> {
    let state = row.text(4)?;
    Ok(Standing {
        blob: Blob {
            digest: blob.clone(),
            size: row.unsigned(0)?,
            object: intact::object(row.text(1)?),
        },
        seen: row.integer(2)?,
        repositories: Vec::new(),
        has_all_repositories: true,
        proven: 0,
        wanted: wanted(&row.text(3)?)?,
        recipe: None,
        waits: state == "waiting",
        problem: row.text(5)?,
        popular_until: row.unsigned(6)?,
    })
}

/// Notes what is wanted of a blob. If that is new, the packs that its recipe needs are looked at again.
pub(crate) fn want(tx: &mut dyn Transaction, blob: &Digest, wanted: &Wanted) -> Result<(), DatabaseError> {
    let noted = tx.execute(
        "UPDATE blobs SET wanted = $2 WHERE digest = $1 AND wanted <> $2",
        &[blob.into(), wanted.to_string().into()],
    )?;
    match noted {
        0 => Ok(()),
        _ => recipes::look_at_packs(tx, blob),
    }
}

/// A pack, and all that is wanted of the blobs whose recipes need it; none if it is gone, damaged or condemned.
pub(crate) fn pack_standing(
    tx: &mut dyn Transaction,
    key: PackKey,
) -> Result<Option<PackStanding>, DatabaseError> {
    let row = tx.first(
        "SELECT unplaced FROM packs WHERE id = $1 AND damaged = 0 AND state = 'present'",
        &[key.into()],
    )?;
    let (Some(mut row), Some(pack)) = (row, found_pack(tx, key)?) else {
        return Ok(None);
    };
    let rows = tx.query(
        "SELECT DISTINCT wanted FROM recipe_packs JOIN blobs ON blobs.digest = recipe_packs.recipe WHERE pack = $1 LIMIT $2",
        &[key.into(), DIFFERENT.into()],
    )?;
    let mut all = Wanted::default();
    for mut row in rows {
        all = all.union(&wanted(&row.text(0)?)?);
    }
    Ok(Some(PackStanding {
        pack,
        seen: row.integer(0)?,
        wanted: all,
    }))
}

fn found_pack(tx: &mut dyn Transaction, key: PackKey) -> Result<Option<PackRecord>, DatabaseError> {
    Ok(packs::find(tx, &[key])?.into_iter().next())
}

/// A blob counts as popular until then.
pub(crate) fn popular(
    tx: &mut dyn Transaction,
    blob: &Digest,
    until: u64,
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET popular_until = $2, unplaced = CASE WHEN popular_until <= $3 THEN unplaced + 1 ELSE unplaced END,
         placing_due = CASE WHEN popular_until <= $3 THEN 0 ELSE placing_due END WHERE digest = $1",
        &[blob.into(), until.into(), now.into()],
    )?;
    Ok(())
}

/// So many blobs at most that were popular until before that time are so no longer, and are looked at again; how many it were.
pub(crate) fn unpopular(tx: &mut dyn Transaction, n: usize, now: u64) -> Result<u64, DatabaseError> {
    tx.execute(
        "UPDATE blobs SET popular_until = 0, unplaced = unplaced + 1, placing_due = 0 WHERE digest IN
         (SELECT digest FROM blobs WHERE popular_until > 0 AND popular_until < $1 LIMIT $2)",
        &[now.into(), n.into()],
    )
}

/// The rules by which everything was looked at last.
pub(crate) fn rules(tx: &mut dyn Transaction, name: &str) -> Result<Option<String>, DatabaseError> {
    let row = tx.first("SELECT value FROM rules WHERE name = $1", &[name.into()])?;
    row.map(|mut row| row.text(0)).transpose()
}

/// Everything was told to be looked at by these rules.
pub(crate) fn set_rules(tx: &mut dyn Transaction, name: &str, rules: &str) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO rules (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        &[name.into(), rules.into()],
    )?;
    Ok(())
}

/// Makes a blob intact again by this draft, which has its bytes; `false` if it is so already, or is gone or damaged, or the draft is gone.
pub(crate) fn make_intact(
    tx: &mut dyn Transaction,
    blob: &Digest,
    draft: &str,
) -> Result<bool, DatabaseError> {
    let sql = format!(
        "SELECT 1 FROM blobs WHERE digest = $1 AND damaged = 0 AND {}",
        intact::IS_NOT_INTACT
    );
    if tx.first(&sql, &[blob.into()])?.is_none() || !drafts::end(tx, draft)? {
        return Ok(false);
    }
    tx.execute(
        "UPDATE blobs SET object = $2, unplaced = unplaced + 1, placing_due = 0 WHERE digest = $1",
        &[blob.into(), draft.into()],
    )?;
    Ok(true)
}

/// The recipe of an intact and sound blob goes. The blob waits to be taken apart, or stays intact for this reason. `false` if it is not intact, or
/// damaged.
pub(crate) fn drop_recipe(
    tx: &mut dyn Transaction,
    blob: &Digest,
    stays: Option<&str>,
    now: u64,
) -> Result<bool, DatabaseError> {
    let sql = format!(
        "SELECT 1 FROM blobs WHERE digest = $1 AND damaged = 0 AND {}",
        intact::IS_INTACT
    );
    if tx.first(&sql, &[blob.into()])?.is_none() {
        return Ok(false);
    }
    recipes::forget(tx, blob, now)?;
    let state = if stays.is_some() { "kept" } else { "waiting" };
    tx.execute(
        "UPDATE blobs SET dedup_state = $2, dedup_problem = $3, dedup_due = 0, dedup_tries = 0 WHERE digest = $1",
        &[blob.into(), state.into(), stays.unwrap_or_default().into()],
    )?;
    Ok(true)
}
