//! `xebec ps`, and `xebec inspect` of a container.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use xebec_container::{Container, FindError, RecordedNetwork, Status, containers, find};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{Filter, InspectArgs, InspectType, PsArgs};
use crate::container_lookup::directories;
use crate::text;

/// How much of a command line a table shows.
const COMMAND: usize = 30;

/// How long a listing waits until the ends of containers are written down.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What `read` gives, once none of its containers has just ended: its supervisor writes down within milliseconds how.
fn settled<T, E>(read: impl Fn() -> Result<T, E>, containers: impl Fn(&T) -> &[Container]) -> Result<T, E> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let found = read()?;
        if !containers(&found).iter().any(Container::is_between_states) || Instant::now() > deadline {
            return Ok(found);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// `xebec ps`.
pub(crate) fn list(paths: &Paths, args: &PsArgs) -> Result<(), Failure> {
    let found = settled(|| containers(&directories(paths)), |found| &found.containers);
    let found = found.map_err(|error| Failure::host("list containers", error))?;
    for error in &found.unreadable {
        errln!(
            "{error}; the container of that name is neither listed nor cleaned up until you remove the file"
        );
    }
    let is_all = args.all
        || args
            .filter
            .iter()
            .any(|filter| matches!(filter, Filter::Status(_)));
    let is_listed = |container: &Container| {
        let matches = |filter: &Filter| filter.matches(container);
        (is_all || container.is_active()) && Filter::all_match(&args.filter, matches)
    };
    let listed: Vec<Container> = found.containers.into_iter().filter(is_listed).collect();
    if args.json {
        return text::print_json(&listed.iter().map(Listed::of).collect::<Vec<_>>());
    }
    if args.quiet {
        listed.iter().for_each(|container| outln!("{}", container.id()));
        return Ok(());
    }
    out!("{}", table(&listed, args.no_trunc));
    for container in &listed {
        if container.is_orphan() {
            let name = &container.name;
            errln!("{name} still runs although its supervisor was killed; stop it with `xebec stop {name}`");
        }
        if let Some(trouble) = &container.trouble {
            errln!("{trouble}; `xebec rm {}` removes the container", container.name);
        }
    }
    Ok(())
}

fn table(listed: &[Container], no_trunc: bool) -> String {
    let heads = [
        "CONTAINER ID",
        "NAME",
        "IMAGE",
        "COMMAND",
        "CREATED",
        "STATUS",
        "PORTS",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let now = milliseconds_since_1970();
    for container in listed {
        let ports = container.saved.as_ref().map(|saved| saved.ports.join(", "));
        rows.push(vec![
            container.id().to_owned(),
            container.name.clone(),
            container.image().to_owned(),
            command(container.command(), no_trunc),
            created(container, now),
            status(container, now),
            ports.unwrap_or_default(),
        ]);
    }
    text::table(&rows)
}

fn command(words: &[String], no_trunc: bool) -> String {
    let line: String = words.join(" ");
    let line: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match no_trunc || line.chars().count() <= COMMAND {
        true => line,
        false => line.chars().take(COMMAND - 1).chain(['…']).collect(),
    }
}

fn created(container: &Container, now: u64) -> String {
    match container.created_ms() {
        0 => "-".to_owned(),
        created => format!("{} ago", text::about(now.saturating_sub(created) / 1000)),
    }
}

/// What a container does, in docker's words.
fn status(container: &Container, now: u64) -> String {
    let saved = container.saved.as_ref();
    let since = |time: Option<u64>| time.map(|time| text::about(now.saturating_sub(time) / 1000));
    let started =
        since(saved.and_then(|saved| saved.started_ms)).or_else(|| since(Some(container.created_ms())));
    let started = started.unwrap_or_default();
    let finished = since(
        saved
            .and_then(|saved| saved.finished_ms)
            .filter(|_| container.exit_code().is_some()),
    );
    let finished = finished
        .map(|finished| format!(" {finished} ago"))
        .unwrap_or_default();
    let code = container
        .exit_code()
        .map_or_else(|| "unknown".to_owned(), |code| code.0.to_string());
    match container.status() {
        Status::Created => "Created".to_owned(),
        Status::Running if container.is_orphan() => format!("Up {started} (no supervisor)"),
        Status::Running => format!("Up {started}"),
        Status::Paused => format!("Up {started} (Paused)"),
        Status::Restarting => format!("Restarting ({code}){finished}"),
        Status::Exited => {
            let oom = if saved.is_some_and(|saved| saved.oom_killed) {
                ", out of memory"
            } else {
                ""
            };
            format!("Exited ({code}{oom}){finished}")
        }
        Status::Removing => "Removal In Progress".to_owned(),
        Status::MadeEarlier if container.trouble.is_some() => "Unreadable".to_owned(),
        Status::MadeEarlier => "Created by an earlier version".to_owned(),
    }
}

impl Filter {
    /// Whether a container of which each filter holds or not is listed: of filters by the same property one must hold, of others
    /// all, as docker has it.
    fn all_match(filters: &[Self], holds: impl Fn(&Self) -> bool) -> bool {
        let is_met = |filter| filters.iter().any(|other| other.is_alike(filter) && holds(other));
        filters.iter().all(is_met)
    }

    /// Whether another filter is by the same property. Labels are not: each has to be there.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Label(..), _) => self == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn matches(&self, container: &Container) -> bool {
        match self {
            Self::Name(part) => container.name.contains(part),
            Self::Id(beginning) => container.id().starts_with(beginning),
            Self::Status(status) => container.status().name() == status,
            Self::Label(key, value) => {
                let label = container.saved.as_ref().and_then(|saved| saved.labels.get(key));
                label.is_some_and(|label| value.as_ref().is_none_or(|value| value == label))
            }
        }
    }
}

/// A container as `xebec ps --json` gives it.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    name: &'a str,
    image: &'a str,
    manifest: Option<&'a str>,
    command: &'a [String],
    status: &'static str,
    /// The status for people.
    state: String,
    created_ms: u64,
    started_ms: Option<u64>,
    finished_ms: Option<u64>,
    exit_code: Option<u8>,
    reason: Option<&'a str>,
    oom_killed: bool,
    restart: String,
    restarts: u32,
    labels: BTreeMap<String, String>,
    ports: &'a [String],
    /// Its network and its addresses there, while it runs.
    network: Option<&'a RecordedNetwork>,
    pid: Option<i32>,
    supervisor: Option<i32>,
    /// Whether it is recorded that its command was told to run.
    has_begun: Option<bool>,
    /// Whether the process that watches it is there.
    is_supervised: bool,
    detached: bool,
    directory: String,
    trouble: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn of(container: &'a Container) -> Self {
        let saved = container.saved.as_ref();
        let record = container.record.as_ref();
        let is_active = container.is_active();
        let supervisor = record.map(|record| record.supervisor);
        let supervisor = supervisor.or_else(|| saved.and_then(|saved| Some(saved.supervisor.as_ref()?.pid)));
        Self {
            id: container.id(),
            name: &container.name,
            image: container.image(),
            manifest: saved.and_then(|saved| saved.manifest.as_deref()),
            command: container.command(),
            status: container.status().name(),
            state: status(container, milliseconds_since_1970()),
            created_ms: container.created_ms(),
            started_ms: saved.and_then(|saved| saved.started_ms),
            finished_ms: saved.and_then(|saved| saved.finished_ms),
            exit_code: container.exit_code().map(|code| code.0),
            reason: saved.and_then(|saved| saved.reason.as_deref()),
            oom_killed: saved.is_some_and(|saved| saved.oom_killed),
            restart: saved.map(|saved| saved.restart).unwrap_or_default().to_string(),
            restarts: saved.map_or(0, |saved| saved.restarts),
            labels: saved.map(|saved| saved.labels.clone()).unwrap_or_default(),
            ports: saved.map(|saved| saved.ports.as_slice()).unwrap_or_default(),
            network: record.map(|record| &record.network),
            pid: container.pid(),
            supervisor: supervisor.filter(|_| is_active),
            has_begun: record.and_then(|record| record.has_begun),
            is_supervised: is_active && !container.is_orphan(),
            detached: saved.is_some_and(|saved| saved.detached),
            directory: container.directory.display().to_string(),
            trouble: container.trouble.as_deref(),
        }
    }
}

