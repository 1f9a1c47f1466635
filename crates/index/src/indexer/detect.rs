//! Which codec a blob has, by its first bytes.

use std::io::Read;

use xebec_format::layer::Codec;

use super::error::IndexError;
use crate::source::Source;

/// The codec of a blob that starts with these bytes (at least four, unless the blob is shorter).
fn detect(first: &[u8]) -> Codec {
    match first {
        [0x1f, 0x8b, ..] => Codec::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Codec::Zstd,
        // A skippable frame (RFC 8878, 3.1.2), which only zstd streams start with.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Codec::Zstd,
        _ => Codec::Tar,
    }
}

/// Bytes of the blob that tell its codec.
const DETECT: usize = 4;

pub(super) fn open<R: Read>(blob: R) -> Result<(Source<R>, Codec), IndexError> {
    let mut source = Source::new(blob);
    source.fill(DETECT).map_err(IndexError::Read)?;
    let codec = detect(source.available());
    Ok((source, codec))
}
