//! The plain bytes of a layer blob.

use std::io::{self, Read};

/// The format of a layer blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Gzip,
    Zstd,
    /// Anything else is taken as it is.
    Plain,
}

impl Format {
    /// The format of a blob that begins so.
    pub(crate) fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// Reads the plain bytes of a blob.
///
/// # Errors
/// I/O errors.
pub(crate) fn reader<'r>(mut blob: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut first = Vec::new();
    blob.by_ref().take(4).read_to_end(&mut first)?;
    let format = Format::of(&first);
    let whole = io::Cursor::new(first).chain(blob);
    Ok(match format {
        Format::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        Format::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
        Format::Plain => Box::new(whole),
    })
}

/// How hard contents are compressed on their way: the usual level of zstd.
const LEVEL: i32 = 3;
/// The largest window of a stream of contents, as a power of two: 8 MiB.
const MOST_WINDOW: u32 = 23;

/// Compresses contents on their way. The caller ends the stream with `finish`.
///
/// # Errors
/// I/O errors.
pub fn pack<W: io::Write>(to: W) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
    zstd::stream::write::Encoder::new(to, LEVEL)
}

/// Decompresses what came of [`pack`]. It takes no more memory than a window of 8 MiB, whatever comes.
///
/// # Errors
/// I/O errors.
pub fn unpack<'r>(sent: impl Read + 'r) -> io::Result<impl Read + 'r> {
    let mut decoder = zstd::stream::read::Decoder::new(sent)?;
    decoder.window_log_max(MOST_WINDOW)?;
    Ok(decoder)
}
