//! An object as shards, of which some may be lost (`docs/formats/erasure.md`).
//!
//! The object is cut into stripes, and a stripe into as many units as the code has data shards. Parity units are made of them by
//! Reed-Solomon. A shard is one unit of each stripe. So a part of an object is read from the shards that have it, and a lost shard costs
//! the other units of the stripes that are read, not all of the object.

mod layout;
mod object;
mod stripe;

pub use layout::{Layout, UNIT, Unit};
pub use object::{Cutter, decode_stripes};
pub use stripe::{NotEnough, decode_stripe, encode_stripe};
