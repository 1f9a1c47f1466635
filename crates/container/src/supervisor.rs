//! The supervisor: a container's life from the runtime's `create` to its end, as seen by its parent.
//!
//! Everything that happens comes through one channel ([`crate::supervisor_event`]), and the supervisor alone
//! decides.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use xebec_probe::Probe;

use crate::bundle::Bundle;
use crate::cgroup_warm_up::CgroupWarmUp;
use crate::init::Init;
use crate::output::Tail;
use crate::prediction::PredictedCreate;
use crate::probe_watch::{ProbeTarget, ProbeWatch};
use crate::signal_watch::SignalWatch;
use crate::stdio::{Forwarding, finish_copies};
use crate::supervisor_event::{SupervisorEvent, WorkEnd};
use crate::terminal::Terminal;
use crate::{ConfigNotifier, Event, ExitCode, Identity, ImageConfig, RunError, RunOptions, StopSignal};

/// The `SIGINT` or `SIGTERM` that kills the container, counted from the first.
const KILLING_REQUEST: u32 = 3;
/// The exit code of runc's own program, which is written in Go, after a signal that asks it to end.
const RUNTIME_ENDED: ExitCode = ExitCode(2);

/// The facts about the container that the supervisor needs.
pub(crate) struct SupervisorConfig<'a> {
    pub(crate) options: &'a RunOptions,
    pub(crate) stop_signal: StopSignal,
    /// When the run began.
    pub(crate) began: Instant,
    /// The user that the container runs as, if that is the image's own.
    pub(crate) user: Option<Identity>,
}

/// The supervisor's events, from the moment that this exists. It is opened before anything that would have to
/// be cleaned up, so that no signal ends this process in between.
pub(crate) struct EventQueue {
    sender: Sender<SupervisorEvent>,
    receiver: Receiver<SupervisorEvent>,
    _signals: SignalWatch,
}

impl EventQueue {
    pub(crate) fn open() -> Result<Self, RunError> {
        let (sender, receiver) = mpsc::channel();
        let _signals = SignalWatch::start(&sender)?;
        Ok(EventQueue {
            sender,
            receiver,
            _signals,
        })
    }

