//! Repositories: a name, and a number by which the other tables know it.

use crate::database::{DatabaseError, Transaction, Value};
use crate::model::Usage;
use crate::name::RepositoryName;
use xebec_objects::Digest;

pub(crate) fn find(tx: &mut dyn Transaction, name: &RepositoryName) -> Result<Option<i64>, DatabaseError> {
    let found = tx.first("SELECT id FROM repositories WHERE name = $1", &[name.into()])?;
    found.map(|mut row| row.integer(0)).transpose()
}

pub(crate) fn find_or_make(
    tx: &mut dyn Transaction,
    name: &RepositoryName,
    now: u64,
) -> Result<i64, DatabaseError> {
    if let Some(id) = find(tx, name)? {
        return Ok(id);
    }
    // The numbers mean nothing. Random ones are given out without waiting for other transactions that make repositories.
    let id = fastrand::i64(1..i64::MAX);
    let values = [id.into(), name.into(), now.into()];
    tx.execute(
        "INSERT INTO repositories (id, name, created) VALUES ($1, $2, $3)",
        &values,
    )?;
    Ok(id)
}

/// Those that have a manifest or a blob.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    n: usize,
    after: Option<&str>,
) -> Result<Vec<RepositoryName>, DatabaseError> {
    let rows = tx.query(
        "SELECT name FROM repositories WHERE name > $1
         AND (EXISTS (SELECT 1 FROM manifests WHERE repository = id)
             OR EXISTS (SELECT 1 FROM repository_blobs WHERE repository = id))
         ORDER BY name LIMIT $2",
        &[after.unwrap_or_default().into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// Those that have a blob, not all of them.
pub(crate) fn with_blob(
    tx: &mut dyn Transaction,
    digest: &Digest,
    n: usize,
) -> Result<Vec<RepositoryName>, DatabaseError> {
    let rows = tx.query(
        "SELECT repositories.name FROM repository_blobs JOIN repositories ON repositories.id = repository_blobs.repository
         WHERE repository_blobs.digest = $1 ORDER BY repositories.name LIMIT $2",
        &[digest.into(), n.into()],
    )?;
    rows.into_iter().map(|mut row| row.parsed(0)).collect()
}

/// Whether it has a manifest or a blob.
pub(crate) fn has_content(tx: &mut dyn Transaction, id: i64) -> Result<bool, DatabaseError> {
    let found = tx.first(
        "SELECT 1 FROM manifests WHERE repository = $1
         UNION ALL SELECT 1 FROM repository_blobs WHERE repository = $1 LIMIT 1",
        &[id.into()],
    )?;
    Ok(found.is_some())
}

/// Of the repository of that name and those below it; of all, if it is empty.
pub(crate) fn usage(tx: &mut dyn Transaction, prefix: &str) -> Result<Usage, DatabaseError> {
    let below = "SELECT id FROM repositories WHERE $1 = '' OR name = $1 OR (name > $2 AND name < $3)";
    // '0' comes right after '/'.
    let range: [Value; 3] = [
        prefix.into(),
        format!("{prefix}/").into(),
        format!("{prefix}0").into(),
    ];
    let mut count = |table: &str, sizes: &str| -> Result<(u64, u64), DatabaseError> {
        let sql = format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM {sizes}
             WHERE digest IN (SELECT digest FROM {table} WHERE repository IN ({below}))"
        );
        let row = tx.first(&sql, &range)?;
        row.map_or(Ok((0, 0)), |mut row| Ok((row.unsigned(0)?, row.unsigned(1)?)))
    };
    let (blobs, blob_bytes) = count("repository_blobs", "blobs")?;
    let (manifests, manifest_bytes) = count(
        "manifests",
        "(SELECT DISTINCT digest, size FROM manifests) AS sizes",
    )?;
    let sql =
        format!("SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM uploads WHERE repository IN ({below})");
    let uploads = tx.first(&sql, &range)?;
    Ok(Usage {
        bytes: blob_bytes + manifest_bytes,
        blobs,
        manifests,
        uploads: uploads.map_or(Ok(0), |mut row| row.unsigned(0))?,
    })
}

/// Something of it has gone: a collection sees whether it is empty.
pub(crate) fn look_at(tx: &mut dyn Transaction, id: i64) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE repositories SET unchecked = 1 WHERE id = $1 AND unchecked = 0",
        &[id.into()],
    )?;
    Ok(())
}

/// A repository at which a collection looks.
pub(crate) struct Unchecked {
    pub(crate) id: i64,
    created: i64,
    /// Whether it has anything.
    pub(crate) is_used: bool,
}

/// So many repositories that are older than that and of which something may have gone.
pub(crate) fn unchecked(
    tx: &mut dyn Transaction,
    before: u64,
    n: usize,
    after: Option<&Unchecked>,
) -> Result<Vec<Unchecked>, DatabaseError> {
    let (created, id) = after.map_or((-1, 0), |last| (last.created, last.id));
    let rows = tx.query(
        "SELECT id, created, COALESCE(
             (SELECT 1 FROM manifests WHERE manifests.repository = repositories.id LIMIT 1),
             (SELECT 1 FROM repository_blobs WHERE repository_blobs.repository = repositories.id LIMIT 1),
             (SELECT 1 FROM uploads WHERE uploads.repository = repositories.id LIMIT 1), 0)
         FROM repositories WHERE unchecked = 1 AND created < $1 AND (created, id) > ($2, $3)
         ORDER BY created, id LIMIT $4",
        &[before.into(), created.into(), id.into(), n.into()],
    )?;
    let found = rows.into_iter().map(|mut row| {
        Ok(Unchecked {
            id: row.integer(0)?,
            created: row.integer(1)?,
            is_used: row.integer(2)? > 0,
        })
    });
    found.collect()
}

/// Removes one that is empty, and does not look again at one that is not, until something of it goes.
pub(crate) fn settle(tx: &mut dyn Transaction, found: &Unchecked) -> Result<(), DatabaseError> {
    let sql = match found.is_used {
        true => "UPDATE repositories SET unchecked = 0 WHERE id = $1",
        false => "DELETE FROM repositories WHERE id = $1",
    };
    tx.execute(sql, &[found.id.into()])?;
    Ok(())
}

/// How many there are.
pub(crate) fn count(tx: &mut dyn Transaction) -> Result<u64, DatabaseError> {
    let row = tx.first("SELECT COUNT(*) FROM repositories", &[])?;
    row.map_or(Ok(0), |mut row| row.unsigned(0))
}
