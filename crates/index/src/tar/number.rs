//! Numbers and times as tar headers write them.

/// Parses a numeric header field: base-256 if the first bit is set (GNU; may be negative), otherwise octal.
pub(super) fn numeric(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => base256(field),
        _ => octal(field),
    }
}

/// Two's complement, big-endian, with the top bit of the first byte as a mark.
fn base256(field: &[u8]) -> Option<i64> {
    let negative = field.first()? & 0x40 != 0;
    let invert = if negative { 0xff } else { 0 };
    let mut value: u64 = 0;
    for (index, byte) in field.iter().enumerate() {
        let mut digit = byte ^ invert;
        if index == 0 {
            digit &= 0x7f;
        }
        if value >> 56 != 0 {
            return None;
        }
        value = value << 8 | u64::from(digit);
    }
    let value = i64::try_from(value).ok()?;
    Some(if negative { !value } else { value })
}

/// Parses an octal field: spaces and NULs around the digits are ignored, an empty field is 0.
pub(super) fn octal(field: &[u8]) -> Option<i64> {
    let padding = |byte: &u8| matches!(byte, b' ' | 0);
    let Some(start) = field.iter().position(|byte| !padding(byte)) else {
        return Some(0);
    };
    let end = field.iter().rposition(|byte| !padding(byte))? + 1;
    let mut value: i64 = 0;
    for digit in text(field.get(start..end)?) {
        if !matches!(digit, b'0'..=b'7') {
            return None;
        }
        value = value.checked_mul(8)? + i64::from(digit - b'0');
    }
    Some(value)
}

/// Parses a decimal number of a PAX record or sparse map.
pub(super) fn decimal(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a PAX time, decimal seconds with an optional fraction: seconds, and nanoseconds counting up from them.
/// Digits beyond the ninth are dropped.
pub(super) fn pax_time(text: &[u8]) -> Option<(i64, u32)> {
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (text.get(..dot)?, text.get(dot + 1..)?),
        None => (text, &[][..]),
    };
    let seconds = decimal(whole)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(std::iter::repeat(b'0'));
    let nanoseconds = digits
        .take(9)
        .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    if whole.first() == Some(&b'-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

/// The bytes of a field up to its first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    end.and_then(|end| field.get(..end)).unwrap_or(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_is_lenient_about_padding_only() {
        for (field, want) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"  644 \0", Some(0o644)),
            (b"\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"7\x00garbage9", Some(7)),
            (b"777777777777", Some(0o777777777777)),
            (b"12 3", None),
            (b"8", None),
            (b"-1", None),
        ] {
            assert_eq!(octal(field), want, "{}", field.escape_ascii());
        }
    }

    #[test]
    fn base256_takes_both_signs_and_rejects_overflow() {
        assert_eq!(numeric(b"\x80\0\0\0\0\0\0\x01"), Some(1));
        assert_eq!(numeric(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        let max = b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(numeric(max), Some(i64::MAX));
        let min = b"\xff\xff\xff\xff\x80\0\0\0\0\0\0\0";
        assert_eq!(numeric(min), Some(i64::MIN));
        assert_eq!(numeric(b"\x80\0\0\0\x80\0\0\0\0\0\0\0"), None);
        assert_eq!(numeric(b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn pax_times_count_up_from_the_earlier_second() {
        for (text, want) in [
            (&b"0"[..], Some((0, 0))),
            (b"12.5", Some((12, 500_000_000))),
            (b"-12.5", Some((-13, 500_000_000))),
            (b"-0.000000001", Some((-1, 999_999_999))),
            (b"-7.", Some((-7, 0))),
            (b"1.12345678999", Some((1, 123_456_789))),
            (b".5", None),
            (b"1.5x", None),
            (b"", None),
            (b"-9223372036854775808.5", None),
        ] {
            assert_eq!(pax_time(text), want, "{}", text.escape_ascii());
        }
    }
}
