//! One entry of a table.

use std::collections::BTreeMap;

use serde::Deserialize;

/// An entry as written. Both formats omit what is zero or empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TocEntry {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) link_name: String,
    pub(super) size: i64,
    pub(super) mode: i64,
    pub(super) uid: i64,
    pub(super) gid: i64,
    pub(super) modtime: Option<String>,
    pub(super) dev_major: i64,
    pub(super) dev_minor: i64,
    /// Values in base64.
    pub(super) xattrs: Option<BTreeMap<String, Option<String>>>,
    /// Digest of the whole file.
    pub(super) digest: String,
    pub(super) offset: i64,
    /// zstd:chunked: end of the file's last chunk in the blob.
    pub(super) end_offset: i64,
    /// eStargz: where the data starts in what the gzip member at `offset` decodes to.
    pub(super) inner_offset: i64,
    pub(super) chunk_offset: i64,
    /// 0: up to the end of the file.
    pub(super) chunk_size: i64,
    pub(super) chunk_digest: String,
    /// zstd:chunked: empty or `zeros`.
    pub(super) chunk_type: String,
}
