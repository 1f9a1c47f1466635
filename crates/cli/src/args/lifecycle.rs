//! Commands on containers that exist, and the options of `run` that prepare for them.

use std::time::Duration;

use clap::{Args, Subcommand};
use xebec_container::{RestartPolicy, StopSignal};
use xebec_container_log::{LogLimits, Time};
use xebec_kernel::size::Bytes;

use crate::template::Format;

/// Options for the state that Xebec keeps of a container, for its later life.
#[derive(Debug, Args)]
pub(crate) struct KeptArgs {
    /// Run the container in the background, and print its id once its command runs.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Label the container: KEY or KEY=VALUE. Repeatable.
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// When to start the container again after its end: no, on-failure, on-failure:N, always, unless-stopped.
    #[arg(long, value_name = "POLICY", default_value = "no")]
    pub(crate) restart: RestartPolicy,
    /// The signal that asks the container to stop, instead of the image's.
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) stop_signal: Option<StopSignal>,
    /// How many seconds the container may take to stop before it is killed.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::text::parse_duration)]
    pub(crate) stop_timeout: Duration,
    /// With --detach: the size at which a file of the container's log is full (10m), and the next one begins.
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_max_size: Option<Bytes>,
    /// With --detach: how many files of the container's log are kept (3).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) log_max_files: Option<u32>,
}

impl KeptArgs {
    /// How much of the container's log is kept.
    pub(crate) fn log_limits(&self) -> LogLimits {
        let usual = LogLimits::default();
        LogLimits {
            size: self.log_max_size.map_or(usual.size, |size| size.0),
            files: self.log_max_files.unwrap_or(usual.files),
        }
    }

    /// Labels by their keys.
    pub(crate) fn labels(&self) -> std::collections::BTreeMap<String, String> {
        let pair = |label: &String| {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            (key.to_owned(), value.to_owned())
        };
        self.labels.iter().map(pair).collect()
    }
}

/// `xebec ps`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec ps -a                                  all containers, not only those that run\n  \
    xebec ps -aq --filter status=exited          the ids of those that have ended\n  \
    xebec rm $(xebec ps -aq --filter label=ci)   remove those with a label\n  \
    xebec ps --format '{{.Names}}\\t{{.Status}}'   a line of that for each; `--format json` shows all fields\n\n\
    Filters: name=PART, id=BEGINNING, label=KEY[=VALUE], and status=created, running, paused, restarting, exited or removing.")]
pub(crate) struct PsArgs {
    /// List all containers, not only those that run.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List only the N containers that were made last, also those that have ended.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// List only the container that was made last, also if it has ended.
    #[arg(short, long, conflicts_with = "last")]
    pub(crate) latest: bool,
    /// Print ids only.
    #[arg(short, long, conflicts_with_all = ["json", "format"])]
    pub(crate) quiet: bool,
    /// Print a line for each, of fields as {{.Names}} and text; json: all fields.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<Format>,
    /// List only what matches; --filter status=… implies --all. Repeatable.
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = filter)]
    pub(crate) filter: Vec<Filter>,
    /// Print whole command lines.
    #[arg(long)]
    pub(crate) no_trunc: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A condition that a listed container meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Its name holds this.
    Name(String),
    /// Its id begins so.
    Id(String),
    /// It has this status.
    Status(String),
    /// It has this label, with this value if one is given.
    Label(String, Option<String>),
}

fn filter(text: &str) -> Result<Filter, String> {
    let statuses = [
        "created",
        "running",
        "paused",
        "restarting",
        "exited",
        "removing",
        "unknown",
    ];
    match text.split_once('=') {
        Some(("name", part)) => Ok(Filter::Name(part.to_owned())),
        Some(("id", beginning)) => Ok(Filter::Id(beginning.to_owned())),
        Some(("status", status)) if statuses.contains(&status) => Ok(Filter::Status(status.to_owned())),
        Some(("status", _)) => Err(format!("the statuses are {}", statuses.join(", "))),
        Some(("label", label)) => Ok(match label.split_once('=') {
            Some((key, value)) => Filter::Label(key.to_owned(), Some(value.to_owned())),
            None => Filter::Label(label.to_owned(), None),
        }),
        _ => Err("write it as name=PART, id=BEGINNING, status=STATUS or label=KEY[=VALUE]".to_owned()),
    }
}

