//! The runtime's `create`, started before its configuration is known, and with a predicted one.
//!
//! # An early start
//!
//! runc takes some 5 ms until it reads its bundle's `config.json` (`runc --version`; more under load), about
//! as long as a warm start takes to find and mount the image. So both happen at once. At first `config.json`
//! is a link to a pipe, and the runtime waits at the pipe. Once the configuration is known, an ordinary file
//! takes the place of the link, for programs that read it later, and the pipe passes the same bytes to the
//! runtime that waits. The link leads through `/proc` to a descriptor of this process. So the runtime
//! inherits nothing, and if this process is killed, the runtime finds no file or the end of the file, and
//! ends.
//!
//! # A prediction
//!
//! The image's configuration is known before its files are there. If the runtime receives that at once, it
//! creates the container up to the point where the first process enters its root (`prepareRoot`, runc,
//! `libcontainer/rootfs_linux.go`), which takes some 20 ms. There the process waits, because the root is an
//! automount ([`Automount`]) until the overlay is mounted on it. runc itself passes the automount without
//! waiting. The container's process waits, since it has a session of its own (`nsexec.c`).
//!
//! One thing is not known yet: what the image's `/etc/passwd` and `/etc/group` say of its user. Recordings
//! and the host remember that from an earlier start. Before the container's command runs, the prediction is
//! compared with the image, and a container of a wrong prediction is discarded.
//!
//! Nothing depends on either: where one is not possible, the container is created as if it had not been
//! tried.

mod piped_runtime;
mod process_tree;

use std::path::PathBuf;
use std::process::Command;

use xebec_kernel::file::is_same;
use xebec_kernel::mount::Detached;
use xebec_kernel::mount::automount::Automount;

use self::piped_runtime::PipedRuntime;
use crate::bundle::Bundle;
use crate::cgroup_warm_up::CgroupWarmUp;
use crate::init::{self, Init};
use crate::process::Process;
use crate::stdio::ContainerStdio;
use crate::{Identity, ImageConfig, RunError, RunOptions};

/// The runtime's `create`, if it could be started early. Dropped, it is ended.
pub(crate) struct PredictedCreate(Option<StartedCreate>);

struct StartedCreate {
    // In this order: without its automount a runtime would report an error.
    runtime: PipedRuntime,
    prediction: Option<Prediction>,
    stdio: ContainerStdio,
}

/// The configuration that the runtime received before there was a view.
struct Prediction {
    process: Process,
    /// The automount in the place of the container's root.
    root: Automount,
    _warm_up: CgroupWarmUp,
}

impl PredictedCreate {
    /// Starts the runtime. The bundle has no configuration yet.
    pub(crate) fn start(bundle: &Bundle, options: &RunOptions) -> Result<Self, RunError> {
        // Other runtimes have not been tried with a pipe in the place of their configuration.
        if !bundle.runtime().is_runc() {
            return Ok(Self(None));
        }
        let (stdio, command) = create_command(bundle, options)?;
        match PipedRuntime::start(bundle.path(), bundle.control_group(), bundle.runtime(), command) {
            Ok(runtime) => Ok(Self(Some(StartedCreate {
                runtime,
                prediction: None,
                stdio,
            }))),
            Err(error) => {
                tracing::debug!(%error, "the runtime is not started early");
                Ok(Self(None))
            }
        }
    }

    /// Predicts the container from the image's configuration, before its view exists, and passes it to the
    /// runtime. Only the first prediction counts.
    pub(crate) fn predict(
        &mut self,
        bundle: &Bundle,
        image: &ImageConfig,
        user: Option<&Identity>,
        options: &RunOptions,
    ) {
        let Some(create) = self.0.as_mut().filter(|create| create.prediction.is_none()) else {
            return;
        };
        let Some(process) = user.and_then(|user| Process::predict(image, user, options)) else {
            return;
        };
        match create.predict(bundle, process, options) {
            Ok(Some(prediction)) => create.prediction = Some(prediction),
            // The runtime has ended, or has found the file in the place of the pipe.
            Ok(None) => self.discard(bundle, "the runtime did not wait for its configuration"),
            Err(error) => tracing::debug!(%error, "does not create the container before its image is there"),
        }
    }

    /// The predicted process, if it is the one of this configuration of the image. The user is not compared
    /// yet. A wrong prediction is discarded.
    pub(crate) fn predicted_process(
        &mut self,
        bundle: &Bundle,
        image: &ImageConfig,
        options: &RunOptions,
    ) -> Option<Process> {
        let predicted = &self.0.as_ref()?.prediction.as_ref()?.process;
        let process = Process::of(predicted.identity.clone(), image, options).ok();
        let process = process.filter(|process| process == predicted);
        if process.is_none() {
            self.discard(bundle, "the image has another configuration");
        }
        process
    }

