//! Running a container on a mounted image view.
//!
//! A view is a read-only directory that holds an image's files. Here it becomes the lower layer of an
//! overlay, an OCI bundle is written into the run directory, and an OCI runtime (`runc` or `crun`) creates and starts the
//! container. This process then plays the part that a shim plays elsewhere: it is the container's parent
//! (as a child subreaper), hands signals on, owns the terminal's other side, watches the probes and collects
//! the exit status.
//!
//! What a container gets (namespaces, capabilities, mounts, masked paths, system call filter) is what docker
//! and containerd give by default; `spec` says it line by line. Two things differ on purpose. A directory
//! that the image declares as a volume is simply part of the container's layer. And a `SIGWINCH` that reaches
//! this process without a terminal is not handed on: a resized window must not stop nginx or httpd, which
//! take that signal as an order to shut down.
//!
//! Promises: the overlay is unmounted and the runtime's state is deleted on every way out of [`run`]. A container whose
//! supervisor was killed serves on, and is listed; once it has ended, what is left of it is found by its record and cleaned
//! up by the daemon and by the next run ([`cleanup_stale`]).

mod bundle;
mod capabilities;
mod cgroup_warm_up;
pub mod confinement;
mod control_groups;
mod env_file;
mod error;
mod exec_fifo;
mod image_config;
mod init;
mod labels;
mod output;
mod prediction;
mod probe;
mod probe_watch;
mod process;
mod record;
mod runtime;
mod seccomp;
mod security_context;
mod signal;
mod spec;
mod stdio;
mod supervisor;
mod terminal;
mod user;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

pub use capabilities::{Capability, NAMES as CAPABILITIES};
pub use confinement::Confinement;
pub use control_groups::container_at;
pub use env_file::{EnvFileError, read as read_env_file};
pub use error::RunError;
pub use image_config::{ImageConfig, ImageConfigError};
pub use probe::{Probe, ProbeParseError};
pub use process::args;
pub use record::outlived;
pub use record::{Record, RecordError, Running, cleanup_stale, list};
pub use signal::{SignalParseError, StopSignal};
pub use supervisor::ConfigNotifier;
pub use user::{Identity, UserError};

/// How long a container may take to become ready before it is stopped, unless told otherwise. The slowest
/// start in the measurements that Xebec is built on (3 GB of python wheels at 100 Mbit/s) took 30 s.
pub const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a container may take to end after its stop signal before it is killed; docker's figure.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What the user asked for, beyond what the image's own configuration says.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Name of the container; made up (12 hexadecimal digits) if absent.
    pub id: Option<String>,
    /// The image's name as the user gave it; only recorded, for `xebec ps`.
    pub image: String,
    /// Replaces the image's `Cmd` if not empty.
    pub command: Vec<String>,
    /// Replaces the image's `Entrypoint`; then the image's `Cmd` does not count either.
    pub entrypoint: Option<Vec<String>>,
    /// Variables that are added to, or replace, those of the image.
    pub env: Vec<(String, String)>,
    /// Replaces the image's working directory; an absolute path.
    pub workdir: Option<String>,
    /// Replaces the image's user: `user[:group]`, names or numbers.
    pub user: Option<String>,
    /// Host files and directories to be seen inside the container.
    pub volumes: Vec<Volume>,
    /// The network that the container sees.
    pub net: Net,
    /// What it may do and use.
    pub confinement: Confinement,
    /// Hand this process's standard input to the container; otherwise it reads `/dev/null`.
    pub interactive: bool,
    /// Give the container a terminal of its own, joined to this process's terminal.
    pub tty: bool,
    /// Give what the container writes to its standard output to this process's standard error.
    pub stdout_to_stderr: bool,
    /// Remove the container's layer when it has ended.
    pub rm: bool,
    /// Whether the container serves on when the process that watches it is killed. One that is recorded does not: nobody is
    /// left who wants what it touches.
    pub outlives_supervisor: bool,
    /// The container is ready when every one of these has been seen once.
    pub probes: Vec<Probe>,
    /// Stop the container as soon as it is ready; [`run`] then returns exit code 0.
    pub exit_on_ready: bool,
    /// Stop the container and fail if it is not ready after this time, counted from its start.
    pub probe_timeout: Duration,
    /// Time between the stop signal and `SIGKILL`.
    pub stop_timeout: Duration,
    /// Name of the host inside the container. By default that of this host with [`Net::Host`], and the
    /// container's id otherwise.
    pub hostname: Option<String>,
    /// The OCI runtime to use; by default the first of `runc` and `crun` that is found.
    pub runtime: Option<PathBuf>,
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
            net: Net::Host,
            confinement: Confinement::default(),
            interactive: false,
            tty: false,
            stdout_to_stderr: false,
            rm: false,
            outlives_supervisor: true,
            probes: Vec::new(),
            exit_on_ready: false,
            probe_timeout: DEFAULT_PROBE_TIMEOUT,
            stop_timeout: DEFAULT_STOP_TIMEOUT,
            hostname: None,
            runtime: None,
        }
    }
}

