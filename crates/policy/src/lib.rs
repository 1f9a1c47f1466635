//! Decisions about contents beside the rights of callers: which tags stay as they are, what is kept for how long and in how many copies,
//! how much may be stored, whether anything may be written at all, and how fast requests may come. Values in, decisions out.
//!
//! * [`immutability`], [`retention`], [`eviction`]: tags that stay, tags that go, copies of upstreams' images that go.
//! * [`quota`], [`mode`], [`rate`]: how much may be stored, whether anything may be written, how fast requests may come.
//! * [`copies`]: how many copies of blobs are kept, in which form, and where.
//!
//! Promise: nothing here reads or writes, and the same values give the same decision.
//!
//! May use: `placement`, `settings`, and `store` for its types.

pub mod copies;
pub mod eviction;
pub mod immutability;
pub mod mode;
pub mod quota;
pub mod rate;
pub mod retention;
