//! Recipes of blobs, the packs that each needs, and what follows from damage of one of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::{DatabaseError, Row, Transaction};
use crate::model::Blob;
use crate::name::PackKey;
use crate::recipes::{NewRecipe, RecipeRecord};
use crate::records::{drafts, intact, packs, replicas};
use xebec_objects::Digest;
use xebec_placement::Form;

const COLUMNS: &str = "digest, object, size, checksum, plain, damaged";

fn recipe(mut row: Row) -> Result<RecipeRecord, DatabaseError> {
    Ok(RecipeRecord {
        blob: row.parsed(0)?,
        object: row.text(1)?,
        size: row.unsigned(2)?,
        checksum: row.parsed(3)?,
        plain: row.unsigned(4)?,
        is_damaged: row.integer(5)? > 0,
        packs: Vec::new(),
    })
}

/// The recipe of a blob, with its packs.
pub(crate) fn find(tx: &mut dyn Transaction, blob: &Digest) -> Result<Option<RecipeRecord>, DatabaseError> {
    let sql = format!("SELECT {COLUMNS} FROM recipes WHERE digest = $1");
    let Some(row) = tx.first(&sql, &[blob.into()])? else {
        return Ok(None);
    };
    let mut found = recipe(row)?;
    found.packs = packs::of_recipe(tx, blob)?;
    Ok(Some(found))
}

/// Recipes in the order of their blobs' digests that were not read since that time, and all damaged ones, without their packs.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
    unread_since: u64,
) -> Result<Vec<RecipeRecord>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM recipes WHERE digest > $1 AND (scrubbed < $3 OR damaged > 0) ORDER BY digest LIMIT $2"
    );
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(&sql, &[after.into(), n.into(), unread_since.into()])?;
    rows.into_iter().map(recipe).collect()
}

/// Whether the blob is here with the object from which a recipe was made.
pub(crate) fn has_blob(tx: &mut dyn Transaction, blob: &Blob) -> Result<bool, DatabaseError> {
    let sql = format!(
        "SELECT 1 FROM blobs WHERE digest = $1 AND object = $2 AND {}",
        intact::IS_INTACT
    );
    let column = intact::column(&blob.digest, blob.object.as_deref());
    let found = tx.first(&sql, &[(&blob.digest).into(), column.into()])?;
    Ok(found.is_some())
}

/// Records a recipe that needs these packs, in place of another one of the same blob.
pub(crate) fn record(
    tx: &mut dyn Transaction,
    new: &NewRecipe,
    needed: &BTreeSet<PackKey>,
    now: u64,
) -> Result<(), DatabaseError> {
    let digest = &new.blob.digest;
    forget(tx, digest, now)?;
    drafts::end(tx, &new.recipe.object)?;
    tx.execute(
        "INSERT INTO recipes (digest, object, size, checksum, plain, proven, form) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            digest.into(),
            new.recipe.object.as_str().into(),
            new.recipe.size.into(),
            (&new.checksum).into(),
            new.plain.into(),
            now.into(),
            new.form.map_or("", Form::as_str).into(),
        ],
    )?;
    for pack in needed {
        need(tx, digest, *pack)?;
    }
    look_at_packs(tx, digest)?;
    tx.execute(
        "UPDATE blobs SET dedup_state = 'done', dedup_problem = '', unplaced = unplaced + 1, placing_due = 0 WHERE digest = $1",
        &[digest.into()],
    )?;
    Ok(())
}

/// The copies of all packs that the recipe of a blob needs are looked at again.
pub(crate) fn look_at_packs(tx: &mut dyn Transaction, blob: &Digest) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE packs SET unplaced = unplaced + 1, placing_due = 0 WHERE id IN (SELECT pack FROM recipe_packs WHERE recipe = $1)
         AND EXISTS (SELECT 1 FROM rules)",
        &[blob.into()],
    )?;
    Ok(())
}

/// A recipe needs a pack from now on.
fn need(tx: &mut dyn Transaction, recipe: &Digest, pack: PackKey) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO recipe_packs (recipe, pack) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[recipe.into(), pack.into()],
    )?;
    Ok(())
}

