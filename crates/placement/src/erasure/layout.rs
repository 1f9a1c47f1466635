//! Which byte of an object is where.

use std::ops::Range;

use crate::placement::Code;

/// The bytes of a unit, but for those of the last stripe. A range of an object that a client asks for is seldom smaller, and a stripe of
/// sixteen units fits a processor's cache. It is part of the format.
pub const UNIT: u64 = 64 * 1024;

/// How an object of a known size is cut by a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    code: Code,
    size: u64,
}

/// Where a byte of an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The stripe.
    pub stripe: u64,
    /// The data shard that has it.
    pub shard: u8,
    /// The offset of the byte in that shard.
    pub offset: u64,
}

impl Layout {
    /// Of an object of `size` bytes.
    pub fn new(code: Code, size: u64) -> Self {
        Self { code, size }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The size of the object, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of a stripe, but for the last one.
    fn stripe_size(&self) -> u64 {
        UNIT * u64::from(self.code.data())
    }

    /// How many stripes there are; none of an empty object.
    pub fn stripes(&self) -> u64 {
        self.size.div_ceil(self.stripe_size())
    }

    /// The size of each shard, in bytes.
    pub fn shard_size(&self) -> u64 {
        let last = self.stripes().checked_sub(1);
        last.map_or(0, |last| (last * UNIT).saturating_add(self.unit_size(last)))
    }

    /// The bytes of the object that a stripe has. Empty beyond the last one.
    pub fn of_object(&self, stripe: u64) -> Range<u64> {
        let begin = stripe.saturating_mul(self.stripe_size()).min(self.size);
        begin..begin.saturating_add(self.stripe_size()).min(self.size)
    }

    /// The bytes of a shard that are its unit of a stripe, the same of all shards. Empty beyond the last stripe.
    pub fn within_shard(&self, stripe: u64) -> Range<u64> {
        let begin = stripe.saturating_mul(UNIT).min(self.shard_size());
        begin..begin.saturating_add(self.unit_size(stripe))
    }

    fn unit_size(&self, stripe: u64) -> u64 {
        let bytes = self.of_object(stripe);
        unit_size(self.code, bytes.end - bytes.start)
    }

    /// Where the byte at `offset` of the object is; `None` beyond its end.
    pub fn unit_of(&self, offset: u64) -> Option<Unit> {
        if offset >= self.size {
            return None;
        }
        let stripe = offset / self.stripe_size();
        let unit = self.unit_size(stripe);
        let within = offset % self.stripe_size();
        Some(Unit {
            stripe,
            shard: u8::try_from(within / unit).ok()?,
            offset: self.within_shard(stripe).start + within % unit,
        })
    }
}

/// The bytes of a unit of a stripe of `stripe` bytes: an even number, since the code works on pairs of bytes.
pub(super) fn unit_size(code: Code, stripe: u64) -> u64 {
    let unit = stripe.div_ceil(u64::from(code.data()));
    unit.saturating_add(unit % 2)
}
