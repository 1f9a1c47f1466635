//! Manifests, and what they name.

use std::collections::{BTreeMap, HashSet};

use crate::database::{DatabaseError, Row, Transaction};
use crate::model::{Manifest, ManifestWithin, NewManifest, PutManifest, Reference, ReferenceKind};
use crate::name::{RepositoryName, Tag};
use crate::records::{blobs, repositories, tags};
use xebec_objects::Digest;

/// Why a manifest was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The blobs and manifests that it requires and the repository lacks.
    Missing(Vec<Digest>),
    /// A tag that may not be moved, and the manifest that it names.
    Immutable(Tag, Digest),
}

pub(crate) fn exists(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<bool, DatabaseError> {
    let found = tx.first(
        "SELECT 1 FROM manifests WHERE repository = $1 AND digest = $2",
        &[repository.into(), digest.into()],
    )?;
    Ok(found.is_some())
}

/// Takes a manifest and sets tags, now or at the time that comes with them, all or nothing. The links of its blobs are renewed in the same
/// transaction, so that no collection comes between.
pub(crate) fn put(
    tx: &mut dyn Transaction,
    name: &RepositoryName,
    new: &NewManifest,
    new_tags: &[(Tag, Option<u64>)],
    now: u64,
) -> Result<Result<PutManifest, Refusal>, DatabaseError> {
    let known = repositories::find(tx, name)?;
    if let Some(refusal) = refusal(tx, known, new, new_tags)? {
        return Ok(Err(refusal));
    }
    let repository = match known {
        Some(id) => id,
        None => repositories::find_or_make(tx, name, now)?,
    };
    let is_new = !exists(tx, repository, &new.digest)?;
    write(tx, repository, new, is_new, now)?;
    let mut moved = Vec::new();
    for (tag, at) in new_tags {
        let old = tags::find(tx, repository, tag)?.map(|tag| tag.digest);
        let at = at.map_or(now, |at| at.min(now));
        tags::set(tx, repository, tag, &new.digest, at)?;
        if old.as_ref() != Some(&new.digest) {
            moved.push((tag.clone(), old));
        }
    }
    Ok(Ok(PutManifest { is_new, moved }))
}

/// The blobs and manifests that a manifest requires and its repository lacks, each once.
pub(crate) fn missing(
    tx: &mut dyn Transaction,
    repository: Option<i64>,
    new: &NewManifest,
) -> Result<Vec<Digest>, DatabaseError> {
    let mut looked_up = HashSet::new();
    let mut missing = Vec::new();
    for reference in new.references.iter().filter(|reference| reference.required) {
        let is_manifest = reference.kind == ReferenceKind::Manifest;
        if !looked_up.insert((is_manifest, &reference.digest)) {
            continue;
        }
        let is_here = match repository {
            None => false,
            Some(id) if is_manifest => exists(tx, id, &reference.digest)?,
            Some(id) => blobs::of_repository(tx, id, &reference.digest)?.is_some(),
        };
        if !is_here {
            missing.push(reference.digest.clone());
        }
    }
    Ok(missing)
}

fn refusal(
    tx: &mut dyn Transaction,
    repository: Option<i64>,
    new: &NewManifest,
    new_tags: &[(Tag, Option<u64>)],
) -> Result<Option<Refusal>, DatabaseError> {
    let missing = missing(tx, repository, new)?;
    if !missing.is_empty() {
        return Ok(Some(Refusal::Missing(missing)));
    }
    let new_tags = new_tags.iter().map(|(tag, _)| tag);
    for tag in new_tags.filter(|tag| new.immutable.contains(tag)) {
        let old = repository.map_or(Ok(None), |id| tags::find(tx, id, tag))?;
        if let Some(old) = old.filter(|old| old.digest != new.digest) {
            return Ok(Some(Refusal::Immutable(tag.clone(), old.digest)));
        }
    }
    Ok(None)
}

fn write(
    tx: &mut dyn Transaction,
    repository: i64,
    new: &NewManifest,
    is_new: bool,
    now: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        // Those that a scrub found damaged are mended so.
        "INSERT INTO manifest_contents (digest, content) VALUES ($1, $2)
         ON CONFLICT (digest) DO UPDATE SET content = excluded.content WHERE manifest_contents.content <> excluded.content",
        &[(&new.digest).into(), new.content.to_vec().into()],
    )?;
    let annotations = serde_json::to_string(&new.annotations)
        .map_err(|error| DatabaseError::Engine(format!("annotations: {error}")))?;
    tx.execute(
        "INSERT INTO manifests
         (repository, digest, media_type, artifact_type, subject, annotations, size, created, pulled, pushed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9)
         ON CONFLICT (repository, digest) DO UPDATE SET media_type = excluded.media_type,
         artifact_type = excluded.artifact_type, subject = excluded.subject, annotations = excluded.annotations,
         pushed = CASE WHEN excluded.pushed > 0 THEN excluded.pushed ELSE manifests.pushed END",
        &[
            repository.into(),
            (&new.digest).into(),
            new.media_type.as_str().into(),
            new.artifact_type.as_deref().into(),
            new.subject.as_ref().into(),
            annotations.into(),
            new.content.len().into(),
            now.into(),
            if new.is_pushed { now } else { 0 }.into(),
        ],
    )?;
    if !is_new {
        remove_references(tx, repository, &new.digest)?;
    }
    for Reference { kind, digest, .. } in &new.references {
        tx.execute(
            "INSERT INTO manifest_references (repository, manifest, kind, digest) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            &[
                repository.into(),
                (&new.digest).into(),
                kind.name().into(),
                digest.into(),
            ],
        )?;
        if *kind != ReferenceKind::Manifest {
            blobs::need(tx, repository, digest, now)?;
        }
    }
    Ok(())
}

