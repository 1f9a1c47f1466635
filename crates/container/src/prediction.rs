//! Starting the runtime before it is known what it is to make.
//!
//! runc takes some 5 ms until it has begun (`runc --version`; more where others run), about as long as a warm start takes to find
//! and mount the image, and only then reads its bundle's `config.json`.
//! So both are done at once: at first `config.json` is a link to the end of a pipe, on which the runtime waits; once the
//! configuration is known, it takes the link's place as an ordinary file, for whoever reads it later, and goes through the
//! pipe to who has come already. The link leads through `/proc` to a descriptor of this process, so nothing needs to be
//! inherited, and a runtime that comes when this process has been killed finds nothing, or the end of the file, and ends.
//!
//! What the image says is known before its files are there. If the runtime is told that at once, it makes the container up to
//! where its first process enters its root (`prepareRoot`, runc, `libcontainer/rootfs_linux.go`), which takes some 20 ms. There
//! it waits, since the root is an automount ([`Automount`]) until the overlay is mounted on it. That process is of a session of
//! its own (`nsexec.c`), so it is one who waits; runc itself only goes by. What is not known yet is what the image's lists say of
//! its user, so that is remembered, by recordings and by the host; what was told wrong is taken back.
//!
//! Nothing depends on either: whatever does not go this way is done as if it had not been tried.

mod piped_runtime;
mod process_tree;

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use xebec_kernel::mount::Detached;
use xebec_kernel::mount::automount::Automount;

use self::piped_runtime::PipedRuntime;
use super::bundle::{Bundle, MERGED};
use super::cgroup_warm_up::CgroupWarmUp;
use super::init::{self, Init};
use super::process::Process;
use super::stdio::ContainerStdio;
use super::terminal::ConsoleSocket;
use super::{Identity, ImageConfig, RunError, RunOptions};

/// The making of a container, if it could be begun. Dropped, it does not go on.
pub(super) struct PredictedCreate(Option<Begun>);

struct Begun {
    // In this order: a runtime that is let go without a root would complain.
    waiting: PipedRuntime,
    told: Option<Told>,
    connection: ContainerStdio,
}

/// What the runtime was told before there was a view.
struct Told {
    process: Process,
    /// The door before the container's root.
    root: Automount,
    _joining: CgroupWarmUp,
}

impl PredictedCreate {
    /// Begins it. The bundle has no configuration yet.
    pub(super) fn begin(bundle: &Bundle, options: &RunOptions) -> Result<Self, RunError> {
        // What others take for a configuration was not tried.
        if !bundle.runtime().is_runc() {
            return Ok(PredictedCreate(None));
        }
        let (connection, creation) = connect(bundle, options)?;
        match PipedRuntime::begin(bundle.path(), bundle.control_group(), bundle.runtime(), creation) {
            Ok(waiting) => Ok(PredictedCreate(Some(Begun {
                waiting,
                told: None,
                connection,
            }))),
            Err(error) => {
                tracing::debug!(%error, "the runtime is not started early");
                Ok(PredictedCreate(None))
            }
        }
    }

    /// Tells it what the image says, before its view is there. The first time counts.
    pub(super) fn tell(
        &mut self,
        bundle: &Bundle,
        image: &ImageConfig,
        user: Option<&Identity>,
        options: &RunOptions,
    ) {
        let Some(begun) = self.0.as_mut().filter(|begun| begun.told.is_none()) else {
            return;
        };
        let Some(process) = user.and_then(|user| Process::likely(image, user, options)) else {
            return;
        };
        match begun.tell(bundle, process, options) {
            Ok(Some(told)) => begun.told = Some(told),
            // It may have found the file.
            Ok(None) => self.take_back(bundle, "the runtime was not told"),
            Err(error) => tracing::debug!(%error, "the container is not begun before its image is there"),
        }
    }

    /// What it was told, as far as that is what this image says: who the user is has not been compared. What else it was told is
    /// taken back.
    pub(super) fn told(
        &mut self,
        bundle: &Bundle,
        image: &ImageConfig,
        options: &RunOptions,
    ) -> Option<Process> {
        let told = &self.0.as_ref()?.told.as_ref()?.process;
        let process = Process::of(told.identity.clone(), image, options).ok();
        let process = process.filter(|process| process == told);
        if process.is_none() {
            self.take_back(bundle, "its image has become another one");
        }
        process
    }