/// A file or directory of the host that is bind-mounted into the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Absolute path on the host; it must exist.
    pub source: PathBuf,
    /// Absolute path in the container; created if missing.
    pub target: PathBuf,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// `SRC:DST` or `SRC:DST:ro` (or `:rw`), both paths absolute.
impl FromStr for Volume {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        let wrong = |reason| RunError::Volume {
            volume: text.to_owned(),
            reason,
        };
        let mut parts = text.split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
            return Err(wrong("write it as SRC:DST or SRC:DST:ro"));
        };
        let read_only = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong("the only modes are ro and rw")),
        };
        if parts.next().is_some() {
            return Err(wrong(
                "a path cannot hold a colon; write it as SRC:DST or SRC:DST:ro",
            ));
        }
        let volume = Volume {
            source: source.into(),
            target: target.into(),
            read_only,
        };
        volume.check()?;
        Ok(volume)
    }
}

impl Volume {
    /// Whether there is such a source.
    fn find(&self) -> Result<(), RunError> {
        let found = std::fs::metadata(&self.source);
        found.map(drop).map_err(|source| RunError::File {
            doing: "find the volume's source",
            path: self.source.clone(),
            source,
        })
    }

    fn check(&self) -> Result<(), RunError> {
        let wrong = |reason| RunError::Volume {
            volume: format!("{}:{}", self.source.display(), self.target.display()),
            reason,
        };
        if !self.source.is_absolute() || !self.target.is_absolute() {
            return Err(wrong("both paths must be absolute"));
        }
        if self.target == Path::new("/") {
            return Err(wrong("the container's root cannot be replaced"));
        }
        Ok(())
    }
}

/// The network that a container sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// The host's own: every port of the container is a port of the host.
    #[default]
    Host,
    /// A namespace of its own with nothing but a loopback interface.
    None,
}

impl FromStr for Net {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match text {
            "host" => Ok(Net::Host),
            "none" => Ok(Net::None),
            _ => Err(RunError::Net(text.to_owned())),
        }
    }
}

/// Where containers are kept. Each run directory belongs to one root: what of a container is in the one is cleaned up with the other.
#[derive(Clone, Debug)]
pub struct Directories {
    /// `<root>/containers`: one directory per container, with its layer.
    pub state: PathBuf,
    /// `<run>`: one record per container below `containers/`, its bundle with its mount point below `bundles/`, and the
    /// runtime's own state below `runtime/`.
    /// Best on a tmpfs, so that nothing in it outlives the processes that it describes.
    pub run: PathBuf,
}

/// What happened to a container. The function that receives it runs before the next step is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The overlay is mounted.
    Mounted {
        /// The container's name.
        id: String,
    },
    /// The runtime has made the container; its first process waits for the start and has read nothing yet.
    Created {
        /// Process id of the container's first process, on the host.
        pid: i32,
        /// Who it is, if it is the image's own user.
        user: Option<Identity>,
    },
    /// The container's command was told to run.
    Started,
    /// Every probe has been seen.
    Ready {
        /// Time since [`run`] was called.
        after: Duration,
    },
    /// The container's first process has ended.
    Exited {
        /// Its exit code.
        code: ExitCode,
    },
}

/// The exit code of a container as a shell would see it: the code of its first process, or 128 plus the
/// number of the signal that ended it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        code.0.into()
    }
}

/// A container that has its name and its directory, and whose runtime has begun, before it is known what it will be.
/// Dropped, nothing is left of it.
pub struct Prepared<'a> {
    // In this order: the runtime ends before its directory goes.
    early: prediction::PredictedCreate,
    bundle: bundle::Bundle,
    queue: supervisor::EventQueue,
    options: &'a RunOptions,
}

