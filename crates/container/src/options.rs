//! The options of a container, beyond the image's own configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use xebec_confinement::Confinement;
use xebec_container_log::LogLimits;
use xebec_volume::{Tmpfs, Volume};

use crate::{IpcMode, Net, NetworkOptions, PidMode, Probe, RestartPolicy, Screen, StopSignal};

/// How long a container may take to become ready before it is stopped, by default. The slowest start in the
/// measurements on which Xebec is built (3 GB of python wheels at 100 Mbit/s) took 30 s.
const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// The default time between the stop signal and `SIGKILL`; docker's figure.
const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of a container that the user gives, beyond the image's own configuration.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The container's name. By default a random name of 12 hexadecimal digits.
    pub id: Option<String>,
    /// The image's name as the user gave it. It is only recorded, for `xebec ps`.
    pub image: String,
    /// Replaces the image's `Cmd` if it is not empty.
    pub command: Vec<String>,
    /// Replaces the image's `Entrypoint`, and its `Cmd` as well.
    pub entrypoint: Option<Vec<String>>,
    /// Variables that add to those of the image, or replace them.
    pub env: Vec<(String, String)>,
    /// Replaces the image's working directory; an absolute path.
    pub workdir: Option<String>,
    /// Replaces the image's user: `user[:group]`, names or numbers.
    pub user: Option<String>,
    /// Files and directories of the host that the container sees, and volumes.
    pub volumes: Vec<Volume>,
    /// Directories in memory.
    pub tmpfs: Vec<Tmpfs>,
    /// The network that the container sees.
    pub net: Net,
    /// The processes that the container sees.
    pub pid: PidMode,
    /// The shared memory that the container sees.
    pub ipc: IpcMode,
    /// Groups of its user beyond those of the image: names or numbers.
    pub group_add: Vec<String>,
    /// A static program of the host that is the container's first process, reaps the others, and passes on
    /// signals. By default the container's own command is the first process.
    pub init: Option<PathBuf>,
    /// The options of that network.
    pub network: NetworkOptions,
    /// The rights and limits of the container.
    pub confinement: Confinement,
    /// Whether the container reads this process's standard input. Otherwise it reads `/dev/null`.
    pub interactive: bool,
    /// Whether the container gets a terminal of its own, joined to this process's terminal.
    pub tty: bool,
    /// The screen of that terminal, as far as it becomes known.
    pub screen: Screen,
    /// Whether the container's standard output goes to this process's standard error.
    pub stdout_to_stderr: bool,
    /// Whether the container's layer is removed when the container has ended.
    pub rm: bool,
    /// Whether the container runs on if its supervisor is killed. A container that is recorded does not,
    /// because nothing uses its recording then.
    pub outlives_supervisor: bool,
    /// The container is ready when every one of these has succeeded once.
    pub probes: Vec<Probe>,
    /// Whether the container is stopped as soon as it is ready. [`run`](fn@crate::run) then returns exit code
    /// 0.
    pub exit_on_ready: bool,
    /// How long the container may take to become ready, from its start. Then it is stopped, and
    /// [`run`](fn@crate::run) fails.
    pub probe_timeout: Duration,
    /// Time between the stop signal and `SIGKILL`.
    pub stop_timeout: Duration,
    /// Name of the host inside the container. By default that of this host with [`Net::Host`], and the
    /// container's name otherwise.
    pub hostname: Option<String>,
    /// The OCI runtime. By default the first of `runc` and `crun` that is installed.
    pub runtime: Option<PathBuf>,
    /// Replaces the image's stop signal.
    pub stop_signal: Option<StopSignal>,
    /// Labels, for users and `ps`.
    pub labels: BTreeMap<String, String>,
    /// Whether the container runs in the background: it writes to its log, whose size is this, and not to this process's
    /// output, and it never reads the input of this process.
    pub detached: Option<LogLimits>,
    /// When the container is started again after its end. The caller does that
    /// ([`crate::pause_before_restart`]).
    pub restart: RestartPolicy,
    /// The caller's own data for starting the container again. It is kept with the container.
    pub caller: serde_json::Value,
    /// Whether the container exists, and is started again on its layer.
    pub again: Again,
}

/// Whether a container exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// It is made.
    #[default]
    No,
    /// It exists, and a user starts it again.
    ByUser,
    /// It exists, and its restart policy starts it again.
    ByPolicy,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            id: None,
            image: String::new(),
            command: Vec::new(),
            entrypoint: None,
            env: Vec::new(),
            workdir: None,
            user: None,
            volumes: Vec::new(),
            tmpfs: Vec::new(),
            net: Net::Host,
            pid: PidMode::default(),
            ipc: IpcMode::default(),
            group_add: Vec::new(),
            init: None,
            network: NetworkOptions::default(),
            confinement: Confinement::default(),
            interactive: false,
            tty: false,
            screen: Screen::default(),
            stdout_to_stderr: false,
            rm: false,
            outlives_supervisor: true,
            probes: Vec::new(),
            exit_on_ready: false,
            probe_timeout: DEFAULT_PROBE_TIMEOUT,
            stop_timeout: DEFAULT_STOP_TIMEOUT,
            hostname: None,
            runtime: None,
            stop_signal: None,
            labels: BTreeMap::new(),
            detached: None,
            restart: RestartPolicy::No,
            caller: serde_json::Value::Null,
            again: Again::No,
        }
    }
}
