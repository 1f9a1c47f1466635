//! The life of a container from the runtime's `create` to its end, as its parent sees it.
//!
//! Everything that can happen comes through one channel: signals, probes, the end of the container's first
//! process. One thread per source feeds it; this one alone decides.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use super::bundle::Bundle;
use super::cgroup_warm_up::CgroupWarmUp;
use super::init::Init;
use super::output::Tail;
use super::prediction::PredictedCreate;
use super::probe::Probe;
use super::probe_watch::{ProbeTarget, ProbeWatch};
use super::signal::SignalWatch;
use super::stdio;
use super::terminal::Terminal;
use super::{Event, ExitCode, Identity, ImageConfig, RunError, RunOptions, StopSignal};

/// How many times somebody asks for the end before the container is killed.
const URGES: u32 = 3;

/// Something that the supervisor has to know.
pub(super) enum SupervisorEvent {
    /// What was done beside the preparations is done.
    Done,
    /// It is known what the image says, and perhaps who its user is.
    Known(Box<ImageConfig>, Option<Identity>),
    /// This process got a signal.
    Signal(i32),
    /// The probe of this number was seen.
    Seen(usize),
    /// The probe of this number can never be seen.
    Broken(usize, io::Error),
    /// The container's first process has ended.
    Exited(ExitCode),
}

/// What the supervisor was told.
pub(super) struct SupervisorConfig<'a> {
    pub options: &'a RunOptions,
    pub stop_signal: StopSignal,
    pub began: Instant,
    /// The image's own user, if it is that one.
    pub user: Option<Identity>,
}

/// What happens, from the moment that this is made. Made before anything that would have to be cleaned up, it
/// keeps a signal from ending this process in between.
pub(super) struct EventQueue {
    sender: Sender<SupervisorEvent>,
    events_in: Receiver<SupervisorEvent>,
    _signals: SignalWatch,
}

impl EventQueue {
    pub(super) fn begin() -> Result<Self, RunError> {
        let (sender, events_in) = mpsc::channel();
        let _signals = SignalWatch::start(&sender)?;
        Ok(EventQueue {
            sender,
            events_in,
            _signals,
        })
    }

