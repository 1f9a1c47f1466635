//! The command line, as clap reads it. Help texts here are also the man pages.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets mean optional"
)]

mod absent;
mod absent_elsewhere;
mod cache;
#[cfg(test)]
mod command_table;
mod commit;
mod complete;
mod container;
mod containerd;
mod daemon;
mod diagnosis;
mod exec;
mod foreign;
mod image;
mod images;
mod inspect;
mod install;
mod json;
mod lifecycle;
mod login;
mod network;
mod service;
mod share;
mod switches;
#[cfg(test)]
mod tests;
mod usage;
mod variables;
mod verbose;
mod volume;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use cache::{CacheCommand, GcArgs};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use commit::{CommitArgs, PushArgs};
pub(crate) use complete::{CompleteArgs, NameKind};
pub(crate) use container::{RecordArgs, RunArgs};
pub(crate) use containerd::{CtrPullArgs, DockerRelayArgs};
pub(crate) use daemon::{DaemonCommand, StartArgs};
pub(crate) use diagnosis::{DoctorArgs, ExplainArgs};
pub(crate) use exec::{CopyArgs, ExecArgs, StatsArgs, TopArgs};
pub(crate) use image::{ImageArgs, Pull};
pub(crate) use images::{CheckArgs, IndexArgs, ListImagesArgs, MountArgs, PrefetchArgs, PullArgs, RmiArgs};
pub(crate) use inspect::{InspectArgs, InspectType};
pub(crate) use install::InstallArgs;
pub(crate) use json::Json;
pub(crate) use lifecycle::{
    AgainArgs, ContainerCommand, Filter, KillArgs, LogsArgs, NamesArgs, PsArgs, RenameArgs, RmArgs, StopArgs,
};
pub(crate) use login::{LoginArgs, LoginPlace, LogoutArgs};
pub(crate) use network::NetworkCommand;
pub(crate) use variables::no_variables;
pub(crate) use volume::{
    ListArgs as VolumeListArgs, PruneArgs as VolumePruneArgs, RemoveArgs as VolumeRemoveArgs, VolumeCommand,
};

/// Xebec starts containers before their images arrive.
#[derive(Debug, Parser)]
#[command(name = "xebec", version, propagate_version = true, max_term_width = 100)]
#[command(mut_subcommands = |command| switches::take_values(verbose::leave_short_form(command)))]
#[command(mut_args = switches::take_value)]
// Of an option that is given twice the later one counts, as in docker. Lists are added to.
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  \
    xebec run --rm -it docker.io/library/debian:12 bash\n  \
    xebec index --push registry.example.com/app:1.4     make the image's next start lazy, on every host\n  \
    xebec mount registry.example.com/app:1.4 /mnt       look at an image without pulling it\n  \
    xebec doctor registry.example.com                   check this host and a registry\n\n\
    Exit codes: 2 wrong use, 3 not found, 4 registry, 5 not lazy, 6 not trusted, 7 wrong bytes,\n\
    125 this host. `run`, `exec` and `start --attach` end with the code of what they run: 127 if there\n\
    is no such command, 126 if it is not executable, 128 + N if signal N stopped the start, and 125\n\
    for every failure of Xebec itself, wrong use included.")]