/// The recipe of a blob goes, if it has one: its object is garbage, and a collection looks at the packs that it needed.
pub(crate) fn forget(tx: &mut dyn Transaction, blob: &Digest, now: u64) -> Result<(), DatabaseError> {
    let found = tx.first(
        "SELECT object, size FROM recipes WHERE digest = $1",
        &[blob.into()],
    )?;
    let Some(mut row) = found else {
        return Ok(());
    };
    let (object, size) = (row.text(0)?, row.unsigned(1)?);
    tx.execute(
        "UPDATE packs SET unchecked = 1 WHERE unchecked = 0 AND id IN (SELECT pack FROM recipe_packs WHERE recipe = $1)",
        &[blob.into()],
    )?;
    // What is wanted of the blob is not wanted of them for its sake any more.
    look_at_packs(tx, blob)?;
    tx.execute("DELETE FROM recipe_packs WHERE recipe = $1", &[blob.into()])?;
    tx.execute("DELETE FROM recipes WHERE digest = $1", &[blob.into()])?;
    replicas::release(tx, &object, size, now)
}

/// The object of a blob's recipe, if the recipe and all its packs are sound as far as the records know.
pub(crate) fn sound(tx: &mut dyn Transaction, blob: &Digest) -> Result<Option<String>, DatabaseError> {
    let found = tx.first(
        "SELECT object FROM recipes WHERE digest = $1 AND damaged = 0
         AND NOT EXISTS (SELECT 1 FROM recipe_packs JOIN packs ON packs.id = recipe_packs.pack
             WHERE recipe_packs.recipe = recipes.digest AND (packs.damaged > 0 OR packs.state <> 'present'))",
        &[blob.into()],
    )?;
    found.map(|mut row| row.text(0)).transpose()
}

/// If a blob is intact and has a sound recipe, it is not intact any more: its object is garbage since that time. Damage of that object does
/// not count any more. Returns the object and its size.
pub(crate) fn drop_intact(
    tx: &mut dyn Transaction,
    blob: &Digest,
    since: u64,
) -> Result<Option<(String, u64)>, DatabaseError> {
    if sound(tx, blob)?.is_none() {
        return Ok(None);
    }
    let sql = format!(
        "SELECT object, size FROM blobs WHERE digest = $1 AND {}",
        intact::IS_INTACT
    );
    let Some(mut row) = tx.first(&sql, &[blob.into()])? else {
        return Ok(None);
    };
    let (object, size) = (row.text(0)?, row.unsigned(1)?);
    tx.execute(
        "UPDATE blobs SET object = $2, damaged = 0, dedup_state = 'done', unplaced = unplaced + 1, placing_due = 0 WHERE digest = $1",
        &[blob.into(), intact::column(blob, None).into()],
    )?;
    replicas::release(tx, &object, size, since)?;
    Ok(Some((object, size)))
}

/// Notes that a recipe's object is wrong or gone; `false` if the blob has another recipe by now, or none. The consequences are in
/// docs/formats/store.md.
pub(crate) fn note_damage(
    tx: &mut dyn Transaction,
    recipe: &RecipeRecord,
    now: u64,
) -> Result<bool, DatabaseError> {
    let noted = tx.execute(
        "UPDATE recipes SET damaged = $3 WHERE digest = $1 AND object = $2",
        &[(&recipe.blob).into(), recipe.object.as_str().into(), now.into()],
    )?;
    if noted > 0 {
        let is_it = "blobs.digest = $1";
        let blob = (&recipe.blob).into();
        let absent = format!(
            "UPDATE blobs SET damaged = $2 WHERE {is_it} AND damaged = 0 AND {}",
            intact::IS_NOT_INTACT
        );
        tx.execute(&absent, &[blob, now.into()])?;
        tx.execute(&try_again(is_it), &[(&recipe.blob).into()])?;
    }
    Ok(noted > 0)
}

/// Intact blobs that had a recipe are to be taken apart anew.
fn try_again(which: &str) -> String {
    format!(
        "UPDATE blobs SET dedup_state = 'waiting', dedup_due = 0, dedup_tries = 0
         WHERE {which} AND dedup_state = 'done' AND {}",
        intact::IS_INTACT
    )
}

/// Notes that a pack's object is wrong or gone: all recipes that need it are damaged. `false` if the pack is gone, or has another object by now.
pub(crate) fn note_pack_damage(
    tx: &mut dyn Transaction,
    key: PackKey,
    object: &str,
    now: u64,
) -> Result<bool, DatabaseError> {
    let noted = tx.execute(
        "UPDATE packs SET damaged = $2 WHERE id = $1 AND object = $3",
        &[key.into(), now.into(), object.into()],
    )?;
    if noted == 0 {
        return Ok(false);
    }
    let values = [key.into(), now.into()];
    let of_pack = "IN (SELECT recipe FROM recipe_packs WHERE pack = $1)";
    let recipes = format!("UPDATE recipes SET damaged = $2 WHERE damaged = 0 AND digest {of_pack}");
    tx.execute(&recipes, &values)?;
    let absent = format!(
        "UPDATE blobs SET damaged = $2 WHERE blobs.digest {of_pack} AND damaged = 0 AND {}",
        intact::IS_NOT_INTACT
    );
    tx.execute(&absent, &values)?;
    let [key, _] = values;
    tx.execute(&try_again(&format!("blobs.digest {of_pack}")), &[key])?;
    Ok(true)
}