    /// Has something done in a thread of its own, which is to be waited for by [`EventQueue::wait`].
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConfigNotifier) -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, RunError> {
        /// Tells of the end also when the work panics.
        struct Telling(Sender<SupervisorEvent>);
        impl Drop for Telling {
            fn drop(&mut self) {
                let _ = self.0.send(SupervisorEvent::Done);
            }
        }
        let telling = Telling(self.sender.clone());
        let work = move || {
            let telling = telling;
            work(&ConfigNotifier(telling.0.clone()))
        };
        let thread = std::thread::Builder::new().name("image".into());
        thread.spawn(work).map_err(|source| RunError::System {
            doing: "start a thread",
            source,
        })
    }

    /// Waits for that, as long as nobody wants this process to end. `know` is told what the image says.
    pub(super) fn wait<T>(
        &self,
        work: JoinHandle<T>,
        mut know: impl FnMut(&ImageConfig, Option<&Identity>),
    ) -> Result<T, RunError> {
        loop {
            match self.events_in.recv() {
                Ok(SupervisorEvent::Done) | Err(_) => break,
                Ok(SupervisorEvent::Known(image, user)) => know(&image, user.as_ref()),
                Ok(SupervisorEvent::Signal(signal)) if is_urge(signal) => {
                    return Err(RunError::Interrupted(signal));
                }
                Ok(_) => {}
            }
        }
        work.join().or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Tells what an image says, as soon as that is known: before the image is there.
pub struct ConfigNotifier(Sender<SupervisorEvent>);

impl ConfigNotifier {
    /// It says this, and its user was this one before, where that is known.
    pub fn tell(&self, image: ImageConfig, user: Option<Identity>) {
        // Nobody may care any more.
        let _ = self.0.send(SupervisorEvent::Known(Box::new(image), user));
    }
}

/// The making of a container: as far as it has begun, what its `config.json` holds if nobody was told that, and what makes it
/// quick.
pub(super) struct PendingCreate {
    pub early: PredictedCreate,
    pub config: Option<String>,
    pub joining: Option<CgroupWarmUp>,
}

/// Creates and starts the container of `bundle` and stays with it until it has ended. This process has adopted it already.
pub(super) fn supervise(
    bundle: &mut Bundle,
    pending: PendingCreate,
    orders: &SupervisorConfig<'_>,
    queue: EventQueue,
    events: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let options = orders.options;
    let PendingCreate {
        early,
        config,
        joining,
    } = pending;
    let EventQueue {
        sender,
        events_in,
        _signals,
    } = queue;
    let connection = early
        .finish(bundle, config.as_deref(), options)
        .map_err(|error| {
            // A key of the terminal interrupts the runtime as well.
            refuse_if_interrupted(&events_in).err().unwrap_or(error)
        })?;
    let init = Init::open(bundle)?;
    bundle.record_pid(init.pid)?;
    drop(joining);
    events(Event::Created {
        pid: init.pid,
        user: orders.user.clone(),
    });

    let tail = Tail::default();
    let (terminal, copies) = connection.open(options, &tail, &sender)?;
    init.watch(&sender)?;
    refuse_if_interrupted(&events_in)?;
    bundle.runtime().start(bundle.id(), bundle.path(), init.pidfd())?;
    events(Event::Started);
    if options.outlives_supervisor
        && let Err(error) = bundle.record_begun()
    {
        tracing::warn!(%error, "should this process be killed, its container will be, too");
    }
    let watched = ProbeTarget {
        id: bundle.id().to_owned(),
        pid: init.pid,
        net: options.net,
        runtime: bundle.runtime().clone(),
    };
    let watch = ProbeWatch::start(&options.probes, &watched, &sender)?;

    let mut supervisor = Supervisor {
        orders,
        events,
        init: &init,
        watched: &watched,
        terminal: terminal.as_ref(),
        waiting: vec![true; options.probes.len()],
        ready: false,
        deadline: (!options.probes.is_empty()).then(|| Instant::now() + options.probe_timeout),
        stopping: Stopping::No,
        urges: 0,
        verdict: None,
    };
    let code = supervisor.attend(&events_in)?;
    drop(watch);
    // What was written last may be what a probe waits for.
    stdio::finish(copies);
    supervisor.conclude(code, &events_in, &tail)
}

fn refuse_if_interrupted(events_in: &Receiver<SupervisorEvent>) -> Result<(), RunError> {
    let interrupted = events_in.try_iter().find_map(|event| match event {
        SupervisorEvent::Signal(signal) if is_urge(signal) => Some(signal),
        _ => None,
    });
    match interrupted {
        Some(signal) => Err(RunError::Interrupted(signal)),
        None => Ok(()),
    }
}

/// Whether who sends a signal wants the end.
fn is_urge(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT)
}

/// How far the ending of the container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    Asked { kill_at: Instant },
    Killed,
}

struct Supervisor<'a> {
    orders: &'a SupervisorConfig<'a>,
    events: &'a mut dyn FnMut(Event),
    init: &'a Init,
    watched: &'a ProbeTarget,
    terminal: Option<&'a Terminal>,
    /// Which probes have not been seen.
    waiting: Vec<bool>,
    ready: bool,
    /// When the container must be ready.
    deadline: Option<Instant>,
    stopping: Stopping,
    urges: u32,
    /// Why the container is being stopped, if that is a failure. The log is added at the end.
    verdict: Option<Verdict>,
}

enum Verdict {
    TooLate,
    Broken(RunError),
}

