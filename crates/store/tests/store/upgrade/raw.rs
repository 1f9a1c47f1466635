//! A database as it is, past the store: its tables, its rows, its schema.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::POSTGRES;
use rusqlite::types::ValueRef;

/// Rows in the order of their texts.
pub(crate) type Rows = Vec<Vec<String>>;

/// The contents of a database: for each table its columns and its rows.
pub(crate) type Contents = BTreeMap<String, (Vec<String>, Rows)>;

/// A connection. It waits for its server, which a task must not.
pub(crate) enum Raw {
    Sqlite(rusqlite::Connection),
    Postgres(Box<postgres::Client>),
}

impl Raw {
    /// The database of a store in this directory.
    pub(crate) fn open(root: &Path) -> Self {
        let Ok(server) = std::env::var(POSTGRES) else {
            let connection = rusqlite::Connection::open(root.join("records.db")).unwrap();
            connection.execute_batch("PRAGMA journal_mode = WAL").unwrap();
            return Self::without_keys(connection);
        };
        let name = root.file_name().unwrap().to_str().unwrap();
        let url = format!("{server} dbname='{}'", name.trim_start_matches('.'));
        Self::Postgres(Box::new(
            postgres::Client::connect(&url, postgres::NoTls).unwrap(),
        ))
    }

    /// One in memory.
    pub(crate) fn sqlite() -> Self {
        Self::without_keys(rusqlite::Connection::open_in_memory().unwrap())
    }

    /// A dump has tables in the order of their names, and not in that of their keys.
    fn without_keys(connection: rusqlite::Connection) -> Self {
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        Self::Sqlite(connection)
    }

    pub(crate) fn engine(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    pub(crate) fn run(&mut self, sql: &str) {
        match self {
            Self::Sqlite(connection) => connection.execute_batch(sql).unwrap(),
            Self::Postgres(client) => client.batch_execute(sql).unwrap(),
        }
    }

    pub(crate) fn rows(&mut self, sql: &str) -> Rows {
        let mut rows = match self {
            Self::Sqlite(connection) => of_sqlite(connection, sql),
            Self::Postgres(client) => {
                let messages = client.simple_query(sql).unwrap();
                let rows = messages.iter().filter_map(|message| match message {
                    postgres::SimpleQueryMessage::Row(row) => Some(row),
                    _ => None,
                });
                rows.map(|row| {
                    let values = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned());
                    values.collect()
                })
                .collect()
            }
        };
        rows.sort();
        rows
    }

    fn column(&mut self, sql: &str) -> Vec<String> {
        self.rows(sql).into_iter().flatten().collect()
    }

    fn tables(&mut self) -> Vec<String> {
        let sql = match self {
            Self::Sqlite(_) => "SELECT name FROM sqlite_master WHERE type = 'table'",
            Self::Postgres(_) => {
                "SELECT table_name FROM information_schema.tables
                 WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
            }
        };
        self.column(sql)
    }

    fn columns(&mut self, table: &str) -> Vec<String> {
        let sql = match self {
            Self::Sqlite(_) => format!("SELECT name FROM pragma_table_info('{table}')"),
            Self::Postgres(_) => {
                format!("SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'")
            }
        };
        self.column(&sql)
    }

    /// All tables with all their columns.
    pub(crate) fn contents(&mut self) -> Contents {
        let tables = self.tables().into_iter();
        let known = tables.map(|table| {
            let columns = self.columns(&table);
            let rows = self.rows(&format!("SELECT {} FROM {table}", columns.join(", ")));
            (table, (columns, rows))
        });
        known.collect()
    }

    /// The tables and columns that were there before, as they are now.
    pub(crate) fn contents_of(&mut self, before: &Contents) -> Contents {
        let now = before.iter().map(|(table, (columns, _))| {
            let rows = self.rows(&format!("SELECT {} FROM {table}", columns.join(", ")));
            (table.clone(), (columns.clone(), rows))
        });
        now.collect()
    }

    /// Everything about the schema, as the engine tells it.
    pub(crate) fn schema(&mut self) -> Rows {
        let queries: &[&str] = match self {
            Self::Sqlite(_) => &["SELECT type, name, sql FROM sqlite_master"],
            Self::Postgres(_) => &[
                "SELECT table_name, column_name, data_type, column_default, is_nullable, collation_name
                 FROM information_schema.columns WHERE table_schema = 'public'",
                "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
                "SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint
                 WHERE connamespace = 'public'::regnamespace",
            ],
        };
        queries.iter().flat_map(|sql| self.rows(sql)).collect()
    }
}

fn of_sqlite(connection: &rusqlite::Connection, sql: &str) -> Rows {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let values = (0..columns).map(|column| match row.get_ref(column).unwrap() {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            ValueRef::Blob(bytes) => format!("\\x{}", hex::encode(bytes)),
        });
        found.push(values.collect());
    }
    found
}
