//! The head of a frame (RFC 8878, 3.1.1.1).

use super::{InvalidZstd, WINDOW_MOST};

/// The first bytes of a frame.
pub(crate) const MAGIC: u32 = 0xfd2f_b528;
/// Magic and descriptor.
pub(crate) const HEAD_LEAST: usize = 5;
/// The longest head.
pub(crate) const HEAD_MOST: usize = 18;

/// What the head of a frame tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    /// How far back copies reach.
    pub(crate) window: u64,
    /// How many plain bytes the frame has, if it says so.
    pub(crate) size: Option<u64>,
    /// Whether a checksum follows its last block.
    pub(crate) has_checksum: bool,
}

/// A little-endian number of up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// How long a head is that begins with [`HEAD_LEAST`] bytes.
pub(crate) fn head_length(descriptor: u8) -> usize {
    let is_single = descriptor & 32 != 0;
    HEAD_LEAST + usize::from(!is_single) + dictionary_length(descriptor) + size_length(descriptor)
}

fn dictionary_length(descriptor: u8) -> usize {
    [0, 1, 2, 4][usize::from(descriptor & 3)]
}

fn size_length(descriptor: u8) -> usize {
    [usize::from(descriptor & 32 != 0), 2, 4, 8][usize::from(descriptor >> 6)]
}

impl Frame {
    /// What a whole head tells, magic included.
    pub(crate) fn read(head: &[u8]) -> Result<Frame, InvalidZstd> {
        let descriptor = *head.get(HEAD_LEAST - 1).ok_or(InvalidZstd::Truncated)?;
        if number(&head[..4]) != u64::from(MAGIC) {
            return Err(InvalidZstd::Magic);
        }
        if head.len() != head_length(descriptor) {
            return Err(InvalidZstd::Truncated);
        }
        if descriptor & 8 != 0 {
            return Err(InvalidZstd::Head);
        }
        let is_single = descriptor & 32 != 0;
        let (before, told) = head.split_at(head.len() - size_length(descriptor));
        if before[before.len() - dictionary_length(descriptor)..]
            .iter()
            .any(|&byte| byte != 0)
        {
            return Err(InvalidZstd::Dictionary);
        }
        let size = number(told).saturating_add(if told.len() == 2 { 256 } else { 0 });
        let window = if is_single {
            size
        } else {
            let told = u64::from(head[HEAD_LEAST]);
            let base = 1 << (10 + (told >> 3));
            base + base / 8 * (told & 7)
        };
        if window > WINDOW_MOST {
            return Err(InvalidZstd::Window);
        }
        Ok(Frame {
            window,
            size: (!told.is_empty()).then_some(size),
            has_checksum: descriptor & 4 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(rest: &[u8]) -> Vec<u8> {
        [&MAGIC.to_le_bytes()[..], rest].concat()
    }

    #[test]
    fn heads_say_window_size_and_checksum() {
        let frame = |window, size, has_checksum| {
            Ok(Frame {
                window,
                size,
                has_checksum,
            })
        };
        assert_eq!(Frame::read(&head(&[0x00, 0x58])), frame(2 << 20, None, false));
        assert_eq!(
            Frame::read(&head(&[0x04, 0x5a])),
            frame((2 << 20) + (512 << 10), None, true)
        );
        assert_eq!(Frame::read(&head(&[0x20, 7])), frame(7, Some(7), false));
        assert_eq!(Frame::read(&head(&[0x60, 1, 0])), frame(257, Some(257), false));
        assert_eq!(
            Frame::read(&head(&[0xc0, 0x58, 1, 2, 0, 0, 0, 0, 0, 0])),
            frame(2 << 20, Some(513), false)
        );
        assert_eq!(Frame::read(&head(&[0x01, 0x58, 0])), frame(2 << 20, None, false));
        assert_eq!(Frame::read(&head(&[0x01, 0x58, 9])), Err(InvalidZstd::Dictionary));
        assert_eq!(Frame::read(&head(&[0x08, 0x58])), Err(InvalidZstd::Head));
        assert_eq!(Frame::read(&head(&[0x00, 0x90])), Err(InvalidZstd::Window));
        assert_eq!(Frame::read(&head(&[0x00])), Err(InvalidZstd::Truncated));
    }
}
