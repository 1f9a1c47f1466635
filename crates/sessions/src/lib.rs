//! What a process remembers of a registry's uploads under way. The records know each upload; this is beside them, in memory, and costs only time if it is lost.
//!
//! * [`Sessions`]: which request continues an upload, and the writer that waits for the next one.
//! * [`UploadCounts`]: how many uploads each repository has under way, about.
//!
//! Promise: one request at a time of this process continues an upload. Writers that wait hold 256 files open at most, and 64 MiB of memory; counts are of
//! 10,000 repositories at most.
//!
//! May use: `names` and `objects`, and no other crate of Xebec.

mod counts;
mod sessions;

pub use self::counts::UploadCounts;
pub use self::sessions::{Held, Sessions};
