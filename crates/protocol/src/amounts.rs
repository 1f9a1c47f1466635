//! Amounts as people read them, in replies and in what commands print.

/// A size: `48.8 MB`. Decimal units, as registries and networks count.
pub fn size(bytes: u64) -> String {
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

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (48_800_000, "48.8 MB"),
            (999_960, "1.0 MB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
