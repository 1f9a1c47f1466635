//! Where records are kept: SQLite in a file, or PostgreSQL.
//!
//! The functions of `records` are written once, over a [`Transaction`]: SQL that both engines understand, parameters as `$1`. An
//! engine runs such a function, again if another transaction was in its way.

mod encrypted;
mod end_point;
mod engine;
mod postgres;
mod schema;
mod sqlite;
mod transaction;
#[cfg(test)]
pub(crate) mod work;

pub(crate) use self::engine::Database;
pub use self::engine::database_protection;
pub(crate) use self::sqlite::Sqlite;
pub use self::transaction::DatabaseError;
pub(crate) use self::transaction::{Row, Transaction, Value};
