//! Limits on every count and length that a recording from outside declares, and why each is where it is.
//!
//! Together they bound what decoding a hostile recording can cost: [`MAX_RECORDING`] and [`MAX_PLAIN`] for its bytes,
//! and about as much again for the runs and texts.

use crate::PAGE_SIZE;

/// Largest encoded recording that is looked at, in bytes. Most take 10 to 20 KB; a million runs take a few megabytes.
pub const MAX_RECORDING: u64 = 16 << 20;
/// Largest plain size of the compressed part, in bytes: what the counts below can take.
pub const MAX_PLAIN: u64 = 48 << 20;
/// Most layers: a page run has 16 bits for one.
pub const MAX_LAYERS: u64 = u16::MAX as u64;
/// Most services: a recording holds one or a few, and a union of recordings those of one image.
pub const MAX_SERVICES: u64 = 1024;
/// Most arguments of a service, and most variables of its environment; far more than anybody writes.
pub const MAX_WORDS: u64 = 4096;
/// Longest argument, and longest variable with its name (`MAX_ARG_STRLEN` of Linux less the terminating NUL).
pub const MAX_WORD: usize = (128 << 10) - 1;
/// Most bytes of all texts of a recording: twice what Linux hands to one process (`ARG_MAX` is 2 MiB by default).
pub const MAX_TEXTS: u64 = 4 << 20;
/// Bytes that an argument, a name or a value counts for besides its own, so that many empty ones count too: about the
/// memory that keeping one takes.
pub const TEXT_COST: usize = 32;
/// Longest description of a probe, and longest name of a recorder.
pub const MAX_NOTE: usize = 4096;
/// Most zones: each recording adds one to those whose segments it uses.
pub const MAX_ZONES: u64 = 1024;
/// Most indexes that zones carry: each layer's in a few zones.
pub const MAX_INDEXES: u64 = 4 * MAX_LAYERS;
/// Most segments: [`MAX_PAGES`] in segments of 256 KiB.
pub const MAX_SEGMENTS: u64 = 64 << 10;
/// Most pages of one segment: 1 MiB, which is held in memory whole before any of it is used.
pub const MAX_SEGMENT_PAGES: u64 = (1 << 20) / PAGE_SIZE;
/// Most compressed bytes of one segment: incompressible pages and zstd's overhead (`ZSTD_COMPRESSBOUND`).
pub const MAX_SEGMENT_STORED: u64 =
    MAX_SEGMENT_PAGES * PAGE_SIZE + ((MAX_SEGMENT_PAGES * PAGE_SIZE) >> 8) + 64;
/// Most pages in segments and zeros together: 16 GiB, the memory of a large machine's whole start.
pub const MAX_PAGES: u64 = 4 << 20;
/// Most runs: of segments and zeros, and of each service's pages, split where segments and zeros are. python3 with numpy
/// and pandas has about 3,000 of either.
pub const MAX_RUNS: u64 = 1 << 20;
