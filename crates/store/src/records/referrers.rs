//! Manifests in listings: those that refer to another one, or all of a repository.

use crate::database::{DatabaseError, Row, Transaction};
use crate::digest::Digest;
use crate::model::Referrer;
use crate::records::manifests::{annotations, parsed};

const COLUMNS: &str = "digest, media_type, size, artifact_type, annotations, subject, created, pulled";

fn referrer(row: &mut Row) -> Result<Referrer, DatabaseError> {
    Ok(Referrer {
        digest: row.parsed(0)?,
        media_type: row.text(1)?,
        size: row.unsigned(2)?,
        artifact_type: row.optional_text(3)?,
        annotations: annotations(&row.text(4)?)?,
        subject: row.optional_text(5)?.map(|text| parsed(&text)).transpose()?,
        created: row.unsigned(6)?,
        pulled: row.unsigned(7)?,
    })
}

/// Those that refer to `subject`, in the order of their digests.
pub(crate) fn of_subject(
    tx: &mut dyn Transaction,
    repository: i64,
    subject: &Digest,
    artifact_type: Option<&str>,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Referrer>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM manifests WHERE repository = $1 AND subject = $2 AND digest > $3
         AND (CAST($4 AS TEXT) IS NULL OR artifact_type = CAST($4 AS TEXT)) ORDER BY digest LIMIT $5"
    );
    let values = [
        repository.into(),
        subject.into(),
        after.map(Digest::to_string).unwrap_or_default().into(),
        artifact_type.into(),
        n.into(),
    ];
    let rows = tx.query(&sql, &values)?;
    rows.into_iter().map(|mut row| referrer(&mut row)).collect()
}

/// All manifests of a repository, in the order of their digests.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    repository: i64,
    n: usize,
    after: Option<&Digest>,
) -> Result<Vec<Referrer>, DatabaseError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM manifests WHERE repository = $1 AND digest > $2 ORDER BY digest LIMIT $3"
    );
    let after = after.map(Digest::to_string).unwrap_or_default();
    let rows = tx.query(&sql, &[repository.into(), after.into(), n.into()])?;
    rows.into_iter().map(|mut row| referrer(&mut row)).collect()
}