    /// Starts work in a thread of its own, for [`EventQueue::wait`].
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConfigNotifier) -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, RunError> {
        let end = WorkEnd::new(self.sender.clone());
        // The closure owns `end`, so a panic sends the event, too.
        let work = move || work(&end.notifier());
        let thread = std::thread::Builder::new().name("image".into());
        thread.spawn(work).map_err(RunError::system("start a thread"))
    }

    /// Waits for that work, until a signal asks this process to end. `on_config` gets the image's
    /// configuration, and its remembered user.
    pub(crate) fn wait<T>(
        &self,
        work: JoinHandle<T>,
        mut on_config: impl FnMut(&ImageConfig, Option<&Identity>),
    ) -> Result<T, RunError> {
        loop {
            match self.receiver.recv() {
                Ok(SupervisorEvent::WorkEnded) | Err(_) => break,
                Ok(SupervisorEvent::ImageConfig(image, user)) => on_config(&image, user.as_ref()),
                Ok(SupervisorEvent::Signal(signal)) if asks_to_end(signal) => {
                    return Err(RunError::Interrupted(signal));
                }
                Ok(_) => {}
            }
        }
        work.join().or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Does work that asks often whether to go on, and ends it if a signal asks this process to end.
    pub(crate) fn give_way<T>(
        &self,
        work: impl FnOnce(&mut dyn FnMut() -> io::Result<()>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let mut interrupted = None;
        let outcome = work(&mut || {
            interrupted = self.refuse_if_interrupted().err();
            match interrupted {
                None => Ok(()),
                Some(_) => Err(io::ErrorKind::Interrupted.into()),
            }
        });
        interrupted.map_or(outcome, Err)
    }

    /// Fails if a signal has asked this process to end.
    fn refuse_if_interrupted(&self) -> Result<(), RunError> {
        let interrupted = self.receiver.try_iter().find_map(|event| match event {
            SupervisorEvent::Signal(signal) if asks_to_end(signal) => Some(signal),
            _ => None,
        });
        match interrupted {
            Some(signal) => Err(RunError::Interrupted(signal)),
            None => Ok(()),
        }
    }
}

/// The container's `create`, which has not ended yet.
pub(crate) struct PendingCreate {
    pub(crate) create: PredictedCreate,
    /// The contents of `config.json`, if the runtime has not received them.
    pub(crate) config: Option<String>,
    /// Keeps joining the control groups fast until the container is created.
    pub(crate) warm_up: Option<CgroupWarmUp>,
}

/// Creates and starts the container of `bundle`, and stays until it has ended. This process is a subreaper
/// already.
pub(crate) fn supervise(
    bundle: &mut Bundle,
    pending: PendingCreate,
    config: &SupervisorConfig<'_>,
    queue: EventQueue,
    on_event: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let options = config.options;
    let PendingCreate {
        create,
        config: config_json,
        warm_up,
    } = pending;
    let created = create.finish(bundle, config_json.as_deref(), options);
    // A key of the terminal that interrupts this process interrupts the runtime as well.
    let stdio = created.map_err(|error| queue.refuse_if_interrupted().err().unwrap_or(error))?;
    let init = Init::open(&bundle.pid_file())?;
    bundle.record_pid(init.pid)?;
    drop(warm_up);
    on_event(Event::Created {
        pid: init.pid,
        user: config.user.clone(),
    });

    let tail = Tail::default();
    let log = options.detached.and_then(|limits| bundle.open_log(limits));
    let Forwarding {
        terminal,
        copies,
        _input,
    } = stdio.forward(options, log.as_ref(), &tail, &queue.sender)?;
    init.watch(&queue.sender)?;
    bundle.finish_network()?;
    queue.refuse_if_interrupted()?;
    bundle.compare_volumes(init.pid)?;
    let started = start(bundle, &init, options, on_event);
    // So may such a key the runtime that starts the command.
    started.map_err(|error| queue.refuse_if_interrupted().err().unwrap_or(error))?;
    let target = ProbeTarget {
        id: bundle.id().to_owned(),
        pid: init.pid,
        on_host: bundle.is_on_hosts_network(),
        runtime: bundle.runtime().clone(),
    };
    let probe_watch = ProbeWatch::start(&options.probes, &target, &queue.sender)?;
    let mut supervisor = Supervisor::new(config, on_event, &init, terminal.as_ref());
    let code = supervisor.handle_events(&queue.receiver)?;
    drop(probe_watch);
    // The last line that the container wrote may be the one that a probe waits for.
    finish_copies(copies);
    supervisor.conclude(code, &queue.receiver, &tail)
}

/// Tells the container's command to run, and records that.
fn start(
    bundle: &mut Bundle,
    init: &Init,
    options: &RunOptions,
    on_event: &mut dyn FnMut(Event),
) -> Result<(), RunError> {
    bundle.runtime().start(bundle.id(), bundle.path(), init.pidfd())?;
    on_event(Event::Started);
    bundle.save_begun();
    if options.outlives_supervisor
        && let Err(error) = bundle.record_begun()
    {
        tracing::warn!(
            %error,
            "cannot record that the container has started; if this process is killed, its container is killed too"
        );
    }
    on_event(Event::Kept);
    Ok(())
}

/// Whether this signal asks a process to end.
pub(crate) fn asks_to_end(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT)
}

/// How far the stop of the container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    Asked { kill_at: Instant },
    Killed,
}

struct Supervisor<'a> {
    config: &'a SupervisorConfig<'a>,
    on_event: &'a mut dyn FnMut(Event),
    init: &'a Init,
    terminal: Option<&'a Terminal>,
    /// Which probes have not succeeded.
    waiting: Vec<bool>,
    ready: bool,
    /// When the container must be ready.
    deadline: Option<Instant>,
    stopping: Stopping,
    /// How many `SIGINT` and `SIGTERM` have come.
    end_requests: u32,
    /// The first signal that asked the runtime's own program to end, in place of the container's command.
    before_command: Option<i32>,
    /// Why the container is being stopped, if that is a failure.
    failure: Option<Failure>,
}

enum Failure {
    NotReadyInTime,
    ProbeBroken(RunError),
}

impl<'a> Supervisor<'a> {
    fn new(
        config: &'a SupervisorConfig<'a>,
        on_event: &'a mut dyn FnMut(Event),
        init: &'a Init,
        terminal: Option<&'a Terminal>,
    ) -> Self {
        let options = config.options;
        Self {
            config,
            on_event,
            init,
            terminal,
            waiting: vec![true; options.probes.len()],
            ready: false,
            deadline: (!options.probes.is_empty()).then(|| Instant::now() + options.probe_timeout),
            stopping: Stopping::No,
            end_requests: 0,
            before_command: None,
            failure: None,
        }
    }

