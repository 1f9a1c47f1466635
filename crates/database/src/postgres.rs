//! PostgreSQL: any number of nodes share it.
//!
//! Each job runs in one serializable transaction, on a thread for blocking work. If another transaction is in its way, it runs again. If there is one in its way
//! each time, it runs while no other writes: all writers share a lock of a table, which it then has for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use postgres::config::SslMode;
use postgres::error::SqlState;
use postgres::types::{IsNull, ToSql, Type};
use postgres::{Client, NoTls, Statement};
use tokio::sync::Semaphore;

use super::encrypted::{PATIENCE, Tls, next_step, protection};
use super::schema::{Dialect, Migrations, migrate};
use super::transaction::{DatabaseError, Job, Row, Transaction, Value};
use crate::config::{PostgresTls, Protection};

/// So many connections at most.
const CONNECTIONS: usize = 16;
/// So long a transaction that others are in the way of is tried.
const TRIED_FOR: Duration = Duration::from_secs(10);
/// After so long, a transaction that others are in the way of asks to be the only one that writes.
const CROWDED: Duration = Duration::from_secs(3);
/// So long the writers' lock is waited for by one that wants it for itself, and those that come later wait behind it. So a writer on a host that stands still
/// keeps them waiting no longer.
const WAIT_FOR_WRITERS: &str = "2s";
/// The longest pause before the next try, in ms.
const LONGEST_PAUSE: u64 = 32;
/// A serializable transaction that reads a whole table, as the planner has it while a table is small, is in the way of every other that
/// writes to it. A plan that must read a whole table all the same counts as so dear then that the server would compile it first.
const BY_INDEX: &str = "SET enable_seqscan = off; SET jit = off";
/// Two nodes that start together migrate one after the other: "xebec" as a number.
const MIGRATION_LOCK: i64 = 0x0078_6562_6563;

/// A server with the database.
pub struct Postgres {
    server: Server,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

/// Where it is, and how connections to it are made.
#[derive(Clone)]
struct Server {
    config: postgres::Config,
    /// None: they are plain.
    tls: Option<Tls>,
}

/// A connection, and the statements that it has prepared.
struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// While no other writes.
    WriteAlone,
    /// Not serializable: what waited for the lock has to see what the other node did.
    Migrate,
}

impl Access {
    /// What begins its transaction. A writer takes the writers' lock with the same message; of a transaction that begins so, PostgreSQL fixes what it sees when
    /// the lock is taken (`LOCK` in its manual).
    fn begin(self) -> String {
        let writing = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE";
        match self {
            Self::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned(),
            Self::Write => format!("{writing}; LOCK TABLE schema_versions IN ROW SHARE MODE"),
            Self::WriteAlone => format!(
                "{writing}; SET LOCAL lock_timeout = '{WAIT_FOR_WRITERS}'; LOCK TABLE schema_versions IN EXCLUSIVE MODE;
                 SET LOCAL lock_timeout TO DEFAULT"
            ),
            Self::Migrate => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned(),
        }
    }
}

impl Postgres {
    pub(super) fn protection(url: &str, tls: &PostgresTls) -> Result<Protection, DatabaseError> {
        protection(&parse(url)?, tls)
    }

    pub(super) fn open(url: &str, tls: &PostgresTls, migrations: Migrations) -> Result<Self, DatabaseError> {
        let server = Server::new(parse(url)?, tls)?;
        let mut connection = server.connect()?;
        let mut first: Job = Box::new(move |transaction| {
            transaction.query(
                "SELECT CAST(pg_advisory_xact_lock($1) AS TEXT)",
                &[MIGRATION_LOCK.into()],
            )?;
            migrate(transaction, migrations, Dialect::Postgres)
        });
        attempt(&mut connection, &mut first, Access::Migrate)?;
        Ok(Self {
            server,
            idle: Arc::new(Mutex::new(vec![connection])),
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
        })
    }

    pub(super) async fn read(&self, job: Job) -> Result<(), DatabaseError> {
        self.run(job, Access::Read).await
    }

    pub(super) async fn write(&self, job: Job) -> Result<(), DatabaseError> {
        self.run(job, Access::Write).await
    }

    async fn run(&self, mut job: Job, access: Access) -> Result<(), DatabaseError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| DatabaseError::Closed)?;
        let (server, idle) = (self.server.clone(), Arc::clone(&self.idle));
        let running = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let lock = || idle.lock();
            // The guard ends with this line, before anything is waited for.
            let kept = lock().pop().filter(|kept| !kept.client.is_closed());
            let mut connection = kept.map_or_else(|| server.connect(), Ok)?;
            let result = repeat(&server, &mut connection, &mut job, access);
            if !connection.client.is_closed() {
                lock().push(connection);
            }
            result
        });
        running.await.map_err(|_| DatabaseError::Closed)?
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let connections = std::mem::take(&mut *self.idle.lock());
        // A connection ends by waiting, which tasks must not.
        std::thread::spawn(move || drop(connections));
    }
}

