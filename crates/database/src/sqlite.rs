//! SQLite: one file, one writer, any number of readers.
//!
//! A thread owns the connection that writes. It takes the jobs that wait, runs each in a savepoint of its own, and commits all of them
//! at once: so many pushes share one sync of the disk. Readers see what was committed before they began.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use tokio::sync::{Semaphore, oneshot};

use super::schema::{Dialect, Migrations, migrate};
use super::transaction::{DatabaseError, Job, Row, Transaction, Value};

/// So many transactions read at a time; more wait.
const READERS: usize = 8;
/// So many writers share one commit.
const BATCH: usize = 64;
/// How long another process, as a collection by hand, may hold the file.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the log that stay after a checkpoint: what SQLite itself lets come together before one. A large transaction makes the log longer, and it would stay so.
const LOG: u64 = 4 << 20;

/// A database in a file.
pub struct Sqlite {
    path: PathBuf,
    /// Both until this is dropped.
    writer: Option<(mpsc::Sender<Write>, JoinHandle<()>)>,
    idle: Arc<Mutex<Vec<Connection>>>,
    readers: Arc<Semaphore>,
}

struct Write {
    job: Job,
    done: oneshot::Sender<Result<(), DatabaseError>>,
}

impl Sqlite {
    pub(super) fn open(path: &Path, migrations: Migrations) -> Result<Self, DatabaseError> {
        let mut connection = connect(path)?;
        in_transaction(&connection, "BEGIN IMMEDIATE", &mut |transaction| {
            migrate(transaction, migrations, Dialect::Sqlite)
        })?;
        let (writer, jobs) = mpsc::channel();
        let thread = std::thread::Builder::new().name("records".to_owned());
        let thread = thread
            .spawn(move || write_jobs(&mut connection, &jobs))
            .map_err(|error| DatabaseError::Engine(format!("no thread for writing: {error}")))?;
        Ok(Self {
            path: path.to_owned(),
            writer: Some((writer, thread)),
            idle: Arc::default(),
            readers: Arc::new(Semaphore::new(READERS)),
        })
    }

    /// Writes all that is committed to a new file, which is durable then. Reads and writes go on meanwhile. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written, or the records cannot be read in one step.
    pub fn copy_to(&self, path: &Path) -> Result<(), DatabaseError> {
        let source = connect(&self.path)?;
        let failed =
            |error: &dyn std::fmt::Display| DatabaseError::Engine(format!("{}: {error}", path.display()));
        let mut target = Connection::open(path).map_err(|error| failed(&error))?;
        let backup = Backup::new(&source, &mut target).map_err(from_engine)?;
        // In one step: a copy in several begins again whenever somebody writes.
        match backup.step(-1).map_err(from_engine)? {
            StepResult::Done => {}
            _ => return Err(failed(&"the records could not be read in one step; try again")),
        }
        drop(backup);
        // One file, without a log beside it.
        target
            .execute_batch("PRAGMA journal_mode = DELETE")
            .map_err(from_engine)?;
        drop(target);
        let sync = || std::fs::File::open(path)?.sync_all();
        sync().map_err(|error| failed(&error))
    }

    pub(super) async fn read(&self, mut job: Job) -> Result<(), DatabaseError> {
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let permit = permit.map_err(|_| DatabaseError::Closed)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let lock = || idle.lock();
            let kept = lock().pop();
            let connection = kept.map_or_else(|| connect(&path), Ok)?;
            in_transaction(&connection, "BEGIN", &mut job)?;
            lock().push(connection);
            Ok(())
        });
        reading.await.map_err(|_| DatabaseError::Closed)?
    }

    pub(super) async fn write(&self, job: Job) -> Result<(), DatabaseError> {
        let (done, result) = oneshot::channel();
        let (writer, _) = self.writer.as_ref().ok_or(DatabaseError::Closed)?;
        let sent = writer.send(Write { job, done });
        sent.map_err(|_| DatabaseError::Closed)?;
        result.await.map_err(|_| DatabaseError::Closed)?
    }
}

/// When this has gone and nobody reads, all writes that were sent are carried out, and the log is in the file.
impl Drop for Sqlite {
    fn drop(&mut self) {
        if let Some((writer, thread)) = self.writer.take() {
            drop(writer);
            let _ = thread.join();
        }
    }
}

fn connect(path: &Path) -> Result<Connection, DatabaseError> {
    // Each connection has one user at a time.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| {
        DatabaseError::Engine(format!(
            "{}: {error}; see that its directory can be written",
            path.display()
        ))
    })?;
    connection.busy_timeout(PATIENCE).map_err(from_engine)?;
    connection.set_prepared_statement_cache_capacity(128);
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = {LOG}; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -4096;"
    );
    connection.execute_batch(&pragmas).map_err(from_engine)?;
    Ok(connection)
}