impl Supervisor<'_> {
    /// Deals with what happens until the container has ended.
    fn attend(&mut self, events_in: &Receiver<SupervisorEvent>) -> Result<ExitCode, RunError> {
        loop {
            match self.next(events_in) {
                Ok(SupervisorEvent::Exited(code)) => return Ok(code),
                Ok(SupervisorEvent::Done | SupervisorEvent::Known(..)) => {}
                Ok(SupervisorEvent::Signal(signal)) => self.hand_on(signal),
                Ok(SupervisorEvent::Seen(index)) => self.seen(index),
                Ok(SupervisorEvent::Broken(index, error)) => self.broken(index, error),
                Err(RecvTimeoutError::Timeout) => self.time_is_up(),
                // Cannot be: the channel's first sender lives in the caller.
                Err(RecvTimeoutError::Disconnected) => {
                    let source = io::Error::other("nobody watches it");
                    return Err(RunError::System {
                        doing: "wait for the container",
                        source,
                    });
                }
            }
        }
    }

    fn next(&self, events_in: &Receiver<SupervisorEvent>) -> Result<SupervisorEvent, RecvTimeoutError> {
        let until = match self.stopping {
            Stopping::No => self.deadline,
            Stopping::Asked { kill_at } => Some(kill_at),
            Stopping::Killed => None,
        };
        match until {
            Some(until) => events_in.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => events_in.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn hand_on(&mut self, signal: i32) {
        if signal == SIGWINCH {
            if let Some(terminal) = self.terminal {
                terminal.resize();
            }
            return;
        }
        if matches!(signal, SIGINT | SIGTERM) {
            self.urges += 1;
        }
        if self.urges >= URGES {
            self.kill();
        } else {
            self.send(signal);
        }
    }

    fn seen(&mut self, index: usize) {
        if let Some(waiting) = self.waiting.get_mut(index) {
            *waiting = false;
        }
        if self.ready || self.stopping != Stopping::No || self.waiting.contains(&true) {
            return;
        }
        self.ready = true;
        self.deadline = None;
        (self.events)(Event::Ready {
            after: self.orders.began.elapsed(),
        });
        if self.orders.options.exit_on_ready {
            self.stop();
        }
    }

    fn broken(&mut self, index: usize, source: io::Error) {
        if self.stopping == Stopping::No {
            let probe = self
                .orders
                .options
                .probes
                .get(index)
                .map(Probe::to_string)
                .unwrap_or_default();
            self.verdict = Some(Verdict::Broken(RunError::Probe { probe, source }));
            self.stop();
        }
    }

    fn time_is_up(&mut self) {
        match self.stopping {
            Stopping::No => {
                self.verdict = Some(Verdict::TooLate);
                self.stop();
            }
            Stopping::Asked { .. } => self.kill(),
            Stopping::Killed => {}
        }
    }

    /// Asks the container to end, as its image wants to be asked.
    fn stop(&mut self) {
        self.stopping = Stopping::Asked {
            kill_at: Instant::now() + self.orders.options.stop_timeout,
        };
        self.send(self.orders.stop_signal.number());
    }

    fn kill(&mut self) {
        self.stopping = Stopping::Killed;
        self.send(Signal::KILL.as_raw());
    }

    fn send(&self, signal: i32) {
        match Signal::from_named_raw(signal) {
            Some(signal) => self.init.send(signal),
            None => self.watched.runtime.kill(&self.watched.id, signal),
        }
    }

    /// What it all came to.
    fn conclude(
        mut self,
        code: ExitCode,
        events_in: &Receiver<SupervisorEvent>,
        tail: &Tail,
    ) -> Result<ExitCode, RunError> {
        for event in events_in.try_iter() {
            if let SupervisorEvent::Seen(index) = event {
                self.seen(index);
            }
        }
        if code == ExitCode(0) {
            let probes = self.orders.options.probes.iter().enumerate();
            for (index, _) in probes.filter(|(_, probe)| matches!(probe, Probe::Exit)) {
                self.seen(index);
            }
        }
        (self.events)(Event::Exited { code });
        let log = tail.sentence();
        match self.verdict.take() {
            Some(Verdict::Broken(error)) => Err(error),
            Some(Verdict::TooLate) => {
                let after = self.orders.options.probe_timeout;
                Err(RunError::ProbeTimeout {
                    after,
                    waiting: self.missing(),
                    log,
                })
            }
            None if self.waiting.contains(&true) => Err(RunError::ExitedBeforeReady {
                code,
                waiting: self.missing(),
                log,
            }),
            None if self.ready && self.orders.options.exit_on_ready => Ok(ExitCode(0)),
            None => Ok(code),
        }
    }

    fn missing(&self) -> String {
        let probes = self.orders.options.probes.iter().zip(&self.waiting);
        probes
            .filter(|(_, waiting)| **waiting)
            .map(|(probe, _)| probe.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    }
}
