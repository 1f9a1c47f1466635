//! The command line, as clap reads it. Help texts here are also the man pages.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are help texts, where brackets mean optional"
)]

mod container;
mod containerd;
mod image;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
pub(crate) use container::{RecordArgs, RunArgs};
pub(crate) use containerd::{CtrPullArgs, DockerRelayArgs};
pub(crate) use image::{ImageArgs, Pull};
use xebec_protocol::settings::{LogFormat, Overrides, Settings, Size};

/// Xebec starts containers before their images arrive.
#[derive(Debug, Parser)]
#[command(name = "xebec", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    xebec run --rm -it docker.io/library/debian:12 bash\n  \
    xebec index --push registry.example.com/app:1.4     make its next start lazy, on every host\n  \
    xebec mount registry.example.com/app:1.4 /mnt       look at an image without pulling it\n  \
    xebec doctor registry.example.com                   check this host and a registry\n\n\
    Exit codes: 2 wrong use, 3 not found, 4 registry, 5 not lazy, 6 not trusted, 7 wrong bytes, 125 this host;\n\
    `run` passes the container's own code on, or 127 if its command is not there, 126 if that is not executable,\n\
    and 128 + N if signal N came before it began.")]
pub(crate) struct Cli {
    /// The directory for what outlives a boot: images, layers, containers.
    #[arg(
        long,
        global = true,
        env = "XEBEC_ROOT",
        default_value = "/var/lib/xebec",
        value_name = "DIR"
    )]
    pub(crate) root: PathBuf,
    /// The directory for what does not: sockets, process ids, mounts.
    #[arg(
        long,
        global = true,
        env = "XEBEC_RUN",
        default_value = "/run/xebec",
        value_name = "DIR"
    )]
    pub(crate) run: PathBuf,
    /// Log more: -v what Xebec does, -vv how.
    #[arg(long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a container, reading its image as it is needed.
    Run(Box<RunArgs>),
    /// Mount an image's files read-only on a directory.
    Mount(MountArgs),
    /// Unmount what `mount` mounted.
    Umount {
        /// The directory.
        dir: PathBuf,
    },
    /// Index an image's layers, so that it can start lazily.
    Index(IndexArgs),
    /// Record the pages that a service reads until it is ready: its next start fetches them by one request.
    Record(Box<RecordArgs>),
    /// Make an image known to this host; with --complete, fetch all of it.
    Pull(PullArgs),
    /// Pull an image lazily into containerd, for clients that cannot (`ctr` of containerd 1.7).
    CtrPull(CtrPullArgs),
    /// Relay Docker Engine's calls to containerd, and fetch the blobs of lazy layers when Docker asks for them.
    DockerRelay(DockerRelayArgs),
    /// Show an image's layers: codec, whether lazy, root of trust, how much is cached.
    Inspect(InspectArgs),
    /// Verify the cached layers of an image.
    Check(CheckArgs),
    /// List the images that this host knows.
    Images(Json),
    /// Forget images, and remove the layers that no other image refers to.
    Rmi(RmiArgs),
    /// List containers.
    Ps(Json),
    /// Show and bound the cache of layers.
    #[command(after_help = "Examples:\n  \
        xebec cache stat                                     what is cached, who uses it, what may go\n  \
        xebec cache gc --dry-run                             what would go now\n  \
        xebec cache gc --to 5GB                              evict down to a size, once\n  \
        xebec cache pin registry.example.com/app:1.4         keep an image, whatever the limit is\n\n\
        The limit is cache_size in daemon.toml, or `xebec daemon start --cache-size`.")]
    Cache {
        /// What to do.
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Check kernel, file system, limits and registries, and say what to do.
    Doctor(DoctorArgs),
    /// Show what the readers of a container, view or image waited for: file, process, time, reason.
    Explain(ExplainArgs),
    /// The daemon that answers readers; it starts by itself.
    Daemon {
        /// What to do.
        #[command(subcommand)]
        command: DaemonCommand,
    },
    /// Install this program, its service, and the snapshotter of containerd on this host. A second run changes nothing.
    Install(InstallArgs),
    /// Print a completion script for a shell.
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory.
    Man {
        /// Where to.
        dir: PathBuf,
    },
}

/// `xebec install`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec install --dry-run                        what would be changed, key by key\n  \
    xebec install --restart-containerd             all of it, and containerd takes it up\n  \
    xebec install --docker --restart-containerd    and Docker uses it, when it is restarted\n  \
    xebec install --containerd /etc/k3s.toml       another configuration of containerd\n  \
    xebec install --uninstall                      as it was before; images and containers stay\n\n\
    Comments, order and all other keys of containerd's configuration stay as they are.")]
pub(crate) struct InstallArgs {
    /// Print the steps, and carry out none.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Remove what was installed. Files that were changed since stay.
    #[arg(long)]
    pub(crate) uninstall: bool,
    /// containerd's configuration.
    #[arg(long, value_name = "FILE", default_value = xebec_install::CONTAINERD_CONFIG)]
    pub(crate) containerd: PathBuf,
    /// Do not configure containerd. `xebec run` and `xebec mount` work without it.
    #[arg(long, conflicts_with_all = ["containerd", "restart_containerd"])]
    pub(crate) no_containerd: bool,
    /// Keep the snapshotter that Kubernetes uses. Images are lazy for clients that name the snapshotter `xebec`.
    #[arg(long)]
    pub(crate) keep_default: bool,
    /// Let Docker use lazy images, too. FILE is Docker's configuration if it is elsewhere.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = xebec_install::docker::DOCKER_CONFIG,
        conflicts_with = "no_containerd"
    )]
    pub(crate) docker: Option<PathBuf>,
    /// Restart containerd if its configuration changed; containers go on.
    #[arg(long)]
    pub(crate) restart_containerd: bool,
    /// Do not exit after the installation, for a DaemonSet of Kubernetes.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) stay: bool,
    /// The host's root directory, seen from a container that installs on its host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) sysroot: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Output for scripts.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Json {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// An image, perhaps as JSON.
