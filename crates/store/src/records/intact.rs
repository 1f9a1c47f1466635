//! Blobs with and without an object of their own. The column `object` has a value in each row, and no value twice: a blob that is not
//! intact has a name there that no object can have, made of its digest. Only this file knows that.

use xebec_objects::Digest;

/// The condition that a row of `blobs` is intact.
pub(crate) const IS_INTACT: &str = "substr(blobs.object, 1, 5) <> 'none:'";
/// The condition that it is not.
pub(crate) const IS_NOT_INTACT: &str = "substr(blobs.object, 1, 5) = 'none:'";
/// Keys of objects come before it: they begin with hexadecimal digits.
pub(super) const NONE: &str = "none:";

/// The object of a row of `blobs`; none if the blob is not intact.
pub(super) fn object(column: String) -> Option<String> {
    (!column.starts_with(NONE)).then_some(column)
}

/// The column of a blob.
pub(super) fn column(digest: &Digest, object: Option<&str>) -> String {
    object.map_or_else(|| format!("{NONE}{digest}"), str::to_owned)
}
