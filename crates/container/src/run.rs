//! Preparing a container while its image is still looked for, and running it on the image's view.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use xebec_confinement::{SecurityContext, Surroundings};
use xebec_kernel::process::{Linkage, linkage};
use xebec_volume::check_targets;

use crate::bundle::Bundle;
use crate::cgroup_warm_up::CgroupWarmUp;
use crate::cleanup::cleanup_stale;
use crate::init::become_subreaper;
use crate::name::is_container_name;
use crate::network::NetworkPlan;
use crate::prediction::PredictedCreate;
use crate::probe_watch::refuse_ready_before;
use crate::process::Process;
use crate::runtime::Runtime;
use crate::supervisor::{EventQueue, PendingCreate, SupervisorConfig, supervise};
use crate::{
    ConfigNotifier, Directories, Event, ExitCode, ImageConfig, IpcMode, RecordError, RunError, RunOptions,
    command_check, control_groups, saved_run, terminal,
};

/// A container that has its name and its directories, and whose runtime has started, before its image is
/// known. Dropped, it leaves nothing.
pub struct Prepared<'a> {
    // In this order: the runtime ends before its directory is removed.
    create: PredictedCreate,
    bundle: Bundle,
    events: EventQueue,
    options: &'a RunOptions,
}

impl<'a> Prepared<'a> {
    /// Prepares a container and starts its runtime. Meanwhile `find_image` runs in a thread of its own.
    /// Returns the container, and what `find_image` returned.
    ///
    /// `find_image` passes the image's configuration to its [`ConfigNotifier`] as soon as it has that. The
    /// runtime then creates the container before the image's view exists. [`Prepared::run`] compares: it
    /// discards a container that was created for another configuration.
    ///
    /// From here on `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` and `SIGUSR2` do not end this
    /// process. If one of the first four comes before `find_image` has returned, this function fails without
    /// waiting for it.
    ///
    /// # Errors
    /// If an option is wrong, no runtime is installed, the name is taken, or a signal asks this process to
    /// end.
    pub fn begin<T: Send + 'static>(
        options: &'a RunOptions,
        dirs: &Directories,
        find_image: impl FnOnce(&ConfigNotifier) -> T + Send + 'static,
    ) -> Result<(Self, T), RunError> {
        let is_joined = options.tty && options.interactive && options.detached.is_none();
        if is_joined && !terminal::stdin_is_terminal() {
            return Err(RunError::NoTerminal);
        }
        let claimed = claim(options, dirs);
        let (mut bundle, events) = claimed.inspect_err(|error| keep_failure(dirs, options, error))?;
        let begun = events.spawn(find_image).and_then(|image| {
            // Its plugins run meanwhile, and while the runtime creates the container.
            bundle.begin_network(options)?;
            Ok((image, PredictedCreate::start(&bundle, options)?))
        });
        let (image, create) = begun.inspect_err(|error| bundle.save_failure(&error.to_string()))?;
        let mut prepared = Prepared {
            create,
            bundle,
            events,
            options,
        };
        let Prepared {
            create,
            bundle,
            events,
            ..
        } = &mut prepared;
        let found = events.wait(image, |config, user| {
            create.predict(bundle, config, user, options)
        });
        match found {
            Ok(found) => Ok((prepared, found)),
            Err(error) => {
                bundle.save_failure(&error.to_string());
                Err(error)
            }
        }
    }

    /// The container's id.
    pub fn container_id(&self) -> &str {
        self.bundle.container_id()
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        self.bundle.id()
    }

    /// The container's directory, which holds its layer.
    pub fn directory(&self) -> &Path {
        self.bundle.state()
    }

    /// Notes the manifest of the image, so that a later start of the container uses the same image.
    pub fn set_manifest(&mut self, manifest: String) {
        self.bundle.set_manifest(manifest);
    }

    /// Gives the start up. The reason is kept with a container that existed before.
    pub fn give_up(mut self, reason: &dyn std::fmt::Display) {
        self.bundle.save_failure(&reason.to_string());
    }

    /// Runs the container on `view` and waits for its end.
    ///
    /// `view` is a directory that shows the image's files and does not change. Nothing is written to it.
    /// While the container runs, this process forwards `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1`
    /// and `SIGUSR2` to it, and the third `SIGINT` or `SIGTERM` kills it. The process becomes a child
    /// subreaper and stays one, and it keeps its handlers of these signals. So a program should end soon
    /// after this function returns.
    ///
    /// # Errors
    /// The failure that kept the container from running or from becoming ready ([`RunError`]). A container that ran
    /// and ended is no error, with any exit code, unless a probe had not succeeded.
    pub fn run(
        self,
        view: &Path,
        image: &ImageConfig,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<ExitCode, RunError> {
        let Prepared {
            options,
            events,
            mut bundle,
            create,
        } = self;
        let outcome = run_in(&mut bundle, create, events, options, (view, image), on_event);
        bundle.save_end(&outcome);
        let closed = bundle.close();
        let code = outcome?;
        closed?;
        Ok(code)
    }
}

