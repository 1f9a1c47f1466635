//! Blobs with and without an object of their own, and objects that are not on the main place. The column `object` of `blobs` has a value in each row, and no value twice: a blob that is not
//! intact has a name there that no object can have, made of its digest. Only this file knows that.
//!
//! An object has a *name* in the records: its key on the main place, or a name that begins with `away:` if only its replicas have its bytes.

use xebec_objects::Digest;

/// The condition that a row of `blobs` is intact.
pub(crate) const IS_INTACT: &str = "substr(blobs.object, 1, 5) <> 'none:'";
/// The condition that it is not.
pub(crate) const IS_NOT_INTACT: &str = "substr(blobs.object, 1, 5) = 'none:'";
/// Keys of objects come before it: they begin with hexadecimal digits.
pub(super) const NONE: &str = "none:";
/// Names of objects that are not on the main place come after all keys, and before it.
pub(super) const AWAY: &str = "away:";

/// The object of a row of `blobs`; none if the blob is not intact.
pub(super) fn object(column: String) -> Option<String> {
    (!column.starts_with(NONE)).then_some(column)
}

/// The column of a blob.
pub(super) fn column(digest: &Digest, object: Option<&str>) -> String {
    object.map_or_else(|| format!("{NONE}{digest}"), str::to_owned)
}

/// The key of an object on the main place; none if it is not there.
pub(crate) fn main_key(name: &str) -> Option<&str> {
    (!name.starts_with(AWAY)).then_some(name)
}

/// The key for an object that is not on the main place, where it comes to another one, as in a backup. No other object has it.
pub(crate) fn key_elsewhere(name: &str) -> &str {
    name.strip_prefix(AWAY).unwrap_or(name)
}

/// The name of an object that is not on the main place any more.
pub(crate) fn away(random: &str) -> String {
    format!("{AWAY}{random}")
}
