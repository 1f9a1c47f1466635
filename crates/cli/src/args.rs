//! The command line, as clap reads it. Help texts here are also the man pages.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets mean optional"
)]

mod absent;
#[cfg(test)]
mod command_table;
mod complete;
mod container;
mod containerd;
mod exec;
mod foreign;
mod image;
mod json;
mod lifecycle;
mod login;
mod network;
mod service;
mod share;
#[cfg(test)]
mod tests;
mod usage;
mod variables;
mod verbose;
mod volume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use complete::{CompleteArgs, NameKind};
pub(crate) use container::{RecordArgs, RunArgs};
pub(crate) use containerd::{CtrPullArgs, DockerRelayArgs};
pub(crate) use exec::{CopyArgs, ExecArgs, StatsArgs, TopArgs};
pub(crate) use image::{ImageArgs, Pull};
pub(crate) use json::Json;
pub(crate) use lifecycle::{
    AgainArgs, ContainerCommand, Filter, KillArgs, LogsArgs, NamesArgs, Origin, PsArgs, RenameArgs, RmArgs,
    StopArgs,
};
pub(crate) use login::{LoginArgs, LoginPlace, LogoutArgs};
pub(crate) use network::NetworkCommand;
pub(crate) use variables::no_variables;
pub(crate) use volume::{
    ListArgs as VolumeListArgs, PruneArgs as VolumePruneArgs, RemoveArgs as VolumeRemoveArgs, VolumeCommand,
};
use xebec_protocol::settings::{LogFormat, Overrides, Settings, Size};

use crate::template::Format;

/// Xebec starts containers before their images arrive.
#[derive(Debug, Parser)]
#[command(name = "xebec", version, propagate_version = true, max_term_width = 100)]
#[command(mut_subcommands = verbose::leave_short_form)]
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
    /// Help or version that were asked for, or what is wrong with the command line.
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
            foreign::told(usage::told(error, &documented, words), &documented, &text)
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

    /// Whether a command line that cannot be read is of a command that ends with the exit code of what it runs.
    pub(crate) fn asks_to_run(words: &[OsString]) -> bool {
        as_far_as_read(&Self::command(), words).is_some_and(|matches| runs_something(&matches))
    }

    /// The commands and options, for help, man pages and completion.
    pub(crate) fn documented() -> clap::Command {
        service::documented(Self::command())
    }
}

/// What can be read of a command line that is wrong.
fn as_far_as_read(command: &clap::Command, words: &[OsString]) -> Option<clap::ArgMatches> {
    let command = command.clone().ignore_errors(true);
    command.try_get_matches_from(words).ok()
}

/// Whether the command ends with the exit code of what it runs, so that no failure of its own may have a code that a program
/// of a container has as well.
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
    Images(Json),
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

/// `xebec install`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec install --dry-run                        list the changes, key by key\n  \
    xebec install --restart-containerd             install, and restart containerd to use it\n  \
    xebec install --docker --restart-containerd    for Docker too, once you restart it\n  \
    xebec install --containerd /etc/k3s.toml       change another configuration file of containerd\n  \
    xebec install --uninstall                      undo the installation; images and containers stay\n\n\
    Comments, order and all other keys of containerd's configuration stay as they are.")]
pub(crate) struct InstallArgs {
    /// Print the changes, and make none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Undo the installation. Files that somebody changed since then stay.
    #[arg(long)]
    pub(crate) uninstall: bool,
    /// containerd's configuration file.
    #[arg(long, value_name = "FILE", default_value = xebec_install::CONTAINERD_CONFIG)]
    pub(crate) containerd: PathBuf,
    /// Do not change containerd. `xebec run` and `xebec mount` do not need it.
    #[arg(long, conflicts_with_all = ["containerd", "restart_containerd"])]
    pub(crate) no_containerd: bool,
    /// Leave Kubernetes' default snapshotter as it is. Images are lazy only for pods and clients that name `xebec`.
    #[arg(long)]
    pub(crate) keep_default: bool,
    /// Let Docker use lazy images too. FILE is Docker's configuration file, if it is not the usual one.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = xebec_install::docker::DOCKER_CONFIG,
        conflicts_with = "no_containerd"
    )]
    pub(crate) docker: Option<PathBuf>,
    /// Restart containerd if its configuration changed. Running containers go on.
    #[arg(long)]
    pub(crate) restart_containerd: bool,
    /// Keep running after the installation until a signal comes, as the container of a DaemonSet must.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) stay: bool,
    /// The path of the host's root directory, for a container that installs Xebec on its host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec inspect web                                                           what is kept of a container, as JSON\n  \
    xebec inspect --format '{{.State.Status}}' web db                           one field of it, of two containers\n  \
    xebec inspect registry.example.com/app:1.4                                  its layers\n  \
    xebec inspect --runtime-image registry.example.com/app:1.4                  its services\n  \
    xebec inspect --runtime-image --svg start.svg registry.example.com/app:1.4  a picture of one")]
