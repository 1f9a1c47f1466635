//! `xebec ps`, and the fields that it and `xebec inspect` show of a container.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::Serialize;
use xebec_container::{Container, RecordedNetwork, Status, containers};
use xebec_kernel::clock::{milliseconds_since_1970, rfc3339};
use xebec_network::{PortMapping, shown_ports};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_views::unguarded_views::Suspects;

use crate::args::{Filter, PsArgs};
use crate::container_lookup::directories;
use crate::template::print_found;
use crate::text;

/// How much of a command line a table shows.
const COMMAND: usize = 30;

/// How long a listing waits until the ends of containers are written down.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The facts about containers that a listing shows beyond their records.
pub(crate) struct Known {
    /// The time, in milliseconds since 1970.
    now: u64,
    /// The processes that may have read zeros in place of bytes.
    suspects: BTreeSet<i32>,
}

impl Known {
    /// The facts as they are now.
    pub(crate) fn read(paths: &Paths) -> Self {
        let suspects = Suspects::read(paths).status();
        let processes = suspects.iter().flat_map(|suspect| &suspect.processes);
        Self {
            now: milliseconds_since_1970(),
            suspects: processes
                .filter_map(|process| i32::try_from(process.pid).ok())
                .collect(),
        }
    }

    /// Whether a container runs on a view that no daemon guarded for a time.
    fn may_have_read_zeros(&self, container: &Container) -> bool {
        container.pid().is_some_and(|pid| self.suspects.contains(&pid))
    }
}

