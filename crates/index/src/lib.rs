//! Blob to LayerIndex in one streaming pass, and spans back to plain bytes.
//!
//! * [`inflate`]: deflate, with block boundaries and history references.
//! * [`gzip`]: members around deflate streams.
//! * [`tar`]: the plain stream's entries and contents.
//! * [`toc`]: indexes from a blob's own table of contents (eStargz, zstd:chunked).

pub mod inflate;
pub mod tar;
pub mod toc;
