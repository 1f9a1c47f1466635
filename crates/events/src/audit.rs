//! The audit log: a line of JSON for each thing that happened, for each that the registry itself deleted by a rule, and for each
//! request that was refused to a caller with a login.
//!
//! Lines go to a file or to standard error. A request never waits for them: they pass through a bounded queue to a thread that
//! writes. If the disk is slower than the requests for so long that the queue is full, lines are lost, and the next line that is
//! written says how many. The file may be moved away at any time (logrotate): the next line makes it anew. A line has at most 8 KiB.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{AUTHORIZATION, USER_AGENT};
use hyper::http::request::Parts;
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use xebec_access::credentials::Credentials;
use xebec_access::{Need, Observer, Peer, Refusal};
use xebec_kernel::clock;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::owner::create_new;

use crate::deletion::{Gone, Thing};
use crate::event::{Event, EventKind, Listener, cut};

/// The longest line, in bytes.
pub const MAX_LINE: usize = 8 * 1024;

/// The most tags of one event that are named.
const MAX_TAGS: usize = 10;

/// How many lines wait to be written.
const QUEUE: usize = 8192;

/// How many lines are written at once.
const BATCH: usize = 256;

/// A request that waits for room in the queue looks this often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// `[audit]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// The file; without it, standard error.
    pub file: Option<PathBuf>,
    /// Which reads are written down. Everything that changes something always is.
    #[serde(default)]
    pub pulls: Pulls,
}

/// Which reads are written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pulls {
    /// None.
    None,
    /// Those of manifests: one for each image that somebody takes.
    #[default]
    Manifests,
    /// Those of blobs too.
    All,
}

/// The file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "the audit log {path} cannot be written: {cause}; {}, or name another file ([audit])",
    advice(cause)
)]
pub struct AuditError {
    path: PathBuf,
    cause: io::Error,
}

/// The advice that makes it possible to write there.
fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "make its directory",
        io::ErrorKind::PermissionDenied => "start as the registry's user, and give that user its directory",
        _ => "see to its file system",
    }
}

