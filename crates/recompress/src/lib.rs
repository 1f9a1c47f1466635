//! Takes a compressed stream apart into its plain bytes and a small description, and makes the same stream from them again.
//!
//! * [`TakeApart`] reads a gzip or zstd stream once, in pieces of any size, and gives plain bytes and a [`Description`].
//! * [`Restorer`] makes the whole stream again, [`Description::restore`] a part of it ([`Description::places`]), from plain bytes.
//! * `replay` shows that an encoder of `deflate` makes a stream. `predict` guesses what an unknown one does and notes where it does something else, as
//!   `zstd-frames` does for zstd; `predicted` describes a stream by that.
//!
//! Promise: memory below some 210 MiB and 128 MiB more for the description, whatever comes, and about 80 MiB with layers as they are; the same description
//! for the same stream, in pieces of any size; no panic by any input. A description that
//! [`TakeApart`] gave makes the stream again, and whoever relies on it checks that by a digest first: this crate does not know the digests of streams.
//! Descriptions are read and mean the same for ever (`docs/formats/recompression.md`).
//!
//! May use: `bitstream`, `deflate`, `zstd-frames`. It neither reads nor writes files.

mod description;
mod feed;
mod format;
mod gzip;
mod kept;
mod method;
mod predict;
mod predicted;
mod refusal;
mod replay;
mod restore;
mod slice;
mod take_apart;
mod take_deflate;
#[cfg(test)]
mod tests;

pub use description::{Description, Shares};
pub use format::InvalidDescription;
pub use method::Method;
pub use refusal::{Limits, Refusal};
pub use restore::{Place, RestoreError, Restorer};
pub use take_apart::TakeApart;
pub use xebec_deflate::format::inflate::InvalidDeflate;
pub use xebec_zstd_frames::InvalidZstd;
