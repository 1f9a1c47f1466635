//! Sizes as users write them, in docker's notation, and as they read them.

use std::str::FromStr;

/// A size: a number, perhaps with a fraction, and `b`, `k`, `m`, `g`, `t` or `p` (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// Not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size; write a number and b, k, m or g, as 512m")]
pub struct SizeParseError(pub String);

/// Largest size: the kernel and the runtimes of containers count in signed numbers.
const LARGEST: f64 = i64::MAX as f64;

impl FromStr for Bytes {
    type Err = SizeParseError;

    fn from_str(text: &str) -> Result<Self, SizeParseError> {
        let wrong = || SizeParseError(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let power = match lower.get(digits.len()..).unwrap_or("") {
            "" | "b" => 0,
            "k" | "kb" | "ki" | "kib" => 1,
            "m" | "mb" | "mi" | "mib" => 2,
            "g" | "gb" | "gi" | "gib" => 3,
            "t" | "tb" | "ti" | "tib" => 4,
            "p" | "pb" | "pi" | "pib" => 5,
            _ => return Err(wrong()),
        };
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let bytes = number * 1024_f64.powi(power);
        if !(1.0..LARGEST).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Self(bytes as u64))
    }
}

/// A size as people read it: `48.8 MB`. Decimal units, as registries and networks count.
pub fn for_people(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        text.parse::<Bytes>().ok().map(|bytes| bytes.0)
    }

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        for (text, bytes) in [
            ("6291456", 6 << 20),
            ("512m", 512 << 20),
            ("512M", 512 << 20),
            ("1g", 1 << 30),
            ("1.5g", 3 << 29),
            ("64kb", 64 << 10),
            ("2GiB", 2 << 30),
            ("100b", 100),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "m",
            "-1",
            "1x",
            "1 g",
            "0",
            "1.2.3",
            "inf",
            "nan",
            "1e9",
            "99999999p",
            ".5g",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_by_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (48_800_000, "48.8 MB"),
            (999_960, "1.0 MB"),
        ] {
            assert_eq!(for_people(bytes), text);
        }
    }
}