/// Writes down what happens.
#[derive(Debug)]
pub struct Audit {
    queue: SyncSender<Item>,
    pulls: Pulls,
    lost: Arc<AtomicU64>,
    lost_in_all: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Audit {
    /// Begins to write. The thread ends when this has gone and all lines are written.
    ///
    /// # Errors
    /// [`AuditError`], if the file cannot be opened.
    pub fn open(settings: &AuditSettings) -> Result<Arc<Self>, AuditError> {
        let output = match &settings.file {
            None => Output::StandardError,
            Some(path) => {
                let failed = |cause| AuditError {
                    path: path.clone(),
                    cause,
                };
                Output::File(path.clone(), Some(open(path).map_err(failed)?))
            }
        };
        let (lines, queue) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let lost_in_all = Arc::default();
        let writer = Writer {
            output,
            lost: Arc::clone(&lost),
            lost_in_all: Arc::clone(&lost_in_all),
            failing: false,
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || writer.run(&queue));
        Ok(Arc::new(Self {
            queue: lines,
            pulls: settings.pulls,
            lost,
            lost_in_all,
            thread: thread.map_err(|cause| AuditError {
                path: settings.file.clone().unwrap_or_default(),
                cause,
            })?,
        }))
    }

    /// Waits until all lines are written, for a process that is about to end, and says how many were lost. Another owner of the log
    /// may still write.
    pub fn finish(self: Arc<Self>) -> u64 {
        let lost = Arc::clone(&self.lost);
        if let Some(audit) = Arc::into_inner(self) {
            drop(audit.queue);
            // A thread that panicked has said so.
            let _ = audit.thread.join();
        }
        lost.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written, for a process that is about to end while others still have this, but no longer than
    /// `within`. Whether they are; it blocks.
    pub fn flush(&self, within: Duration) -> bool {
        let begun = Instant::now();
        let (written, told) = channel();
        let mut item = Item::Flush(written);
        loop {
            item = match self.queue.try_send(item) {
                Ok(()) => break,
                Err(TrySendError::Full(item)) if begun.elapsed() < within => item,
                Err(_) => return false,
            };
            std::thread::sleep(LOOK_AGAIN);
        }
        told.recv_timeout(within.saturating_sub(begun.elapsed())).is_ok()
    }

    /// How many lines were lost since the start.
    pub fn lost_in_all(&self) -> u64 {
        self.lost_in_all.load(Ordering::Relaxed)
    }

    /// How many lines were lost so far and are not yet reported.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn write(&self, fields: Map<String, Value>) {
        let line = line(fields);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.queue.try_send(Item::Line(line))
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.lost_in_all.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Listener for Audit {
    fn happened(&self, event: &Event) {
        let wanted = match event.kind {
            EventKind::PullBlob => self.pulls == Pulls::All,
            EventKind::PullManifest => self.pulls != Pulls::None,
            _ => true,
        };
        if wanted {
            self.write(of_event(event));
        }
    }

    fn let_go(&self, gone: &Gone) {
        self.write(of_gone(gone));
    }
}

impl Observer for Audit {
    /// A first request without credentials is how every client begins, and is not written down.
    fn refused(&self, parts: &Parts, needs: &[Need], refusal: &Refusal) {
        let shown = parts.headers.get(AUTHORIZATION);
        let (outcome, detail) = match refusal {
            Refusal::Unauthorized { .. } if shown.is_none() => return,
            Refusal::Unauthorized { detail, .. } => ("unauthorized", detail),
            Refusal::Denied { detail } => ("denied", detail),
            Refusal::Unavailable { detail, .. } => ("unavailable", detail),
        };
        let claimed = match shown.map(|value| Credentials::parse(value.as_bytes())) {
            Some(Ok(Credentials::Password { name, .. })) => text(&name),
            _ => Value::Null,
        };
        let needs: Vec<String> = needs
            .iter()
            .take(MAX_TAGS)
            .map(|need| format!("{} {}", need.action.name(), need.repository))
            .collect();
        let header = parts
            .headers
            .get(USER_AGENT)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let fields = json!({
            "time": time(SystemTime::now()),
            "event": "refused",
            "outcome": outcome,
            "claimed_user": claimed,
            "address": parts.extensions.get::<Peer>().map(|peer| peer.0.to_string()),
            "method": parts.method.as_str(),
            "path": text(parts.uri.path()),
            "needs": needs,
            "detail": text(detail),
            "user_agent": header.map(|agent| text(&agent)),
        });
        if let Value::Object(fields) = fields {
            self.write(fields);
        }
    }
}

fn of_event(event: &Event) -> Map<String, Value> {
    let optional = |value: &Option<String>| value.as_deref().map(text);
    let fields = json!({
        "time": time(event.time),
        "event": name(event.kind),
        "outcome": "done",
        "user": optional(&event.origin.user),
        "address": event.origin.peer.map(|peer| peer.to_string()),
        "repository": text(&event.repository),
        "digest": optional(&event.digest),
        "tags": event.tags.iter().take(MAX_TAGS).map(|tag| text(tag)).collect::<Vec<_>>(),
        "media_type": optional(&event.media_type),
        "size": event.size,
        "from": optional(&event.from),
        "method": text(&event.origin.method),
        "host": text(&event.origin.host),
        "user_agent": text(&event.origin.user_agent),
        "request_id": text(&event.origin.request_id),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn of_gone(gone: &Gone) -> Map<String, Value> {
    let (event, tags, manifests) = match &gone.what {
        Thing::Tag(tag) => ("delete-tag", std::slice::from_ref(tag), None),
        Thing::Manifest => ("delete-manifest", Default::default(), None),
        Thing::Copy { tags, manifests } => ("delete-copy", tags.as_slice(), Some(*manifests)),
    };
    let fields = json!({
        "time": time(SystemTime::now()),
        "event": event,
        "outcome": "done",
        "repository": text(&gone.repository),
        "digest": text(&gone.digest),
        "tags": tags.iter().take(MAX_TAGS).map(|tag| text(tag)).collect::<Vec<_>>(),
        "manifests": manifests,
        "rule": text(&gone.why),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::PullManifest => "pull-manifest",
        EventKind::PullBlob => "pull-blob",
        EventKind::PushManifest => "push-manifest",
        EventKind::PushBlob => "push-blob",
        EventKind::MountBlob => "mount-blob",
        EventKind::DeleteManifest => "delete-manifest",
        EventKind::DeleteBlob => "delete-blob",
        EventKind::DeleteTag => "delete-tag",
    }
}

fn text(text: &str) -> Value {
    Value::String(cut(text).to_owned())
}

fn time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    clock::rfc3339_milliseconds(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The line, with its end. Characters that JSON escapes may make it longer than its fields are: then only what matters stays.
fn line(mut fields: Map<String, Value>) -> String {
    fields.retain(|_, value| !value.is_null());
    let mut line = Value::Object(fields.clone()).to_string();
    if line.len() >= MAX_LINE {
        fields.retain(|name, _| {
            matches!(
                name.as_str(),
                "time" | "event" | "outcome" | "user" | "address" | "digest"
            )
        });
        fields.insert("shortened".to_owned(), true.into());
        line = Value::Object(fields).to_string();
    }
    line.push('\n');
    line
}

/// Appends to what is there; nobody but the owner's group reads who did what. A new one belongs to the owner of its directory if root makes it.
fn open(path: &Path) -> io::Result<File> {
    let append = || File::options().append(true).open(path);
    match append() {
        // Root, who collects, must not keep the registry from its own log.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
            match create_new(path, OFlags::WRONLY | OFlags::APPEND, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => append(),
                made => made,
            }
        }
        opened => opened,
    }
}

/// An item that waits for the thread that writes.
#[derive(Debug)]
enum Item {
    Line(String),
    /// Told once all before it is written.
    Flush(Sender<()>),
}

enum Output {
    StandardError,
    File(PathBuf, Option<File>),
}

struct Writer {
    output: Output,
    lost: Arc<AtomicU64>,
    lost_in_all: Arc<AtomicU64>,
    /// Whether the last line could not be written, so that the log says so once.
    failing: bool,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Item>) {
        while let Ok(first) = queue.recv() {
            let (mut lines, mut count, mut waiting) = (String::new(), 0, Vec::new());
            let mut next = Some(first);
            while let Some(item) = next {
                match item {
                    Item::Line(line) => {
                        lines.push_str(&line);
                        count += 1;
                    }
                    Item::Flush(told) => waiting.push(told),
                }
                next = match count < BATCH && waiting.is_empty() {
                    true => queue.try_recv().ok(),
                    false => None,
                };
            }
            if count > 0 {
                self.write_lines(lines, count);
            }
            for told in waiting {
                // The task that waited may have given up.
                let _ = told.send(());
            }
        }
    }

    fn write_lines(&mut self, mut lines: String, count: usize) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let note = json!({"time": time(SystemTime::now()), "event": "lost", "lines": lost});
            lines.push_str(&format!("{note}\n"));
        }
        match self.write(lines.as_bytes()) {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.lost.fetch_add(lost + count as u64, Ordering::Relaxed);
                self.lost_in_all.fetch_add(count as u64, Ordering::Relaxed);
                if !self.failing {
                    tracing::error!(%error, "the audit log cannot be written; its lines are lost until it can");
                }
                self.failing = true;
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (path, file) = match &mut self.output {
            Output::StandardError => return io::stderr().lock().write_all(bytes),
            Output::File(path, file) => (path, file),
        };
        // Moved away, or removed: a user who follows the name must find the lines.
        let moved = match (&*file, FileIdentity::at(path)) {
            (Some(file), Ok(there)) => FileIdentity::of(file)? != there,
            _ => true,
        };
        if moved {
            *file = None;
            *file = Some(open(path)?);
        }
        match file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, chown};

    use super::*;

    /// An administrator collects as root, and the registry runs as a user of its own.
    #[test]
    fn a_log_that_root_makes_belongs_to_the_owner_of_its_directory() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("audit.log");
        if chown(top.path(), Some(65534), Some(65533)).is_err() {
            let said = "SKIPPED: an audit log belongs to the owner of its directory: these tests are not run as root\n";
            io::stderr().write_all(said.as_bytes()).unwrap();
            return;
        }
        for line in ["one\n", "two\n"] {
            open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let found = fs::metadata(&path).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (65534, 65533, 0o640)
        );
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    }
}
