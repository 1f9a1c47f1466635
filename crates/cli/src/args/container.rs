//! Commands that start a container: `xebec run` and `xebec record`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use xebec_confinement::{
    CAPABILITIES, Capability, Confinement, Cpus, MemorySwap, PidsLimit, SecurityOption, Ulimit,
};
use xebec_container::{Probe, RunOptions};
use xebec_kernel::size::Bytes;
use xebec_protocol::wire::ServiceCommand;
use xebec_recordings::merge_pages::Limit;

use super::absent::AbsentArgs;
use super::image::{ImageArgs, Pull};
use super::lifecycle::KeptArgs;
use super::network::NetworkArgs;
use super::service::{ServiceArgs, WORDS};
use super::share::ShareArgs;
use super::variables::VariableArgs;
use super::volume::VolumeArgs;

/// `xebec run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec run --rm -it docker.io/library/debian:12 bash\n  \
    xebec run -d --name web --restart unless-stopped registry.example.com/web:2     in the background; see `xebec ps`\n  \
    xebec run --memory 512m --cpus 1.5 --pids-limit 100 registry.example.com/app:1.4\n  \
    xebec run -v data:/var/lib/db -v ./conf:/etc/app:ro registry.example.com/db:16     a volume, and a directory\n  \
    xebec run --read-only --tmpfs /run --tmpfs /tmp:size=64m,exec registry.example.com/app:1.4\n  \
    xebec run --cap-drop ALL --cap-add NET_BIND_SERVICE --security-opt no-new-privileges registry.example.com/web:2\n  \
    xebec run -p 8080:80 registry.example.com/web:2                      on a network of its own; the host's port 8080 leads there\n  \
    xebec run --network shop --name db registry.example.com/db:16        other containers of the network shop find it as db\n  \
    xebec run --env-file app.env --env DEBUG=1 registry.example.com/app:1.4\n  \
    xebec run --cap-add NET_RAW docker.io/library/busybox ping registry.example.com")]
pub(crate) struct RunArgs {
    /// The image, and the command.
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// When to ask the registry which image a tag names.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub(crate) pull: Pull,
    /// Fail if a layer must be read whole before the start.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Fetch the rest of the image in the background; with a deadline, slowly enough to end by then (90s, 10m).
    #[arg(long, value_name = "DEADLINE", num_args = 0..=1, require_equals = true, default_missing_value = "0s",
        value_parser = crate::text::parse_duration)]
    pub(crate) complete: Option<std::time::Duration>,
    /// Stop the container once it is ready, and exit with 0.
    #[arg(long, requires = "probe")]
    pub(crate) exit_on_ready: bool,
    /// Do not use the service's runtime image (its recording).
    #[arg(long)]
    pub(crate) no_runtime_image: bool,
    /// Keep a profile of the pages that the service reads until it is ready, for `xebec record --merge`. A service without a
    /// recording then starts without read-ahead, which is slower.
    #[arg(long, requires = "probe", conflicts_with = "no_runtime_image")]
    pub(crate) learn: bool,
    /// Write the start's stage times, bytes, requests and fills as JSON to FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// The container's name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Remove the container when it ends. Without this it is kept: `xebec ps -a`, `xebec start`, `xebec rm`.
    #[arg(long)]
    pub(crate) rm: bool,
    /// Connect the container to standard input.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the container a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Options for the state that Xebec keeps of the container.
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
    /// How the container is set up.
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
}

