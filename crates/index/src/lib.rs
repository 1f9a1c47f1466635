//! Blob to LayerIndex in one streaming pass, and spans back to plain bytes.
//!
//! * [`indexer`]: a layer blob becomes a `LayerIndex` with its sections, in one pass.
//! * [`decode`]: a span's source bytes become verified bytes of the data space.
//! * [`restore`]: frame and data space become the exact tar again.
//! * [`fuzzing`]: entry points for fuzz targets.
//! * [`inflate`] and [`gzip`]: deflate with block boundaries and history references, and the members around it.
//! * [`tar`]: the plain stream's entries and contents.
//! * [`toc`]: indexes from a blob's own table of contents (eStargz, zstd:chunked).
//!
//! Promises: [`decode`] returns bytes only after it compared them with the span's digest; [`indexer`] refuses a layer whose digest or
//! diff ID is not what the image says; everything that a layer says has a limit.
//!
//! May use: `format` and `kernel`. No network.

pub mod decode;
pub mod fuzzing;
pub mod gzip;
pub mod indexer;
pub mod inflate;
pub mod restore;
mod source;
pub mod tar;
pub mod toc;