    /// The root is mounted, so the container may be made.
    pub(super) fn open(&mut self, bundle: &Bundle, root: &Detached) {
        if let Some(begun) = &mut self.0
            && let Some(told) = &begun.told
        {
            match told.root.open(root) {
                Ok(()) => begun.waiting.has_root(),
                Err(error) => self.take_back(bundle, &error.to_string()),
            }
        }
    }

    /// Whether it was told that this is the process. What else it has made is removed.
    pub(super) fn was_told(&mut self, bundle: &Bundle, process: &Process) -> bool {
        let told = self.0.as_ref().and_then(|begun| begun.told.as_ref());
        let Some(told) = told else { return false };
        let is_right = told.process == *process;
        if !is_right {
            self.take_back(bundle, "its user is another one");
        }
        is_right
    }

    fn take_back(&mut self, bundle: &Bundle, why: &str) {
        tracing::debug!("the container that was begun is not made: {why}");
        self.0 = None;
        discard(bundle);
    }

    /// Has the container made, now that its root is mounted and the bundle has a configuration: this one, if it was not told
    /// before.
    pub(super) fn finish(
        self,
        bundle: &Bundle,
        config: Option<&str>,
        options: &RunOptions,
    ) -> Result<ContainerStdio, RunError> {
        if let Some(begun) = self.0
            && let Some(connection) = begun.finish(bundle, config)?
        {
            return Ok(connection);
        }
        let (connection, creation) = connect(bundle, options)?;
        bundle.runtime().create(bundle, creation)?;
        Ok(connection)
    }
}

impl Begun {
    fn tell(
        &mut self,
        bundle: &Bundle,
        process: Process,
        options: &RunOptions,
    ) -> Result<Option<Told>, RunError> {
        init::adopt()?;
        let root = Automount::attach(&bundle.path().join(MERGED), self.waiting.process());
        let root = root.map_err(|source| RunError::Overlay {
            id: bundle.id().to_owned(),
            source,
        })?;
        let config = bundle.write_spec(&process, options)?;
        let joining = CgroupWarmUp::begin();
        Ok(self.waiting.tell(&config).then_some(Told {
            process,
            root,
            _joining: joining,
        }))
    }

    /// `None` if nothing was made.
    fn finish(mut self, bundle: &Bundle, config: Option<&str>) -> Result<Option<ContainerStdio>, RunError> {
        // If it has come when the file was there, it needs no telling.
        if let Some(config) = config {
            self.waiting.tell(config);
        }
        let Some(ended) = self.waiting.end() else {
            return Ok(None);
        };
        if self.told.is_some() && !(ended.success() && has_our_root(bundle)) {
            // Tried again in the ordinary way, whatever is wrong will be said.
            discard(bundle);
            return Ok(None);
        }
        bundle.runtime().created(bundle, Ok(ended))?;
        Ok(Some(self.connection))
    }
}

/// Removes a container whose command has not begun.
fn discard(bundle: &Bundle) {
    // Killed and reaped: it is this process's child.
    drop(Init::open(bundle));
    let _ = std::fs::remove_file(bundle.pid_file());
    bundle.runtime().delete(bundle.id());
}

/// Whether the container's root is what is mounted for it, and not the empty directory below: no runtime is known that goes by
/// the door with all that it does, but nothing forbids it.
fn has_our_root(bundle: &Bundle) -> bool {
    let Ok(pid) = init::pid(bundle) else { return false };
    let its = std::fs::metadata(format!("/proc/{}/root", pid.as_raw_pid()));
    let ours = std::fs::metadata(bundle.path().join(MERGED));
    let is_ours =
        matches!((its, ours), (Ok(its), Ok(ours)) if (its.dev(), its.ino()) == (ours.dev(), ours.ino()));
    if !is_ours {
        tracing::warn!(
            id = bundle.id(),
            "the runtime has made a container with another root; it is made again"
        );
    }
    is_ours
}

fn connect(bundle: &Bundle, options: &RunOptions) -> Result<(ContainerStdio, Command), RunError> {
    let mut connection = ContainerStdio::prepare(bundle, options)?;
    let streams = connection.streams(options)?;
    let console = connection.socket.as_ref().map(ConsoleSocket::path);
    let creation = bundle.runtime().creation(bundle, console, streams);
    Ok((connection, creation))
}
