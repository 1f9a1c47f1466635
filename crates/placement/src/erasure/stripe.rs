//! One stripe to its units, and back of some of them.
//!
//! The library makes parity in two ways, by a high or a low rate, and by itself takes the one that it finds faster. What is stored is read
//! for ever, so the high rate is always taken here.

use reed_solomon_simd::Error;
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};

use super::layout::unit_size;
use crate::placement::Code;

/// Too few units of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{have} units of a stripe of {len} bytes are here, and {needs} are needed; bring back more of the places that have its shards"
)]
pub struct NotEnough {
    /// How many distinct units of the right length were given.
    pub have: usize,
    /// How many are needed.
    pub needs: u8,
    /// The length of the stripe.
    pub len: usize,
}

/// The units of a stripe: those of the data shards, and then those of the parity shards. All have the same length.
#[expect(
    clippy::expect_used,
    reason = "the code has 16 shards at most, and its units have one even length"
)]
pub fn encode_stripe(code: Code, stripe: &[u8]) -> Vec<Vec<u8>> {
    let unit = unit_len(code, stripe.len());
    if unit == 0 {
        return vec![Vec::new(); usize::from(code.shards())];
    }
    let mut units: Vec<Vec<u8>> = stripe.chunks(unit).map(<[u8]>::to_vec).collect();
    units.resize_with(usize::from(code.data()), Vec::new);
    for data in &mut units {
        data.resize(unit, 0);
    }
    let made = parity_units(code, unit, &units).expect("the numbers are right");
    units.extend(made);
    units
}

fn parity_units(code: Code, unit: usize, data: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Error> {
    let parity = usize::from(code.parity());
    let mut encoder = HighRateEncoder::new(data.len(), parity, unit, DefaultEngine::new(), None)?;
    for unit in data {
        encoder.add_original_shard(unit)?;
    }
    Ok(encoder.encode()?.recovery_iter().map(<[u8]>::to_vec).collect())
}

/// A stripe of `len` bytes of its units, each with the number of its shard. Data units are used as they are. Units of another length, of
/// unknown shards, and of a shard that came before are left out. A unit with wrong bytes is not noticed: compare digests.
///
/// # Errors
/// [`NotEnough`], if fewer units are left than the code has data shards.
#[expect(
    clippy::expect_used,
    reason = "there are as many units as the code needs, of one even length"
)]
pub fn decode_stripe(code: Code, len: usize, units: &[(u8, &[u8])]) -> Result<Vec<u8>, NotEnough> {
    let unit = unit_len(code, len);
    let mut by_shard: Vec<Option<&[u8]>> = vec![None; usize::from(code.shards())];
    for (shard, bytes) in units.iter().filter(|(_, bytes)| bytes.len() == unit) {
        if let Some(slot) = by_shard.get_mut(usize::from(*shard)) {
            slot.get_or_insert(bytes);
        }
    }
    let have = by_shard.iter().flatten().count();
    if have < usize::from(code.data()) {
        let needs = code.data();
        return Err(NotEnough { have, needs, len });
    }
    let (data, parity) = by_shard.split_at(usize::from(code.data()));
    let restored = lost_units(unit, data, parity).expect("the numbers are right");
    let mut restored = restored.iter();
    let mut stripe = Vec::with_capacity(unit * data.len());
    for slot in data {
        let lost = || restored.next().map(Vec::as_slice);
        stripe.extend_from_slice(slot.or_else(lost).unwrap_or_default());
    }
    stripe.truncate(len);
    Ok(stripe)
}

/// The data units that are not here, in order.
fn lost_units(unit: usize, data: &[Option<&[u8]>], parity: &[Option<&[u8]>]) -> Result<Vec<Vec<u8>>, Error> {
    let lost: Vec<usize> = (0..data.len())
        .filter(|at| matches!(data.get(*at), Some(None)))
        .collect();
    if lost.is_empty() || unit == 0 {
        return Ok(Vec::new());
    }
    let mut decoder = HighRateDecoder::new(data.len(), parity.len(), unit, DefaultEngine::new(), None)?;
    for (at, unit) in present(data) {
        decoder.add_original_shard(at, unit)?;
    }
    for (at, unit) in present(parity).take(lost.len()) {
        decoder.add_recovery_shard(at, unit)?;
    }
    let made = decoder.decode()?;
    let units = lost.iter().filter_map(|at| made.restored_original(*at));
    Ok(units.map(<[u8]>::to_vec).collect())
}

fn present<'a>(slots: &[Option<&'a [u8]>]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let slots = slots.iter().enumerate();
    slots.filter_map(|(at, slot)| Some((at, (*slot)?)))
}

fn unit_len(code: Code, stripe: usize) -> usize {
    usize::try_from(unit_size(code, stripe as u64)).unwrap_or(usize::MAX)
}
