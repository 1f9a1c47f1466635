//! What a process remembers of a registry's uploads under way, and of pulls. The records know each upload; this is beside them, in memory, and costs only time,
//! or the time of some pulls, if it is lost.
//!
//! * [`Sessions`]: which request continues an upload, and the writer that waits for the next one.
//! * [`UploadCounts`]: how many uploads each repository has under way, about.
//! * [`Pulls`]: when manifests and tags were pulled, until that is written down.
//!
//! Promise: one request at a time of this process continues an upload. Writers that wait hold 256 files open at most, and 64 MiB of memory; counts are of
//! 10,000 repositories, and of 65,536 pulls, at most.
//!
//! May use: `names` and `objects`, and no other crate of Xebec.

mod counts;
mod pulls;
mod sessions;

pub use self::counts::UploadCounts;
pub use self::pulls::{Pull, Pulls};
pub use self::sessions::{Held, Sessions};
