//! The tables of the store: reading and writing one row.

use redb::{ReadableTable, Table, WriteTransaction};

use super::schema::{CHILDREN, LONGEST_CHAIN, NUMBERS, SNAPSHOTS, VERSION};
use crate::api::LONGEST_MESSAGE;
use crate::error::{ErrorKind, SnapshotError};
use crate::record::Record;

/// Longest record, in bytes. It holds what clients are told of a snapshot but for its name, and one message must hold that:
/// a client that lists the others gets this one, too.
const LONGEST_RECORD: usize = LONGEST_MESSAGE - (16 << 10);

pub(super) struct Tables<'t> {
    pub(super) snapshots: Table<'t, &'static str, &'static [u8]>,
    pub(super) children: Table<'t, (u64, u64), &'static str>,
    pub(super) numbers: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Tables<'t>, SnapshotError> {
        Ok(Tables {
            snapshots: transaction.open_table(SNAPSHOTS).map_err(SnapshotError::store)?,
            children: transaction.open_table(CHILDREN).map_err(SnapshotError::store)?,
            numbers: transaction.open_table(NUMBERS).map_err(SnapshotError::store)?,
        })
    }
}

pub(super) type Snapshots<'a> = &'a dyn Lookup;

/// Both kinds of tables, of readers and of writers.
pub(super) trait Lookup {
    fn find(&self, key: &str) -> Result<Option<Record>, SnapshotError>;
}

impl<T: ReadableTable<&'static str, &'static [u8]>> Lookup for T {
    fn find(&self, key: &str) -> Result<Option<Record>, SnapshotError> {
        let found = self.get(key).map_err(SnapshotError::store)?;
        found.map(|bytes| decode(key, bytes.value())).transpose()
    }
}

pub(super) fn record(snapshots: Snapshots<'_>, key: &str) -> Result<Option<Record>, SnapshotError> {
    match key.is_empty() {
        true => Ok(None),
        false => snapshots.find(key),
    }
}

/// The snapshot `parent` and those that it is made on; none if there is no parent.
pub(super) fn below(snapshots: Snapshots<'_>, parent: &str) -> Result<Vec<Record>, SnapshotError> {
    let mut found = Vec::new();
    let mut next = parent.to_owned();
    while !next.is_empty() {
        let record = record(snapshots, &next)?.ok_or_else(|| SnapshotError::not_found(&next))?;
        next.clone_from(&record.parent);
        found.push(record);
        if found.len() > LONGEST_CHAIN {
            let message = format!("{parent:?} is made on more than {LONGEST_CHAIN} others");
            return Err(SnapshotError::precondition(message));
        }
    }
    Ok(found)
}

/// A [`Record`], or an [`Outline`](crate::record::Outline) of it.
pub(super) fn decode<M: prost::Message + Default>(name: &str, bytes: &[u8]) -> Result<M, SnapshotError> {
    M::decode(bytes).map_err(|error| {
        let message = format!("the record of snapshot {name:?} is damaged: {error}");
        SnapshotError::new(ErrorKind::Internal, message)
    })
}

pub(super) fn put(
    snapshots: &mut Table<'_, &'static str, &'static [u8]>,
    key: &str,
    record: &Record,
) -> Result<(), SnapshotError> {
    let bytes = prost::Message::encode_to_vec(record);
    if bytes.len() > LONGEST_RECORD {
        return Err(SnapshotError::invalid(format!(
            "the labels of a snapshot take {} bytes in all, and {LONGEST_RECORD} are the most",
            bytes.len()
        )));
    }
    snapshots
        .insert(key, bytes.as_slice())
        .map_err(SnapshotError::store)?;
    Ok(())
}

pub(super) fn link(
    children: &mut Table<'_, (u64, u64), &'static str>,
    parent: u64,
    child: u64,
    name: &str,
) -> Result<(), SnapshotError> {
    children
        .insert((parent, child), name)
        .map_err(SnapshotError::store)?;
    Ok(())
}

/// Whether there is a version, which must be this program's.
pub(super) fn check(version: Option<u64>) -> Result<bool, SnapshotError> {
    match version {
        None | Some(VERSION) => Ok(version.is_some()),
        Some(other) => Err(SnapshotError::precondition(format!(
            "the snapshots' store is of version {other}, and this program reads version {VERSION}"
        ))),
    }
}

pub(super) fn number(
    numbers: &impl ReadableTable<&'static str, u64>,
    name: &'static str,
) -> Result<Option<u64>, SnapshotError> {
    let found = numbers.get(name).map_err(SnapshotError::store)?;
    Ok(found.map(|value| value.value()))
}

pub(super) fn insert(
    numbers: &mut Table<'_, &'static str, u64>,
    name: &'static str,
    value: u64,
) -> Result<(), SnapshotError> {
    numbers.insert(name, value).map_err(SnapshotError::store)?;
    Ok(())
}