/// Runs jobs until nobody can send one.
fn write_jobs(connection: &mut Connection, jobs: &mpsc::Receiver<Write>) {
    while let Ok(first) = jobs.recv() {
        let mut results = Vec::new();
        let outcome = run_batch(connection, first, jobs, &mut results);
        if outcome.is_err() && !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
        for (done, result) in results {
            let result = match (&outcome, result) {
                (Err(error), Ok(())) => Err(DatabaseError::Engine(error.to_string())),
                (_, result) => result,
            };
            // The caller may be gone.
            let _ = done.send(result);
        }
    }
}

type Results = Vec<(
    oneshot::Sender<Result<(), DatabaseError>>,
    Result<(), DatabaseError>,
)>;

fn run_batch(
    connection: &Connection,
    first: Write,
    jobs: &mpsc::Receiver<Write>,
    results: &mut Results,
) -> Result<(), DatabaseError> {
    if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
        results.push((first.done, Err(from_engine(error))));
        return Ok(());
    }
    let mut next = Some(first);
    while let Some(Write { mut job, done }) = next {
        let result = in_savepoint(connection, &mut job);
        results.push((done, result));
        if connection.is_autocommit() {
            // SQLite has taken everything back, as it does when the disk is full.
            return Err(DatabaseError::Engine(
                "the transaction was rolled back; see that the disk has room".to_owned(),
            ));
        }
        next = (results.len() < BATCH).then(|| jobs.try_recv().ok()).flatten();
    }
    connection.execute_batch("COMMIT").map_err(from_engine)
}

fn in_savepoint(connection: &Connection, job: &mut Job) -> Result<(), DatabaseError> {
    connection.execute_batch("SAVEPOINT job").map_err(from_engine)?;
    let result = job(&mut SqliteTransaction(connection));
    let end = match result {
        Ok(()) => "RELEASE job",
        Err(_) => "ROLLBACK TO job; RELEASE job",
    };
    let ended = connection.execute_batch(end).map_err(from_engine);
    result.and(ended)
}

fn in_transaction(
    connection: &Connection,
    begin: &str,
    work: &mut dyn FnMut(&mut dyn Transaction) -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    let carry_out = |sql: &str| {
        let mut statement = connection.prepare_cached(sql).map_err(from_engine)?;
        statement.execute([]).map_err(from_engine)
    };
    carry_out(begin)?;
    let result = work(&mut SqliteTransaction(connection));
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = carry_out(end);
    result.and(ended.map(|_| ()))
}

struct SqliteTransaction<'a>(&'a Connection);

impl Transaction for SqliteTransaction<'_> {
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let mut statement = self.0.prepare_cached(&numbered(sql)).map_err(from_engine)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values)).map_err(from_engine)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(from_engine)? {
            let values = (0..columns).map(|column| row.get_ref(column).map_err(from_engine).and_then(value));
            found.push(Row(values.collect::<Result<_, _>>()?));
        }
        drop(rows);
        #[cfg(feature = "work")]
        super::work::count(self.0, &statement);
        Ok(found)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError> {
        let mut statement = self.0.prepare_cached(&numbered(sql)).map_err(from_engine)?;
        let changed = statement.execute(params_from_iter(values)).map_err(from_engine)?;
        #[cfg(feature = "work")]
        super::work::count(self.0, &statement);
        Ok(changed as u64)
    }

    fn batch(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.0.execute_batch(sql).map_err(from_engine)
    }
}

/// SQLite numbers parameters with a question mark; `$1` would be a name to it.
fn numbered(sql: &str) -> String {
    sql.replace('$', "?")
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        let borrowed = match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        Ok(rusqlite::types::ToSqlOutput::Borrowed(borrowed))
    }
}

fn value(value: ValueRef<'_>) -> Result<Value, DatabaseError> {
    let damaged = |what: &str| DatabaseError::Damaged(what.to_owned());
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_| damaged("a text is not UTF-8"))?;
            Value::Text(text.to_owned())
        }
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_owned()),
        ValueRef::Real(_) => return Err(damaged("a number is broken")),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn from_engine(error: rusqlite::Error) -> DatabaseError {
    DatabaseError::Engine(format!("SQLite: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_transaction_leaves_no_long_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records.db");
        let database = Sqlite::open(&path, &["CREATE TABLE texts (text BLOB NOT NULL)"]).unwrap();
        let log = || {
            std::fs::metadata(directory.path().join("records.db-wal"))
                .unwrap()
                .len()
        };
        let write = |bytes: usize| {
            let job: Job = Box::new(move |tx| {
                tx.execute(
                    "INSERT INTO texts (text) VALUES ($1)",
                    &[Value::Bytes(vec![7; bytes])],
                )
                .map(drop)
            });
            database.write(job)
        };
        write(16 << 20).await.unwrap();
        assert!(log() > LOG, "nothing was to be cut");
        // The next ones write to the log from its beginning.
        for _ in 0..4 {
            write(1).await.unwrap();
        }
        assert!(log() <= LOG, "{} bytes", log());
    }
}
