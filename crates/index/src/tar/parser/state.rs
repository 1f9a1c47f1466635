//! Where the parser is in the archive.

use crate::tar::TarSummary;
use crate::tar::header::{BLOCK, Block, Header};
use crate::tar::limits::TarLimits;
use crate::tar::pax::PaxRecords;
use crate::tar::sparse::{MapText, RawMap, Run};

/// Parses a tar stream that is pushed in slices of any size; see the [module](crate::tar).
#[derive(Debug)]
pub struct TarParser {
    pub(in crate::tar::parser) limits: TarLimits,
    pub(in crate::tar::parser) state: State,
    /// The block being collected, and how much of it is there.
    pub(in crate::tar::parser) block: Block,
    pub(in crate::tar::parser) filled: usize,
    /// Offset of the next byte in the stream.
    pub(in crate::tar::parser) position: u64,
    /// Offset of the current header block.
    pub(in crate::tar::parser) header_at: u64,
    /// One block of zeros was seen where a header could be.
    pub(in crate::tar::parser) end_block: bool,
    pub(in crate::tar::parser) pending: Pending,
    pub(in crate::tar::parser) tree: u64,
    pub(in crate::tar::parser) pieces: u64,
    pub(in crate::tar::parser) summary: TarSummary,
}

/// The fields that special entries set for the next entry.
#[derive(Debug, Default)]
pub(in crate::tar::parser) struct Pending {
    pub(in crate::tar::parser) records: PaxRecords,
    pub(in crate::tar::parser) long_name: Vec<u8>,
    pub(in crate::tar::parser) long_link: Vec<u8>,
}

#[derive(Debug)]
pub(in crate::tar::parser) enum State {
    /// Collecting a header block.
    Header,
    /// Collecting the body of a PAX header or a GNU long name or link.
    Special {
        kind: u8,
        body: Vec<u8>,
        left: u64,
        padding: u64,
    },
    /// Collecting extension blocks of an old GNU sparse map.
    OldSparse {
        member: Box<Member>,
        map: RawMap,
        blocks: u64,
    },
    /// Collecting the map of a PAX 1.0 sparse file.
    MapText { member: Box<Member>, map: MapText },
    /// Contents of a file; `run` is what is left of the current run.
    Contents {
        run: Run,
        next: std::vec::IntoIter<Run>,
        padding: u64,
    },
    /// Contents of something that is not a file of the image.
    Skip { left: u64, padding: u64 },
    /// Up to the next block.
    Padding { left: u64 },
    /// After the end blocks.
    Trailer,
    /// After an error.
    Failed,
}

/// A header with everything that came before it applied.
#[derive(Debug)]
pub(in crate::tar::parser) struct Member {
    pub(in crate::tar::parser) header: Header,
    pub(in crate::tar::parser) records: PaxRecords,
    /// Bytes of contents that the archive stores, a sparse map in front of them included.
    pub(in crate::tar::parser) stored: u64,
}

/// Bytes from `size` to the next block boundary.
pub(in crate::tar::parser) fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

pub(in crate::tar::parser) fn pad(left: u64) -> State {
    match left {
        0 => State::Header,
        left => State::Padding { left },
    }
}
