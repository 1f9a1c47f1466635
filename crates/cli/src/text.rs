//! Forms of output of all commands: sizes, times and tables for people, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

pub(crate) use xebec_kernel::size::{for_people as size, share};
use xebec_protocol::explain::WaitReport;
use xebec_protocol::failure::{Failure, FailureKind};

/// How long ago something was, coarsely.
pub(crate) fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// A time in docker's words: `5 minutes`, `About an hour`.
pub(crate) fn about(seconds: u64) -> String {
    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    match seconds {
        0 => "Less than a second".to_owned(),
        1 => "1 second".to_owned(),
        2..60 => format!("{seconds} seconds"),
        60..120 => "About a minute".to_owned(),
        120..HOUR => format!("{} minutes", seconds / 60),
        _ => match (seconds + HOUR / 2) / HOUR {
            0 | 1 => "About an hour".to_owned(),
            hours @ 2..48 => format!("{hours} hours"),
            hours @ 48..336 => format!("{} days", hours / 24),
            hours @ 336..1440 => format!("{} weeks", hours / 24 / 7),
            hours @ 1440..17_520 => format!("{} months", hours / 24 / 30),
            _ => format!("{} years", seconds / DAY / 365),
        },
    }
}

/// A row of a table that is known beforehand, as its heads are.
pub(crate) fn row<const COLUMNS: usize>(cells: [&str; COLUMNS]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A table with aligned columns, the first row its heads.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}   ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Reads a time such as `500ms`, `90s`, `10m`, `2h`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_bare.then(|| format!("{text}s"));
    xebec_oci::config::parse_duration(seconds.as_deref().unwrap_or(text)).map_err(|error| error.to_string())
}

/// A value as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(FailureKind::Host, error))?;
    outln!("{text}");
    Ok(())
}

/// A number with its noun, such as "3 layers".
pub(crate) fn count(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number if what == "retry" => format!("{number} retries"),
        number => format!("{number} {what}s"),
    }
}

/// A number of layers, in words.
pub(crate) fn layers(number: u64) -> String {
    count(number, "layer")
}

/// Milliseconds for people.
pub(crate) fn time(milliseconds: f64) -> String {
    if milliseconds < 1000.0 {
        format!("{milliseconds:.1} ms")
    } else {
        format!("{:.2} s", milliseconds / 1000.0)
    }
}

/// The reason of a reader's wait in words.
pub(crate) fn wait_reason(phase: &str) -> &str {
    match phase {
        "registry" => "registry (to answer)",
        "body" => "registry (to send)",
        "pause" => "registry (to come back)",
        other => other,
    }
}

/// The process that waited.
pub(crate) fn waiting_process(wait: &WaitReport) -> String {
    let place = wait
        .container
        .as_ref()
        .map_or_else(String::new, |name| format!(" in {name}"));
    let name = if wait.comm.is_empty() { "?" } else { &wait.comm };
    format!("{name}[{}]{place}", wait.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_docker_says_them() {
        for (seconds, text) in [
            (0, "Less than a second"),
            (1, "1 second"),
            (59, "59 seconds"),
            (119, "About a minute"),
            (3599, "59 minutes"),
            (3600, "About an hour"),
            (7200, "2 hours"),
            (172_800, "2 days"),
            (1_209_600, "2 weeks"),
            (63_072_000, "2 years"),
        ] {
            assert_eq!(about(seconds), text);
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        for wrong in [
            "",
            "m",
            "3d",
            "-1s",
            "99999999999999999999h",
            "18446744073709551615h",
            "18446744073709551615",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tables_align() {
        assert_eq!(
            table(&[row(["A", "B"]), row(["long", "x"])]),
            "A      B\nlong   x\n"
        );
    }
}
