//! Objects that are to be deleted, and blobs on their way there.
//!
//! Every object has one record at any time: that of its upload, draft, blob, pack or recipe, or one here. One transaction moves it from one
//! to the other. So no object is forgotten, and none is deleted that a blob has or is made of.

use crate::database::{DatabaseError, Transaction};
use xebec_objects::Digest;
use xebec_placement::PlaceName;

/// An object that no other record names, and that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Garbage {
    pub(crate) object: String,
    pub(crate) size: u64,
    pub(crate) progress: Option<Vec<u8>>,
    /// Since when it is garbage. It stays until then, if that is later than now.
    pub(crate) since: u64,
    /// On which place it is.
    pub(crate) place: PlaceName,
}

/// An object of the main place is garbage from now on. What may have replicas goes by [`release`](super::replicas::release).
pub(crate) fn throw_away(
    tx: &mut dyn Transaction,
    object: &str,
    size: u64,
    progress: Option<&[u8]>,
    now: u64,
) -> Result<(), DatabaseError> {
    throw_away_at(tx, &PlaceName::main(), (object, size, progress), now)
}

/// The same on any place.
pub(crate) fn throw_away_at(
    tx: &mut dyn Transaction,
    place: &PlaceName,
    (key, size, progress): (&str, u64, Option<&[u8]>),
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "INSERT INTO garbage (object, size, progress, since, place) VALUES ($1, $2, $3, $4, $5)",
        &[
            key.into(),
            size.into(),
            progress.map(<[u8]>::to_vec).into(),
            now.into(),
            place.into(),
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
        "SELECT object, size, progress, since, place FROM garbage WHERE object > $1 ORDER BY object LIMIT $2",
        &[after.unwrap_or_default().into(), n.into()],
    )?;
    let garbage = rows.into_iter().map(|mut row| {
        Ok(Garbage {
            object: row.text(0)?,
            size: row.unsigned(1)?,
            progress: row.optional_bytes(2)?,
            since: row.unsigned(3)?,
            place: row.parsed(4)?,
        })
    });
    garbage.collect()
}

/// The object is deleted.
pub(crate) fn forget(tx: &mut dyn Transaction, object: &str) -> Result<(), DatabaseError> {
    tx.execute("DELETE FROM garbage WHERE object = $1", &[object.into()])?;
    Ok(())
}

/// A link at which a collection looks.
pub(crate) struct Link {
    pub(crate) repository: i64,
    pub(crate) digest: Digest,
    added: i64,
    /// Whether a manifest of the repository names the blob.
    pub(crate) is_needed: bool,
}

/// So many links that were not promised since that time and that may be needed no more. Whether one is, is looked up one by one: a
/// database must not read all manifests to answer for a few links.
pub(crate) fn unchecked_links(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&Link>,
) -> Result<Vec<Link>, DatabaseError> {
    let (added, repository, digest) = after.map_or((-1, 0, String::new()), |last| {
        (last.added, last.repository, last.digest.to_string())
    });
    let rows = tx.query(
        "SELECT repository, digest, added, COALESCE((SELECT 1 FROM manifest_references
             WHERE manifest_references.repository = repository_blobs.repository
             AND manifest_references.digest = repository_blobs.digest LIMIT 1), 0)
         FROM repository_blobs WHERE unchecked = 1 AND added < $1 AND (added, repository, digest) > ($2, $3, $4)
         ORDER BY added, repository, digest LIMIT $5",
        &[
            before.into(),
            added.into(),
            repository.into(),
            digest.into(),
            n.into(),
        ],
    )?;
    let links = rows.into_iter().map(|mut row| {
        Ok(Link {
            repository: row.integer(0)?,
            digest: row.parsed(1)?,
            added: row.integer(2)?,
            is_needed: row.integer(3)? > 0,
        })
    });
    links.collect()
}

/// Nobody looks at this link again until a manifest goes that names the blob.
pub(crate) fn keep_link(tx: &mut dyn Transaction, link: &Link) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE repository_blobs SET unchecked = 0 WHERE repository = $1 AND digest = $2",
        &[link.repository.into(), (&link.digest).into()],
    )?;
    Ok(())
}

/// A blob at which a collection looks.
pub(crate) struct Unchecked {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    changed: i64,
    /// Whether a repository has it.
    pub(crate) is_linked: bool,
}

/// So many blobs in this state since before that time that no repository may have any more.
pub(crate) fn unchecked(
    tx: &mut dyn Transaction,
    state: &str,
    before: u64,
    n: usize,
    after: Option<&Unchecked>,
) -> Result<Vec<Unchecked>, DatabaseError> {
    let (changed, digest) = after.map_or((-1, String::new()), |last| {
        (last.changed, last.digest.to_string())
    });
    let rows = tx.query(
        "SELECT digest, size, changed, COALESCE(
             (SELECT 1 FROM repository_blobs WHERE repository_blobs.digest = blobs.digest LIMIT 1), 0)
         FROM blobs WHERE unchecked = 1 AND state = $1 AND changed < $2 AND (changed, digest) > ($3, $4)
         ORDER BY changed, digest LIMIT $5",
        &[
            state.into(),
            before.into(),
            changed.into(),
            digest.into(),
            n.into(),
        ],
    )?;
    let found = rows.into_iter().map(|mut row| {
        Ok(Unchecked {
            digest: row.parsed(0)?,
            size: row.unsigned(1)?,
            changed: row.integer(2)?,
            is_linked: row.integer(3)? > 0,
        })
    });
    found.collect()
}

/// Nobody looks at this blob again until a repository loses it.
pub(crate) fn keep(tx: &mut dyn Transaction, digest: &Digest) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET unchecked = 0 WHERE digest = $1 AND state = 'present'",
        &[digest.into()],
    )?;
    Ok(())
}

/// Marks a blob that no repository has.
pub(crate) fn condemn(tx: &mut dyn Transaction, digest: &Digest, now: u64) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE blobs SET state = 'condemned', changed = $2 WHERE digest = $1 AND state = 'present'",
        &[digest.into(), now.into()],
    )?;
    Ok(())
}
