//! Records in a database: SQLite in a file, or PostgreSQL.
//!
//! Functions over records are written once, over a [`Transaction`]: SQL that both engines understand, parameters as `$1`. An
//! engine runs such a function, again if another transaction was in its way.
//!
//! | module | what it has |
//! | --- | --- |
//! | `transaction` | a transaction of either engine, values, rows, errors |
//! | `engine` | the two engines behind one face |
//! | `sqlite`, `postgres` | the engines |
//! | `encrypted`, `end_point` | TLS to PostgreSQL |
//! | `schema` | migrations, which the caller has |
//! | `config` | where the database is |
//! | `work` | how much SQLite works, for tests |
//!
//! Promise: what a transaction has written counts together or not at all, and is on the disk when [`Database::write`] has returned. A reader sees one moment.
//! A connection to another host is encrypted and its server verified, unless the operator says otherwise.
//!
//! May use: `names`, `objects` and `placement`, for values that records have. It knows no tables.

mod config;
mod encrypted;
mod end_point;
mod engine;
mod postgres;
mod schema;
mod sqlite;
mod transaction;
#[cfg(feature = "work")]
pub mod work;

pub use self::config::{DatabaseConfig, PostgresTls, Protection, TlsWanted};
pub use self::engine::{Database, database_protection};
pub use self::postgres::Postgres;
pub use self::schema::Migrations;
pub use self::sqlite::Sqlite;
pub use self::transaction::{DatabaseError, Job, Row, Transaction, Value};
