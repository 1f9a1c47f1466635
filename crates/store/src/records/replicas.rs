//! Replicas: copies of objects on other places than the main one.
//!
//! A replica is of an object by its *name*, the value of `blobs.object`, `packs.object` or `recipes.object`. So it goes when that object does: in the
//! transaction that makes garbage of it.

use xebec_objects::new_key;
use xebec_placement::{Code, PlaceName};

use crate::database::{DatabaseError, Row, Transaction, Value};
use crate::records::{drafts, garbage, intact};
use crate::replicas::{Held, Owner, Part, PlaceSpace, Replica};

const COLUMNS: &str = "key, place, object, data, parity, shard, size, checksum, whole, damaged";

fn replica(mut row: Row) -> Result<Replica, DatabaseError> {
    let number = |value: i64| {
        u8::try_from(value).map_err(|_| DatabaseError::Damaged(format!("{value} is no number of shards")))
    };
    let (data, parity, shard) = (row.integer(3)?, row.integer(4)?, row.integer(5)?);
    let part = match data {
        0 => Part::Whole,
        _ => Part::Shard {
            code: Code::new(number(data)?, number(parity)?)
                .map_err(|error| DatabaseError::Damaged(error.to_string()))?,
            index: number(shard)?,
        },
    };
    Ok(Replica {
        key: row.text(0)?,
        place: row.parsed(1)?,
        object: row.text(2)?,
        part,
        size: row.unsigned(6)?,
        checksum: row.parsed(7)?,
        whole: row.unsigned(8)?,
        is_damaged: row.integer(9)? > 0,
    })
}

/// The columns `data`, `parity` and `shard` of a part.
fn numbers(part: Part) -> [Value; 3] {
    let numbers = match part {
        Part::Whole => [0, 0, 0],
        Part::Shard { code, index } => [code.data(), code.parity(), index],
    };
    numbers.map(|number| i64::from(number).into())
}

/// All replicas of an object, damaged ones included, whole ones first.
pub(crate) fn of_object(tx: &mut dyn Transaction, name: &str) -> Result<Vec<Replica>, DatabaseError> {
    // In the order of an index: each object that goes is looked up here.
    let sql = format!(
        "SELECT {COLUMNS} FROM replicas WHERE object = $1 ORDER BY object, place, data, parity, shard"
    );
    let found = tx.query(&sql, &[name.into()])?.into_iter().map(replica);
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(|replica| replica.part);
    Ok(found)
}

/// Replicas in the order of their keys that were not read since that time, and all damaged ones.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&str>,
    unread_since: u64,
) -> Result<Vec<Replica>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM replicas WHERE key > $1 AND (scrubbed < $3 OR damaged > 0) ORDER BY key LIMIT $2"
    );
    let values = [after.unwrap_or_default().into(), n.into(), unread_since.into()];
    tx.query(&sql, &values)?.into_iter().map(replica).collect()
}

/// Whether a record still has this object under this name.
pub(crate) fn is_current(tx: &mut dyn Transaction, held: &Held) -> Result<bool, DatabaseError> {
    let (table, column, owner) = row_of(&held.owner);
    let sql = format!("SELECT 1 FROM {table} WHERE {column} = $1 AND object = $2");
    Ok(tx.first(&sql, &[owner, held.name.as_str().into()])?.is_some())
}

/// The name that an owner's object has now; none if it has none.
pub(crate) fn name_of(tx: &mut dyn Transaction, owner: &Owner) -> Result<Option<String>, DatabaseError> {
    let (table, column, owner) = row_of(owner);
    let row = tx.first(
        &format!("SELECT object FROM {table} WHERE {column} = $1"),
        &[owner],
    )?;
    row.map(|mut row| row.text(0)).transpose()
}

/// The row that has an object: its table, the column of its key, and that key.
fn row_of(owner: &Owner) -> (&'static str, &'static str, Value) {
    match owner {
        Owner::Blob(digest) => ("blobs", "digest", digest.into()),
        Owner::Recipe(digest) => ("recipes", "digest", digest.into()),
        Owner::Pack(key) => ("packs", "id", (*key).into()),
    }
}