pub(crate) struct InspectArgs {
    /// Containers by name or id, and images: NAME[:TAG][@DIGEST].
    #[arg(id = "subject", value_name = "CONTAINER|IMAGE", required = true)]
    pub(crate) names: Vec<String>,
    #[arg(long, value_name = "OS/ARCH", help = image::PLATFORM)]
    pub(crate) platform: Option<String>,
    /// Print JSON: a list of what was found. Containers are always shown so.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line for each, of fields as {{.State.Status}} or {{json .State}} and text; json: all fields.
    #[arg(short, long, value_name = "FORMAT", conflicts_with_all = ["json", "runtime_image"])]
    pub(crate) format: Option<Format>,
    /// What the names are of. By default a container, if one has this name or id, and else an image.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<InspectType>,
    /// Show the recorded services of one image instead: what a start of each fetches, and its recording's root of trust.
    #[arg(long)]
    pub(crate) runtime_image: bool,
    /// Draw what one service reads, file by file in the order of first access, as SVG into FILE (-: standard output).
    #[arg(
        long,
        value_name = "FILE",
        requires = "runtime_image",
        conflicts_with = "json"
    )]
    pub(crate) svg: Option<PathBuf>,
    /// The service to draw: a part of its command line, or its recording's digest. By default the newest.
    #[arg(long, value_name = "WORDS", requires = "svg")]
    pub(crate) service: Option<String>,
}

impl InspectArgs {
    /// Whether a name may be that of a container or of an image.
    pub(crate) fn may_be_a_container(&self) -> bool {
        self.kind.is_none() && !self.runtime_image && self.platform.is_none()
    }

    /// The image of that name.
    pub(crate) fn image(&self, name: &str) -> ImageArgs {
        ImageArgs {
            image: name.to_owned(),
            platform: self.platform.clone(),
        }
    }
}

/// What `xebec inspect` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InspectType {
    /// A container.
    Container,
    /// An image.
    Image,
}

/// `xebec mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// The directory to mount the image on: one that is empty, or shows this image already.
    pub(crate) dir: PathBuf,
    /// When to ask the registry which image a tag names.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub(crate) pull: Pull,
    /// Fail if a layer must be read whole before the mount.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Fetch the rest of the image in the background; with a deadline, slowly enough to end by then (90s, 10m).
    #[arg(long, value_name = "DEADLINE", num_args = 0..=1, require_equals = true, default_missing_value = "0s",
        value_parser = crate::text::parse_duration)]
    pub(crate) complete: Option<std::time::Duration>,
    /// Honour setuid bits and file capabilities of the image's programs. Every user who can reach the directory can then
    /// become root.
    #[arg(long)]
    pub(crate) suid: bool,
    /// Let processes open the image's device nodes.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec index`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec index --push registry.example.com/app:1.4\n  \
    xebec index --bind registry.example.com/app:1.4     the tag then names an image index that binds both\n  \
    xebec index --sign cosign.key registry.example.com/app:1.4")]
pub(crate) struct IndexArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Push the indexes to the image's repository as an artifact that refers to the image (a referrer).
    #[arg(long, conflicts_with = "local")]
    pub(crate) push: bool,
    /// Keep the indexes on this host only (the default).
    #[arg(long)]
    pub(crate) local: bool,
    /// Push an image index that names the image and its layer indexes, so that one digest covers both, and move the tag
    /// to it.
    #[arg(long, conflicts_with = "local")]
    pub(crate) bind: bool,
    /// Sign the indexes with this private key (PEM or cosign's; its password is taken from COSIGN_PASSWORD).
    #[arg(long, value_name = "KEY", conflicts_with = "local")]
    pub(crate) sign: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch the whole image before the command ends. It then needs neither registry nor daemon.
    #[arg(long)]
    pub(crate) complete: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch the whole image, and verify all of it.
    #[arg(long)]
    pub(crate) all: bool,
    /// Fetch the whole image, rebuild each exact layer from it, and compare the layer with its digest. The layer's index
    /// is proven then.
    #[arg(long)]
    pub(crate) prove: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is cached, what uses it, and what can be evicted.
    Stat(Json),
    /// Evict layers that are not in use, longest unused first, until the cache is below its limit.
    Gc(GcArgs),
    /// Never evict an image's layers.
    Pin(ImageArgs),
    /// Allow again that an image's layers are evicted.
    Unpin(ImageArgs),
}