/// How a container is set up.
#[derive(Debug, Args)]
pub(crate) struct ContainerArgs {
    /// When the container counts as ready: port:N, http://…, log:REGEX, file:PATH, exec:CMD, exit. Repeatable.
    #[arg(long, value_name = "PROBE")]
    pub(crate) probe: Vec<Probe>,
    /// Fail if the container is not ready after this time.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = crate::text::parse_duration)]
    pub(crate) probe_timeout: std::time::Duration,
    /// The network that the container sees.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// The parts of the host that the container sees.
    #[command(flatten)]
    pub(crate) volumes: VolumeArgs,
    /// The parts of the host that the container shares, and its limits.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    /// Options of docker's that are not here.
    #[command(flatten)]
    pub(crate) absent: AbsentArgs,
    /// The container's variables.
    #[command(flatten)]
    pub(crate) variables: VariableArgs,
    /// Give the container a capability, such as NET_ADMIN, or ALL. Repeatable.
    #[arg(long, value_name = "CAPABILITY", value_parser = CapabilityParser, hide_possible_values = true)]
    pub(crate) cap_add: Vec<Capability>,
    /// Take a capability from the container, or ALL. Repeatable.
    #[arg(long, value_name = "CAPABILITY", value_parser = CapabilityParser, hide_possible_values = true)]
    pub(crate) cap_drop: Vec<Capability>,
    /// seccomp=unconfined|FILE, apparmor=unconfined|PROFILE, label=disable|user:U|role:R|type:T|level:L, no-new-privileges,
    /// systempaths=unconfined. Repeatable.
    #[arg(long, value_name = "OPTION")]
    pub(crate) security_opt: Vec<SecurityOption>,
    /// The container cannot write to its root.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// The most memory that the container may use: a number and b, k, m or g; at least 6m, or 0 for no limit.
    #[arg(short, long, value_name = "SIZE", value_parser = Bytes::or_zero)]
    pub(crate) memory: Option<Bytes>,
    /// The most memory and swap together, -1 for no limit of swap; twice the memory by default.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory_swap: Option<MemorySwap>,
    /// How many processors the container may use, such as 1.5; 0 for no limit.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// The most processes and threads that the container may have, -1 for no limit.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) pids_limit: Option<PidsLimit>,
    /// Size of /dev/shm; 64m by default, which 0 stands for, too.
    #[arg(long, value_name = "SIZE", value_parser = Bytes::or_zero)]
    pub(crate) shm_size: Option<Bytes>,
    /// Limit each process of the container, such as nofile=1024:2048. Repeatable.
    #[arg(long, value_name = "NAME=SOFT[:HARD]")]
    pub(crate) ulimit: Vec<Ulimit>,
    /// Working directory.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// User and group, by name or number.
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Replace the image's entrypoint and command; an empty PROGRAM ("") leaves only COMMAND.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<String>,
    /// Host name inside the container.
    #[arg(long)]
    pub(crate) hostname: Option<String>,
    /// The OCI runtime (runc or crun by default, whichever is found first).
    #[arg(long, value_name = "PATH")]
    pub(crate) runtime: Option<PathBuf>,
}

impl ContainerArgs {
    /// The command in place of the image's entrypoint: an empty one means no entrypoint, as in docker.
    fn entrypoint(&self) -> Option<Vec<String>> {
        let program = self.entrypoint.as_ref()?;
        Some(match program.is_empty() {
            true => Vec::new(),
            false => vec![program.clone()],
        })
    }

    fn confinement(&self, image: &ImageArgs) -> Confinement {
        self.share.confine(Confinement {
            cap_add: self.cap_add.clone(),
            cap_drop: self.cap_drop.clone(),
            security: self.security_opt.clone(),
            read_only: self.read_only,
            memory: self.memory.filter(|size| size.0 > 0),
            memory_swap: self
                .memory_swap
                .filter(|swap| *swap != MemorySwap::Limited(Bytes(0))),
            cpus: self.cpus.filter(|cpus| !cpus.is_unlimited()),
            pids_limit: self.pids_limit,
            shm_size: self.shm_size.filter(|size| size.0 > 0),
            ulimits: self.ulimit.clone(),
            is_32_bit: image.platform.as_deref() == Some("linux/386"),
            ..Confinement::default()
        })
    }

    /// The service that is started.
    pub(crate) fn service(&self, command: &[String]) -> ServiceCommand {
        ServiceCommand {
            entrypoint: self.entrypoint(),
            command: command.to_vec(),
            env: self.variables.all(),
            has_probe: !self.probe.is_empty(),
            learn: false,
            is_said_later: false,
        }
    }