    /// Handles events until the container has ended.
    fn handle_events(&mut self, events: &Receiver<SupervisorEvent>) -> Result<ExitCode, RunError> {
        loop {
            match self.next(events) {
                Ok(SupervisorEvent::Exited(code)) => return Ok(code),
                Ok(SupervisorEvent::WorkEnded | SupervisorEvent::ImageConfig(..)) => {}
                Ok(SupervisorEvent::Signal(signal)) => self.forward(signal),
                Ok(SupervisorEvent::ProbeSucceeded(index)) => self.probe_succeeded(index),
                Ok(SupervisorEvent::ProbeBroken(index, error)) => self.probe_broken(index, error),
                Err(RecvTimeoutError::Timeout) => self.time_is_up(),
                // Cannot be: the caller owns a sender of the channel.
                Err(RecvTimeoutError::Disconnected) => {
                    let source = io::Error::other("no thread watches it");
                    return Err(RunError::system("wait for the container")(source));
                }
            }
        }
    }

    fn next(&self, events: &Receiver<SupervisorEvent>) -> Result<SupervisorEvent, RecvTimeoutError> {
        let until = match self.stopping {
            Stopping::No => self.deadline,
            Stopping::Asked { kill_at } => Some(kill_at),
            Stopping::Killed => None,
        };
        match until {
            Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn forward(&mut self, signal: i32) {
        if signal == SIGWINCH {
            if let Some(terminal) = self.terminal {
                terminal.resize();
            }
            return;
        }
        if matches!(signal, SIGINT | SIGTERM) {
            self.end_requests += 1;
        }
        if asks_to_end(signal) && self.before_command.is_none() && self.init.is_runtimes() {
            self.before_command = Some(signal);
        }
        if self.end_requests >= KILLING_REQUEST {
            self.kill();
        } else {
            self.send(signal);
        }
    }

    fn probe_succeeded(&mut self, index: usize) {
        if let Some(waiting) = self.waiting.get_mut(index) {
            *waiting = false;
        }
        if self.ready || self.stopping != Stopping::No || self.waiting.contains(&true) {
            return;
        }
        self.ready = true;
        self.deadline = None;
        (self.on_event)(Event::Ready {
            after: self.config.began.elapsed(),
        });
        if self.config.options.exit_on_ready {
            self.stop();
        }
    }

    fn probe_broken(&mut self, index: usize, source: io::Error) {
        if self.stopping == Stopping::No {
            let probe = self.config.options.probes.get(index);
            let probe = probe.map(Probe::to_string).unwrap_or_default();
            self.failure = Some(Failure::ProbeBroken(RunError::Probe { probe, source }));
            self.stop();
        }
    }

    fn time_is_up(&mut self) {
        match self.stopping {
            Stopping::No => {
                self.failure = Some(Failure::NotReadyInTime);
                self.stop();
            }
            Stopping::Asked { .. } => self.kill(),
            Stopping::Killed => {}
        }
    }

    /// Sends the image's stop signal to the container.
    fn stop(&mut self) {
        self.stopping = Stopping::Asked {
            kill_at: Instant::now() + self.config.options.stop_timeout,
        };
        self.send(self.config.stop_signal.number());
    }

    fn kill(&mut self) {
        self.stopping = Stopping::Killed;
        self.send(Signal::KILL.as_raw());
    }

    fn send(&self, signal: i32) {
        self.init.send(signal);
    }

    /// The outcome of the run, from the container's exit code and the probes.
    fn conclude(
        mut self,
        code: ExitCode,
        events: &Receiver<SupervisorEvent>,
        tail: &Tail,
    ) -> Result<ExitCode, RunError> {
        for event in events.try_iter() {
            if let SupervisorEvent::ProbeSucceeded(index) = event {
                self.probe_succeeded(index);
            }
        }
        if code == ExitCode(0) {
            let probes = self.config.options.probes.iter().enumerate();
            for (index, _) in probes.filter(|(_, probe)| matches!(probe, Probe::Exit)) {
                self.probe_succeeded(index);
            }
        }
        (self.on_event)(Event::Exited { code });
        if let Some(signal) = self.before_command
            && code == RUNTIME_ENDED
            && self.failure.is_none()
        {
            return Err(RunError::Interrupted(signal));
        }
        let log = tail.sentence();
        match self.failure.take() {
            Some(Failure::ProbeBroken(error)) => Err(error),
            Some(Failure::NotReadyInTime) => Err(RunError::ProbeTimeout {
                after: self.config.options.probe_timeout,
                waiting: self.missing(),
                log,
            }),
            None if self.waiting.contains(&true) => Err(RunError::ExitedBeforeReady {
                code,
                waiting: self.missing(),
                log,
            }),
            None if self.ready && self.config.options.exit_on_ready => Ok(ExitCode(0)),
            None => Ok(code),
        }
    }

    /// The probes that have not succeeded, for an error message.
    fn missing(&self) -> String {
        let probes = self.config.options.probes.iter().zip(&self.waiting);
        let missing = probes.filter(|(_, waiting)| **waiting);
        xebec_probe::unsuccessful(missing.map(|(probe, _)| probe))
    }
}
