//! All objects that blobs are made of, for those who copy or read each of them.

use super::intact;
use crate::database::{DatabaseError, Transaction};
use crate::name::PackKey;
use crate::replicas::Owner;
use xebec_objects::Digest;

/// Which record has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Blob,
    Pack,
    Recipe,
}

/// An object, and what its bytes should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) digest: Digest,
}

/// So many objects of one kind, in the order of their keys.
pub(crate) fn list(
    tx: &mut dyn Transaction,
    kind: Kind,
    n: usize,
    after: Option<&str>,
) -> Result<Vec<Object>, DatabaseError> {
    let (table, digest) = match kind {
        Kind::Blob => ("blobs", "digest"),
        Kind::Pack => ("packs", "checksum"),
        Kind::Recipe => ("recipes", "checksum"),
    };
    // Of blobs that are not intact, the name in this column comes after all keys.
    let sql = format!(
        "SELECT object, size, {digest} FROM {table} WHERE object > $1 AND object < $2 ORDER BY object LIMIT $3"
    );
    let rows = tx.query(
        &sql,
        &[after.unwrap_or_default().into(), intact::NONE.into(), n.into()],
    )?;
    let objects = rows.into_iter().map(|mut row| {
        Ok(Object {
            key: row.text(0)?,
            size: row.unsigned(1)?,
            digest: row.parsed(2)?,
        })
    });
    objects.collect()
}

/// The record that has an object of this kind.
pub(crate) fn owner(
    tx: &mut dyn Transaction,
    kind: Kind,
    name: &str,
) -> Result<Option<Owner>, DatabaseError> {
    let (table, column) = match kind {
        Kind::Blob => ("blobs", "digest"),
        Kind::Pack => ("packs", "id"),
        Kind::Recipe => ("recipes", "digest"),
    };
    let sql = format!("SELECT {column} FROM {table} WHERE object = $1");
    let Some(mut row) = tx.first(&sql, &[name.into()])? else {
        return Ok(None);
    };
    Ok(Some(match kind {
        Kind::Blob => Owner::Blob(row.parsed(0)?),
        Kind::Pack => Owner::Pack(PackKey(row.integer(0)?)),
        Kind::Recipe => Owner::Recipe(row.parsed(0)?),
    }))
}