    /// Lets the container enter its root, which is mounted now.
    pub(crate) fn open_root(&mut self, bundle: &Bundle, root: &Detached) {
        if let Some(create) = &mut self.0
            && let Some(prediction) = &create.prediction
        {
            match prediction.root.open(root) {
                Ok(()) => create.runtime.root_is_open(),
                Err(error) => self.discard(bundle, &error.to_string()),
            }
        }
    }

    /// Whether this is the predicted process. If it is another one, the prediction is discarded.
    pub(crate) fn is_right(&mut self, bundle: &Bundle, process: &Process) -> bool {
        let create = self.0.as_ref();
        let Some(prediction) = create.and_then(|create| create.prediction.as_ref()) else {
            return false;
        };
        let is_right = prediction.process == *process;
        if !is_right {
            self.discard(bundle, "the container runs as another user");
        }
        is_right
    }

    fn discard(&mut self, bundle: &Bundle, why: &str) {
        tracing::debug!("the predicted container is discarded: {why}");
        self.0 = None;
        discard_container(bundle);
    }

    /// Waits until the container is created. Its root is mounted, and the bundle has a configuration.
    /// `config` is that configuration, if the runtime has not received it.
    pub(crate) fn finish(
        self,
        bundle: &Bundle,
        config: Option<&str>,
        options: &RunOptions,
    ) -> Result<ContainerStdio, RunError> {
        if let Some(create) = self.0
            && let Some(stdio) = create.finish(bundle, config)?
        {
            return Ok(stdio);
        }
        let (stdio, command) = create_command(bundle, options)?;
        bundle.runtime().create(bundle.id(), bundle.path(), command)?;
        Ok(stdio)
    }
}

impl StartedCreate {
    /// `None` if the runtime does not wait for its configuration.
    fn predict(
        &mut self,
        bundle: &Bundle,
        process: Process,
        options: &RunOptions,
    ) -> Result<Option<Prediction>, RunError> {
        init::become_subreaper()?;
        let root = Automount::attach(&bundle.root(), self.runtime.pid());
        let root = root.map_err(|source| RunError::Overlay {
            id: bundle.id().to_owned(),
            source,
        })?;
        let config = bundle.write_spec(&process, options)?;
        let warm_up = CgroupWarmUp::start();
        Ok(self.runtime.send_config(&config).then_some(Prediction {
            process,
            root,
            _warm_up: warm_up,
        }))
    }

    /// `None` if the runtime created nothing.
    fn finish(mut self, bundle: &Bundle, config: Option<&str>) -> Result<Option<ContainerStdio>, RunError> {
        if let Some(config) = config {
            // A runtime that came late has read the file, and takes nothing from the pipe.
            self.runtime.send_config(config);
        }
        let Some(status) = self.runtime.wait() else {
            return Ok(None);
        };
        if self.prediction.is_some() && !(status.success() && has_its_root(bundle)) {
            // The second, ordinary `create` reports the error, if there is one.
            discard_container(bundle);
            return Ok(None);
        }
        bundle
            .runtime()
            .check_create(bundle.id(), bundle.path(), Ok(status))?;
        Ok(Some(self.stdio))
    }
}

/// Removes a container whose command has not run.
fn discard_container(bundle: &Bundle) {
    // Dropped, it is killed and reaped. It is this process's child.
    drop(Init::open(&bundle.pid_file()));
    let _ = std::fs::remove_file(bundle.pid_file());
    bundle.runtime().delete(bundle.id());
}

/// Whether the container's root is the overlay that is mounted for it, and not the empty directory below. No
/// runtime is known that passes the automount by, but nothing forbids it.
fn has_its_root(bundle: &Bundle) -> bool {
    let Ok(pid) = init::read_pid(&bundle.pid_file()) else {
        return false;
    };
    let its = PathBuf::from(format!("/proc/{}/root", pid.as_raw_pid()));
    let is_same = is_same(&its, &bundle.root());
    if !is_same {
        tracing::warn!(
            id = bundle.id(),
            "the runtime created the container with another root; Xebec creates it again"
        );
    }
    is_same
}

fn create_command(bundle: &Bundle, options: &RunOptions) -> Result<(ContainerStdio, Command), RunError> {
    let mut stdio = ContainerStdio::prepare(bundle.console_socket(), options)?;
    let streams = stdio.streams(options)?;
    let (id, console) = (bundle.id(), stdio.console());
    let command = bundle
        .runtime()
        .create_command(id, bundle.path(), console, streams);
    Ok((stdio, command))
}
