//! The deflate encoder of klauspost/compress (github.com/klauspost/compress, package `flate`, BSD licence), versions 1.11.3 to 1.20.3, which Go's
//! `compress/flate` is from Go 1.27 on (github.com/golang/go, BSD licence). Raw deflate is the same byte for byte; only the default level differs, 5
//! and 6.
//!
//! * Level 0 stores blocks of 65,535 bytes. Level -2 looks for no copies and chooses a code for each 32 KiB, or goes on with that before.
//! * Levels 1 to 6 take batches of 65,535 bytes. A level looks for copies by hashes of four to seven bytes, keeps the last one or two places of each,
//!   and skips bytes where it finds none.
//! * Levels 7 to 9 have a window of 64 KiB and chains of all places with the same hash of four bytes, and look again a byte later before they take a
//!   copy. Level 9 weighs each copy against what its bytes would cost as literals.
//! * Each batch is stored, or written by the codes of the specification, by new ones, or by those of the batch before in the same block, whichever is
//!   estimated to be shortest. The estimate uses floating-point numbers of 32 bits. On processors that multiply and add in one operation, Go rounds
//!   once instead of twice (not in 1.20.3), so there the encoder may choose otherwise now and then. This module does as amd64 does.
//!
//! The level that does without a state between writes (-3) is left out.

pub mod generation;
pub mod pgzip;
pub mod stream;

mod blocks;
mod chains;
mod choice;
mod codes;
mod header;
mod lazy;
mod lengths;
mod level1;
mod level2;
mod level3;
mod level4;
mod level56;
mod old_choice;
mod place;
mod quick;
mod tokens;
mod window;

#[cfg(test)]
mod tests;
