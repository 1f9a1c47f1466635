//! The head of a gzip member (RFC 1952, 2.3). The deflate stream follows it, and eight bytes follow that: checksum and length.

/// The first bytes of a member: its magic number, and deflate as the method.
pub(crate) const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Checksum and length, after the deflate stream.
pub(crate) const TRAILER: usize = 8;
/// A head is not read on beyond this. Names and comments are short; extra fields have 64 KiB at most.
const MOST: usize = 256 << 10;

const HAS_CHECKSUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;

/// How far a head was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// It goes on after these bytes.
    MoreInput,
    /// It has this many bytes.
    Length(usize),
    /// These bytes are no head.
    None,
}

/// Finds the end of the head with which `bytes` begin.
pub(crate) fn head(bytes: &[u8]) -> Head {
    let same = bytes.iter().zip(MAGIC).all(|(byte, magic)| *byte == magic);
    if !same || bytes.get(3).is_some_and(|flags| flags & 0xe0 != 0) {
        return Head::None;
    }
    match length(bytes) {
        Some(length) => Head::Length(length),
        None if bytes.len() > MOST => Head::None,
        None => Head::MoreInput,
    }
}

/// The length of the head, if it is there whole.
fn length(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(3)?;
    let mut at = 10;
    if flags & HAS_EXTRA != 0 {
        let length = bytes.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
    }
    for field in [HAS_NAME, HAS_COMMENT] {
        if flags & field != 0 {
            at += 1 + bytes.get(at..)?.iter().position(|&byte| byte == 0)?;
        }
    }
    if flags & HAS_CHECKSUM != 0 {
        at += 2;
    }
    (bytes.len() >= at).then_some(at)
}

/// What the head of a member tells of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// The time of change.
    pub(crate) time: u32,
    /// Extra flags: 2 for the slowest, 4 for the fastest level.
    pub(crate) extra_flags: u8,
    /// The operating system.
    pub(crate) system: u8,
}

impl Fingerprint {
    /// Of a head that is there whole.
    pub(crate) fn of(head: &[u8]) -> Fingerprint {
        let byte = |at: usize| head.get(at).copied().unwrap_or_default();
        Fingerprint {
            time: u32::from_le_bytes([byte(4), byte(5), byte(6), byte(7)]),
            extra_flags: byte(8),
            system: byte(9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_from_every_beginning_of_it() {
        let mut whole = vec![
            0x1f,
            0x8b,
            8,
            HAS_CHECKSUM | HAS_EXTRA | HAS_NAME | HAS_COMMENT,
            1,
            2,
            3,
            4,
            2,
            3,
        ];
        whole.extend([3, 0, b'x', 0, b'z']);
        whole.extend(b"name\0comment\0");
        whole.extend([7, 7]);
        for length in 0..whole.len() {
            assert_eq!(head(&whole[..length]), Head::MoreInput, "{length}");
        }
        let length = whole.len();
        whole.extend([9; 5]);
        assert_eq!(head(&whole), Head::Length(length));
        assert_eq!(
            Fingerprint::of(&whole),
            Fingerprint {
                time: 0x0403_0201,
                extra_flags: 2,
                system: 3
            }
        );
    }

    #[test]
    fn other_bytes_and_heads_without_end_are_none() {
        assert_eq!(head(b"\x1f\x8c"), Head::None);
        assert_eq!(head(b"\x1f\x8b\x07"), Head::None);
        assert_eq!(head(b"\x1f\x8b\x08\xff"), Head::None);
        let mut endless = vec![0x1f, 0x8b, 8, HAS_NAME, 0, 0, 0, 0, 0, 0];
        endless.resize(MOST + 1, b'x');
        assert_eq!(head(&endless), Head::None);
    }
}