impl<'a> Prepared<'a> {
    /// Prepares a container, and then finds by `image`, in a thread of its own, what it is to run on, while the runtime begins;
    /// gives both. As soon as `image` knows what the image says it may tell, and the runtime goes on; [`Prepared::run`] believes
    /// nothing of it.
    ///
    /// From here on `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` and `SIGUSR2` that reach this process do not end it. One
    /// of the first four that comes meanwhile is an error; then `image` is not waited for.
    ///
    /// # Errors
    /// If the options make no sense, there is no runtime, the name is taken, or somebody wants this process to end.
    pub fn begin<T: Send + 'static>(
        options: &'a RunOptions,
        dirs: &Directories,
        image: impl FnOnce(&ConfigNotifier) -> T + Send + 'static,
    ) -> Result<(Self, T), RunError> {
        for volume in &options.volumes {
            volume.check()?;
            volume.find()?;
        }
        if options.tty && options.interactive && !terminal::is_there() {
            return Err(RunError::NoTerminal);
        }
        let mut runtime = runtime::Runtime::find(options.runtime.as_deref(), dirs)?;
        let confined = security_context::SecurityContext::decide(options, &runtime)?;
        runtime.filter_by(confined.filters.outer.clone());
        // It may take long, and whoever does not want to wait for it is not held up.
        if let Err(error) = record::cleanup_stale(dirs) {
            tracing::warn!(%error, "containers that were left behind could not be cleaned up");
        }
        let queue = supervisor::EventQueue::begin()?;
        let bundle = bundle::Bundle::claim(options, dirs, &runtime, confined)?;
        let image = queue.spawn(image)?;
        let mut prepared = Prepared {
            early: prediction::PredictedCreate::begin(&bundle, options)?,
            bundle,
            queue,
            options,
        };
        let Prepared {
            early, bundle, queue, ..
        } = &mut prepared;
        let found = queue.wait(image, |says, user| early.tell(bundle, says, user, options))?;
        Ok((prepared, found))
    }

    /// Runs the container on `view` and waits for its end.
    ///
    /// `view` is a directory that shows the image's files and does not change; nothing is written to it. While
    /// the container runs, `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` and `SIGUSR2` that reach this
    /// process are handed to the container, and the third `SIGINT` or `SIGTERM` kills it. The process becomes a
    /// child subreaper and stays one; its dispositions for these signals are not put back, so a program should
    /// end soon after this returns.
    ///
    /// # Errors
    /// Whatever kept the container from running or from becoming ready ([`RunError`]). A container that ran and
    /// ended is no error, whatever its exit code, unless a probe was still waiting.
    pub fn run(
        self,
        view: &Path,
        image: &ImageConfig,
        events: &mut dyn FnMut(Event),
    ) -> Result<ExitCode, RunError> {
        let began = Instant::now();
        // In this order, too.
        let Prepared {
            options,
            queue,
            mut bundle,
            mut early,
        } = self;
        probe::refuse_ready_before(options)?;
        let stop_signal = image.stop_signal()?;
        let resolve = || process::Process::resolve(view, image, options);
        let told = early.told(&bundle, image, options);
        let is_told = told.is_some();
        // Who was told has it already.
        let mut joining = (!is_told).then(cgroup_warm_up::CgroupWarmUp::begin);
        let mut process = told.map_or_else(resolve, Ok)?;
        let root = bundle.mount(view, &process)?;
        early.open(&bundle, &root);
        events(Event::Mounted {
            id: bundle.id().to_owned(),
        });
        if is_told {
            // Meanwhile the container is made. Its command does not begin before this is known.
            process = resolve()?;
        }
        let config = match early.was_told(&bundle, &process) {
            true => None,
            false => {
                // Before the runtime can make the container.
                init::adopt()?;
                joining.get_or_insert_with(cgroup_warm_up::CgroupWarmUp::begin);
                Some(bundle.write_spec(&process, options)?)
            }
        };
        let orders = supervisor::SupervisorConfig {
            options,
            stop_signal,
            began,
            user: options.user.is_none().then_some(process.identity),
        };
        let making = supervisor::PendingCreate {
            early,
            config,
            joining,
        };
        let outcome = supervisor::supervise(&mut bundle, making, &orders, queue, events);
        let closed = bundle.close();
        let code = outcome?;
        closed?;
        Ok(code)
    }
}

/// Runs a container on `view`, which is there already, and waits for its end ([`Prepared`]).
///
/// # Errors
/// As [`Prepared::begin`] and [`Prepared::run`].
pub fn run(
    view: &Path,
    image: &ImageConfig,
    options: &RunOptions,
    dirs: &Directories,
    events: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let (prepared, ()) = Prepared::begin(options, dirs, |_| ())?;
    prepared.run(view, image, events)
}
