//! Times as others write them, above all Go into JSON: RFC 3339, with a fraction and any offset.

/// Parses `2006-01-02T15:04:05.999999999Z07:00`: seconds since 1970, and nanoseconds counting up from them.
/// Digits beyond the ninth are dropped, and a leap second is the one after it. `None` if it is anything else.
pub fn parse_rfc3339(text: &str) -> Option<(i64, u32)> {
    let bytes = text.as_bytes();
    let (date_time, mut rest) = bytes.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators
        .iter()
        .any(|&(at, byte)| date_time.get(at) != Some(&byte))
    {
        return None;
    }
    let field = |from: usize, to: usize| number(date_time.get(from..to)?);
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    // RFC 3339 has leap seconds, and the time since 1970 has none.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanoseconds = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, behind) = fraction.split_at_checked(digits).filter(|_| digits > 0)?;
        let padded = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        nanoseconds = padded.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        rest = behind;
    }
    let of_day = hour * 3600 + minute * 60 + second;
    let seconds = days_from_1970(year, month, day) * 86_400 + of_day - offset(rest)?;
    Some((seconds, nanoseconds))
}

/// Seconds east of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" => Some(0),
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
            let seconds = hours * 3600 + minutes * 60;
            let valid = hours < 24 && minutes < 60;
            valid.then_some(if sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// A number of a few decimal digits.
fn number(digits: &[u8]) -> Option<i64> {
    let digit = |sum: i64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    digits.iter().try_fold(0, digit)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the years 0 to 9999.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    // Leap days up to the end of a year, the year 0 included.
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let months: i64 = (1..month).map(|month| days_in(year, month)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some((0, 0))),
            ("2023-11-14T22:13:20Z", Some((1_700_000_000, 0))),
            ("2023-11-14T23:13:20.5+01:00", Some((1_700_000_000, 500_000_000))),
            ("2023-11-14T16:43:20-05:30", Some((1_700_000_000, 0))),
            ("1969-12-31T23:59:58.75Z", Some((-2, 750_000_000))),
            ("2000-02-29T12:00:00Z", Some((951_825_600, 0))),
            ("0001-01-01T00:00:00Z", Some((-62_135_596_800, 0))),
            ("0000-01-01T00:00:00Z", Some((-62_167_219_200, 0))),
            (
                "9999-12-31T23:59:59.9999999999Z",
                Some((253_402_300_799, 999_999_999)),
            ),
            (
                "2016-10-06T00:16:29.669794202Z",
                Some((1_475_712_989, 669_794_202)),
            ),
            ("2100-02-28T23:59:59.000000000Z", Some((4_107_542_399, 0))),
            ("2100-03-01T00:00:00Z", Some((4_107_542_400, 0))),
            ("2016-12-31T23:59:60Z", Some((1_483_228_800, 0))),
            ("2016-12-31T23:59:61Z", None),
            ("2100-02-29T00:00:00Z", None),
            ("2016-10-06", None),
            ("yesterday", None),
            ("2023-13-01T00:00:00Z", None),
            ("2023-11-14T24:00:00Z", None),
            ("2023-11-14T22:13:20", None),
            ("2023-11-14T22:13:20.Z", None),
            ("2023-11-14 22:13:20Z", None),
            ("2023-11-14T22:13:20+1:00", None),
            ("", None),
            ("20\u{e9}3-11-14T22:13:20Z", None),
        ] {
            assert_eq!(parse_rfc3339(text), want, "{text}");
        }
    }
}
