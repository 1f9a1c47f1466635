//! The directories, files and mounts of a container while it lives ([`crate::layout`] has their paths).
//!
//! `directories` makes the directories, `root` mounts the container's root, and `network` attaches it to its network.
//!
//! The record is written before anything else and removed after everything else, so the record of a killed
//! supervisor leads to everything that it left ([`crate::cleanup`]).

mod directories;
mod network;
mod root;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use xebec_confinement::SecurityContext;
use xebec_container_log::{LogLimits, LogWriter};
use xebec_kernel::file::write_for_this_boot;
use xebec_network::Attaching;
use xebec_volume::ContainerVolumes;

use crate::layout::{CONFIG, MERGED, PID_FILE};
use crate::name::{is_container_name, random_name};
use crate::namespaces::PidNamespace;
use crate::network::{NetworkPlan, host_name, write_network_files};
use crate::process::Process;
use crate::record::{self, Record};
use crate::removal::{remove_bundle, remove_unless_kept};
use crate::runtime::Runtime;
use crate::saved_run::SavedRun;
use crate::spec::{self, SpecInput};
use crate::{Again, Directories, ExitCode, RunError, RunOptions, StopSignal, control_groups};

/// The bundle, the layer and the record of a container. Dropped, it removes them as [`Bundle::close`] does.
pub(crate) struct Bundle {
    dirs: Directories,
    /// The OCI bundle.
    path: PathBuf,
    /// The directory of the layer.
    state: PathBuf,
    record: Record,
    /// The record of the container.
    saved: SavedRun,
    runtime: Runtime,
    security: SecurityContext,
    network: NetworkPlan,
    /// The container's attachment to a network of its own.
    attaching: Option<Attaching>,
    /// Whether the layer is removed when the container has ended.
    rm: bool,
    /// Whether there is something to close.
    open: bool,
    /// Whether the runtime created a container. A layer to which nothing could write is not kept.
    created: bool,
    volumes: ContainerVolumes,
    /// That of another container, if this one is in it.
    pid_namespace: Option<PidNamespace>,
    /// Tells cleanups that know no record of the layer that it is in use.
    lock: Option<File>,
}

impl Bundle {
    /// Reserves the container's name and makes the directories.
    pub(crate) fn claim(
        options: &RunOptions,
        dirs: &Directories,
        runtime: &Runtime,
        security: SecurityContext,
        network: NetworkPlan,
    ) -> Result<Self, RunError> {
        let container_id = random_name().map_err(RunError::system("get random bytes for an id"))?;
        let id = match &options.id {
            Some(id) if is_container_name(id) => id.clone(),
            Some(id) => return Err(RunError::Id(id.clone())),
            None => container_id.clone(),
        };
        let (state, path) = (
            create_absolute(&dirs.state)?.join(&id),
            create_absolute(&dirs.bundles())?.join(&id),
        );
        let record = Record {
            image: options.image.clone(),
            runtime: runtime.program().to_owned(),
            rm: options.rm,
            is_kept: options.again != Again::No,
            network: network.to_record(&options.net, &id)?,
            ..Record::new(&id, &state)?
        };
        check_layer(options.again, &dirs.run, &id, &state)?;
        let volumes = ContainerVolumes::plan(&options.volumes, absolute(dirs)?.volumes(), &state)?;
        let pid_namespace = PidNamespace::find(&options.pid, &dirs.run)?;
        record.claim(&dirs.run)?;
        let mut bundle = Bundle {
            dirs: dirs.clone(),
            path,
            saved: SavedRun::new(&state, container_id, options),
            state,
            record,
            runtime: runtime.clone(),
            security,
            volumes,
            pid_namespace,
            network,
            attaching: None,
            rm: options.rm,
            open: false,
            created: false,
            lock: None,
        };
        if let Err(error) = bundle.make_directories(options) {
            // Without the lock the layer is another container's.
            if bundle.lock.is_some() {
                let _ = remove_bundle(&bundle.dirs, bundle.id());
                let _ = remove_unless_kept(&bundle.dirs, &bundle.state, !bundle.record.is_kept);
            }
            record::remove(&bundle.dirs.run, bundle.id());
            return Err(error);
        }
        bundle.open = true;
        Ok(bundle)
    }

    /// The container's name.
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// The container's directory.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// The container's id.
    pub(crate) fn container_id(&self) -> &str {
        self.saved.id()
    }

    pub(crate) fn set_manifest(&mut self, manifest: String) {
        self.saved.set_manifest(manifest);
    }

    pub(crate) fn set_stop_signal(&mut self, signal: StopSignal) {
        self.saved.set_stop_signal(signal);
    }

    /// The container's log. `None`, and a warning, if it cannot be opened: the container runs without one.
    pub(crate) fn open_log(&self, limits: LogLimits) -> Option<LogWriter> {
        let log = LogWriter::open(&self.state, limits);
        let cannot = |error: &io::Error| {
            tracing::warn!(%error, id = self.id(), "cannot open the container's log; what it writes is dropped");
        };
        log.inspect_err(cannot).ok()
    }

    /// Keeps that the container's command was told to run.
    pub(crate) fn save_begun(&mut self) {
        self.saved.begun(!self.rm);
    }