#[derive(Debug, Args)]
pub(crate) struct ImageJson {
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec inspect registry.example.com/app:1.4                                  its layers\n  \
    xebec inspect --runtime-image registry.example.com/app:1.4                  its services\n  \
    xebec inspect --runtime-image --svg start.svg registry.example.com/app:1.4  a picture of one")]
pub(crate) struct InspectArgs {
    /// Which image, and how it is shown.
    #[command(flatten)]
    pub(crate) image: ImageJson,
    /// Show the services that were recorded instead: what a start of each fetches, and what it rests on.
    #[arg(long)]
    pub(crate) runtime_image: bool,
    /// Draw what one of them reads, file by file in the order of first access, as SVG into a file; - is standard output.
    #[arg(
        long,
        value_name = "FILE",
        requires = "runtime_image",
        conflicts_with = "json"
    )]
    pub(crate) svg: Option<PathBuf>,
    /// Which service is drawn: its command line or a part of it, or its recording; the newest when absent.
    #[arg(long, value_name = "WORDS", requires = "svg")]
    pub(crate) service: Option<String>,
}

/// `xebec mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// The directory to mount it on.
    pub(crate) dir: PathBuf,
    /// When the registry is asked what the image is.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub(crate) pull: Pull,
    /// Refuse if a layer would have to be read whole first.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Fetch the rest of the image in the background.
    #[arg(long, value_name = "DEADLINE", num_args = 0..=1, require_equals = true, default_missing_value = "0s",
        value_parser = crate::text::parse_duration)]
    pub(crate) complete: Option<std::time::Duration>,
    /// Honour setuid bits and file capabilities. A user who can reach the directory can then become root.
    #[arg(long)]
    pub(crate) suid: bool,
    /// Let device nodes be opened.
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
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Push the indexes to the image's repository, as an artifact that refers to the image.
    #[arg(long, conflicts_with = "local")]
    pub(crate) push: bool,
    /// Keep them on this host only (the default).
    #[arg(long)]
    pub(crate) local: bool,
    /// Push an image index that names image and indexes, so that its digest covers both; moves the tag to it.
    #[arg(long, conflicts_with = "local")]
    pub(crate) bind: bool,
    /// Sign the indexes with a private key (PEM; cosign's too, its password in COSIGN_PASSWORD).
    #[arg(long, value_name = "KEY", conflicts_with = "local")]
    pub(crate) sign: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch all of it before returning. The image then needs neither registry nor daemon.
    #[arg(long)]
    pub(crate) complete: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Which image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch everything and verify all of it.
    #[arg(long)]
    pub(crate) all: bool,
    /// Fetch everything, put the exact layers together again, and compare their digests: the indexes then are proven.
    #[arg(long)]
    pub(crate) prove: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show the cached layers, their users, and what may be evicted.
    Stat(Json),
    /// Evict layers that are not in use, oldest first, until the cache is within its limit.
    Gc(GcArgs),
    /// Keep an image's layers, whatever the limit is.
    Pin(ImageArgs),
    /// Let an image's layers be evicted again.
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
    xebec rmi registry.example.com/app:1.3              the name; the image too if it has no other\n  \
    xebec rmi sha256:0123…                              the image with all its names")]
pub(crate) struct RmiArgs {
    /// The images, by name or by their manifest's digest.
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
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
    xebec explain --start                    what the last start asked for, and what its recording was good for\n  \
    xebec explain --start --json web         the same of a container's start, for scripts\n\n\
    Waits are for the registry (to answer, to send, to come back after a fault), a token, a turn (queue), \
    decoding and digests (verify), and the cache's disk. The daemon remembers the last 8,192; reads of pages that are there \
    already never wait.")]
pub(crate) struct ExplainArgs {
    /// A container (see `xebec ps`), a view or where it is mounted, or an image by reference or digest.
    #[arg(required_unless_present = "start")]
    pub(crate) name: Option<String>,
    /// Explain a start instead: what it read until it was ready, and what of its recording. Of a container, of the last start of
    /// an image, or the last of all. The daemon remembers 64.
    #[arg(long, conflicts_with = "slow")]
    pub(crate) start: bool,
    /// Only those that took longer than slow_reader in daemon.toml (10s by default), longest first.
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
    /// Print the metrics that Prometheus can ask for.
    Metrics,
    /// Stop the daemon, unless something is mounted or still read.
    Stop {
        /// Unmount views that are in use, too. Processes that still read get EIO for missing pages. The daemon stops after
        /// the last of them.
        #[arg(long)]
        force: bool,
    },
    /// Replace the running daemon by another version of its program. Readers wait for a moment.
    Upgrade {
        /// The program; this one by default.
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
    /// Evict what is not in use beyond this size (512MB, 20GiB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<String>,
    /// How long a reader waits for missing bytes before it gets an error (default 10m).
    #[arg(long, value_name = "TIME")]
    pub(crate) fill_wait: Option<String>,
    /// Log readers that wait longer than this (default 10s).
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_reader: Option<String>,
    /// How long a view stays mounted for the next start when nobody uses it any more (default 5m, 0s: not at all).
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Keep profiles of starts that have a probe, at most one of a service in ten minutes, for `xebec record --merge`.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) learn: Option<String>,
    /// How log lines look: text or json.
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