fn parse(url: &str) -> Result<postgres::Config, DatabaseError> {
    let parsed: Result<postgres::Config, _> = url.parse();
    parsed.map_err(|error| {
        // The address may hold a password, and is not shown. Of all causes, this one repeats nothing of it.
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let cause = cause.filter(|cause| cause.starts_with("invalid value for option"));
        DatabaseError::Engine(format!(
            "its address cannot be read ({}): write it as libpq takes it; of sslmode, disable, prefer and require are known, and tls and \
             ca_file in [storage.postgres] say the rest",
            cause.unwrap_or_else(|| error.to_string())
        ))
    })
}

impl Server {
    fn new(mut config: postgres::Config, tls: &PostgresTls) -> Result<Self, DatabaseError> {
        let (mode, tls) = match protection(&config, tls)? {
            Protection::Verified => (SslMode::Require, Some(Tls::new(tls.ca_file.as_deref())?)),
            Protection::Local | Protection::Plain => (SslMode::Disable, None),
        };
        config
            .ssl_mode(mode)
            .connect_timeout(PATIENCE)
            .application_name("xebec-registry");
        Ok(Self { config, tls })
    }

    fn connect(&self) -> Result<Connection, DatabaseError> {
        let made = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        let mut client =
            made.map_err(|error| DatabaseError::Engine(format!("{}; {}", said(&error), next_step(&error))))?;
        client.batch_execute(BY_INDEX).map_err(from_engine)?;
        Ok(Connection {
            client,
            statements: HashMap::new(),
        })
    }
}

/// Runs a job until no other transaction is in its way.
fn repeat(
    server: &Server,
    connection: &mut Connection,
    job: &mut Job,
    access: Access,
) -> Result<(), DatabaseError> {
    let (begun, mut attempts) = (Instant::now(), 0);
    loop {
        // Every other time beside others: one of them may stand still.
        let is_alone = access == Access::Write && begun.elapsed() >= CROWDED && attempts % 2 == 0;
        let access = if is_alone { Access::WriteAlone } else { access };
        let result = attempt(connection, job, access);
        attempts += 1;
        let is_last = begun.elapsed() >= TRIED_FOR;
        match result {
            Err(DatabaseError::Conflict(_)) if !is_last => {
                let most = LONGEST_PAUSE.min(2 << attempts.min(8));
                std::thread::sleep(Duration::from_millis(fastrand::u64(1..=most)));
            }
            // A read may be repeated. Whether a write was committed is not known: its caller decides.
            Err(_) if access == Access::Read && attempts == 1 && connection.client.is_closed() => {
                *connection = server.connect()?;
            }
            result => return result,
        }
    }
}

fn attempt(connection: &mut Connection, job: &mut Job, access: Access) -> Result<(), DatabaseError> {
    let Connection { client, statements } = connection;
    let begun = client.batch_execute(&access.begin()).map_err(from_engine);
    let done = begun.and_then(|()| {
        job(&mut PostgresTransaction { client, statements })?;
        client.batch_execute("COMMIT").map_err(from_engine)
    });
    if done.is_err() && !client.is_closed() {
        // The error of the job says more than one of this.
        let _ = client.batch_execute("ROLLBACK");
    }
    done
}

/// A connection on which a transaction has begun.
struct PostgresTransaction<'a> {
    client: &'a mut Client,
    statements: &'a mut HashMap<String, Statement>,
}

impl PostgresTransaction<'_> {
    fn prepared(&mut self, sql: &str) -> Result<Statement, DatabaseError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).map_err(from_engine)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl Transaction for PostgresTransaction<'_> {
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let statement = self.prepared(sql)?;
        let rows = self.client.query(&statement, &parameters(values));
        rows.map_err(from_engine)?.iter().map(row).collect()
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError> {
        let statement = self.prepared(sql)?;
        let changed = self.client.execute(&statement, &parameters(values));
        changed.map_err(from_engine)
    }

    fn batch(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.client.batch_execute(sql).map_err(from_engine)
    }
}

