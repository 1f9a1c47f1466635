//! Bytes that come in order, of which the first ones may go when nobody needs them.

/// A stretch of bytes of which the first ones may be gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// The position of the first byte that is kept.
    first: u64,
}

impl Kept {
    /// The position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the bytes from a position on away.
    pub(crate) fn split_off(&mut self, from: u64) -> Vec<u8> {
        let from = from.saturating_sub(self.first) as usize;
        self.bytes.split_off(from.min(self.bytes.len()))
    }

    /// How many bytes are kept.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes from `from` on, up to `to` or the end. Empty if they are gone.
    pub(crate) fn slice(&self, from: u64, to: u64) -> &[u8] {
        let (Some(from), Some(to)) = (
            from.checked_sub(self.first),
            to.min(self.end()).checked_sub(self.first),
        ) else {
            return &[];
        };
        self.bytes.get(from as usize..to as usize).unwrap_or_default()
    }

    /// Lets bytes before a position go, sooner or later.
    pub(crate) fn forget_before(&mut self, position: u64) {
        let gone = position.saturating_sub(self.first).min(self.bytes.len() as u64);
        // Moving what is left costs: it waits until half can go.
        if gone as usize > self.bytes.len() / 2 {
            self.bytes.drain(..gone as usize);
            self.first += gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stay_while_bytes_go() {
        let mut kept = Kept::default();
        for round in 0..100_u8 {
            kept.push(&[round; 10]);
            kept.forget_before(u64::from(round) * 10);
            assert_eq!(kept.end(), u64::from(round) * 10 + 10);
            assert_eq!(kept.slice(u64::from(round) * 10 + 3, u64::MAX), &[round; 7]);
            assert!(kept.len() <= 30);
        }
        assert_eq!(kept.slice(0, 5), b"");
        assert_eq!(kept.split_off(995), [99; 5]);
        assert_eq!(kept.end(), 995);
    }
}
