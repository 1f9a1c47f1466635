//! The blob cache: what a host keeps of image layers, and how missing ranges come in.
//!
//! * [`store`]: the directory of cached layers, one folder for each (layer, index).
//! * [`layer`]: one cached layer: its sparse data file, its presence bitmaps and its span table.
//! * [`presence`]: which pages are there: within this [`boot`], and after a power cut; `unverified`: which of them
//!   nobody has compared with their digest yet.
//! * [`fill`]: brings missing spans in: one fetch for each span, verified before it is written.
//! * [`progress`]: what a fill is waiting for, for whoever wants to know why a reader waits.
//! * [`stage`]: the points of a fill at which a test may end the process.
//! * [`disk`]: the file operations that all of this rests on, so that tests can cut the power.
//! * [`policy`], [`evict`]: what goes when the cache is too large; [`room`]: who is asked when the disk is full.
//!
//! Readers never come here: the kernel reads the data files. This crate decides what may be read.

mod bitmap_file;
mod bits;
pub mod boot;
pub mod disk;
mod error;
pub mod evict;
pub mod fill;
mod key;
pub mod layer;
mod page_write_locks;
pub mod policy;
pub mod presence;
pub mod progress;
pub mod room;
pub mod stage;
mod staged;
pub mod store;
mod unverified;
