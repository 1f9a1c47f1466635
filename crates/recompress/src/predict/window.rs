//! The plain bytes that a predictor looks at: those before its place, as far as a copy reaches, and those after it that are known.

use xebec_deflate::format::WINDOW;

/// Bytes before the place that are kept at most, before they are moved.
const KEPT: usize = 1 << 20;

/// A stretch's plain bytes. Places are counted from the beginning of the history, and wrap at 32 bits.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    /// The place of the first of `bytes`.
    first: u64,
    /// Nothing from this place on is looked at, though it may be known.
    horizon: u64,
}

/// Places begin here, so that a place of zero is too far away from all of them.
const FIRST: u64 = 2 * WINDOW as u64;

impl Window {
    pub(super) fn new(history: &[u8]) -> Window {
        let kept = &history[history.len().saturating_sub(WINDOW)..];
        Window {
            bytes: kept.to_vec(),
            first: FIRST,
            horizon: u64::MAX,
        }
    }

    pub(super) fn append(&mut self, plain: &[u8]) {
        self.bytes.extend_from_slice(plain);
    }

    /// The place after the last byte that is known.
    pub(super) fn known(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// The place after the last byte that may be looked at.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.known().min(self.horizon)
    }

    /// Sets where looking ahead ends.
    pub(super) fn set_horizon(&mut self, horizon: u64) {
        self.horizon = horizon;
    }

    /// Forgets what lies too far before `place`.
    pub(super) fn forget(&mut self, place: u64) {
        let before = (place - self.first) as usize;
        if before > KEPT {
            self.bytes.drain(..before - WINDOW);
            self.first += (before - WINDOW) as u64;
        }
    }

    /// The bytes that may be looked at, and the index of `place` in them.
    #[inline]
    pub(super) fn at(&self, place: u64) -> (&[u8], usize) {
        let end = (self.end() - self.first) as usize;
        (&self.bytes[..end], (place - self.first) as usize)
    }

    /// The bytes from one place to another.
    pub(super) fn range(&self, from: u64, to: u64) -> &[u8] {
        &self.bytes[(from - self.first) as usize..(to - self.first) as usize]
    }
}

/// How many bytes two places have in common, `most` at most. `far` comes before `near`, and `near + most` is within the bytes.
#[inline]
pub(super) fn common(bytes: &[u8], far: usize, near: usize, most: usize) -> usize {
    let (one, other) = (&bytes[far..far + most], &bytes[near..near + most]);
    let mut length = 0;
    for (one, other) in one.chunks_exact(8).zip(other.chunks_exact(8)) {
        let difference = eight(one) ^ eight(other);
        if difference != 0 {
            return length + (difference.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    length
        + one[length..]
            .iter()
            .zip(&other[length..])
            .take_while(|(one, other)| one == other)
            .count()
}

#[inline]
fn eight(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
