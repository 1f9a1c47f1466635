//! What may happen to contents beside the rights of callers: which tags stay as they are, what is kept for how long, how much may be
//! stored, whether anything may be written at all, and how fast requests may come. Values in, decisions out; nothing here reads or writes.

pub mod eviction;
pub mod immutability;
pub mod mode;
pub mod quota;
pub mod rate;
pub mod retention;