    /// The options that they stand for.
    pub(crate) fn options(&self, image: &ImageArgs, command: &[String]) -> RunOptions {
        self.share.share(RunOptions {
            image: image.image.clone(),
            command: command.to_vec(),
            entrypoint: self.entrypoint(),
            env: self.variables.all(),
            confinement: self.confinement(image),
            workdir: self.workdir.clone(),
            user: self.user.clone(),
            volumes: self.volumes.volumes(),
            tmpfs: self.volumes.tmpfs(),
            net: self.network.net(),
            network: self.network.options(),
            probes: self.probe.clone(),
            probe_timeout: self.probe_timeout,
            hostname: self.hostname.clone(),
            runtime: self.runtime.clone(),
            ..RunOptions::default()
        })
    }
}

/// Takes names of capabilities as they are written, and has a shell complete them.
#[derive(Clone)]
struct CapabilityParser;

impl TypedValueParser for CapabilityParser {
    type Value = Capability;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Capability, clap::Error> {
        Capability::from_str.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = CAPABILITIES.iter().chain(&["ALL"]);
        Some(Box::new(names.map(|name| PossibleValue::new(*name))))
    }
}

/// `xebec record`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec record --probe port:80 registry.example.com/nginx:1.27\n  \
    xebec record --repeat 3 --settle 2s --probe 'log:ready to accept' registry.example.com/db:16\n  \
    xebec record registry.example.com/tools:3 jq --version        without a probe: record until it ends\n  \
    xebec record --merge registry.example.com/db:16               merge all recordings into one; run nothing\n  \
    xebec record --list registry.example.com/db:16                its recordings, here and in the registry\n  \
    xebec record --rm sha256:ad207c57d1f0                         forget one\n\n\
    Xebec pushes the recording beside the image. Every host that starts the same command fetches it by one request.")]
#[command(mut_arg(WORDS, |image| image
    .required(false)
    .required_unless_present("list")
    .help("The image: NAME[:TAG][@DIGEST], with or without a registry. With --rm, also a recording's digest")))]
pub(crate) struct RecordArgs {
    /// The image, and the command.
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Run the service N times without read-ahead, which records each page, and if N is above 1, N times at full speed.
    /// Record every page that any of the runs read.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) repeat: u8,
    /// Record for this time after the service is ready.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = crate::text::parse_duration)]
    pub(crate) settle: std::time::Duration,
    /// An environment variable that is part of the service's key: another value is another service. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub(crate) key_env: Vec<String>,
    /// Run nothing. Merge all recordings of the image into one, and add what starts on this host read besides.
    #[arg(long, conflicts_with_all = ["repeat", "settle", "key_env", "probe", "probe_timeout", "net", "publish",
        "publish_all", "ip", "network_alias", "add_host", "dns", "dns_search", "dns_option", "volumes",
        "env", "env_file", "cap_add", "cap_drop", "security_opt", "read_only", "tmpfs", "memory", "memory_swap", "cpus",
        "pids_limit", "shm_size", "ulimit", "mounts", "init", "pid", "ipc", "group_add", "devices", "sysctls", "memory_reservation",
        "cpu_shares", "cpuset_cpus", "cpuset_mems", "oom_score_adj", "workdir", "user", "entrypoint", "hostname", "runtime"])]
    pub(crate) merge: bool,
    /// Run nothing. List the recordings of the image, on this host and in its registry; without IMAGE, all that this host keeps.
    #[arg(long, conflicts_with_all = ["merge", "remove", "local", "sign"])]
    pub(crate) list: bool,
    /// Run nothing. Remove from this host a recording, by its digest or the first digits of it, or all recordings of an image.
    #[arg(long = "rm", conflicts_with_all = ["merge", "local", "sign"])]
    pub(crate) remove: bool,
    /// With --merge: how many pages starts may add to each service, as a share of the recorded pages or as a number.
    #[arg(long, value_name = "N%|N", default_value_t = Limit::default(), requires = "merge")]
    pub(crate) limit: Limit,
    /// Keep the recording on this host instead of pushing it.
    #[arg(long)]
    pub(crate) local: bool,
    /// Sign the recording with this private key.
    #[arg(long, value_name = "KEY", conflicts_with = "local")]
    pub(crate) sign: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// How the container is set up.
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
}