    /// Keeps how the container ended. Its control groups exist still.
    pub(crate) fn save_end(&mut self, outcome: &Result<ExitCode, RunError>) {
        if self.created {
            let was_short_of_memory = control_groups::has_killed_for_memory(&self.control_group());
            self.saved.ended(outcome, was_short_of_memory, !self.rm);
        } else if let Err(error) = outcome {
            self.save_failure(&error.to_string());
        }
    }

    /// Keeps why a container that existed before could not be started.
    pub(crate) fn save_failure(&mut self, reason: &str) {
        if self.record.is_kept {
            self.saved.failed(reason);
        }
    }

    /// The path of the container's control groups, as in `cgroupsPath`.
    pub(crate) fn control_group(&self) -> String {
        self.record.control_group()
    }

    /// The directory of the OCI bundle.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The mount point of the container's root.
    pub(crate) fn root(&self) -> PathBuf {
        self.path.join(MERGED)
    }

    /// The runtime that creates the container.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The file into which the runtime writes the process id.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.path.join(PID_FILE)
    }

    /// The socket on which the runtime sends the terminal.
    pub(crate) fn console_socket(&self) -> PathBuf {
        self.dirs.console_socket(self.id())
    }

    /// Records the container's first process.
    pub(crate) fn record_pid(&mut self, pid: i32) -> Result<(), RunError> {
        self.created = true;
        self.record.set_pid(pid)?;
        Ok(self.record.save(&self.dirs.run)?)
    }

    /// Records that the container's command was told to run. From here on the container runs on if its
    /// supervisor is killed.
    pub(crate) fn record_begun(&mut self) -> Result<(), RunError> {
        self.record.has_begun = Some(true);
        Ok(self.record.save(&self.dirs.run)?)
    }

    /// Writes the files that `config.json` refers to, and then `config.json`, which appears whole or not at
    /// all. Returns its contents.
    pub(crate) fn write_spec(&self, process: &Process, options: &RunOptions) -> Result<String, RunError> {
        let hostname = host_name(options, &self.network, self.id())?;
        let network_files = write_network_files(&self.path.join("etc"), &hostname, options, &self.network)?;
        let own = self.attaching.as_ref().map(Attaching::namespace);
        let config = spec::config_json(&SpecInput {
            control_group: &self.control_group(),
            process,
            root: &self.root(),
            hostname: &hostname,
            network: &self.network.namespace(own),
            pid: &options.pid,
            pid_namespace: self.pid_namespace.as_ref().map(PidNamespace::path),
            ipc: options.ipc,
            init: options.init.as_deref(),
            terminal: options.tty,
            volumes: &self.volumes.mounts(),
            tmpfs: &options.tmpfs,
            network_files: &network_files,
            confinement: &options.confinement,
            security: &self.security,
            can_limit_swap: control_groups::can_limit_swap(),
            unified_cgroups: control_groups::are_unified(),
            // To raise its own limit a process needs a capability that root may lack.
            open_files_limit: getrlimit(Resource::Nofile).maximum,
        });
        let (text, path) = (config.to_string(), self.path.join(CONFIG));
        write_for_this_boot(&path, text.as_bytes()).map_err(RunError::file("write", &path))?;
        Ok(text)
    }

    /// Ends the container's processes that still run, unmounts the overlay, and removes the bundle, the record,
    /// and the layer if it is not kept.
    pub(crate) fn close(&mut self) -> Result<(), RunError> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.save_failure("it could not be started");
        self.runtime.delete(self.id());
        // A runtime that was killed before it wrote its state does not know of the control groups, and no
        // record will.
        control_groups::remove(&self.control_group());
        self.close_network();
        remove_bundle(&self.dirs, self.id())?;
        remove_unless_kept(
            &self.dirs,
            &self.state,
            self.rm || !(self.created || self.record.is_kept),
        )?;
        // The socket exists still if the runtime never used it.
        let _ = fs::remove_file(self.console_socket());
        record::remove(&self.dirs.run, self.id());
        Ok(())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(
                %error,
                id = self.id(),
                "cannot clean up after a container; the next `xebec run` tries again"
            );
        }
    }
}

/// Whether the layer may be that of the container: a new one has none yet, one that is started again has its own.
fn check_layer(again: Again, run: &Path, id: &str, state: &Path) -> Result<(), RunError> {
    // A layer that was kept. A record now would let a cleanup remove it if this process is killed.
    let exists = fs::symlink_metadata(state).is_ok();
    match again {
        Again::No if exists && !record::path(run, id).exists() => Err(RunError::Exists(id.to_owned())),
        Again::ByUser | Again::ByPolicy if !exists => Err(RunError::Missing(id.to_owned())),
        _ => Ok(()),
    }
}

/// Creates a directory unless it exists, and returns its absolute path, which the mount table and the runtime
/// need.
fn create_absolute(path: &Path) -> Result<PathBuf, RunError> {
    fs::create_dir_all(path).map_err(RunError::file("create", path))?;
    fs::canonicalize(path).map_err(RunError::file("find", path))
}

/// The directories by paths that the runtime can use.
fn absolute(dirs: &Directories) -> Result<Directories, RunError> {
    let state = create_absolute(&dirs.state)?;
    Ok(Directories {
        state,
        ..dirs.clone()
    })
}