/// Makes a replica of a draft on its place, in place of a damaged one of the same part; `false` if the draft or the object is gone.
pub(crate) fn record(
    tx: &mut dyn Transaction,
    held: &Held,
    new: &Replica,
    now: u64,
) -> Result<bool, DatabaseError> {
    if !is_current(tx, held)? || !drafts::end(tx, &new.key)? {
        return Ok(false);
    }
    let [data, parity, shard] = numbers(new.part);
    let old = tx.first(
        "SELECT key FROM replicas WHERE object = $1 AND place = $2 AND data = $3 AND parity = $4 AND shard = $5",
        &[held.name.as_str().into(), (&new.place).into(), data.clone(), parity.clone(), shard.clone()],
    )?;
    if let Some(mut row) = old {
        let key = row.text(0)?;
        drop_one(tx, &key, now)?;
    }
    tx.execute(
        "INSERT INTO replicas (key, place, object, data, parity, shard, size, checksum, whole, made, scrubbed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)",
        &[
            new.key.as_str().into(),
            (&new.place).into(),
            held.name.as_str().into(),
            data,
            parity,
            shard,
            new.size.into(),
            (&new.checksum).into(),
            new.whole.into(),
            now.into(),
        ],
    )?;
    note_change(tx, &held.name)?;
    Ok(true)
}

/// A replica is garbage of its place from now on; how many bytes it has, or none if it is gone already.
pub(crate) fn drop_one(tx: &mut dyn Transaction, key: &str, now: u64) -> Result<Option<u64>, DatabaseError> {
    let row = tx.first(
        "DELETE FROM replicas WHERE key = $1 RETURNING place, size",
        &[key.into()],
    )?;
    let Some(mut row) = row else {
        return Ok(None);
    };
    let (place, size): (PlaceName, u64) = (row.parsed(0)?, row.unsigned(1)?);
    garbage::throw_away_at(tx, &place, (key, size, None), now)?;
    Ok(Some(size))
}

/// All replicas of an object are garbage from now on.
pub(crate) fn drop_all(tx: &mut dyn Transaction, name: &str, now: u64) -> Result<(), DatabaseError> {
    for replica in of_object(tx, name)? {
        drop_one(tx, &replica.key, now)?;
    }
    Ok(())
}

/// An object that a record had is garbage from now on, with its replicas; nothing is on the main place of one that was not there.
pub(crate) fn release(
    tx: &mut dyn Transaction,
    name: &str,
    size: u64,
    since: u64,
) -> Result<(), DatabaseError> {
    drop_all(tx, name, since)?;
    match intact::main_key(name) {
        Some(key) => garbage::throw_away(tx, key, size, None, since),
        None => Ok(()),
    }
}

/// Gives an object that is on the main place, and that these sound replicas have, too, a name that it has without it. Its key there is garbage.
/// `None` if it has another name by now, or one of them is gone or damaged.
pub(crate) fn leave_main(
    tx: &mut dyn Transaction,
    held: &Held,
    kept: &[String],
    now: u64,
) -> Result<Option<String>, DatabaseError> {
    let Some(key) = intact::main_key(&held.name) else {
        return Ok(None);
    };
    if !is_current(tx, held)? || !are_sound(tx, &held.name, kept)? {
        return Ok(None);
    }
    let random = new_key().map_err(|error| DatabaseError::Engine(error.to_string()))?;
    let name = intact::away(&random);
    rename(tx, held, &name)?;
    garbage::throw_away(tx, key, held.size, None, now)?;
    Ok(Some(name))
}

/// Whether these replicas of an object are all here, and none is known to be damaged.
pub(crate) fn are_sound(
    tx: &mut dyn Transaction,
    name: &str,
    keys: &[String],
) -> Result<bool, DatabaseError> {
    let here = of_object(tx, name)?;
    let is_sound = |key: &String| here.iter().any(|found| found.key == *key && !found.is_damaged);
    Ok(!keys.is_empty() && keys.iter().all(is_sound))
}

/// Whether an object has a sound replica that is none of these: it was made since these were looked at.
pub(crate) fn has_new(tx: &mut dyn Transaction, name: &str, seen: &[String]) -> Result<bool, DatabaseError> {
    let found = of_object(tx, name)?;
    Ok(found
        .iter()
        .any(|replica| !replica.is_damaged && !seen.contains(&replica.key)))
}