/// `xebec logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec logs --tail 20 -f web                  the last 20 lines, and what comes\n  \
    xebec logs -t --since 10m web                the last ten minutes, with times\n\n\
    Xebec keeps what containers write that run in the background (`run --detach`, `start`).")]
pub(crate) struct LogsArgs {
    /// The container, by name or id.
    pub(crate) container: String,
    /// Print what the container writes until it ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print only what was written since: 10m (ago), 2026-01-31, 2026-01-31T12:00:00Z, or seconds since 1970.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Time>,
    /// Print only what was written before.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Time>,
    /// Print only the last N lines; all, or a negative number: every line.
    #[arg(short = 'n', long, value_name = "N", default_value = "all", value_parser = tail, allow_negative_numbers = true)]
    pub(crate) tail: Tail,
    /// Print the time of each line.
    #[arg(short, long)]
    pub(crate) timestamps: bool,
}

/// How many of the last lines are printed; all without a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail(pub(crate) Option<usize>);

fn tail(text: &str) -> Result<Tail, String> {
    match text {
        "all" => Ok(Tail(None)),
        number => number
            .parse::<i64>()
            .map(|lines| Tail(usize::try_from(lines).ok()))
            .map_err(|_| "use a number, or all".to_owned()),
    }
}

/// Containers by name or id.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The containers, by name or id.
    #[arg(required = true, value_name = "CONTAINER")]
    pub(crate) containers: Vec<String>,
}

/// `xebec start`.
#[derive(Debug, Args)]
pub(crate) struct AgainArgs {
    /// The containers.
    #[command(flatten)]
    pub(crate) names: NamesArgs,
    /// Print what the container writes until it ends, and end with its exit code.
    #[arg(short, long)]
    pub(crate) attach: bool,
}

/// `xebec stop` and `xebec restart`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The containers.
    #[command(flatten)]
    pub(crate) names: NamesArgs,
    /// How many seconds a container may take to stop before it is killed, instead of what it was started with.
    #[arg(short = 't', long = "timeout", visible_alias = "time", value_name = "SECONDS",
        value_parser = crate::text::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `xebec kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The containers.
    #[command(flatten)]
    pub(crate) names: NamesArgs,
    /// The signal, by name or number.
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    pub(crate) signal: StopSignal,
}

/// `xebec rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The containers.
    #[command(flatten)]
    pub(crate) names: NamesArgs,
    /// Kill a container that runs before it is removed. One that is not there is no error then.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Remove the anonymous volumes of the containers, too.
    #[arg(short, long)]
    pub(crate) volumes: bool,
}

/// `xebec rename`.
#[derive(Debug, Args)]
pub(crate) struct RenameArgs {
    /// The container, by name or id. It must not run.
    pub(crate) container: String,
    /// Its new name.
    pub(crate) name: String,
}

/// `xebec container`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContainerCommand {
    /// Remove all containers that do not run.
    Prune {
        /// Do not ask.
        #[arg(short, long)]
        force: bool,
    },
    /// Start again those that a restart policy keeps running, after a boot or after their supervisor was killed.
    Restore {
        /// Go on looking for such containers until a signal comes, as a service does.
        #[arg(long)]
        watch: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_written_as_for_docker() {
        let label = |value: Option<&str>| Filter::Label("a".to_owned(), value.map(str::to_owned));
        for (text, wanted) in [
            ("name=we", Filter::Name("we".to_owned())),
            ("status=exited", Filter::Status("exited".to_owned())),
            ("label=a", label(None)),
            ("label=a=b=c", label(Some("b=c"))),
        ] {
            assert_eq!(filter(text), Ok(wanted));
        }
        for wrong in ["web", "status=gone", "image=x", ""] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