fn remove_references(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<(), DatabaseError> {
    blobs::release(tx, repository, digest)?;
    tx.execute(
        "DELETE FROM manifest_references WHERE repository = $1 AND manifest = $2",
        &[repository.into(), digest.into()],
    )?;
    Ok(())
}

/// Whether a repository has a manifest: by one statement, since a database that is elsewhere takes its time for each.
pub(crate) fn exists_named(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    digest: &Digest,
) -> Result<bool, DatabaseError> {
    let row = tx.first(
        "SELECT 1 FROM repositories JOIN manifests ON manifests.repository = repositories.id
         WHERE repositories.name = $1 AND manifests.digest = $2",
        &[repository.into(), digest.into()],
    )?;
    Ok(row.is_some())
}

/// A manifest of a repository, in the same way. It is read if it has no more than `most` bytes.
pub(crate) fn find(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    digest: &Digest,
    most: u64,
) -> Result<Option<ManifestWithin>, DatabaseError> {
    let row = tx.first(
        "SELECT manifests.digest, media_type, CASE WHEN manifests.size <= $3 THEN content END, subject, artifact_type,
             manifests.created, manifests.pulled, manifests.size
         FROM repositories JOIN manifests ON manifests.repository = repositories.id
         JOIN manifest_contents ON manifest_contents.digest = manifests.digest
         WHERE repositories.name = $1 AND manifests.digest = $2",
        &[repository.into(), digest.into(), most.into()],
    )?;
    row.map(manifest).transpose()
}

/// The manifest that a tag names, in the same way.
pub(crate) fn find_tagged(
    tx: &mut dyn Transaction,
    repository: &RepositoryName,
    tag: &Tag,
    most: u64,
) -> Result<Option<ManifestWithin>, DatabaseError> {
    let row = tx.first(
        "SELECT manifests.digest, media_type, CASE WHEN manifests.size <= $3 THEN content END, subject, artifact_type,
             manifests.created, manifests.pulled, manifests.size
         FROM repositories JOIN tags ON tags.repository = repositories.id
         JOIN manifests ON manifests.repository = tags.repository AND manifests.digest = tags.digest
         JOIN manifest_contents ON manifest_contents.digest = manifests.digest
         WHERE repositories.name = $1 AND tags.name = $2",
        &[repository.into(), tag.into(), most.into()],
    )?;
    row.map(manifest).transpose()
}

fn manifest(mut row: Row) -> Result<ManifestWithin, DatabaseError> {
    let Some(content) = row.optional_bytes(2)? else {
        return Ok(ManifestWithin::Larger(row.unsigned(7)?));
    };
    Ok(ManifestWithin::Whole(Manifest {
        digest: row.parsed(0)?,
        media_type: row.text(1)?,
        content: content.into(),
        subject: row.optional_text(3)?.map(|text| parsed(&text)).transpose()?,
        artifact_type: row.optional_text(4)?,
        created: row.unsigned(5)?,
        pulled: row.unsigned(6)?,
    }))
}

pub(crate) fn parsed(text: &str) -> Result<Digest, DatabaseError> {
    text.parse()
        .map_err(|error: xebec_objects::InvalidDigest| DatabaseError::Damaged(error.to_string()))
}

pub(crate) fn annotations(text: &str) -> Result<BTreeMap<String, String>, DatabaseError> {
    serde_json::from_str(text).map_err(|error| DatabaseError::Damaged(format!("annotations: {error}")))
}

/// The references of a manifest.
pub(crate) fn references(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<Vec<(ReferenceKind, Digest)>, DatabaseError> {
    let rows = tx.query(
        "SELECT kind, digest FROM manifest_references WHERE repository = $1 AND manifest = $2 ORDER BY kind, digest",
        &[repository.into(), digest.into()],
    )?;
    let references = rows.into_iter().map(|mut row| {
        let kind = row.text(0)?;
        let kind = ReferenceKind::from_name(&kind)
            .ok_or_else(|| DatabaseError::Damaged(format!("{kind:?} is no kind of reference")))?;
        Ok((kind, row.parsed(1)?))
    });
    references.collect()
}

/// The manifests that have this digest or name it, not all of them, and their repositories. Those that have it come first.
pub(crate) fn naming(
    tx: &mut dyn Transaction,
    digest: &Digest,
    n: usize,
) -> Result<Vec<(i64, RepositoryName, Digest)>, DatabaseError> {
    let rows = tx.query(
        "SELECT repositories.id, repositories.name, named.manifest FROM (
             SELECT 0 AS place, repository, digest AS manifest FROM manifests WHERE digest = $1
             UNION SELECT 1, repository, manifest FROM manifest_references
                 WHERE repository IN (SELECT id FROM repositories) AND digest = $1
         ) AS named JOIN repositories ON repositories.id = named.repository
         ORDER BY named.place, repositories.name, named.manifest LIMIT $2",
        &[digest.into(), n.into()],
    )?;
    rows.into_iter()
        .map(|mut row| Ok((row.integer(0)?, row.parsed(1)?, row.parsed(2)?)))
        .collect()
}

/// Deletes a manifest and the tags that name it; `false` if there is none.
pub(crate) fn delete(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<bool, DatabaseError> {
    let values = [repository.into(), digest.into()];
    tx.execute("DELETE FROM tags WHERE repository = $1 AND digest = $2", &values)?;
    remove_references(tx, repository, digest)?;
    let deleted = tx.execute(
        "DELETE FROM manifests WHERE repository = $1 AND digest = $2",
        &values,
    )?;
    repositories::look_at(tx, repository)?;
    tx.execute(
        "DELETE FROM manifest_contents WHERE digest = $1 AND NOT EXISTS (SELECT 1 FROM manifests WHERE digest = $1)",
        &[digest.into()],
    )?;
    Ok(deleted > 0)
}

/// When a manifest of a repository was pulled last, as far as was noted.
pub(crate) fn pulled(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
) -> Result<Option<u64>, DatabaseError> {
    let row = tx.first(
        "SELECT pulled FROM manifests WHERE repository = $1 AND digest = $2",
        &[repository.into(), digest.into()],
    )?;
    row.map(|mut row| row.unsigned(0)).transpose()
}

/// Notes when a manifest was pulled last.
pub(crate) fn note_pull(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    at: u64,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE manifests SET pulled = $3 WHERE repository = $1 AND digest = $2 AND pulled < $3",
        &[repository.into(), digest.into(), at.into()],
    )?;
    Ok(())
}

/// Manifests of any repository with their bytes, in the order of their digests.
pub(crate) fn contents(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<(Digest, Vec<u8>)>, DatabaseError> {
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(
        "SELECT digest, content FROM manifest_contents WHERE digest > $1 ORDER BY digest LIMIT $2",
        &[after.into(), n.into()],
    )?;
    rows.into_iter()
        .map(|mut row| Ok((row.parsed(0)?, row.bytes(1)?)))
        .collect()
}
