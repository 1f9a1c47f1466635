//! Chunks: their ids, and what is known of their contents.

use std::fmt;

use sha2::{Digest, Sha256};

/// Bytes of a chunk, at most: a longer file is several chunks.
pub const MOST_CHUNK: usize = 8 << 20;

/// The id of a chunk: the SHA-256 of its plain bytes. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub [u8; 32]);

impl ChunkId {
    /// The id of a chunk with these plain bytes.
    pub fn of(bytes: &[u8]) -> ChunkId {
        ChunkId(Sha256::digest(bytes).into())
    }

    /// The id as it is stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ChunkId({self})")
    }
}

/// What is known of the file that a chunk is of: it helps to put similar chunks together. If nothing is known it is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The last component of the file's path, at most 255 bytes, or nothing.
    pub name: Vec<u8>,
    /// How the file begins: [`Hint::kind_of`] its first chunk. Zeros if that is not known.
    pub kind: [u8; 2],
    /// How long the file is, in bytes. 0 if that is not known.
    pub size: u64,
    /// Where in the file the chunk begins, in bytes.
    pub offset: u64,
}

/// The kind of ELF files: programs and libraries.
pub(crate) const KIND_OF_PROGRAMS: [u8; 2] = *b"EL";
/// The kind of texts.
const KIND_OF_TEXTS: [u8; 2] = *b"TX";

impl Hint {
    /// The hint for the beginning of a file of `size` bytes at a path, whose components are parted by slashes. The kind is not known yet.
    pub fn of(path: &[u8], size: u64) -> Hint {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let name = name.get(..255).unwrap_or(name).to_vec();
        Hint {
            name,
            size,
            ..Hint::default()
        }
    }

    /// What the first bytes of a file say about its kind: two bytes that are the same for files that may be similar. They are the first two of the file,
    /// but for programs, and for texts. Python's bytecode counts as text, because it has much of its source, which is named alike.
    pub fn kind_of(bytes: &[u8]) -> [u8; 2] {
        let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
        match bytes {
            [0x7f, b'E', b'L', b'F', ..] => KIND_OF_PROGRAMS,
            [_, _, b'\r', b'\n', ..] => KIND_OF_TEXTS,
            _ if bytes.iter().take(64).all(is_text) => KIND_OF_TEXTS,
            [first, second, ..] => [*first, *second],
            [first] => [*first, 0],
            [] => [0, 0],
        }
    }
}
