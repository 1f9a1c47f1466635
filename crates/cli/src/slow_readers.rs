//! Readers that wait while a container runs in the foreground: a line on the terminal names them. Nothing else tells the user why
//! all stands still, since the program that reads cannot know. Where the container has the terminal (`--tty`), nothing is
//! written while one of its programs uses the whole screen.
//!
//! The daemon names the reader that waits longest on the host. While that is another container's, nothing is told here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use xebec_container::Screen;
use xebec_format::digest::Digest;
use xebec_keeper::client::Daemon;
use xebec_kernel::terminal::printable;
use xebec_protocol::explain::{WaitReport, WaitState};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{Reply, Request};

use crate::bounded::within;
use crate::explain::waits_of;
use crate::{print, progress, text};

/// How often the daemon is asked.
const EACH: Duration = Duration::from_secs(1);
/// Shortest wait that is told, in milliseconds.
const LEAST_MS: f64 = 2000.0;
/// How long the daemon may take to say which reads failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells of them until it is dropped.
pub(crate) struct SlowReaders(Arc<End>);

#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    changed: Condvar,
}

impl SlowReaders {
    /// Begins to tell of a container's readers, if anything is to be shown. `screen` is that of the container's own terminal.
    pub(crate) fn watch(daemon: &Daemon, container: &str, screen: Option<Screen>) -> Option<Self> {
        if !progress::is_shown() {
            return None;
        }
        let end = Arc::new(End::default());
        let watch = {
            let (end, daemon, container) = (end.clone(), daemon.clone(), container.to_owned());
            move || tell_of(&container, &daemon, screen.as_ref(), &end)
        };
        // It is not waited for at the end: it may be asking a daemon that does not answer.
        let thread = std::thread::Builder::new().name("slow-readers".to_owned());
        thread.spawn(watch).ok()?;
        Some(Self(end))
    }
}

impl Drop for SlowReaders {
    fn drop(&mut self) {
        *self.0.has_come.lock() = true;
        self.0.changed.notify_all();
    }
}

/// Says on standard error which of a container's reads failed since a time (in milliseconds since 1970), and why: its program has only
/// seen an input/output error. A daemon that does not answer is not waited for.
pub(crate) fn tell_failed(paths: &Paths, container: &str, since_ms: u64) {
    let (paths, name) = (paths.clone(), container.to_owned());
    let Some(Ok(explanation)) = within(PATIENCE, move || waits_of(&paths, &name)) else {
        return;
    };
    let is_own = |wait: &&WaitReport| wait.container.as_deref() == Some(container);
    let failed = explanation
        .waits
        .iter()
        .filter(is_own)
        .filter(|wait| wait.state == WaitState::Refused && wait.began_ms >= since_ms);
    if let Some(sentence) = failed_sentence(&failed.collect::<Vec<_>>(), container) {
        errln!("xebec: {sentence}");
    }
}

fn failed_sentence(failed: &[&WaitReport], container: &str) -> Option<String> {
    let last = failed.last()?;
    let file = last.file.as_deref().unwrap_or("an unknown file");
    let read = match failed.len() {
        1 => format!("could not read {file}"),
        several => format!("could not read {several} times, the last time {file}"),
    };
    let why = last.problem.as_deref().unwrap_or("it was not told why");
    let said = format!("{container} {read}: {why}; `xebec explain {container}` tells more");
    Some(printable(&said))
}

