//! The engines behind one face: a function of `records` goes in, its result comes out.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::postgres::Postgres;
use super::schema::Migrations;
use super::sqlite::Sqlite;
use super::transaction::{DatabaseError, Job, Transaction};
use crate::config::{DatabaseConfig, Protection};

/// How the connections of a database will be protected; nothing if it has none. Nobody is asked.
///
/// # Errors
/// If its address cannot be read, or it and the rest contradict each other.
pub fn database_protection(config: &DatabaseConfig) -> Result<Option<Protection>, DatabaseError> {
    match config {
        DatabaseConfig::Embedded => Ok(None),
        DatabaseConfig::Postgres { url, tls } => Postgres::protection(url, tls).map(Some),
    }
}

/// The metadata database.
#[derive(Clone)]
pub enum Database {
    /// A file.
    Sqlite(Arc<Sqlite>),
    /// A server.
    Postgres(Arc<Postgres>),
}

impl Database {
    /// Opens it, and brings its schema up to date. Blocks.
    ///
    /// # Errors
    /// If it does not answer, or is of a later schema.
    pub fn open(config: &DatabaseConfig, root: &Path, migrations: Migrations) -> Result<Self, DatabaseError> {
        match config {
            DatabaseConfig::Embedded => Ok(Self::Sqlite(Arc::new(Sqlite::open(
                &root.join("records.db"),
                migrations,
            )?))),
            DatabaseConfig::Postgres { url, tls } => {
                Ok(Self::Postgres(Arc::new(Postgres::open(url, tls, migrations)?)))
            }
        }
    }

    /// Opens an embedded one at any place. Blocks.
    ///
    /// # Errors
    /// If it cannot be opened, or is of a later schema.
    pub fn open_file(path: &Path, migrations: Migrations) -> Result<Self, DatabaseError> {
        Ok(Self::Sqlite(Arc::new(Sqlite::open(path, migrations)?)))
    }

    /// The embedded database, if that is it.
    pub fn embedded(&self) -> Option<Arc<Sqlite>> {
        match self {
            Self::Sqlite(engine) => Some(Arc::clone(engine)),
            Self::Postgres(_) => None,
        }
    }

    /// Reads, all from one moment.
    ///
    /// # Errors
    /// That of `work`, or of the engine.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (job, result) = job(work);
        match self {
            Self::Sqlite(engine) => engine.read(job).await?,
            Self::Postgres(engine) => engine.read(job).await?,
        }
        taken(&result)
    }

    /// Writes. When this has returned, what was written is on the disk.
    ///
    /// # Errors
    /// That of `work`, or of the engine.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (job, result) = job(work);
        match self {
            Self::Sqlite(engine) => engine.write(job).await?,
            Self::Postgres(engine) => engine.write(job).await?,
        }
        taken(&result)
    }
}

type Slot<T> = Arc<Mutex<Option<T>>>;

/// A job that leaves its result of the last run in a slot.
fn job<T: Send + 'static>(
    mut work: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
) -> (Job, Slot<T>) {
    let slot: Slot<T> = Slot::default();
    let filled = Arc::clone(&slot);
    let job: Job = Box::new(move |transaction| {
        let result = work(transaction)?;
        *filled.lock() = Some(result);
        Ok(())
    });
    (job, slot)
}

fn taken<T>(slot: &Slot<T>) -> Result<T, DatabaseError> {
    let result = slot.lock().take();
    result.ok_or(DatabaseError::Closed)
}
