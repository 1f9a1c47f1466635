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

/// What is known of a chunk's contents and not of its bytes: it helps to put similar chunks together. A chunk of which nothing is known has the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The last component of the file's path, at most 255 bytes, or nothing.
    pub name: Vec<u8>,
    /// How long the file is, in bytes. 0 if that is not known.
    pub size: u64,
    /// Where in the file the chunk begins, in bytes.
    pub offset: u64,
}

impl Hint {
    /// The hint for the beginning of a file of `size` bytes at a path, whose components are parted by slashes.
    pub fn of(path: &[u8], size: u64) -> Hint {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let name = name.get(..255).unwrap_or(name).to_vec();
        Hint {
            name,
            size,
            offset: 0,
        }
    }

    /// What follows the last dot of the name, unless the name begins with that dot; nothing if there is none.
    pub fn extension(&self) -> &[u8] {
        match self.name.iter().rposition(|&byte| byte == b'.') {
            Some(at) if at > 0 => self.name.get(at + 1..).unwrap_or_default(),
            _ => &[],
        }
    }
}