/// Gives an object the name of this draft on the main place, which has its bytes. What it had there before, if anything, is garbage. `false` if it has
/// another name by now, or the draft is gone.
pub(crate) fn bring_home(
    tx: &mut dyn Transaction,
    held: &Held,
    draft: &str,
    now: u64,
) -> Result<bool, DatabaseError> {
    if !is_current(tx, held)? || !drafts::end(tx, draft)? {
        return Ok(false);
    }
    rename(tx, held, draft)?;
    if let Some(key) = intact::main_key(&held.name) {
        garbage::throw_away(tx, key, held.size, None, now)?;
    }
    Ok(true)
}

fn rename(tx: &mut dyn Transaction, held: &Held, name: &str) -> Result<(), DatabaseError> {
    let (table, column, owner) = row_of(&held.owner);
    let sql = format!("UPDATE {table} SET object = $2 WHERE {column} = $1");
    tx.execute(&sql, &[owner, name.into()])?;
    tx.execute(
        "UPDATE replicas SET object = $2 WHERE object = $1",
        &[held.name.as_str().into(), name.into()],
    )?;
    note_change(tx, name)
}

/// Notes what reading a replica has shown; `false` if it is gone by now. What it is of is looked at again if it is damaged.
pub(crate) fn note(
    tx: &mut dyn Transaction,
    key: &str,
    is_sound: bool,
    now: u64,
) -> Result<bool, DatabaseError> {
    let damaged = if is_sound { 0 } else { now };
    let row = tx.first(
        "UPDATE replicas SET scrubbed = $2, damaged = $3 WHERE key = $1 RETURNING object",
        &[key.into(), now.into(), damaged.into()],
    )?;
    let Some(mut row) = row else {
        return Ok(false);
    };
    let object = row.text(0)?;
    if !is_sound {
        // Not at once, if somebody has just looked: a place that gives back other bytes than it took would be written to without end.
        note_change(tx, &object)?;
    }
    Ok(true)
}

/// Whatever has this object is looked at again.
pub(crate) fn look_at(tx: &mut dyn Transaction, object: &str) -> Result<(), DatabaseError> {
    change(tx, object, "unplaced = unplaced + 1, placing_due = 0")
}

/// What there is of this object has changed: whoever has looked at it before does not say that all is as it should be. One who still works at it is not
/// disturbed, and looks once more at its end.
pub(crate) fn note_change(tx: &mut dyn Transaction, object: &str) -> Result<(), DatabaseError> {
    change(tx, object, "unplaced = unplaced + 1")
}

fn change(tx: &mut dyn Transaction, object: &str, set: &str) -> Result<(), DatabaseError> {
    let owners = [
        ("blobs", "object = $1"),
        ("packs", "object = $1"),
        (
            "blobs",
            "digest IN (SELECT digest FROM recipes WHERE object = $1)",
        ),
    ];
    for (table, is_owner) in owners {
        tx.execute(
            &format!("UPDATE {table} SET {set} WHERE {is_owner}"),
            &[object.into()],
        )?;
    }
    Ok(())
}

/// What a place is known by; none if the store has never used it.
pub(crate) fn mark_of(tx: &mut dyn Transaction, place: &PlaceName) -> Result<Option<String>, DatabaseError> {
    let row = tx.first("SELECT mark FROM places WHERE name = $1", &[place.into()])?;
    row.map(|mut row| row.text(0)).transpose()
}

/// The store uses a place from now on; `false` if it does so already.
pub(crate) fn use_place(
    tx: &mut dyn Transaction,
    place: &PlaceName,
    mark: &str,
    now: u64,
) -> Result<bool, DatabaseError> {
    let made = tx.execute(
        "INSERT INTO places (name, mark, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        &[place.into(), mark.into(), now.into()],
    )?;
    Ok(made > 0)
}

