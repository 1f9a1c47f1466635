//! Decisions about contents beside the rights of callers: which tags stay as they are, what is kept for how long, how much may be stored,
//! whether anything may be written at all, and how fast requests may come. Values in, decisions out.
//!
//! * [`immutability`], [`retention`], [`eviction`]: tags that stay, tags that go, copies of upstreams' images that go.
//! * [`quota`], [`mode`], [`rate`]: how much may be stored, whether anything may be written, how fast requests may come.
//!
//! Promise: nothing here reads or writes, and the same values give the same decision.
//!
//! May use: `settings`, and `store` for its types.

pub mod eviction;
pub mod immutability;
pub mod mode;
pub mod quota;
pub mod rate;
pub mod retention;