pub(crate) struct Cli {
    /// The directory for what outlives a reboot: cache, images, settings.
    #[arg(
        long,
        global = true,
        env = "XEBEC_ROOT",
        default_value = "/var/lib/xebec",
        value_name = "DIR"
    )]
    pub(crate) root: PathBuf,
    /// The directory for sockets, process ids and mounts.
    #[arg(
        long,
        global = true,
        env = "XEBEC_RUN",
        default_value = "/run/xebec",
        value_name = "DIR"
    )]
    pub(crate) run: PathBuf,
    /// Print more: once, what Xebec does; twice, how.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// This process is the supervisor of a detached container, and reports to the one that started it; only `run` and `start`
    /// do so.
    #[arg(long, hide = true)]
    pub(crate) supervisor: bool,
    /// Show neither progress nor notes. Errors are still printed.
    #[arg(long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Whether the command was told to print JSON.
    #[arg(skip)]
    pub(crate) json: bool,
    /// Whether the command ends with the exit code of what it runs.
    #[arg(skip)]
    pub(crate) runs: bool,
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// Help or version that were asked for, or the error in the command line.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let read = || {
            let matches = Self::command().try_get_matches_from(words)?;
            let cli = Self::from_arg_matches(&matches)?;
            Ok(Self {
                json: wants_json(&matches),
                runs: cli.supervisor || runs_something(&matches),
                ..cli
            })
        };
        // The same with the arguments as they are documented.
        read().map_err(|error: clap::Error| {
            let documented = Self::documented();
            let text: Vec<String> = words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let error = absent_elsewhere::told(usage::told(error, &documented, words), &documented, words);
            foreign::told(error, &documented, &text)
        })
    }

    /// Whether a command line that cannot be read asks for JSON: the command has `--json`, and the word stands there.
    pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
        if !words.iter().any(|word| word == "--json") {
            return false;
        }
        let command = Self::command();
        let Some(matches) = as_far_as_read(&command, words) else {
            return false;
        };
        let (mut command, mut matches) = (&command, &matches);
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else {
                return false;
            };
            (command, matches) = (found, inner);
        }
        command
            .get_arguments()
            .any(|argument| argument.get_long() == Some("json"))
    }

    /// Whether a command line that cannot be read is of a command that ends with the exit code of its program.
    pub(crate) fn asks_to_run(words: &[OsString]) -> bool {
        as_far_as_read(&Self::command(), words).is_some_and(|matches| runs_something(&matches))
    }

    /// The commands and options, for help, man pages and completion.
    pub(crate) fn documented() -> clap::Command {
        switches::without_values(service::documented(Self::command()))
    }
}

/// The readable part of a command line that is wrong.
fn as_far_as_read(command: &clap::Command, words: &[OsString]) -> Option<clap::ArgMatches> {
    let command = command.clone().ignore_errors(true);
    command.try_get_matches_from(words).ok()
}

/// Whether the command ends with the exit code of its program, so that no failure of its own may have a code that a program of a
/// container has as well.
fn runs_something(matches: &clap::ArgMatches) -> bool {
    match matches.subcommand() {
        Some(("run" | "exec", _)) => true,
        Some(("start", start)) => start.get_flag("attach"),
        _ => false,
    }
}

