//! Views: EROFS images over the data files of layers. This crate builds them, mounts them, keeps them for their holders, and finds
//! them again in the next worker.
//!
//! * [`view`]: the trees of an image's layers are merged, written as EROFS metadata and mounted. [`bypass_devices`]: devices of pages
//!   that are present or in flight, which raise no events. [`sharing`]: reads a file of one layer from another layer that has it.
//! * [`views`]: the table of mounted views, in files of the run directory: their layers, mount points and holders.
//! * [`recording_admission`]: which layers have which readers, so that no recording brings pages that a reader does not admit.
//! * [`unguarded_views`]: views that may have served holes while no process held the fanotify group.
//! * [`view_tree`]: from pages of layers to files of a view; [`page_cache_residency`]: which of those were read; [`page_cache_prefill`]:
//!   puts pages into the page cache before they are read.
//!
//! Promises: this crate unmounts only what is a view of Xebec by its record and by the kernel's table of mounts. A view's layers keep
//! the pages that its readers need until the kernel reports that no process uses the view.
//!
//! May use: `kernel`, `format`, `cache`, `trust`, `protocol`, `container` for containers whose command was killed, `images`, `fill`,
//! `oci` for references, `snapshotter` for the names by which overlays of containerd have views.
//! It knows recordings only by their roots of trust.

pub mod bypass_devices;
pub mod page_cache_prefill;
pub mod page_cache_residency;
pub mod recording_admission;
pub mod sharing;
pub mod unguarded_views;
pub mod view;
pub mod view_tree;
pub mod views;
