//! The parts that functions of `records` are written with: a transaction of either engine, values, rows.

use xebec_names::{PackKey, RepositoryName, Tag, UploadId};
use xebec_objects::Digest;
use xebec_placement::PlaceName;

/// Why the metadata database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The engine says no. Its own words say why.
    #[error("{0}")]
    Engine(String),
    /// Another transaction was in the way. The engine's caller repeats it.
    #[error("{0} (tried again in vain: other transactions were in the way each time)")]
    Conflict(String),
    /// A record has contents that this program does not write.
    #[error("a record is damaged: {0}; restore the database from a backup")]
    Damaged(String),
    /// The database is of a later version of this program.
    #[error(
        "the database has schema {found}, and this program knows {known}: use the program that wrote it, or a later one"
    )]
    Later {
        /// The version in the database.
        found: i64,
        /// The last version that this program knows.
        known: i64,
    },
    /// The thread or the pool that runs transactions is gone: the program ends.
    #[error("the database is closed, since the program ends")]
    Closed,
}

/// A value in a row, or for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        // No size and no time comes near the limit.
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::from(number as u64)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<&Digest> for Value {
    fn from(digest: &Digest) -> Self {
        Self::Text(digest.to_string())
    }
}

impl From<&PlaceName> for Value {
    fn from(place: &PlaceName) -> Self {
        Self::Text(place.to_string())
    }
}

impl From<&RepositoryName> for Value {
    fn from(name: &RepositoryName) -> Self {
        Self::from(name.as_str())
    }
}

impl From<&Tag> for Value {
    fn from(tag: &Tag) -> Self {
        Self::from(tag.as_str())
    }
}

impl From<PackKey> for Value {
    fn from(key: PackKey) -> Self {
        Self::Integer(key.0)
    }
}

impl From<&UploadId> for Value {
    fn from(id: &UploadId) -> Self {
        Self::from(id.as_str())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a query's result; columns by number.
#[derive(Debug)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    fn take(&mut self, column: usize) -> Value {
        self.0
            .get_mut(column)
            .map_or(Value::Null, |value| std::mem::replace(value, Value::Null))
    }

    /// A number.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn integer(&mut self, column: usize) -> Result<i64, DatabaseError> {
        match self.take(column) {
            Value::Integer(number) => Ok(number),
            other => Err(unexpected("a number", &other)),
        }
    }

    /// A number that is not negative.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn unsigned(&mut self, column: usize) -> Result<u64, DatabaseError> {
        let number = self.integer(column)?;
        u64::try_from(number)
            .map_err(|_| DatabaseError::Damaged(format!("{number} where no number is negative")))
    }

    /// A text.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn text(&mut self, column: usize) -> Result<String, DatabaseError> {
        match self.take(column) {
            Value::Text(text) => Ok(text),
            other => Err(unexpected("a text", &other)),
        }
    }

    /// A text, or nothing.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn optional_text(&mut self, column: usize) -> Result<Option<String>, DatabaseError> {
        match self.take(column) {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            other => Err(unexpected("a text or nothing", &other)),
        }
    }

    /// Bytes.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn bytes(&mut self, column: usize) -> Result<Vec<u8>, DatabaseError> {
        match self.take(column) {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected("bytes", &other)),
        }
    }

    /// Bytes, or nothing.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn optional_bytes(&mut self, column: usize) -> Result<Option<Vec<u8>>, DatabaseError> {
        match self.take(column) {
            Value::Null => Ok(None),
            Value::Bytes(bytes) => Ok(Some(bytes)),
            other => Err(unexpected("bytes or nothing", &other)),
        }
    }

    /// A text that stands for something else: a digest, a name or a tag.
    ///
    /// # Errors
    /// If the column has something else.
    pub fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        column: usize,
    ) -> Result<T, DatabaseError> {
        let text = self.text(column)?;
        text.parse()
            .map_err(|error: T::Err| DatabaseError::Damaged(error.to_string()))
    }
}

fn unexpected(wanted: &str, found: &Value) -> DatabaseError {
    let found = match found {
        Value::Null => "nothing",
        Value::Integer(_) => "a number",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
    };
    DatabaseError::Damaged(format!("{found} where {wanted} should be"))
}

/// One transaction. All that is done in it counts together, or not at all.
pub trait Transaction {
    /// The rows of a query, or of a statement with RETURNING.
    ///
    /// # Errors
    /// If the engine refuses it.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError>;

    /// How many rows a statement changed.
    ///
    /// # Errors
    /// If the engine refuses it.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError>;

    /// Several statements without parameters, for migrations.
    ///
    /// # Errors
    /// If the engine refuses it.
    fn batch(&mut self, sql: &str) -> Result<(), DatabaseError>;
}

impl dyn Transaction + '_ {
    /// The first row.
    ///
    /// # Errors
    /// If the engine refuses it.
    pub fn first(&mut self, sql: &str, values: &[Value]) -> Result<Option<Row>, DatabaseError> {
        Ok(self.query(sql, values)?.into_iter().next())
    }
}

/// A function that an engine runs in a transaction, and may run again.
pub type Job = Box<dyn FnMut(&mut dyn Transaction) -> Result<(), DatabaseError> + Send>;
