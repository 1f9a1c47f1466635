//! `xebec stats`.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use serde::Serialize;
use xebec_container::{Record, Usage, usage};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::args::StatsArgs;
use crate::container_lookup::{all, find};
use crate::print::end_with_reader;
use crate::text;

/// The time between two tables.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time over which processors are looked at for the first table.
const FIRST: Duration = Duration::from_millis(250);

/// Moves the cursor to the upper left corner, and clears each line and the screen below (ECMA-48).
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_ALL: &str = "\x1b[2J";

/// `xebec stats [NAME…]`.
pub(crate) fn stats(paths: &Paths, args: &StatsArgs) -> Result<(), Failure> {
    let of = |name: &String| find(paths, name).map(|record| record.id);
    let chosen: Vec<String> = args.names.iter().map(of).collect::<Result<_, _>>()?;
    end_with_reader();
    let mut before = sample(&current(paths, &chosen)?);
    std::thread::sleep(FIRST);
    let is_redrawn = !args.json && !args.no_stream && io::stdout().is_terminal();
    if is_redrawn {
        out!("{CLEAR_ALL}");
    }
    loop {
        let now = sample(&current(paths, &chosen)?);
        let lines: Vec<Line> = now.iter().map(|one| one.line(&before)).collect();
        let text = match args.json {
            true => json(&lines, args.no_stream)?,
            false => table(&lines),
        };
        let is_over = args.no_stream || lines.is_empty();
        out!("{}", shown(&text, is_redrawn));
        if is_over {
            return Ok(());
        }
        before = now;
        std::thread::sleep(INTERVAL);
    }
}

/// The chosen containers that run, or all. A container that was started again has another process.
fn current(paths: &Paths, chosen: &[String]) -> Result<Vec<Record>, Failure> {
    let mut records = all(paths)?;
    records.retain(|record| chosen.is_empty() || chosen.contains(&record.id));
    Ok(records)
}

/// The use of resources of one container at one moment.
struct Sample {
    name: String,
    at: Instant,
    usage: Usage,
}

/// Those of the containers that still run.
fn sample(records: &[Record]) -> Vec<Sample> {
    let of = |record: &Record| {
        Some(Sample {
            name: record.id.clone(),
            usage: usage(record).ok()?,
            at: Instant::now(),
        })
    };
    records.iter().filter_map(of).collect()
}

/// The line that is shown of a container.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    /// In per cent of one processor.
    cpu_percent: Option<f64>,
    #[serde(flatten)]
    usage: Usage,
}

impl Sample {
    fn line(&self, before: &[Sample]) -> Line {
        let earlier = before.iter().find(|one| one.name == self.name);
        let percent = earlier.and_then(|earlier| {
            let passed = self.at.duration_since(earlier.at).as_nanos();
            let used = self.usage.cpu_ns?.checked_sub(earlier.usage.cpu_ns?)?;
            (passed > 0).then(|| used as f64 * 100.0 / passed as f64)
        });
        Line {
            name: self.name.clone(),
            cpu_percent: percent.map(|percent| (percent * 100.0).round() / 100.0),
            usage: self.usage.clone(),
        }
    }
}

fn json(lines: &[Line], is_once: bool) -> Result<String, Failure> {
    let text = match is_once {
        true => serde_json::to_string_pretty(lines),
        false => serde_json::to_string(lines),
    };
    let text = text.map_err(|error| Failure::host("encode statistics", error))?;
    Ok(format!("{text}\n"))
}

fn table(lines: &[Line]) -> String {
    let heads = [
        "CONTAINER",
        "CPU",
        "MEMORY",
        "LIMIT",
        "MEMORY %",
        "NET IN / OUT",
        "DISK READ / WRITTEN",
        "PIDS",
    ];
    let absent = || "-".to_owned();
    let pair = |pair: Option<(u64, u64)>| {
        pair.map_or_else(absent, |(one, other)| {
            format!("{} / {}", text::size(one), text::size(other))
        })
    };
    let mut rows = vec![text::row(heads)];
    for Line {
        name,
        cpu_percent,
        usage,
    } in lines
    {
        let share = usage.memory.zip(usage.memory_limit);
        rows.push(vec![
            name.clone(),
            cpu_percent.map_or_else(absent, |percent| format!("{percent:.1} %")),
            usage.memory.map_or_else(absent, text::size),
            usage.memory_limit.map_or_else(absent, text::size),
            share.map_or_else(absent, |(part, whole)| text::share(part, whole)),
            pair(usage.network),
            pair(usage.block),
            usage.pids.map_or_else(absent, |count| count.to_string()),
        ]);
    }
    text::table(&rows)
}

/// On a terminal each table takes the place of the one before.
fn shown(text: &str, is_redrawn: bool) -> String {
    match is_redrawn {
        true => {
            let lines = text
                .trim_end_matches('\n')
                .replace('\n', &format!("{CLEAR_LINE}\n"));
            format!("{HOME}{lines}{CLEAR_BELOW}\n")
        }
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_ns: Option<u64>, at: Instant) -> Sample {
        let usage = Usage {
            cpu_ns,
            memory: Some(256_000_000),
            memory_limit: Some(512_000_000),
            pids: Some(3),
            ..Usage::default()
        };
        Sample {
            name: "box".into(),
            at,
            usage,
        }
    }

    #[test]
    fn processors_are_counted_between_two_samples() {
        let at = Instant::now();
        let later = at + Duration::from_secs(2);
        let before = [sample(Some(1_000_000_000), at)];
        let percent = |cpu_ns| sample(cpu_ns, later).line(&before).cpu_percent;
        assert_eq!(percent(Some(4_000_000_000)), Some(150.0));
        assert_eq!(percent(Some(1_000_000_000)), Some(0.0));
        assert_eq!(percent(None), None);
        assert_eq!(percent(Some(0)), None, "another container of that name");
        assert_eq!(sample(Some(1), later).line(&[]).cpu_percent, None);
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let line = sample(None, Instant::now()).line(&[]);
        let text = table(&[line]);
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .map(|row| {
                row.split("   ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .unwrap_or_default();
        assert_eq!(row, ["box", "-", "256.0 MB", "512.0 MB", "50 %", "-", "-", "3"]);
    }

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_gets_lines() {
        assert_eq!(shown("a\nb\n", false), "a\nb\n");
        assert_eq!(shown("a\nb\n", true), "\x1b[Ha\x1b[K\nb\x1b[J\n");
    }
}
