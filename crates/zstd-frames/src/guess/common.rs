//! Hashes and comparisons that the encoders share.

/// Eight bytes of a text; zeros where there are not so many.
#[inline]
pub(crate) fn eight(text: &[u8], place: usize) -> u64 {
    match text.get(place..place + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        None => {
            let mut bytes = [0; 8];
            let rest = text.get(place..).unwrap_or_default();
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(bytes)
        }
    }
}

/// Four bytes of a text.
#[inline]
pub(crate) fn four(text: &[u8], place: usize) -> u32 {
    match text.get(place..place + 4) {
        Some(bytes) => u32::from_le_bytes(bytes.try_into().unwrap_or_default()),
        None => eight(text, place) as u32,
    }
}

/// The hash of the first `bytes` (4 to 8) of eight, in `width` bits. libzstd and klauspost have the same.
#[inline]
pub(crate) fn hash(eight: u64, bytes: u32, width: u32) -> usize {
    let product = match bytes {
        5 => (eight << 24).wrapping_mul(889_523_592_379),
        6 => (eight << 16).wrapping_mul(227_718_039_650_203),
        7 => (eight << 8).wrapping_mul(58_295_818_150_454_627),
        8 => eight.wrapping_mul(0xcf1b_bcdc_b7a5_6463),
        _ => return ((eight as u32).wrapping_mul(2_654_435_761) >> (32 - width)) as usize,
    };
    (product >> (64 - width)) as usize
}

/// How many bytes at `left` and `right` are the same, before `left` comes to `end`. `right` is before `left`.
#[inline]
pub(crate) fn common(text: &[u8], left: usize, right: usize, end: usize) -> usize {
    let Some(ahead) = text.get(left..end) else {
        return 0;
    };
    let behind = &text[right..];
    let mut count = 0;
    for (some, other) in ahead.chunks_exact(8).zip(behind.chunks_exact(8)) {
        let some = u64::from_le_bytes(some.try_into().unwrap_or_default());
        let other = u64::from_le_bytes(other.try_into().unwrap_or_default());
        if some != other {
            return count + ((some ^ other).trailing_zeros() / 8) as usize;
        }
        count += 8;
    }
    count
        + ahead[count..]
            .iter()
            .zip(&behind[count..])
            .take_while(|(some, other)| some == other)
            .count()
}

/// How many bytes before `left` and `right` are the same, before `left` comes to `left_least` or `right` to `right_least`.
#[inline]
pub(crate) fn common_before(
    text: &[u8],
    left: usize,
    right: usize,
    left_least: usize,
    right_least: usize,
) -> usize {
    let most = left
        .saturating_sub(left_least)
        .min(right.saturating_sub(right_least));
    let mut count = 0;
    while count < most && text[left - count - 1] == text[right - count - 1] {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_counted() {
        let text = b"abcdefghijklabcdefghijkXabc";
        assert_eq!(common(text, 12, 0, text.len()), 11);
        assert_eq!(common(text, 12, 0, 15), 3);
        assert_eq!(common(text, 24, 0, text.len()), 3);
        assert_eq!(common(b"aaaaaaaaaaaaaaaaaaaa", 1, 0, 20), 19);
        assert_eq!(common_before(text, 20, 8, 12, 0), 8);
        assert_eq!(common_before(text, 20, 8, 15, 0), 5);
        assert_eq!(common_before(text, 20, 8, 12, 6), 2);
        assert_eq!((eight(text, 24), four(text, 26)), (0x63_6261, 0x63));
    }
}
