//! Numbers in groups of seven bits, the lowest first; the highest bit of a byte says that another follows. A number has one form, the shortest.

/// Appends a number.
pub(crate) fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Bytes that are read from their beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    /// The next number; none if the bytes end, or it is longer than it need be.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for (at, &byte) in self.0.iter().take(10).enumerate() {
            let low = u64::from(byte & 0x7f);
            if at == 9 && byte > 1 {
                return None;
            }
            number |= low << (7 * at);
            if byte < 0x80 {
                self.0 = self.0.get(at + 1..)?;
                return (byte != 0 || at == 0).then_some(number);
            }
        }
        None
    }

    /// The next so many bytes.
    pub(crate) fn bytes(&mut self, length: u64) -> Option<&'b [u8]> {
        let (own, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(own)
    }
}