/// How many objects have no other copy than those on a place: they are away, and neither a whole replica is elsewhere nor enough shards.
pub(crate) fn only_on(tx: &mut dyn Transaction, place: &PlaceName) -> Result<u64, DatabaseError> {
    let away = format!(
        "substr(there.object, 1, {}) = '{}'",
        intact::AWAY.len(),
        intact::AWAY
    );
    let elsewhere = "FROM replicas AS others WHERE others.object = there.object AND others.place <> $1 AND others.damaged = 0";
    let sql = format!(
        "SELECT COUNT(DISTINCT there.object) FROM replicas AS there WHERE there.place = $1 AND {away}
         AND NOT EXISTS (SELECT 1 {elsewhere} AND others.data = 0)
         AND (SELECT COUNT(DISTINCT others.shard) {elsewhere} AND others.data > 0)
             < (SELECT COALESCE(MIN(others.data), 1) {elsewhere} AND others.data > 0)"
    );
    let row = tx.first(&sql, &[place.into()])?;
    row.map_or(Ok(0), |mut row| row.unsigned(0))
}

/// Whether a place has a replica.
pub(crate) fn is_used(tx: &mut dyn Transaction, place: &PlaceName) -> Result<bool, DatabaseError> {
    let found = tx.first("SELECT 1 FROM replicas WHERE place = $1 LIMIT 1", &[place.into()])?;
    Ok(found.is_some())
}

/// So many replicas at most of a place that is lost are forgotten; how many it were.
pub(crate) fn forget_some(
    tx: &mut dyn Transaction,
    place: &PlaceName,
    n: usize,
) -> Result<u64, DatabaseError> {
    let rows = tx.query(
        "DELETE FROM replicas WHERE key IN (SELECT key FROM replicas WHERE place = $1 LIMIT $2) RETURNING object",
        &[place.into(), n.into()],
    )?;
    let number = rows.len() as u64;
    for mut row in rows {
        let object = row.text(0)?;
        look_at(tx, &object)?;
    }
    Ok(number)
}

/// A place whose last replicas were forgotten in this transaction, and what was to be deleted or written there, are forgotten. Nothing is recorded there
/// from now on: each replica was a draft.
pub(crate) fn forget_place(tx: &mut dyn Transaction, place: &PlaceName) -> Result<(), DatabaseError> {
    for table in ["drafts", "garbage"] {
        tx.execute(&format!("DELETE FROM {table} WHERE place = $1"), &[place.into()])?;
    }
    tx.execute("DELETE FROM places WHERE name = $1", &[place.into()])?;
    Ok(())
}

/// What each place has.
pub(crate) fn space(tx: &mut dyn Transaction) -> Result<Vec<PlaceSpace>, DatabaseError> {
    let rows = tx.query(
        "SELECT places.name, COUNT(replicas.key), CAST(COALESCE(SUM(replicas.size), 0) AS BIGINT),
         CAST(COALESCE(SUM(CASE WHEN replicas.damaged > 0 THEN 1 ELSE 0 END), 0) AS BIGINT)
         FROM places LEFT JOIN replicas ON replicas.place = places.name GROUP BY places.name ORDER BY places.name",
        &[],
    )?;
    let places = rows.into_iter().map(|mut row| {
        Ok(PlaceSpace {
            place: row.parsed(0)?,
            replicas: row.unsigned(1)?,
            bytes: row.unsigned(2)?,
            damaged: row.unsigned(3)?,
        })
    });
    places.collect()
}

/// In records without the places: an object has this name from now on. Nothing else is changed.
pub(crate) fn rename_in_copy(tx: &mut dyn Transaction, from: &str, to: &str) -> Result<(), DatabaseError> {
    for table in ["blobs", "packs", "recipes"] {
        let sql = format!("UPDATE {table} SET object = $2 WHERE object = $1");
        tx.execute(&sql, &[from.into(), to.into()])?;
    }
    Ok(())
}

/// In records without the places: there are no replicas, and everything is to be looked at.
pub(crate) fn forget_all(tx: &mut dyn Transaction) -> Result<(), DatabaseError> {
    tx.batch(
        "DELETE FROM replicas; DELETE FROM places; DELETE FROM rules;
         UPDATE blobs SET unplaced = 1, placing_due = 0; UPDATE packs SET unplaced = 1, placing_due = 0;",
    )
}
