//! `xebec explain --start`: the pages that one start asked for, and the use of its recording.

use xebec_daemon::start_reports::explain_start_without_daemon;
use xebec_format::PAGE_SIZE;
use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_kernel::clock::rfc3339_milliseconds;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::start_report::{Learned, RecordedPages, StartEnd, StartReport};
use xebec_protocol::wire::{Reply, Request};

use crate::args::ExplainArgs;
use crate::text;

/// Digits of a recording's name that are shown.
const SHORT: usize = 19;

/// `xebec explain --start`.
pub(super) fn explain(paths: &Paths, daemon: &Daemon, args: &ExplainArgs) -> Result<(), Failure> {
    let name = args.name.clone();
    let report = match daemon.ask_running(&Request::ExplainStart { name })? {
        Some(Reply::Start(report)) => *report,
        Some(_) => return Err(unexpected_reply()),
        None => explain_start_without_daemon(paths, args.name.as_deref())?,
    };
    if args.json {
        return text::print_json(&report);
    }
    print(&report);
    Ok(())
}

fn print(report: &StartReport) {
    let container = report
        .container
        .as_ref()
        .map_or_else(String::new, |name| format!(" as {name}"));
    outln!(
        "{}: {}{container}, {}",
        report.reference,
        report.command.join(" "),
        end(report),
    );
    let mut rows = vec![
        vec!["began".to_owned(), rfc3339_milliseconds(report.began_ms)],
        vec!["recording".to_owned(), recording(report)],
    ];
    if let Some(recorded) = &report.recorded {
        rows.push(vec!["recorded".to_owned(), recorded_pages(recorded)]);
        rows.push(vec!["read of it".to_owned(), read(recorded)]);
    }
    rows.push(vec!["outside of it".to_owned(), missed(report)]);
    for file in &report.missed_files {
        let waited = match file.waited_ms > 0.0 {
            true => format!(", waited {}", text::time(file.waited_ms)),
            false => String::new(),
        };
        let text = format!("  {}: {}{waited}", file.path, pages(file.pages));
        rows.push(vec![String::new(), text]);
    }
    if report.more_files > 0 {
        let text = format!("  and {} more files", report.more_files);
        rows.push(vec![String::new(), text]);
    }
    let reads = text::count(report.waits, "read");
    let waited = format!("{reads}, {} in all", text::time(report.waited_ms));
    rows.push(vec!["waited".to_owned(), waited]);
    if let Some(learned) = &report.learned {
        rows.push(vec!["learned".to_owned(), learned_text(learned)]);
    }
    for note in notes(report) {
        rows.push(vec!["note".to_owned(), note.to_owned()]);
    }
    if report.earlier > 0 {
        let earlier = format!(
            "{} {} remembered; this is the last",
            text::count(report.earlier, "earlier start"),
            if report.earlier == 1 { "is" } else { "are" }
        );
        rows.push(vec!["note".to_owned(), earlier]);
    }
    if let Some(advice) = &report.advice {
        rows.push(vec!["to do".to_owned(), advice.clone()]);
    }
    out!("{}", text::table(&rows));
}

fn end(report: &StartReport) -> String {
    let after = text::time(report.watched_ms as f64);
    match report.end {
        StartEnd::Ready => format!("ready {after} after its view was mounted"),
        StartEnd::Ended => format!("ended after {after}; no probe succeeded"),
        StartEnd::Limit => format!("watched for {after}; no probe succeeded"),
    }
}

fn recording(report: &StartReport) -> String {
    let Some(loaded) = &report.loaded else {
        return "none of this command line".to_owned();
    };
    let problem = loaded.problem.as_deref();
    let Some(name) = loaded.recording else {
        return format!("not used: {}", problem.unwrap_or("no reason is known"));
    };
    let name = name.to_string();
    let root = loaded
        .root
        .map_or_else(String::new, |root| format!(", rests on \"{root}\""));
    let problem = problem.map_or_else(String::new, |problem| format!("; {problem}"));
    let name = name.get(..SHORT).unwrap_or(&name);
    format!(
        "{name}{root}; brought {} as {} in {}, {}{problem}",
        pages(loaded.injected),
        text::size(loaded.bytes),
        text::count(loaded.requests, "request"),
        text::time(loaded.milliseconds),
    )
}

fn recorded_pages(recorded: &RecordedPages) -> String {
    let late = match recorded.late {
        0 => String::new(),
        late => format!(", {late} came when a process read them"),
    };
    format!(
        "{}: {} were there, {} were brought{late}",
        pages(recorded.pages),
        recorded.present,
        recorded.fetched
    )
}

fn read(recorded: &RecordedPages) -> String {
    let known = recorded.touched + recorded.unused;
    let unknown = match recorded.unknown {
        0 => String::new(),
        unknown => format!("; {unknown} unknown"),
    };
    let (about, sample) = match recorded.sample {
        Some(sample) => ("about ", format!("; by a sample of {sample}")),
        None => ("", String::new()),
    };
    let were = if recorded.fetched_unused == 1 {
        "was"
    } else {
        "were"
    };
    format!(
        "{about}{} of {known}; unused {about}{}, of which {about}{} {were} fetched for nothing{sample}{unknown}",
        recorded.touched,
        pages(recorded.unused),
        pages(recorded.fetched_unused),
    )
}

fn missed(report: &StartReport) -> String {
    format!(
        "{} were not there, {} were",
        pages(report.missed_pages),
        report.local_pages
    )
}

fn learned_text(learned: &Learned) -> String {
    match learned {
        Learned::Kept { missed, touched } => {
            let touched = touched.map_or(
                "what it read of the recording is not known".to_owned(),
                |touched| format!("{touched} of the recording"),
            );
            format!("{missed} pages outside of the recording, {touched}")
        }
        Learned::Not(reason) => format!("nothing: {reason}"),
    }
}

fn notes(report: &StartReport) -> Vec<&'static str> {
    let notes = [
        (
            report.shared,
            "others use the view: what they read counts as read, and what they had read before was not asked for again",
        ),
        (
            report.with_read_ahead,
            "the view read ahead: pages that nobody asked for count as read",
        ),
        (report.truncated, "more was asked for than is known"),
    ];
    let holds = notes.into_iter().filter(|(holds, _)| *holds);
    holds.map(|(_, note)| note).collect()
}

/// A number of pages, and how many bytes they are.
fn pages(pages: u64) -> String {
    format!(
        "{} ({})",
        text::count(pages, "page"),
        text::size(pages * PAGE_SIZE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_a_part_of_what_is_known() {
        let recorded = RecordedPages {
            pages: 600,
            present: 0,
            fetched: 600,
            late: 0,
            sample: None,
            touched: 560,
            unused: 16,
            fetched_unused: 1,
            unknown: 24,
        };
        assert_eq!(
            read(&recorded),
            "560 of 576; unused 16 pages (65.5 kB), of which 1 page (4.1 kB) was fetched for nothing; 24 unknown"
        );
    }
}