fn tell_of(container: &str, daemon: &Daemon, screen: Option<&Screen>, end: &End) {
    let mut told = Told::default();
    loop {
        {
            let mut has_come = end.has_come.lock();
            if !*has_come {
                end.changed.wait_for(&mut has_come, EACH);
            }
            if *has_come {
                return;
            }
        }
        if screen.is_some_and(Screen::is_taken) {
            continue;
        }
        let Ok(Some(Reply::Status(status))) = daemon.ask_running(&Request::Status) else {
            continue;
        };
        let oldest = status.oldest_reader.as_deref();
        let own = oldest.filter(|wait| wait.container.as_deref() == Some(container));
        if let Some(wait) = own.filter(|wait| told.is_due(wait)) {
            let has_come = end.has_come.lock();
            if !*has_come {
                let said = sentence(wait, container);
                match screen {
                    None => errln!("note: {said}"),
                    // A raw terminal begins a line where the last one ended, and nobody knows where the program's cursor is.
                    Some(_) => print::err(format_args!("\r\nnote: {said}\r\n")),
                }
            }
        }
    }
}

/// The identity of a wait among all others ([`WaitReport::identity`]).
type Identity = (u64, i32, Option<Digest>, u64);

/// The wait that was told last, and how long it was then, in milliseconds.
#[derive(Default)]
struct Told(Option<(Identity, f64)>);

impl Told {
    /// Whether a wait is to be told now: once, and again when it has doubled, as in the daemon's log.
    fn is_due(&mut self, wait: &WaitReport) -> bool {
        let again = match self.0 {
            Some((identity, then)) if identity == wait.identity() => 2.0 * then,
            _ => LEAST_MS,
        };
        let is_due = wait.waited_ms >= again;
        if is_due {
            self.0 = Some((wait.identity(), wait.waited_ms));
        }
        is_due
    }
}

fn sentence(wait: &WaitReport, container: &str) -> String {
    let problem = wait.problem.as_ref();
    let problem = problem.map_or_else(String::new, |problem| format!(": {problem}"));
    let said = format!(
        "{} has waited {} for {}, which is waiting for {}{problem}; `xebec explain {container}` tells more",
        text::waiting_process(wait),
        text::time(wait.waited_ms),
        wait.file.as_deref().unwrap_or("an unknown file"),
        text::wait_reason(&wait.phase),
    );
    printable(&said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(began_ms: u64, waited_ms: f64) -> WaitReport {
        let wait = serde_json::json!({
            "began_ms": began_ms, "waited_ms": waited_ms, "state": "waiting", "pid": 12, "comm": "cat", "container": "web",
            "layer": null, "file": "/a\u{1b}b", "offset": 0, "count": 4096, "spans": 1, "joined": 0, "retries": 1,
            "waited_for_ms": {}, "phase": "pause", "sources": [], "problem": "no connection"
        });
        serde_json::from_value(wait).unwrap()
    }

    #[test]
    fn a_wait_is_told_once_and_again_when_it_has_doubled() {
        let mut told = Told::default();
        let due =
            [500.0, 2500.0, 3500.0, 4900.0, 5100.0, 9000.0, 10_300.0].map(|ms| told.is_due(&wait(1, ms)));
        assert_eq!(due, [false, true, false, false, true, false, true]);
        assert!(
            !told.is_due(&wait(2, 1500.0)) && told.is_due(&wait(2, 2100.0)),
            "another one"
        );
    }

    #[test]
    fn a_sentence_names_the_reader_the_file_and_the_reason() {
        assert_eq!(
            sentence(&wait(1, 2500.0), "web"),
            "cat[12] in web has waited 2.50 s for /a b, which is waiting for registry (to come back): no connection; `xebec \
             explain web` tells more"
        );
    }
    #[test]
    fn reads_that_failed_are_counted_and_the_last_is_named_with_its_cause() {
        let (one, mut two) = (wait(1, 5.0), wait(2, 5.0));
        two.file = Some("/usr/bin/true".to_owned());
        two.problem = Some("there is no room".to_owned());
        assert_eq!(failed_sentence(&[], "web"), None);
        assert_eq!(
            failed_sentence(&[&one, &two], "web").unwrap(),
            "web could not read 2 times, the last time /usr/bin/true: there is no room; `xebec explain web` tells more"
        );
        assert!(
            failed_sentence(&[&one], "web")
                .unwrap()
                .starts_with("web could not read /a b: no connection")
        );
    }
}
