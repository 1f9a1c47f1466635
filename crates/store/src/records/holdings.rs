//! Manifests with all that decides whether they stay, and their removal if nobody has used them since.

use std::collections::HashMap;

use crate::database::{DatabaseError, Transaction};
use crate::model::{Holding, ReferenceKind, Unused};
use crate::records::manifests::{self, parsed};
use crate::records::tags;
use xebec_objects::Digest;

/// The manifests of a repository after one, in the order of their digests.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    repository: i64,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Holding>, DatabaseError> {
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(
        "SELECT digest, size, subject, created, pushed, pulled FROM manifests
         WHERE repository = $1 AND digest > $2 ORDER BY digest LIMIT $3",
        &[repository.into(), after.as_str().into(), n.into()],
    )?;
    let found = rows.into_iter().map(|mut row| {
        Ok(Holding {
            digest: row.parsed(0)?,
            size: row.unsigned(1)?,
            subject: row.optional_text(2)?.map(|text| parsed(&text)).transpose()?,
            created: row.unsigned(3)?,
            pushed: row.unsigned(4)?,
            pulled: row.unsigned(5)?,
            children: Vec::new(),
            blobs: Vec::new(),
        })
    });
    let mut found = found.collect::<Result<Vec<Holding>, DatabaseError>>()?;
    if let Some(last) = found.last().map(|last| last.digest.clone()) {
        add_references(tx, repository, (&after, &last), &mut found)?;
    }
    Ok(found)
}

/// Blobs that the repository lacks are left out: they take no room.
fn add_references(
    tx: &mut dyn Transaction,
    repository: i64,
    (after, last): (&str, &Digest),
    found: &mut [Holding],
) -> Result<(), DatabaseError> {
    let rows = tx.query(
        "SELECT manifest, kind, manifest_references.digest, COALESCE(blobs.size, -1)
         FROM manifest_references
         LEFT JOIN repository_blobs ON repository_blobs.repository = manifest_references.repository
             AND repository_blobs.digest = manifest_references.digest
         LEFT JOIN blobs ON blobs.digest = repository_blobs.digest
         WHERE manifest_references.repository = $1 AND manifest > $2 AND manifest <= $3",
        &[repository.into(), after.into(), last.into()],
    )?;
    let places: HashMap<Digest, usize> = (found.iter().map(|holding| holding.digest.clone()))
        .zip(0..)
        .collect();
    for mut row in rows {
        let manifest: Digest = row.parsed(0)?;
        let is_manifest = row.text(1)? == ReferenceKind::Manifest.name();
        let digest = row.parsed(2)?;
        let place = places.get(&manifest).and_then(|place| found.get_mut(*place));
        let Some(holding) = place else {
            continue;
        };
        match (is_manifest, u64::try_from(row.integer(3)?)) {
            (true, _) => holding.children.push(digest),
            (false, Ok(size)) => holding.blobs.push((digest, size)),
            (false, Err(_)) => {}
        }
    }
    Ok(())
}

/// Deletes manifests and the tags that name them, if all that `unused` states of them still holds; `false` if nothing was deleted.
pub(crate) fn remove(
    tx: &mut dyn Transaction,
    repository: i64,
    unused: &Unused,
) -> Result<bool, DatabaseError> {
    let mut found = Vec::new();
    for digest in &unused.manifests {
        if !manifests::exists(tx, repository, digest)? {
            continue;
        }
        if !holds(tx, repository, digest, unused)? {
            return Ok(false);
        }
        found.push(digest);
    }
    for digest in &found {
        manifests::delete(tx, repository, digest)?;
    }
    Ok(!found.is_empty())
}

fn holds(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    unused: &Unused,
) -> Result<bool, DatabaseError> {
    let values = [repository.into(), digest.into()];
    let row = tx.first(
        "SELECT created, pushed, pulled, subject FROM manifests WHERE repository = $1 AND digest = $2",
        &values,
    )?;
    if let Some(mut row) = row {
        let (created, pushed, pulled) = (row.unsigned(0)?, row.unsigned(1)?, row.unsigned(2)?);
        if created.max(pushed).max(pulled) > unused.since || (unused.is_copy && pushed > 0) {
            return Ok(false);
        }
        // A manifest that refers to another one stays with it: the other one's tag may have been pushed or pulled since.
        if let Some(subject) = row.optional_text(3)? {
            let subject = parsed(&subject)?;
            let is_going = unused.manifests.contains(&subject);
            if !is_going && !tags::of_manifest(tx, repository, &subject, 1)?.is_empty() {
                return Ok(false);
            }
        }
    }
    for tag in tags::of_manifest(tx, repository, digest, usize::MAX)? {
        if !unused.is_copy || tag.updated.max(tag.pulled) > unused.since {
            return Ok(false);
        }
    }
    let mut leading = tx.query(
        "SELECT manifest FROM manifest_references WHERE repository = $1 AND digest = $2 AND kind = 'manifest'",
        &values,
    )?;
    if unused.is_copy {
        let referring = "SELECT digest FROM manifests WHERE repository = $1 AND subject = $2";
        leading.extend(tx.query(referring, &values)?);
    }
    for mut row in leading {
        if !unused.manifests.contains(&row.parsed(0)?) {
            return Ok(false);
        }
    }
    Ok(true)
}
