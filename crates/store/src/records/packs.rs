//! Packs of chunks, and in which pack a chunk is looked for when a blob is taken apart.
//!
//! A pack that no recipe needs is `unchecked`. A collection condemns it: from then on no recipe gets it. Then its chunks go in steps, and
//! the pack at last.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::{DatabaseError, Row, Transaction, Value};
use crate::name::PackKey;
use crate::recipes::{ChunkDigest, NewPack, PackRecord};
use crate::records::{drafts, replicas};
use xebec_objects::Digest;

/// So many chunks or packs are looked up by one statement.
const AT_ONCE: usize = 64;

const COLUMNS: &str =
    "packs.id, packs.object, packs.size, packs.checksum, packs.plain, packs.chunks, packs.created";

fn pack(mut row: Row) -> Result<PackRecord, DatabaseError> {
    Ok(PackRecord {
        key: PackKey(row.integer(0)?),
        object: row.text(1)?,
        size: row.unsigned(2)?,
        checksum: row.parsed(3)?,
        plain: row.unsigned(4)?,
        chunks: row.unsigned(5)?,
        created: row.unsigned(6)?,
    })
}

/// Placeholders for so many parameters.
fn placeholders(n: usize) -> String {
    let all: Vec<String> = (1..=n).map(|number| format!("${number}")).collect();
    all.join(", ")
}

/// Values for a statement that looks up [`AT_ONCE`] of them: the last fills up what is missing, so that there are few statements.
fn filled_up<T: Copy + Into<Value>>(some: &[T]) -> Vec<Value> {
    let last = some.last().copied();
    let fill = std::iter::repeat_n(last, AT_ONCE).flatten();
    let all = some.iter().copied().chain(fill).take(AT_ONCE);
    all.map(Into::into).collect()
}

/// Makes a pack of a draft, and a recipe needs it from the same transaction on. Its chunks are added by [`add_chunks`].
pub(crate) fn record(tx: &mut dyn Transaction, new: &NewPack, now: u64) -> Result<PackKey, DatabaseError> {
    drafts::end(tx, &new.draft.object)?;
    // The numbers mean nothing. Random ones are never given out twice, and without waiting for others.
    let key = PackKey(fastrand::i64(1..i64::MAX));
    let chunks: BTreeSet<&ChunkDigest> = new.chunks.iter().collect();
    tx.execute(
        "INSERT INTO packs (id, object, size, checksum, plain, chunks, state, created, unchecked)
         VALUES ($1, $2, $3, $4, $5, $6, 'present', $7, 0)",
        &[
            key.into(),
            new.draft.object.as_str().into(),
            new.draft.size.into(),
            (&new.checksum).into(),
            new.plain.into(),
            chunks.len().into(),
            now.into(),
        ],
    )?;
    Ok(key)
}

/// From now on these chunks are looked for in this pack, unless they are in another one that is sound. Nothing is done if the pack itself
/// is not.
pub(crate) fn add_chunks(
    tx: &mut dyn Transaction,
    key: PackKey,
    chunks: &[ChunkDigest],
) -> Result<(), DatabaseError> {
    if !are_sound(tx, &[key])? {
        return Ok(());
    }
    // A statement may not change a row twice.
    let chunks: Vec<ChunkDigest> = chunks
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let (many, single) = chunks.as_chunks::<AT_ONCE>();
    for some in many {
        add(tx, key, some)?;
    }
    single.iter().try_for_each(|chunk| add(tx, key, &[*chunk]))
}

fn add(tx: &mut dyn Transaction, key: PackKey, chunks: &[ChunkDigest]) -> Result<(), DatabaseError> {
    let rows: Vec<String> = (2..chunks.len() + 2)
        .map(|number| format!("(${number}, $1)"))
        .collect();
    let sql = format!(
        "INSERT INTO chunks (digest, pack) VALUES {} ON CONFLICT (digest) DO UPDATE SET pack = excluded.pack
         WHERE NOT EXISTS (SELECT 1 FROM packs WHERE packs.id = chunks.pack AND state = 'present' AND damaged = 0)",
        rows.join(", ")
    );
    let values: Vec<Value> = std::iter::once(key.into())
        .chain(chunks.iter().map(Into::into))
        .collect();
    tx.execute(&sql, &values)?;
    Ok(())
}

/// These packs, as far as they are here.
pub(crate) fn find(tx: &mut dyn Transaction, keys: &[PackKey]) -> Result<Vec<PackRecord>, DatabaseError> {
    let mut found = Vec::with_capacity(keys.len());
    for some in keys.chunks(AT_ONCE) {
        let sql = format!(
            "SELECT {COLUMNS} FROM packs WHERE id IN ({})",
            placeholders(AT_ONCE)
        );
        for row in tx.query(&sql, &filled_up(some))? {
            found.push(pack(row)?);
        }
    }
    Ok(found)
}

/// The sound packs in which these chunks are.
pub(crate) fn with_chunks(
    tx: &mut dyn Transaction,
    chunks: &[ChunkDigest],
) -> Result<BTreeMap<ChunkDigest, PackKey>, DatabaseError> {
    let sql = format!(
        "SELECT digest, pack FROM chunks JOIN packs ON packs.id = chunks.pack
         WHERE digest IN ({}) AND state = 'present' AND damaged = 0",
        placeholders(AT_ONCE)
    );
    let mut found = BTreeMap::new();
    for some in chunks.chunks(AT_ONCE) {
        let some: Vec<&ChunkDigest> = some.iter().collect();
        for mut row in tx.query(&sql, &filled_up(&some))? {
            let digest = row.bytes(0)?;
            let digest = ChunkDigest::try_from(digest)
                .map_err(|_| DatabaseError::Damaged("a chunk's digest has not 32 bytes".to_owned()))?;
            found.insert(digest, PackKey(row.integer(1)?));
        }
    }
    Ok(found)
}

