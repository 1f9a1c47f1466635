//! Blobs, and which repository has which.

use crate::database::{DatabaseError, Row, Transaction};
use crate::model::Blob;
use crate::name::RepositoryName;
use crate::records::{garbage, intact, recipes, replicas, repositories};
use xebec_objects::Digest;

/// A blob that a repository has.
pub(crate) struct Linked {
    pub(crate) blob: Blob,
    /// Since when, or when it was promised to a client last.
    pub(crate) added: u64,
}

fn blob(row: &mut Row) -> Result<Blob, DatabaseError> {
    Ok(Blob {
        digest: row.parsed(0)?,
        size: row.unsigned(1)?,
        object: intact::object(row.text(2)?),
    })
}

/// A blob of a repository. A damaged one is absent: the client may push it again, which mends it.
pub(crate) fn of_repository(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<Option<Linked>, DatabaseError> {
    let row = tx.first(
        "SELECT blobs.digest, size, object, added FROM repository_blobs
         JOIN blobs ON blobs.digest = repository_blobs.digest
         WHERE repository = $1 AND repository_blobs.digest = $2 AND damaged = 0",
        &[repository.into(), digest.into()],
    )?;
    row.map(linked).transpose()
}

/// The same by the repository's name: by one statement, since a database that is elsewhere takes its time for each.
pub(crate) fn of_named(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    digest: &Digest,
) -> Result<Option<Linked>, DatabaseError> {
    let row = tx.first(
        "SELECT blobs.digest, size, object, added FROM repositories
         JOIN repository_blobs ON repository_blobs.repository = repositories.id
         JOIN blobs ON blobs.digest = repository_blobs.digest
         WHERE repositories.name = $1 AND repository_blobs.digest = $2 AND damaged = 0",
        &[repository.into(), digest.into()],
    )?;
    row.map(linked).transpose()
}

fn linked(mut row: Row) -> Result<Linked, DatabaseError> {
    Ok(Linked {
        blob: blob(&mut row)?,
        added: row.unsigned(3)?,
    })
}

/// A blob, whichever repository has it.
pub(crate) fn any(tx: &mut dyn Transaction, digest: &Digest) -> Result<Option<Blob>, DatabaseError> {
    let row = tx.first(
        "SELECT digest, size, object FROM blobs WHERE digest = $1 AND damaged = 0",
        &[digest.into()],
    )?;
    row.map(|mut row| blob(&mut row)).transpose()
}

/// A repository has this blob from now on. A condemned one is not any more.
pub(crate) fn link(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    now: u64,
) -> Result<(), DatabaseError> {
    link_as(tx, repository, digest, true, now)
}

/// A collection looks at a link that is `unchecked`, and at none that a manifest needs.
fn link_as(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    unchecked: bool,
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO repository_blobs (repository, digest, added, unchecked) VALUES ($1, $2, $3, $4)
         ON CONFLICT (repository, digest) DO UPDATE SET added = excluded.added,
         unchecked = CASE WHEN excluded.unchecked = 0 THEN 0 ELSE repository_blobs.unchecked END",
        &[
            repository.into(),
            digest.into(),
            now.into(),
            i64::from(unchecked).into(),
        ],
    )?;
    tx.execute(
        "UPDATE blobs SET state = 'present', changed = $2, unchecked = 0
         WHERE digest = $1 AND (state <> 'present' OR unchecked = 1)",
        &[digest.into(), now.into()],
    )?;
    Ok(())
}

/// Renews the promise that a blob is here, if the repository still has it.
pub(crate) fn promise(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    now: u64,
) -> Result<Option<Blob>, DatabaseError> {
    let found = of_repository(tx, repository, digest)?;
    if found.is_some() {
        link(tx, repository, digest, now)?;
    }
    Ok(found.map(|linked| linked.blob))
}

/// The same for a blob that a manifest names from now on.
pub(crate) fn need(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    now: u64,
) -> Result<(), DatabaseError> {
    if of_repository(tx, repository, digest)?.is_some() {
        link_as(tx, repository, digest, false, now)?;
    }
    Ok(())
}

/// A collection looks again at the links of all that a manifest names, before it goes.
pub(crate) fn release(
    tx: &mut dyn Transaction,
    repository: i64,
    manifest: &Digest,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE repository_blobs SET unchecked = 1 WHERE repository = $1 AND unchecked = 0 AND digest IN
         (SELECT digest FROM manifest_references WHERE repository = $1 AND manifest = $2)",
        &[repository.into(), manifest.into()],
    )?;
    Ok(())
}

/// Takes a blob from a repository; `false` if it had none.
pub(crate) fn drop_link(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    now: u64,
) -> Result<bool, DatabaseError> {
    let removed = tx.execute(
        "DELETE FROM repository_blobs WHERE repository = $1 AND digest = $2",
        &[repository.into(), digest.into()],
    )?;
    tx.execute(
        "UPDATE blobs SET changed = $2, unchecked = 1, unplaced = unplaced + 1, placing_due = 0
         WHERE digest = $1 AND state = 'present'",
        &[digest.into(), now.into()],
    )?;
    repositories::look_at(tx, repository)?;
    Ok(removed > 0)
}

/// An object that is whole, and that is recorded as a blob's.
pub(crate) struct NewBlob<'a> {
    pub(crate) digest: &'a Digest,
    pub(crate) size: u64,
    pub(crate) object: &'a str,
}

