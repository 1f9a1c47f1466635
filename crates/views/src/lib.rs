//! Views: EROFS images over the data files of layers, built, mounted, held for somebody, and found again by the next worker.
//!
//! * [`view`]: the trees of an image's layers are merged, written as EROFS metadata and mounted. [`bypass_devices`]: devices of pages
//!   that are complete, or still arriving, which raise no events. [`sharing`]: files of one layer are read from another that has them.
//! * [`views`]: the table of mounted views, in files of the run directory: over which layers, where, for whom.
//! * [`recording_admission`]: who relies on which layers, so that no recording brings pages into them that a reader does not admit.
//! * [`unguarded_views`]: views that may have served holes while nobody guarded them.
//! * [`view_tree`]: from pages of layers to files of a view; [`page_cache_residency`]: which of those were read; [`page_cache_prefill`]:
//!   they are brought into memory before they are read.
//!
//! Promises: nothing is unmounted that is not shown to be a view of Xebec's, by its record and by what the kernel says; a view's
//! readers keep what they need until the kernel says that nobody is on it.
//!
//! May use: `kernel`, `format`, `cache`, `trust`, `protocol`, `container` for containers whose command was killed, `images`, `fill`,
//! `snapshotter` for the names by which overlays of containerd have views.
//! It knows no recordings but by what vouches for them.

pub mod bypass_devices;
pub mod page_cache_prefill;
pub mod page_cache_residency;
pub mod recording_admission;
pub mod sharing;
pub mod unguarded_views;
pub mod view;
pub mod view_tree;
pub mod views;