/// Decides all that needs no image, and takes the container's name and directories.
fn claim(options: &RunOptions, dirs: &Directories) -> Result<(Bundle, EventQueue), RunError> {
    refuse_dynamic_init(options)?;
    let mut runtime = Runtime::find(options.runtime.as_deref(), dirs)?;
    let network = NetworkPlan::decide(options, dirs)?;
    check_targets(&options.volumes, &options.tmpfs)?;
    let security = confine(options, &runtime, &network)?;
    runtime.filter_by(security.filters.outer.clone());
    // Before signals are caught: a cleanup can take long, and a signal may end it.
    if let Err(error) = cleanup_stale(dirs) {
        tracing::warn!(%error, "cannot clean up after containers whose `xebec run` was killed");
    }
    let events = EventQueue::open()?;
    let bundle = Bundle::claim(options, dirs, &runtime, security, network)?;
    Ok((bundle, events))
}

/// Keeps why a container that existed before could not be started, if this process had not taken it yet.
fn keep_failure(dirs: &Directories, options: &RunOptions, error: &RunError) {
    // One that runs has not failed.
    let is_running = matches!(error, RunError::Record(RecordError::Running(_)));
    if let Some(name) = options
        .id
        .as_ref()
        .filter(|name| is_container_name(name) && !is_running)
    {
        saved_run::keep_failure(&dirs.state.join(name), options.again, &error.to_string());
    }
}

/// The steps of [`Prepared::run`] up to the container's end. The runtime has ended when this returns.
fn run_in(
    bundle: &mut Bundle,
    mut create: PredictedCreate,
    events: EventQueue,
    options: &RunOptions,
    (view, image): (&Path, &ImageConfig),
    on_event: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let began = Instant::now();
    refuse_ready_before(options)?;
    let stop_signal = options.stop_signal.map_or_else(|| image.stop_signal(), Ok)?;
    bundle.set_stop_signal(stop_signal);
    bundle.publish_exposed(options, image)?;
    let resolve = || Process::resolve(view, image, options);
    let predicted = create.predicted_process(bundle, image, options);
    let is_predicted = predicted.is_some();
    // A predicted container has a warm-up already.
    let mut warm_up = (!is_predicted).then(CgroupWarmUp::start);
    let mut process = predicted.map_or_else(resolve, Ok)?;
    let root = bundle.mount(view, &process)?;
    events.give_way(|go_on| bundle.make_volumes(go_on))?;
    // Before the runtime can look for it.
    command_check::check(root.as_fd(), &process, options)?;
    // A runtime that comes from now on does not wait for its root, and mounts what it finds.
    bundle.attach(&root)?;
    create.open_root(bundle, &root);
    on_event(Event::Mounted {
        id: bundle.id().to_owned(),
    });
    if is_predicted {
        // The runtime creates the container meanwhile. Its command waits until the user is known for
        // certain.
        process = resolve()?;
    }
    let config = match create.is_right(bundle, &process) {
        true => None,
        false => {
            // Before the runtime can create the container.
            become_subreaper()?;
            warm_up.get_or_insert_with(CgroupWarmUp::start);
            Some(bundle.write_spec(&process, options)?)
        }
    };
    let supervisor = SupervisorConfig {
        options,
        stop_signal,
        began,
        user: (options.user.is_none() && options.group_add.is_empty()).then_some(process.identity),
    };
    let pending = PendingCreate {
        create,
        config,
        warm_up,
    };
    supervise(bundle, pending, &supervisor, events, on_event)
}

/// The security settings of the container.
fn confine(
    options: &RunOptions,
    runtime: &Runtime,
    network: &NetworkPlan,
) -> Result<SecurityContext, RunError> {
    let surroundings = Surroundings {
        takes_filter: runtime.takes_filter(),
        is_on_hosts_network: network.is_hosts(),
        is_on_hosts_ipc: options.ipc == IpcMode::Host,
        can_limit_swap: control_groups::can_limit_swap(),
    };
    Ok(SecurityContext::decide(&options.confinement, surroundings)?)
}

/// Refuses a first process that would need libraries, which the image may lack.
fn refuse_dynamic_init(options: &RunOptions) -> Result<(), RunError> {
    let Some(init) = &options.init else { return Ok(()) };
    match linkage(init) {
        Ok(Linkage::Static) => Ok(()),
        Ok(Linkage::Dynamic) => Err(RunError::Init {
            path: init.clone(),
            reason: "it is not static, and an image may lack the libraries that it loads".into(),
        }),
        Err(error) => Err(RunError::Init {
            path: init.clone(),
            reason: error.to_string(),
        }),
    }
}

/// Runs a container on `view`, which exists already, and waits for its end ([`Prepared`]).
///
/// # Errors
/// As [`Prepared::begin`] and [`Prepared::run`].
pub fn run(
    view: &Path,
    image: &ImageConfig,
    options: &RunOptions,
    dirs: &Directories,
    on_event: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let (prepared, ()) = Prepared::begin(options, dirs, |_| ())?;
    prepared.run(view, image, on_event)
}
