//! Pure bytes, no I/O: what a layer index is, how it is written, how the trees of an image's layers merge,
//! and how the merged tree becomes an EROFS metadata image.
//!
//! * [`digest`]: SHA-256 digests as the OCI specification spells them.
//! * [`docker_hub`]: the several names of one registry.
//! * [`path`]: validated paths inside an image.
//! * [`platform`]: the image in an index that fits a host.
//! * [`reference`](mod@reference): what a user types to name an image, taken apart and checked.
//! * [`layer`]: the [`layer::LayerIndex`]: tree, pieces and spans of one layer, and its encoding.
//! * [`merge`]: the trees of an image's layers become one [`image::ImageTree`].
//! * [`runtime_image`]: which pages a service reads at start, and where they are in one blob.
//! * [`erofs`]: an [`image::ImageTree`] becomes a file system image that the kernel mounts.
//!
//! Promises: bytes from outside are decoded within named limits, and refused with a reason if they break a rule; the same value is
//! always encoded as the same bytes.
//!
//! May use: no other crate of Xebec.

mod columns;
pub mod digest;
pub mod docker_hub;
pub mod erofs;
mod frame;
pub mod image;
pub mod layer;
pub mod merge;
pub mod path;
pub mod platform;
pub mod reference;
pub mod runtime_image;

/// Size of a page, of an EROFS block, and of the unit in which presence is recorded, in bytes.
///
/// One number for all three, so that a page of a file is a page of its layer's data space.
pub const PAGE_SIZE: u64 = 4096;

/// Rounds `bytes` up to a whole number of pages; `None` on overflow.
pub fn round_up_to_page(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_SIZE)
}