/// Whether all of these packs are here, not condemned and not damaged.
pub(crate) fn are_sound(tx: &mut dyn Transaction, keys: &[PackKey]) -> Result<bool, DatabaseError> {
    let keys: Vec<PackKey> = keys
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let sql = format!(
        "SELECT COUNT(*) FROM packs WHERE id IN ({}) AND state = 'present' AND damaged = 0",
        placeholders(AT_ONCE)
    );
    for some in keys.chunks(AT_ONCE) {
        let count = tx.first(&sql, &filled_up(some))?;
        if count.map_or(Ok(0), |mut row| row.unsigned(0))? != some.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The packs that a recipe needs, in the order of their keys.
pub(crate) fn of_recipe(tx: &mut dyn Transaction, recipe: &Digest) -> Result<Vec<PackRecord>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM recipe_packs JOIN packs ON packs.id = recipe_packs.pack WHERE recipe = $1 ORDER BY packs.id"
    );
    tx.query(&sql, &[recipe.into()])?.into_iter().map(pack).collect()
}

/// Packs that are not condemned, in the order of their keys, that were not read since that time, and all damaged ones.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<PackKey>,
    unread_since: u64,
) -> Result<Vec<PackRecord>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM packs WHERE id > $1 AND state = 'present' AND (scrubbed < $3 OR damaged > 0)
         ORDER BY id LIMIT $2"
    );
    let after = after.map_or(0, |key| key.0);
    let rows = tx.query(&sql, &[after.into(), n.into(), unread_since.into()])?;
    rows.into_iter().map(pack).collect()
}

/// The blobs whose recipes need a pack, in the order of their digests.
pub(crate) fn users(
    tx: &mut dyn Transaction,
    key: PackKey,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Digest>, DatabaseError> {
    let rows = tx.query(
        "SELECT recipe FROM recipe_packs WHERE pack = $1 AND recipe > $2 ORDER BY recipe LIMIT $3",
        &[
            key.into(),
            after.map(Digest::to_string).unwrap_or_default().into(),
            n.into(),
        ],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// A pack at which a collection looks.
pub(crate) struct Unchecked {
    pub(crate) key: PackKey,
    pub(crate) size: u64,
    created: i64,
    /// Whether a recipe needs it.
    pub(crate) is_needed: bool,
}

/// So many packs that were recorded before that time and that may be needed no more.
pub(crate) fn unchecked(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&Unchecked>,
) -> Result<Vec<Unchecked>, DatabaseError> {
    let (created, key) = after.map_or((-1, 0), |last| (last.created, last.key.0));
    let rows = tx.query(
        "SELECT id, size, created, COALESCE((SELECT 1 FROM recipe_packs WHERE recipe_packs.pack = packs.id LIMIT 1), 0)
         FROM packs WHERE unchecked = 1 AND state = 'present' AND created < $1 AND (created, id) > ($2, $3)
         ORDER BY created, id LIMIT $4",
        &[before.into(), created.into(), key.into(), n.into()],
    )?;
    let found = rows.into_iter().map(|mut row| {
        Ok(Unchecked {
            key: PackKey(row.integer(0)?),
            size: row.unsigned(1)?,
            created: row.integer(2)?,
            is_needed: row.integer(3)? > 0,
        })
    });
    found.collect()
}

/// Nobody looks at this pack again until a recipe goes that needs it.
pub(crate) fn keep(tx: &mut dyn Transaction, key: PackKey) -> Result<(), DatabaseError> {
    tx.execute("UPDATE packs SET unchecked = 0 WHERE id = $1", &[key.into()])?;
    Ok(())
}

/// No recipe gets this pack from now on.
pub(crate) fn condemn(tx: &mut dyn Transaction, key: PackKey) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE packs SET state = 'condemned', unchecked = 1 WHERE id = $1",
        &[key.into()],
    )?;
    Ok(())
}

/// A condemned pack after that one, and how many bytes its object has.
pub(crate) fn condemned(
    tx: &mut dyn Transaction,
    after: Option<PackKey>,
) -> Result<Option<(PackKey, u64)>, DatabaseError> {
    let found = tx.first(
        "SELECT id, size FROM packs WHERE state = 'condemned' AND id > $1 ORDER BY id LIMIT 1",
        &[after.map_or(0, |key| key.0).into()],
    )?;
    found
        .map(|mut row| Ok((PackKey(row.integer(0)?), row.unsigned(1)?)))
        .transpose()
}

/// So many chunks of a pack at most are not looked for in it any more; how many it were.
pub(crate) fn drop_chunks(tx: &mut dyn Transaction, key: PackKey, n: usize) -> Result<u64, DatabaseError> {
    tx.execute(
        "DELETE FROM chunks WHERE digest IN (SELECT digest FROM chunks WHERE pack = $1 LIMIT $2)",
        &[key.into(), n.into()],
    )
}

/// Removes a condemned pack that has no chunks any more: its object is garbage. `false` if it is gone already.
pub(crate) fn remove(tx: &mut dyn Transaction, key: PackKey, now: u64) -> Result<bool, DatabaseError> {
    let row = tx.first(
        "DELETE FROM packs WHERE id = $1 AND state = 'condemned' RETURNING object, size",
        &[key.into()],
    )?;
    let Some(mut row) = row else {
        return Ok(false);
    };
    let (object, size) = (row.text(0)?, row.unsigned(1)?);
    replicas::release(tx, &object, size, now)?;
    Ok(true)
}
