//! Migrations: numbered, forwards only, each in one transaction.
//!
//! They are written once. PostgreSQL calls bytes otherwise, and compares texts by bytes only if it is told so; SQLite keeps tables in
//! the order of their keys only if it is told so.

use super::transaction::{DatabaseError, Row, Transaction};

/// Texts of migrations, in their order.
pub type Migrations = &'static [&'static str];

/// How an engine writes what the two do not have in common.
#[derive(Clone, Copy)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// Brings the schema up to date.
pub(super) fn migrate(
    transaction: &mut dyn Transaction,
    migrations: Migrations,
    dialect: Dialect,
) -> Result<(), DatabaseError> {
    transaction.batch("CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY)")?;
    let newest = transaction.first("SELECT COALESCE(MAX(version), 0) FROM schema_versions", &[])?;
    let found = newest.map_or(Ok(0), |mut row: Row| row.integer(0))?;
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(DatabaseError::Later { found, known });
    }
    for (version, migration) in (1_i64..).zip(migrations).filter(|(version, _)| *version > found) {
        transaction.batch(&in_dialect(migration, dialect))?;
        transaction.execute(
            "INSERT INTO schema_versions (version) VALUES ($1)",
            &[version.into()],
        )?;
    }
    Ok(())
}

fn in_dialect(migration: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => migration.to_owned(),
        Dialect::Postgres => migration
            .replace(" TEXT", " TEXT COLLATE \"C\"")
            .replace(" BLOB", " BYTEA")
            .replace(" WITHOUT ROWID", ""),
    }
}
