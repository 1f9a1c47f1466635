//! The cache: which parts of image layers this host has, and how missing ranges are fetched.
//!
//! * [`store`]: the directory of cached layers, one folder for each (layer, index).
//! * [`layer`]: one cached layer: its sparse data file, its presence bitmaps and its span table.
//! * [`presence`]: which pages are present: within this [`boot`], and after a power cut; `unverified`: which of them
//!   were not compared with their digest yet.
//! * [`fill`]: fetches missing spans: one fetch for each span, verified before it is written.
//! * [`progress`]: what a fill is waiting for, to explain why a reader waits.
//! * [`stage`]: the points of a fill at which a test may end the process.
//! * [`disk`]: the file operations that all of this rests on, so that tests can cut the power.
//! * [`policy`], [`evict`]: which layers are evicted when the cache is too large; [`room`]: how a write that meets a full disk
//!   gets room.
//!
//! Readers never call this crate: the kernel reads the data files. This crate decides which pages may be read.
//!
//! Promises: a page is present only after its bytes are in the data file, and these were compared with their digest or are noted as
//! unverified. The durable bitmap names a page only after its bytes are on the disk. One fetch serves all readers of a span.
//!
//! May use: `format`, `index` and `kernel`. No network: a caller gives it the source of the bytes.

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
