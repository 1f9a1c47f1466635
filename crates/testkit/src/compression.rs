//! Layer blobs from tar files, in the encodings that occur in registries.

use std::io::{self, Write};

use flate2::{Compression as Level, GzBuilder, write::GzEncoder};

/// How a layer's tar file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Tar,
    /// One gzip member at a level from 0 (stored blocks) to 9.
    Gzip(u32),
    /// gzip members of so many plain bytes each, as pigz and bgzip can write.
    GzipMembers(usize),
    /// One zstd frame.
    Zstd,
    /// zstd frames of so many plain bytes each, as pzstd writes.
    ZstdFrames(usize),
}

impl Compression {
    /// The media type that OCI gives such a layer.
    pub fn media_type(self) -> &'static str {
        match self {
            Compression::Tar => "application/vnd.oci.image.layer.v1.tar",
            Compression::Gzip(_) | Compression::GzipMembers(_) => {
                "application/vnd.oci.image.layer.v1.tar+gzip"
            }
            Compression::Zstd | Compression::ZstdFrames(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    /// Encodes `plain`; the same bytes each time.
    ///
    /// # Errors
    /// Only what the encoder itself reports.
    pub fn encode(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Compression::Tar => Ok(plain.to_vec()),
            Compression::Gzip(level) => gzip_member(plain, level),
            Compression::GzipMembers(size) => in_parts(plain, size, |part| gzip_member(part, 1)),
            Compression::Zstd => zstd::bulk::compress(plain, 3),
            Compression::ZstdFrames(size) => in_parts(plain, size, |part| zstd::bulk::compress(part, 3)),
        }
    }
}

fn gzip_member(plain: &[u8], level: u32) -> io::Result<Vec<u8>> {
    // No time and no name in the header, so that the blob depends on nothing but its contents.
    let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Level::new(level));
    encoder.write_all(plain)?;
    encoder.finish()
}

fn in_parts(plain: &[u8], size: usize, encode: impl Fn(&[u8]) -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for part in plain.chunks(size.max(1)) {
        out.extend(encode(part)?);
    }
    // An empty layer still is a valid stream.
    if plain.is_empty() { encode(plain) } else { Ok(out) }
}