/// `xebec cache gc`.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Print what would be evicted, and evict nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Evict down to this size instead of the limit (512MB, 20GiB, 0).
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) to: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    text.parse().map(|size: Size| size.0)
}

/// `xebec rmi`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec rmi registry.example.com/app:1.3              remove the name; and the image if it has no other name\n  \
    xebec rmi sha256:0123…                              remove the image with all its names")]
pub(crate) struct RmiArgs {
    /// The images, by name or by their manifest's digest.
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// Remove an image, too, of which there are containers that do not run. To start one of them again, its image is asked for
    /// at its registry.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A registry (host[:port]) or an image to check as well.
    pub(crate) registry: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec explain --slow web                 the reads of a container that took long\n  \
    xebec explain --start                    what the last start read, and how much its recording helped\n  \
    xebec explain --start --json web         the same for a container's start, as JSON\n\n\
    Waits are for the registry (to answer, to send, to come back after a fault), a token, a turn (queue), \
    decoding and digests (verify), and the cache's disk. The last 8,192 are in the daemon's memory, some 5,000 in the history \
    below the root directory, which is read without a daemon, too. Reads of pages that are there already never wait.")]
pub(crate) struct ExplainArgs {
    /// A container, also one that is gone, a view or where it is mounted, or an image by reference or digest. Of containers of one
    /// name the newest is meant; the others are NAME@RUN.
    #[arg(
        id = "subject",
        value_name = "CONTAINER|IMAGE",
        required_unless_present = "start"
    )]
    pub(crate) name: Option<String>,
    /// Show what a start read until it was ready, and how much of its recording it used. Name a container, or an image for
    /// its last start; without a name, the last start of all. Starts stay in the history when the daemon has ended.
    #[arg(long, conflicts_with = "slow")]
    pub(crate) start: bool,
    /// Show only waits longer than slow_reader in daemon.toml (10s by default), longest first.
    #[arg(long)]
    pub(crate) slow: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec daemon`.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Show process ids, mounts, queue and counters.
    Status(Json),
    /// Print the daemon's metrics, as Prometheus gets them.
    Metrics,
    /// Stop the daemon, unless a view is mounted or still read.
    Stop {
        /// Unmount views that are in use, too. Processes that still read get EIO for missing pages. The daemon stops after
        /// the last of them.
        #[arg(long)]
        force: bool,
    },
    /// Replace the running daemon by another version of its program. Readers wait for a moment.
    Upgrade {
        /// The new program; by default the one that runs this command.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Run the keeper in the foreground (other commands start it by themselves).
    Start(StartArgs),
    /// Print which journals this program can take over.
    #[command(hide = true)]
    JournalVersion,
    /// Run a worker; only the keeper does.
    #[command(hide = true)]
    Worker,
}

/// `xebec daemon start`. What is not given here is taken from `daemon.toml` in the root directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    /// Keep the cache below this size by evicting layers that are not in use (512MB, 20GiB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<String>,
    /// How long a reader waits for missing bytes before it gets an error (default 10m).
    #[arg(long, value_name = "TIME")]
    pub(crate) fill_wait: Option<String>,
    /// Log each process that waits longer than this (default 10s).
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_reader: Option<String>,
    /// How long a view stays mounted for the next start after its last user ended (default 5m; 0s: not at all).
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Keep profiles of starts with a probe for `xebec record --merge`, at most one for each service in ten minutes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) learn: Option<String>,
    /// The format of log lines: text or json.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<String>,
}

impl StartArgs {
    /// How the log is to look; what is wrong with the settings is said later.
    pub(crate) fn log_format(&self, root: &Path) -> LogFormat {
        Settings::load(&root.join("daemon.toml"), &self.overrides())
            .map_or(LogFormat::Text, |settings| settings.log)
    }

    /// What was given, by the names of the file.
    pub(crate) fn overrides(&self) -> Overrides {
        let given = [
            ("cache_size", &self.cache_size),
            ("fill_wait", &self.fill_wait),
            ("slow_reader", &self.slow_reader),
            ("linger", &self.linger),
            ("metrics", &self.metrics),
            ("log", &self.log),
            ("learn", &self.learn),
        ];
        let given = given.into_iter().filter_map(|(name, value)| {
            let value = value.clone()?;
            Some((name.to_owned(), value.into()))
        });
        given.collect()
    }
}
