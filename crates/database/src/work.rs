//! How much SQLite works, for tests: they count its steps, which no other work on the machine changes, in place of time.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::Mutex;
use rusqlite::{Connection, Statement, StatementStatus};

/// The work of a database's statements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Steps of SQLite's machine.
    pub steps: u64,
    /// Statements, each as often as it was carried out.
    pub statements: u64,
    /// Statements that have read a table from its beginning, without an index, or made an index for themselves, or sorted.
    pub scans: Vec<String>,
}

static WORK: Mutex<BTreeMap<String, Work>> = Mutex::new(BTreeMap::new());

/// Adds what a statement has done since the last time.
pub(super) fn count(connection: &Connection, statement: &Statement<'_>) {
    let Some(path) = connection.path() else {
        return;
    };
    // A statement counts from the last time that it was asked, so it is asked each time.
    let taken = |status| u64::try_from(statement.reset_status(status)).unwrap_or(0);
    let steps = taken(StatementStatus::VmStep);
    let reasons = [
        StatementStatus::FullscanStep,
        StatementStatus::AutoIndex,
        StatementStatus::Sort,
    ];
    let is_scan = reasons.map(taken).iter().sum::<u64>() > 0;
    let mut all = WORK.lock();
    let Some(work) = all.get_mut(path) else {
        return;
    };
    work.statements += 1;
    work.steps += steps;
    if is_scan {
        work.scans.extend(statement.expanded_sql());
    }
}

/// The work with a database since the last call. It is counted from the first call on.
pub fn take(path: &Path) -> Work {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut all = WORK.lock();
    std::mem::take(all.entry(path.display().to_string()).or_default())
}
