//! Sizes as users write them, and as they read them. There is one notation for writing, docker's: a number, perhaps with a fraction,
//! and `b`, `k`, `m`, `g`, `t` or `p`, also as `kb`, `ki` or `kib`, in upper or lower case.

use std::str::FromStr;

/// A size of memory, or of a container's files: all units are powers of 1024, as docker has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// Why a text is no size that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeParseError {
    /// Not a size.
    #[error("{0:?} is not a size; write a number and b, k, m, g or t, as 512m, 1.5g or 20GiB")]
    NoSize(String),
    /// Larger than the kernel counts.
    #[error("{0:?} is too large; a size is less than 8192p")]
    TooLarge(String),
}

/// Largest size: the kernel and the runtimes of containers count in signed numbers.
const LARGEST: f64 = i64::MAX as f64;

impl Bytes {
    /// As by [`FromStr`], and 0, which stands for no limit or the usual size.
    ///
    /// # Errors
    /// If it is no size.
    pub fn or_zero(text: &str) -> Result<Self, SizeParseError> {
        read(text, 1024.0)
    }

    /// A size on a disk or of fetched data: `kB`, `MB`, `GB`, `TB` and `PB` are powers of 1000, as disks and registries count and
    /// as commands print sizes. 0 is one.
    ///
    /// # Errors
    /// If it is no size.
    pub fn on_disk(text: &str) -> Result<Self, SizeParseError> {
        read(text, 1000.0)
    }
}

impl FromStr for Bytes {
    type Err = SizeParseError;

    fn from_str(text: &str) -> Result<Self, SizeParseError> {
        match read(text, 1024.0) {
            Ok(Self(0)) => Err(SizeParseError::NoSize(text.to_owned())),
            read => read,
        }
    }
}

/// Reads a size whose unit `kB` has that many bytes.
fn read(text: &str, kilobyte: f64) -> Result<Bytes, SizeParseError> {
    let wrong = || SizeParseError::NoSize(text.to_owned());
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower.get(number.len()..).unwrap_or_default();
    let (letter, rest) = unit.split_at(unit.len().min(1));
    let power = match letter {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let factor = match rest {
        "" | "i" | "ib" => 1024_f64,
        "b" => kilobyte,
        _ => return Err(wrong()),
    };
    if power == 0 && !rest.is_empty() {
        return Err(wrong());
    }
    let number = number
        .strip_suffix(' ')
        .filter(|_| !unit.is_empty())
        .unwrap_or(number);
    let is_number = number.starts_with(|c: char| c.is_ascii_digit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = number.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    let bytes = number * factor.powi(power);
    match bytes < LARGEST {
        true => Ok(Bytes(bytes as u64)),
        false => Err(SizeParseError::TooLarge(text.to_owned())),
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

/// A share in per cent; `-` of nothing. Only all of it is 100 %, and only nothing is 0 %.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    if part > 0 && part.saturating_mul(200) < whole {
        return "< 1 %".to_owned();
    }
    if part < whole && part.saturating_mul(200) >= whole.saturating_mul(199) {
        return "99 %".to_owned();
    }
    format!("{:.0} %", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        text.parse::<Bytes>().ok().map(|bytes| bytes.0)
    }

    fn on_disk(text: &str) -> Option<u64> {
        Bytes::on_disk(text).ok().map(|bytes| bytes.0)
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
            ("2 GiB", 2 << 30),
            ("3Ki", 3 << 10),
            ("100b", 100),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
            let is_decimal = text == "64kb";
            assert_eq!(
                on_disk(text),
                Some(if is_decimal { 64_000 } else { bytes }),
                "{text}"
            );
        }
        for (text, bytes) in [
            ("0", 0),
            ("512MB", 512_000_000),
            ("1kB", 1000),
            ("1.5GB", 1_500_000_000),
            ("2tb", 2_000_000_000_000),
        ] {
            assert_eq!(on_disk(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "m",
            "-1",
            "1x",
            "1  g",
            "1 ",
            "1bb",
            "1bi",
            "1mm",
            "1mib2",
            "1.2.3",
            "inf",
            "nan",
            "1e9",
            "99999999p",
            ".5g",
        ] {
            assert_eq!((size(text), on_disk(text)), (None, None), "{text}");
        }
        assert_eq!(size("0"), None);
        assert_eq!(Bytes::or_zero("0"), Ok(Bytes(0)));
        let error = "99999999t".parse::<Bytes>().unwrap_err().to_string();
        assert!(
            error.contains("too large") && error.contains("99999999t"),
            "{error}"
        );
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

    #[test]
    fn shares() {
        for (part, whole, text) in [
            (0, 0, "-"),
            (0, 9, "0 %"),
            (1, 1_000_000, "< 1 %"),
            (2, 200, "1 %"),
            (1, 2, "50 %"),
            (999, 1000, "99 %"),
            (1000, 1000, "100 %"),
        ] {
            assert_eq!(share(part, whole), text);
        }
    }
}