/// Notes that a pack was read and is sound.
pub(crate) fn note_pack_sound(tx: &mut dyn Transaction, key: PackKey, now: u64) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE packs SET scrubbed = $2, damaged = 0 WHERE id = $1",
        &[key.into(), now.into()],
    )?;
    Ok(())
}

/// Notes that a recipe's object was read and is sound. The recipe is so, too, unless one of its packs is damaged.
pub(crate) fn note_sound(
    tx: &mut dyn Transaction,
    recipe: &RecipeRecord,
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE recipes SET scrubbed = $3, damaged = CASE WHEN EXISTS
             (SELECT 1 FROM recipe_packs JOIN packs ON packs.id = recipe_packs.pack
              WHERE recipe_packs.recipe = recipes.digest AND packs.damaged > 0) THEN recipes.damaged ELSE 0 END
         WHERE digest = $1 AND object = $2",
        &[(&recipe.blob).into(), recipe.object.as_str().into(), now.into()],
    )?;
    Ok(())
}

/// Takes the marks of all damaged packs away, and of the recipes that need these, in records whose packs and recipes are all read after it. Another
/// recipe keeps its mark, since its bytes may be right and yet make another blob.
pub(crate) fn forget_damage(tx: &mut dyn Transaction) -> Result<(), DatabaseError> {
    tx.batch(
        "UPDATE recipes SET damaged = 0 WHERE damaged > 0 AND EXISTS
             (SELECT 1 FROM recipe_packs JOIN packs ON packs.id = recipe_packs.pack
              WHERE recipe_packs.recipe = recipes.digest AND packs.damaged > 0);
         UPDATE packs SET damaged = 0 WHERE damaged > 0;",
    )
}

/// Notes of a blob that is not intact what the records say of its recipe, all of which was read; whether it is sound. `None` if the blob is
/// gone or intact by now.
pub(crate) fn note_blob(
    tx: &mut dyn Transaction,
    blob: &Digest,
    now: u64,
) -> Result<Option<bool>, DatabaseError> {
    let is_sound = sound(tx, blob)?.is_some();
    let damaged = if is_sound { 0 } else { now };
    let sql = format!(
        "UPDATE blobs SET scrubbed = $2, damaged = $3 WHERE digest = $1 AND {}",
        intact::IS_NOT_INTACT
    );
    let noted = tx.execute(&sql, &[blob.into(), now.into(), damaged.into()])?;
    Ok((noted > 0).then_some(is_sound))
}

/// The blobs whose recipes need one of these packs, each with the object of its recipe; `n` at most of each pack.
pub(crate) fn of_packs(
    tx: &mut dyn Transaction,
    keys: &[PackKey],
    n: usize,
) -> Result<BTreeMap<Digest, String>, DatabaseError> {
    let mut users = BTreeMap::new();
    for key in keys {
        let rows = tx.query(
            "SELECT digest, object FROM recipe_packs JOIN recipes ON recipes.digest = recipe_packs.recipe WHERE pack = $1 LIMIT $2",
            &[(*key).into(), n.into()],
        )?;
        for mut row in rows {
            users.insert(row.parsed(0)?, row.text(1)?);
        }
    }
    Ok(users)
}

/// Each recipe that needs one of the old packs needs all new ones from now on, and none of the old ones.
pub(crate) fn move_to(
    tx: &mut dyn Transaction,
    old: &[PackKey],
    new: &[PackKey],
) -> Result<(), DatabaseError> {
    for from in old {
        for to in new {
            // A recipe may need several of the old ones.
            tx.execute(
                "INSERT INTO recipe_packs (recipe, pack)
                 SELECT recipe, CAST($2 AS BIGINT) FROM recipe_packs WHERE pack = $1 ON CONFLICT DO NOTHING",
                &[(*from).into(), (*to).into()],
            )?;
        }
        tx.execute("DELETE FROM recipe_packs WHERE pack = $1", &[(*from).into()])?;
    }
    Ok(())
}
