//! The manifests whose layers still have to be indexed, and the outcome for each layer.

use crate::database::{DatabaseError, Transaction};
use crate::model::{IndexingProblem, IndexingTask, LayerOutcome};
use xebec_objects::Digest;

/// The manifest that has waited longest and is due, which nobody else takes before `until`.
pub(crate) fn take(
    tx: &mut dyn Transaction,
    now: u64,
    until: u64,
) -> Result<Option<IndexingTask>, DatabaseError> {
    let row = tx.first(
        "SELECT repositories.id, name, digest, indexing_tries FROM manifests
         JOIN repositories ON repositories.id = manifests.repository
         WHERE indexing = 'waiting' AND indexing_due <= $1 ORDER BY indexing_due, manifests.created LIMIT 1",
        &[now.into()],
    )?;
    let Some(mut row) = row else {
        return Ok(None);
    };
    let repository = row.integer(0)?;
    let task = IndexingTask {
        repository: row.parsed(1)?,
        manifest: row.parsed(2)?,
        tries: row.unsigned(3)? + 1,
    };
    tx.execute(
        "UPDATE manifests SET indexing_due = $3, indexing_tries = $4 WHERE repository = $1 AND digest = $2",
        &[
            repository.into(),
            (&task.manifest).into(),
            until.into(),
            task.tries.into(),
        ],
    )?;
    Ok(Some(task))
}

/// The manifest is done with, well or badly.
pub(crate) fn settle(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    problem: Option<&str>,
) -> Result<(), DatabaseError> {
    let state = if problem.is_some() { "failed" } else { "done" };
    tx.execute(
        "UPDATE manifests SET indexing = $3, indexing_problem = $4 WHERE repository = $1 AND digest = $2",
        &[
            repository.into(),
            digest.into(),
            state.into(),
            problem.unwrap_or_default().into(),
        ],
    )?;
    Ok(())
}

/// The manifest is taken again, not before `due`.
pub(crate) fn postpone(
    tx: &mut dyn Transaction,
    repository: i64,
    digest: &Digest,
    due: u64,
    problem: &str,
) -> Result<(), DatabaseError> {
    tx.execute(
        "UPDATE manifests SET indexing_due = $3, indexing_problem = $4 WHERE repository = $1 AND digest = $2",
        &[repository.into(), digest.into(), due.into(), problem.into()],
    )?;
    Ok(())
}

/// Everything that waits is due: the process that had taken it is gone.
pub(crate) fn release(tx: &mut dyn Transaction) -> Result<u64, DatabaseError> {
    tx.execute(
        "UPDATE manifests SET indexing_due = 0 WHERE indexing = 'waiting' AND indexing_due > 0",
        &[],
    )
}

/// How many manifests wait.
pub(crate) fn waiting(tx: &mut dyn Transaction) -> Result<u64, DatabaseError> {
    let row = tx.first("SELECT COUNT(*) FROM manifests WHERE indexing = 'waiting'", &[])?;
    row.map_or(Ok(0), |mut row| row.unsigned(0))
}

/// The manifests that could not be indexed, the newest first.
pub(crate) fn problems(tx: &mut dyn Transaction, n: usize) -> Result<Vec<IndexingProblem>, DatabaseError> {
    let rows = tx.query(
        "SELECT name, digest, indexing_problem FROM manifests
         JOIN repositories ON repositories.id = manifests.repository
         WHERE indexing = 'failed' ORDER BY manifests.created DESC LIMIT $1",
        &[n.into()],
    )?;
    let problems = rows.into_iter().map(|mut row| {
        Ok(IndexingProblem {
            repository: row.parsed(0)?,
            manifest: row.parsed(1)?,
            problem: row.text(2)?,
        })
    });
    problems.collect()
}

/// The outcome of indexing a layer, in any image.
pub(crate) fn layer(tx: &mut dyn Transaction, layer: &Digest) -> Result<Option<LayerOutcome>, DatabaseError> {
    let row = tx.first(
        "SELECT made, problem FROM layer_indexes WHERE layer = $1",
        &[layer.into()],
    )?;
    let outcome = row.map(|mut row| {
        let (made, problem) = (row.text(0)?, row.text(1)?);
        Ok(match problem.is_empty() {
            true => LayerOutcome::Made(made),
            false => LayerOutcome::Problem(problem),
        })
    });
    outcome.transpose()
}

/// Notes what came of a layer.
pub(crate) fn note_layer(
    tx: &mut dyn Transaction,
    layer: &Digest,
    outcome: &LayerOutcome,
    now: u64,
) -> Result<(), DatabaseError> {
    let (made, problem) = match outcome {
        LayerOutcome::Made(made) => (made.as_str(), ""),
        LayerOutcome::Problem(problem) => ("", problem.as_str()),
    };
    tx.execute(
        "INSERT INTO layer_indexes (layer, made, problem, changed) VALUES ($1, $2, $3, $4)
         ON CONFLICT (layer) DO UPDATE SET made = excluded.made, problem = excluded.problem, changed = excluded.changed",
        &[layer.into(), made.into(), problem.into(), now.into()],
    )?;
    Ok(())
}
