//! Sums over all records.

use crate::database::{DatabaseError, Row, Transaction};
use crate::model::figures::{Sums, Waiting};

/// Reads all blobs, manifests and uploads.
pub(crate) fn sums(tx: &mut dyn Transaction) -> Result<Sums, DatabaseError> {
    let mut of = |sql: &str| tx.first(sql, &[]);
    let mut blobs = of("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT),
                    CAST(COALESCE(SUM(CASE WHEN damaged > 0 THEN 1 ELSE 0 END), 0) AS BIGINT),
                    COALESCE(MIN(scrubbed), 0) FROM blobs")?;
    let mut manifests = of("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM manifests")?;
    let mut uploads = of("SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM uploads")?;
    Ok(Sums {
        blobs: figure(&mut blobs, 0)?,
        blob_bytes: figure(&mut blobs, 1)?,
        damaged: figure(&mut blobs, 2)?,
        scrubbed: figure(&mut blobs, 3)?,
        manifests: figure(&mut manifests, 0)?,
        manifest_bytes: figure(&mut manifests, 1)?,
        uploads: figure(&mut uploads, 0)?,
        upload_bytes: figure(&mut uploads, 1)?,
    })
}

/// Reads those that wait or have failed, by the index of that.
pub(crate) fn waiting(tx: &mut dyn Transaction) -> Result<Waiting, DatabaseError> {
    let mut waits = tx.first(
        "SELECT COUNT(*), COALESCE(MIN(created), 0) FROM manifests WHERE indexing = 'waiting'",
        &[],
    )?;
    let mut failed = tx.first("SELECT COUNT(*) FROM manifests WHERE indexing = 'failed'", &[])?;
    Ok(Waiting {
        manifests: figure(&mut waits, 0)?,
        since: figure(&mut waits, 1)?,
        failed: figure(&mut failed, 0)?,
    })
}

fn figure(row: &mut Option<Row>, place: usize) -> Result<u64, DatabaseError> {
    row.as_mut().map_or(Ok(0), |row| row.unsigned(place))
}
