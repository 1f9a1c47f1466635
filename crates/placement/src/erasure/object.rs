//! All stripes of an object to the units of its shards, as its bytes come, and some stripes back.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::Layout;
use super::stripe::{NotEnough, decode_stripe, encode_stripe};
use crate::placement::Code;

/// Cuts the bytes of an object into units of a code, as they come.
pub struct Cutter {
    layout: Layout,
    stripe: u64,
    waiting: Vec<u8>,
}

impl Cutter {
    /// Of an object of so many bytes.
    pub fn new(code: Code, size: u64) -> Self {
        Self {
            layout: Layout::new(code, size),
            stripe: 0,
            waiting: Vec::new(),
        }
    }

    /// The code that it cuts by.
    pub fn code(&self) -> Code {
        self.layout.code()
    }

    /// Takes the next bytes of the object, and gives the next units of each shard.
    pub fn cut(&mut self, pieces: &[impl AsRef<[u8]>]) -> Vec<Vec<Vec<u8>>> {
        for piece in pieces {
            self.waiting.extend_from_slice(piece.as_ref());
        }
        let code = self.layout.code();
        let mut shards = vec![Vec::new(); usize::from(code.shards())];
        let mut done = 0_usize;
        while self.stripe < self.layout.stripes() {
            let of_object = self.layout.of_object(self.stripe);
            let length = usize::try_from(of_object.end - of_object.start).unwrap_or(usize::MAX);
            let Some(stripe) = self.waiting.get(done..done.saturating_add(length)) else {
                break;
            };
            for (shard, unit) in shards.iter_mut().zip(encode_stripe(code, stripe)) {
                shard.push(unit);
            }
            done += length;
            self.stripe += 1;
        }
        self.waiting.drain(..done);
        shards
    }
}

/// The bytes of some stripes of an object. `parts` has of enough shards, by their numbers, the bytes from offset `begin` on.
///
/// # Errors
/// [`NotEnough`], if fewer shards have them than the code has data shards.
pub fn decode_stripes(
    layout: Layout,
    parts: &BTreeMap<u8, impl AsRef<[u8]>>,
    stripes: Range<u64>,
    begin: u64,
) -> Result<Vec<u8>, NotEnough> {
    let mut bytes = Vec::new();
    for stripe in stripes {
        let within = layout.within_shard(stripe);
        let place = |offset: u64| usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX);
        let unit = place(within.start)..place(within.end);
        let units: Vec<(u8, &[u8])> = parts
            .iter()
            .filter_map(|(index, part)| Some((*index, part.as_ref().get(unit.clone())?)))
            .collect();
        let of_object = layout.of_object(stripe);
        let length = usize::try_from(of_object.end - of_object.start).unwrap_or(usize::MAX);
        bytes.extend(decode_stripe(layout.code(), length, &units)?);
    }
    Ok(bytes)
}