fn row(row: &postgres::Row) -> Result<Row, DatabaseError> {
    let values = row
        .columns()
        .iter()
        .enumerate()
        .map(|(at, column)| match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at).map(Value::from),
            Type::INT4 => row
                .try_get::<_, Option<i32>>(at)
                .map(|number| Value::from(number.map(i64::from))),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at).map(Value::from),
            _ => row.try_get::<_, Option<String>>(at).map(Value::from),
        });
    let values: Result<Vec<Value>, _> = values.collect();
    values.map(Row).map_err(from_engine)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Integer(number) => number.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(ty, out)
    }
}

/// The server's own words, which the error itself keeps to its cause.
fn said(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(server) => format!("PostgreSQL: {}", server.message()),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("PostgreSQL: {error}: {cause}"),
            None => format!("PostgreSQL: {error}"),
        },
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn from_engine(error: postgres::Error) -> DatabaseError {
    let code = error.code();
    let is_conflict = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        // Two have made the same record at the same time; the second one finds it.
        SqlState::UNIQUE_VIOLATION,
        SqlState::FOREIGN_KEY_VIOLATION,
    ];
    match code.is_some_and(|code| is_conflict.contains(code)) {
        true => DatabaseError::Conflict(said(&error)),
        false => DatabaseError::Engine(said(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use xebec_testkit::servers;

    use super::*;

    const TABLE: &str = "CREATE TABLE counters (name BIGINT PRIMARY KEY, value BIGINT NOT NULL);
         INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0), (3, 0)";

    /// A server of its own.
    struct Own {
        database: Arc<Postgres>,
        url: String,
        _server: servers::Server,
        _directory: tempfile::TempDir,
    }

    /// None if there is no PostgreSQL.
    fn own() -> Option<Own> {
        let Some(programs) = servers::postgres_programs() else {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: PostgreSQL is not here; `make setup-test` installs it"
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let server = servers::postgres(&programs, directory.path(), &["fsync=off"]).unwrap();
        let url = format!("{} dbname=postgres", server.address);
        let open = || Postgres::open(&url, &PostgresTls::default(), &[TABLE]).unwrap();
        let database = tokio::task::block_in_place(open);
        Some(Own {
            database: Arc::new(database),
            url,
            _server: server,
            _directory: directory,
        })
    }

    fn add(name: u64) -> Job {
        Box::new(move |tx| {
            tx.execute(
                "UPDATE counters SET value = value + 1 WHERE name = $1",
                &[name.into()],
            )
            .map(drop)
        })
    }

    /// Reads all counters, waits, and writes one: each of `add` meanwhile is in its way.
    fn slow(runs: &Arc<AtomicU64>) -> Job {
        let runs = Arc::clone(runs);
        Box::new(move |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            let sum = tx.query("SELECT name, value FROM counters ORDER BY name", &[])?;
            std::thread::sleep(Duration::from_millis(100));
            let sum: i64 = sum.into_iter().map(|mut row| row.integer(1).unwrap()).sum();
            tx.execute("UPDATE counters SET value = $1 WHERE name = 0", &[sum.into()])
                .map(drop)
        })
    }

    /// Runs the slow job beside short ones, and returns its result.
    async fn beside_short_ones(database: &Arc<Postgres>, job: Job) -> Result<(), DatabaseError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let others = [0, 1, 2, 3].map(|name| {
            let (database, is_over) = (Arc::clone(database), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    database.write(add(name)).await.unwrap();
                }
            })
        });
        let done = database.write(job).await;
        is_over.store(true, Ordering::Relaxed);
        for other in others {
            other.await.unwrap();
        }
        done
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slow_transaction_ends_though_short_ones_are_in_its_way() {
        let Some(own) = own() else {
            return;
        };
        let runs = Arc::new(AtomicU64::new(0));
        beside_short_ones(&own.database, slow(&runs)).await.unwrap();
        assert!(runs.load(Ordering::Relaxed) > 1, "nothing was in its way");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_writer_that_stands_still_stops_no_other_for_good() {
        let Some(own) = own() else {
            return;
        };
        let url = own.url.clone();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (stands, still) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let mut client = Client::connect(&url, NoTls).unwrap();
            client.batch_execute(&Access::Write.begin()).unwrap();
            stands.send(()).unwrap();
            let _ = stopped.recv();
        });
        still.recv().unwrap();
        let runs = Arc::new(AtomicU64::new(0));
        let all = beside_short_ones(&own.database, slow(&runs));
        let done = tokio::time::timeout(Duration::from_secs(120), all).await;
        drop(stop);
        writer.join().unwrap();
        // Whether it could write at last is luck.
        let done = done.expect("all wait for a writer that stands still");
        assert!(
            matches!(done, Ok(()) | Err(DatabaseError::Conflict(_))),
            "{done:?}"
        );
        assert!(runs.load(Ordering::Relaxed) > 1, "nothing was in its way");
    }
}
