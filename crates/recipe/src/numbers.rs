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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_have_one_form() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            let mut reader = Reader(&bytes);
            assert_eq!((reader.number(), reader.0.len()), (Some(number), 0));
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).number(), None);
        }
        assert_eq!(Reader(&[0x80, 0]).number(), None, "longer than it need be");
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(Reader(&beyond).number(), None, "more than 64 bits");
        assert_eq!(Reader(&[0xff; 12]).number(), None);
    }
}