/// The result of `read`, read again while one of its containers has just ended: its supervisor writes down within milliseconds how.
pub(crate) fn settled<T, E>(
    read: impl Fn() -> Result<T, E>,
    containers: impl Fn(&T) -> &[Container],
) -> Result<T, E> {
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
    let last = if args.latest { Some(1) } else { args.last };
    let is_all = args.all
        || last.is_some()
        || args
            .filter
            .iter()
            .any(|filter| matches!(filter, Filter::Status(_)));
    let is_listed = |container: &Container| {
        let matches = |filter: &Filter| filter.matches(container);
        (is_all || container.is_active()) && Filter::all_match(&args.filter, matches)
    };
    // The newest come first.
    let listed = found.containers.into_iter().filter(is_listed);
    let listed: Vec<Container> = listed.take(last.unwrap_or(usize::MAX)).collect();
    let known = Known::read(paths);
    if args.json {
        let shown = listed.iter().map(|container| Listed::of(container, &known));
        return text::print_json(&shown.collect::<Vec<_>>());
    }
    if let Some(format) = &args.format {
        let rows = listed.iter().map(|container| Row::of(container, &known));
        return print_found(&rows.collect::<Vec<_>>(), Some(format));
    }
    if args.quiet {
        listed.iter().for_each(|container| outln!("{}", container.id()));
        return Ok(());
    }
    out!("{}", table(&listed, &known, args.no_trunc));
    for container in &listed {
        if known.may_have_read_zeros(container) {
            let name = &container.name;
            errln!(
                "{name} may have read zeros in place of bytes, while no daemon guarded its image; restart it with \
                 `xebec restart {name}`"
            );
        }
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

fn table(listed: &[Container], known: &Known, no_trunc: bool) -> String {
    let heads = [
        "CONTAINER ID",
        "NAME",
        "IMAGE",
        "COMMAND",
        "CREATED",
        "STATUS",
        "PORTS",
    ];
    let mut rows = vec![text::row(heads)];
    for container in listed {
        rows.push(vec![
            container.id().to_owned(),
            container.name.clone(),
            container.image().to_owned(),
            command(container.command(), no_trunc),
            created(container, known.now),
            status(container, known),
            shown_ports(ports(container)),
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

/// The ports of the host that lead to a container: of one that does not run none do.
fn ports(container: &Container) -> &[PortMapping] {
    let runs = matches!(container.status(), Status::Running | Status::Paused);
    let record = container.record.as_ref().filter(|_| runs);
    record
        .map(|record| record.network.ports.as_slice())
        .unwrap_or_default()
}

/// The state of a container, in docker's words.
fn status(container: &Container, known: &Known) -> String {
    let now = known.now;
    let zeros = match known.may_have_read_zeros(container) {
        true => " (may have read zeros)",
        false => "",
    };
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
        Status::Running if container.is_orphan() => format!("Up {started} (no supervisor){zeros}"),
        Status::Running => format!("Up {started}{zeros}"),
        Status::Paused => format!("Up {started} (Paused){zeros}"),
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
pub(crate) struct Listed<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) manifest: Option<&'a str>,
    pub(crate) command: &'a [String],
    pub(crate) status: &'static str,
    /// The status for people.
    state: String,
    pub(crate) created_ms: u64,
    pub(crate) started_ms: Option<u64>,
    pub(crate) finished_ms: Option<u64>,
    pub(crate) exit_code: Option<u8>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) oom_killed: bool,
    pub(crate) restart: String,
    pub(crate) restarts: u32,
    pub(crate) labels: BTreeMap<String, String>,
    ports: Vec<String>,
    #[serde(skip)]
    pub(crate) published: &'a [PortMapping],
    /// Its network and its addresses there, while it runs.
    pub(crate) network: Option<&'a RecordedNetwork>,
    pub(crate) pid: Option<i32>,
    /// Whether its processes may have read zeros in place of bytes, while no daemon guarded its image.
    may_have_read_zeros: bool,
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
    pub(crate) fn of(container: &'a Container, known: &Known) -> Self {
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
            state: status(container, known),
            created_ms: container.created_ms(),
            started_ms: saved.and_then(|saved| saved.started_ms),
            finished_ms: saved.and_then(|saved| saved.finished_ms),
            exit_code: container.exit_code().map(|code| code.0),
            reason: saved.and_then(|saved| saved.reason.as_deref()),
            oom_killed: saved.is_some_and(|saved| saved.oom_killed),
            restart: saved.map(|saved| saved.restart).unwrap_or_default().to_string(),
            restarts: saved.map_or(0, |saved| saved.restarts),
            labels: saved.map(|saved| saved.labels.clone()).unwrap_or_default(),
            ports: ports(container).iter().map(ToString::to_string).collect(),
            published: ports(container),
            network: record.map(|record| &record.network),
            pid: container.pid(),
            may_have_read_zeros: known.may_have_read_zeros(container),
            supervisor: supervisor.filter(|_| is_active),
            has_begun: record.and_then(|record| record.has_begun),
            is_supervised: is_active && !container.is_orphan(),
            detached: saved.is_some_and(|saved| saved.detached),
            directory: container.directory.display().to_string(),
            trouble: container.trouble.as_deref(),
        }
    }
}

/// A container as `xebec ps --format` gives it: the values of a row, by docker's names.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Row<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    names: &'a str,
    image: &'a str,
    command: String,
    created_at: String,
    running_for: String,
    status: String,
    state: &'static str,
    ports: String,
    labels: String,
    networks: &'a str,
    /// The same by the names of `--json`, and more.
    #[serde(flatten)]
    listed: Listed<'a>,
}

impl<'a> Row<'a> {
    fn of(container: &'a Container, known: &Known) -> Self {
        let listed = Listed::of(container, known);
        let label = |(key, value): (&String, &String)| format!("{key}={value}");
        Self {
            id: listed.id,
            names: listed.name,
            image: listed.image,
            command: command(listed.command, true),
            created_at: rfc3339(listed.created_ms / 1000),
            running_for: created(container, known.now),
            status: listed.state.clone(),
            state: listed.status,
            ports: shown_ports(ports(container)),
            labels: listed.labels.iter().map(label).collect::<Vec<_>>().join(","),
            networks: listed.network.map_or("", |network| &network.name),
            listed,
        }
    }
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