/// Whether the command, which is the innermost, was told to print JSON.
fn wants_json(matches: &clap::ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, inner)) => wants_json(inner),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a container. Its image's bytes come when they are read.
    Run(Box<RunArgs>),
    /// Mount an image's files read-only on a directory.
    Mount(MountArgs),
    /// Unmount an image that `mount` mounted.
    Umount {
        /// The directory.
        dir: PathBuf,
    },
    /// Index an image's layers, so that the image can start lazily.
    Index(IndexArgs),
    /// Record which pages a service reads until it is ready. Its next start fetches them by one request.
    Record(Box<RecordArgs>),
    /// Make an image known to this host; with --complete, fetch all of it.
    Pull(PullArgs),
    /// Fetch what services of an image read at their start, before one of them is started.
    Prefetch(PrefetchArgs),
    /// Store a login for a registry, once the registry has taken it.
    Login(LoginArgs),
    /// Remove a login for a registry.
    Logout(LogoutArgs),
    /// Pull an image lazily into containerd, for clients that cannot do it themselves (`ctr` of containerd 1.7).
    CtrPull(CtrPullArgs),
    /// Run a relay between Docker Engine and containerd that fetches blobs of lazy layers when Docker asks for them.
    DockerRelay(DockerRelayArgs),
    /// Show containers as JSON; or images' layers: codec, laziness, root of trust, and how much is cached.
    Inspect(InspectArgs),
    /// Verify the cached bytes of an image.
    Check(CheckArgs),
    /// List the images that this host knows.
    Images(ListImagesArgs),
    /// Remove images, and the layers that no other image uses.
    Rmi(RmiArgs),
    /// List containers: those that run, or all.
    Ps(PsArgs),
    /// Print what a container that runs in the background has written.
    Logs(LogsArgs),
    /// Start containers again that have ended, in the background, each on its layer.
    Start(AgainArgs),
    /// Stop containers: ask each to end, and kill it if it takes too long.
    Stop(StopArgs),
    /// Stop containers, and start them again.
    Restart(StopArgs),
    /// Send a signal to containers; by default SIGKILL.
    Kill(KillArgs),
    /// Remove containers with their layers and logs.
    Rm(RmArgs),
    /// Wait until containers have ended, and print their exit codes.
    Wait(NamesArgs),
    /// Give a container another name.
    Rename(RenameArgs),
    /// Freeze all processes of containers.
    Pause(NamesArgs),
    /// Let paused containers go on.
    Unpause(NamesArgs),
    /// Manage containers.
    Container {
        /// The command.
        #[command(subcommand)]
        command: ContainerCommand,
    },
    /// Run a command in a container that runs.
    Exec(Box<ExecArgs>),
    /// Copy files between this host and containers that run.
    Cp(CopyArgs),
    /// Make an image of what a container changed, and keep it on this host.
    Commit(Box<CommitArgs>),
    /// Push an image that was committed on this host, with the indexes by which it starts lazily.
    Push(PushArgs),
    /// Show what containers use: processors, memory, network, disks.
    Stats(StatsArgs),
    /// List the processes of a container.
    Top(TopArgs),
    /// Manage volumes: directories that Xebec keeps for containers, by name.
    #[command(after_help = "Examples:\n  \
        xebec volume create --label tier=db data             make a volume; `run -v data:/srv` makes one, too\n  \
        xebec volume ls                                      list volumes, and the containers that use them\n  \
        xebec volume rm data                                 remove a volume that no container uses\n  \
        xebec volume prune                                   remove anonymous volumes that no container uses")]
    Volume {
        /// The command.
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Make, list and remove networks, by which containers reach each other and the world.
    #[command(after_help = "Examples:\n  \
        xebec network create shop                            containers of it find each other by name\n  \
        xebec network create --internal back                 they reach nothing else\n  \
        xebec network create --subnet 192.168.70.0/24 lab\n\n\
        Networks need CNI plugins and iptables: `apt install containernetworking-plugins iptables`.")]
    Network {
        /// The command.
        #[command(subcommand)]
        command: NetworkCommand,
    },
    /// Show the cache of layers, and make it smaller.
    #[command(after_help = "Examples:\n  \
        xebec cache stat                                     what is cached, what uses it, what can be evicted\n  \
        xebec cache gc --dry-run                             what would be evicted now\n  \
        xebec cache gc --to 5GB                              evict down to a size, once\n  \
        xebec cache pin registry.example.com/app:1.4         never evict an image\n\n\
        The limit is cache_size in daemon.toml, or `xebec daemon start --cache-size`.")]
    Cache {
        /// The command.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Check kernel, root directory, privileges, container runtime, configuration, keys and registries, and say how to fix what is
    /// missing.
    Doctor(DoctorArgs),
    /// Show each wait of a container, view or image: which process read which file, how long it waited, and why.
    Explain(ExplainArgs),
    /// Control the daemon, which fetches the pages that containers read. It starts by itself.
    Daemon {
        /// The command.
        #[command(subcommand)]
        command: DaemonCommand,
    },
    /// Install this program, its service, and containerd's snapshotter on this host. A second run changes nothing.
    Install(InstallArgs),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print names that a shell can complete.
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write man pages into a directory.
    Man {
        /// The directory.
        dir: PathBuf,
    },
}
