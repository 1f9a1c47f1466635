//! `xebec explain`: why readers waited, and which pages starts asked for.

mod start;

use std::collections::BTreeMap;
use std::path::Path;

use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_kernel::clock::{rfc3339, rfc3339_milliseconds};
use xebec_protocol::explain::{Explanation, WaitReport, WaitState};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Reply, Request};

use crate::args::ExplainArgs;
use crate::text;

/// `xebec explain`.
pub(crate) fn explain(paths: &Paths, args: &ExplainArgs) -> Result<(), Failure> {
    if args.start {
        return start::explain(paths, &Daemon::new(paths.clone()), args);
    }
    let name = args.name.clone().unwrap_or_default();
    let mut explanation = match waits_of(paths, &name) {
        // The daemon knows mounts by their whole paths.
        Err(failure) if failure.kind == FailureKind::NotFound && Path::new(&name).is_dir() => {
            let path = Path::new(&name).canonicalize();
            let path = path.map_err(|error| Failure::host(format!("find {name}"), error))?;
            waits_of(paths, &path.to_string_lossy()).map_err(|_| failure)?
        }
        explained => explained?,
    };
    if args.slow {
        let slow = explanation.slow_ms as f64;
        explanation.waits.retain(|wait| wait.waited_ms >= slow);
        explanation
            .waits
            .sort_by(|one, other| other.waited_ms.total_cmp(&one.waited_ms));
    }
    if args.json {
        return text::print_json(&explanation);
    }
    print(&explanation, args.slow);
    Ok(())
}

/// The waits of a name: from the daemon, or from the history if no daemon runs.
pub(crate) fn waits_of(paths: &Paths, name: &str) -> Result<Explanation, Failure> {
    let request = Request::Explain {
        name: name.to_owned(),
    };
    match Daemon::new(paths.clone()).ask_running(&request)? {
        Some(Reply::Explained(explanation)) => Ok(*explanation),
        Some(_) => Err(unexpected_reply()),
        None => xebec_daemon::explain::explain_without_daemon(paths, name),
    }
}

fn print(explanation: &Explanation, slow: bool) {
    let limit = format!(" longer than {}", text::time(explanation.slow_ms as f64));
    outln!(
        "{}: {}{}{}",
        explanation.subject,
        waits(explanation.waits.len()),
        if slow { &limit } else { "" },
        since(explanation.since_ms),
    );
    if !explanation.others.is_empty() {
        outln!(
            "{} earlier of that name: {}",
            explanation.others.len(),
            explanation.others.join(", ")
        );
    }
    if explanation.waits.is_empty() {
        return;
    }
    let heads = ["BEGAN", "WAITED", "PROCESS", "FILE", "FOR"].map(str::to_owned);
    let mut rows = vec![heads.to_vec()];
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for wait in &explanation.waits {
        for (phase, spent) in &wait.waited_for_ms {
            *sums.entry(phase).or_default() += spent;
        }
        rows.push(vec![
            rfc3339_milliseconds(wait.began_ms),
            text::time(wait.waited_ms),
            text::waiting_process(wait),
            wait.file
                .clone()
                .unwrap_or_else(|| format!("data {}+{}", wait.offset, wait.count)),
            reasons(wait),
        ]);
    }
    out!("{}", text::table(&rows));
    let all: f64 = sums.values().sum();
    let sums = sums.iter().map(|(phase, time)| (*phase, *time));
    outln!("in all {}: {}", text::time(all), spent(sums));
}

fn waits(count: usize) -> String {
    text::count(count as u64, "wait")
}

/// Since when waits are remembered; nothing if none ever was.
fn since(milliseconds: u64) -> String {
    match milliseconds {
        0 => String::new(),
        since => format!("; waits are remembered since {}", rfc3339(since / 1000)),
    }
}

/// The reasons of a wait, and the notable facts about it.
fn reasons(wait: &WaitReport) -> String {
    let times = wait
        .waited_for_ms
        .iter()
        .map(|(phase, time)| (phase.as_str(), *time));
    let mut parts = vec![spent(times)];
    if !wait.sources.is_empty() {
        parts.push(format!("from {}", wait.sources.join(" and ")));
    }
    if wait.joined > 0 {
        parts.push(format!(
            "{} of {} spans in flight for another reader",
            wait.joined, wait.spans
        ));
    }
    if wait.retries > 0 {
        parts.push(text::count(wait.retries.into(), "retry"));
    }
    match wait.state {
        WaitState::Served => {}
        WaitState::Refused => parts.push("EIO".to_owned()),
        WaitState::Waiting => parts.push(format!("still waiting, for {}", text::wait_reason(&wait.phase))),
    }
    parts.extend(wait.problem.clone());
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// Times by reason, the longest first; those that do not matter are left out.
fn spent<'a>(times: impl Iterator<Item = (&'a str, f64)>) -> String {
    let mut times: Vec<(&str, f64)> = times.collect();
    let all: f64 = times.iter().map(|(_, time)| time).sum();
    times.retain(|(_, time)| *time * 50.0 >= all);
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    let texts = times
        .iter()
        .map(|(phase, spent)| format!("{} {}", text::wait_reason(phase), text::time(*spent)));
    texts.collect::<Vec<_>>().join(", ")
}