impl NewBlob<'_> {
    fn to_blob(&self) -> Blob {
        Blob {
            digest: self.digest.clone(),
            size: self.size,
            object: Some(self.object.to_owned()),
        }
    }
}

/// Records an object as a blob, which the caller links in the same transaction. If the blob is here already, and what it has is `sound`, an
/// object or the object of its recipe, the new object is garbage. Else the new one takes the place of what the blob has: the blob is intact,
/// and waits to be taken apart anew. Returns the blob, and the object that is garbage now, if there is one.
pub(crate) fn record(
    tx: &mut dyn Transaction,
    new: &NewBlob<'_>,
    sound: Option<&str>,
    now: u64,
) -> Result<(Blob, Option<String>), DatabaseError> {
    let row = tx.first(
        "SELECT digest, size, object, damaged FROM blobs WHERE digest = $1",
        &[new.digest.into()],
    )?;
    let Some(mut row) = row else {
        tx.execute(
            "INSERT INTO blobs (digest, size, object, state, changed, unchecked)
             VALUES ($1, $2, $3, 'present', $4, 0)",
            &[new.digest.into(), new.size.into(), new.object.into(), now.into()],
        )?;
        return Ok((new.to_blob(), None));
    };
    let old = blob(&mut row)?;
    let is_damaged = row.integer(3)? > 0;
    let kept = match &old.object {
        Some(object) => Some(object.clone()),
        None => recipes::sound(tx, new.digest)?,
    };
    if !is_damaged && kept.is_some() && sound == kept.as_deref() {
        garbage::throw_away(tx, new.object, new.size, None, now)?;
        return Ok((old, Some(new.object.to_owned())));
    }
    tx.execute(
        "UPDATE blobs SET object = $2, size = $3, damaged = 0, changed = $4, unplaced = unplaced + 1, placing_due = 0,
         dedup_state = 'waiting', dedup_due = 0, dedup_tries = 0, dedup_problem = '' WHERE digest = $1",
        &[new.digest.into(), new.object.into(), new.size.into(), now.into()],
    )?;
    if let Some(object) = &old.object {
        replicas::release(tx, object, old.size, now)?;
    }
    recipes::forget(tx, new.digest, now)?;
    Ok((new.to_blob(), old.object))
}

/// From here on the blob is absent, and its object and its recipe are garbage.
pub(crate) fn claim(tx: &mut dyn Transaction, digest: &Digest, now: u64) -> Result<(), DatabaseError> {
    let row = tx.first(
        "DELETE FROM blobs WHERE digest = $1 AND state = 'condemned' RETURNING object, size",
        &[digest.into()],
    )?;
    let Some(mut row) = row else {
        return Ok(());
    };
    let (object, size) = (intact::object(row.text(0)?), row.unsigned(1)?);
    if let Some(object) = object {
        replicas::release(tx, &object, size, now)?;
    }
    recipes::forget(tx, digest, now)
}

/// Notes what reading a blob again has shown; `false` if it is gone or has another object meanwhile.
pub(crate) fn note_scrub(
    tx: &mut dyn Transaction,
    blob: &Blob,
    is_sound: bool,
    now: u64,
) -> Result<bool, DatabaseError> {
    let damaged = if is_sound { 0 } else { now };
    let changed = tx.execute(
        "UPDATE blobs SET scrubbed = $3, damaged = $4 WHERE digest = $1 AND object = $2",
        &[
            (&blob.digest).into(),
            intact::column(&blob.digest, blob.object.as_deref()).into(),
            now.into(),
            damaged.into(),
        ],
    )?;
    Ok(changed > 0)
}

/// Notes that the object of a blob has right bytes again.
pub(crate) fn note_mended(tx: &mut dyn Transaction, digest: &Digest, now: u64) -> Result<(), DatabaseError> {
    let sql = format!(
        "UPDATE blobs SET scrubbed = $2, damaged = 0 WHERE digest = $1 AND {}",
        intact::IS_INTACT
    );
    tx.execute(&sql, &[digest.into(), now.into()])?;
    Ok(())
}

/// Takes the marks of all damaged blobs away, in records whose blobs have all been read since.
pub(crate) fn forget_damage(tx: &mut dyn Transaction) -> Result<(), DatabaseError> {
    tx.batch("UPDATE blobs SET damaged = 0 WHERE damaged > 0;")
}

/// Blobs in the order of their digests that were not read since that time, and all damaged ones.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
    unread_since: u64,
) -> Result<Vec<Blob>, DatabaseError> {
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(
        "SELECT digest, size, object FROM blobs
         WHERE digest > $1 AND (scrubbed < $3 OR damaged > 0) ORDER BY digest LIMIT $2",
        &[after.into(), n.into(), unread_since.into()],
    )?;
    rows.into_iter().map(|mut row| blob(&mut row)).collect()
}

/// The key of some object that is here; none if there is none.
pub(crate) fn any_object(tx: &mut dyn Transaction) -> Result<Option<String>, DatabaseError> {
    let row = tx.first(
        "SELECT object FROM blobs WHERE object < $1 ORDER BY object LIMIT 1",
        &[intact::AWAY.into()],
    )?;
    let row = match row {
        Some(row) => Some(row),
        None => tx.first(
            "SELECT object FROM packs WHERE state = 'present' AND object < $1 LIMIT 1",
            &[intact::AWAY.into()],
        )?,
    };
    row.map(|mut row| row.text(0)).transpose()
}