/// A container as `xebec inspect` gives it.
#[derive(Serialize)]
struct Inspected<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    stop_signal: Option<i32>,
    stop_timeout_ms: Option<u64>,
    /// What it is started again with.
    started_as: Option<&'a serde_json::Value>,
}

/// `xebec inspect` of a container. Returns false if an image is meant.
pub(crate) fn inspect(paths: &Paths, args: &InspectArgs) -> Result<bool, Failure> {
    if args.kind != Some(InspectType::Container) && !args.may_be_a_container() {
        return Ok(false);
    }
    let name = &args.image.image.image;
    let container = match settled(|| find(&directories(paths), name), std::slice::from_ref) {
        Ok(container) => container,
        Err(FindError::Unreadable(error)) => return Err(Failure::host("look for a container", error)),
        Err(error) if args.kind.is_some() => return Err(Failure::new(FailureKind::NotFound, error)),
        Err(_) => return Ok(false),
    };
    let saved = container.saved.as_ref();
    text::print_json(&Inspected {
        listed: Listed::of(&container),
        stop_signal: saved.map(|saved| saved.stop_signal).filter(|signal| *signal != 0),
        stop_timeout_ms: saved.map(|saved| saved.stop_timeout_ms),
        started_as: saved.map(|saved| &saved.caller),
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_by_one_property_are_alternatives_but_each_label_must_be_there() {
        let name = |name: &str| Filter::Name(name.to_owned());
        let label = |key: &str| Filter::Label(key.to_owned(), None);
        let status = Filter::Status("exited".to_owned());
        let listed =
            |filters: &[Filter], held: &[Filter]| Filter::all_match(filters, |filter| held.contains(filter));
        assert!(listed(&[], &[]));
        assert!(listed(&[name("a"), name("b")], &[name("b")]));
        assert!(!listed(&[name("a"), name("b"), status.clone()], &[name("b")]));
        assert!(listed(
            &[name("a"), name("b"), status.clone()],
            &[name("a"), status]
        ));
        assert!(!listed(&[label("x"), label("y")], &[label("x")]));
        assert!(listed(&[label("x"), label("y")], &[label("x"), label("y")]));
    }

    #[test]
    fn long_command_lines_are_cut_and_control_characters_are_not_printed() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            command(&words(&["sh", "-c", "a\x1b[2J\nb"]), false),
            "sh -c a [2J b"
        );
        let long = words(&["é".repeat(40).as_str()]);
        assert_eq!(command(&long, false).chars().count(), COMMAND);
        assert!(command(&long, false).ends_with('…'));
        assert_eq!(command(&long, true).chars().count(), 40);
    }
}
