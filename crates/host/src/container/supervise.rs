//! The life of a container from the runtime's `create` to its end, as its parent sees it.
//!
//! Everything that can happen comes through one channel: signals, probes, the end of the container's first
//! process. One thread per source feeds it; this one alone decides.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

use super::bundle::Bundle;
use super::output::{self, Copying, Destination, Search, Tail};
use super::probe::Probe;
use super::runtime::Streams;
use super::signal::exit_code_of;
use super::terminal::{self, ConsoleSocket, OUTPUT_PATIENCE, Terminal};
use super::watch::{Watch, Watched};
use super::{Event, ExitCode, RunError, RunOptions, StopSignal};

/// The signals that are handed on. `SIGWINCH` is answered by resizing the container's terminal.
const SIGNALS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// How many times somebody asks for the end before the container is killed.
const URGES: u32 = 3;

/// Something that the supervisor has to know.
pub(super) enum Happening {
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
pub(super) struct Orders<'a> {
    pub options: &'a RunOptions,
    pub stop_signal: StopSignal,
    pub began: Instant,
}

/// Creates and starts the container of `bundle` and stays with it until it has ended.
pub(super) fn supervise(
    bundle: &mut Bundle,
    orders: &Orders<'_>,
    events: &mut dyn FnMut(Event),
) -> Result<ExitCode, RunError> {
    let options = orders.options;
    if options.tty && options.interactive && !terminal::is_there() {
        return Err(RunError::NoTerminal);
    }
    // The runtime ends after `create`; its child, the container, then becomes ours.
    set_child_subreaper(Some(getpid())).map_err(|error| RunError::System {
        doing: "become the parent of the container",
        source: error.into(),
    })?;
    let (sender, happenings) = mpsc::channel();
    let _signals = SignalWatch::start(&sender)?;

    let mut connection = Connection::prepare(bundle, options)?;
    let (id, runtime) = (bundle.id().to_owned(), bundle.runtime().clone());
    let streams = connection.streams(options)?;
    let console = connection.socket.as_ref().map(ConsoleSocket::path);
    runtime.create(&id, bundle.path(), &bundle.pid_file(), console, streams)?;
    let init = Init::open(bundle)?;
    bundle.record_pid(init.pid)?;
    events(Event::Created { pid: init.pid });

    let tail = Tail::default();
    let (terminal, copies) = connection.open(options, &tail, &sender)?;
    init.watch(&sender)?;
    refuse_if_interrupted(&happenings)?;
    runtime.start(&id, bundle.path())?;
    events(Event::Started);
    let watched = Watched {
        id,
        pid: init.pid,
        net: options.net,
        runtime,
    };
    let watch = Watch::start(&options.probes, &watched, &sender)?;

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
    let code = supervisor.attend(&happenings)?;
    drop(watch);
    // What was written last may be what a probe waits for.
    finish(copies);
    supervisor.conclude(code, &happenings, &tail)
}

fn refuse_if_interrupted(happenings: &Receiver<Happening>) -> Result<(), RunError> {
    let interrupted = happenings.try_iter().find_map(|happening| match happening {
        Happening::Signal(signal @ (SIGINT | SIGTERM | SIGHUP | SIGQUIT)) => Some(signal),
        _ => None,
    });
    match interrupted {
        Some(signal) => Err(RunError::Interrupted(signal)),
        None => Ok(()),
    }
}

/// How far the ending of the container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopping {
    No,
    Asked { kill_at: Instant },
    Killed,
}

struct Supervisor<'a> {
    orders: &'a Orders<'a>,
    events: &'a mut dyn FnMut(Event),
    init: &'a Init,
    watched: &'a Watched,
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
    fn attend(&mut self, happenings: &Receiver<Happening>) -> Result<ExitCode, RunError> {
        loop {
            match self.next(happenings) {
                Ok(Happening::Exited(code)) => return Ok(code),
                Ok(Happening::Signal(signal)) => self.hand_on(signal),
                Ok(Happening::Seen(index)) => self.seen(index),
                Ok(Happening::Broken(index, error)) => self.broken(index, error),
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

    fn next(&self, happenings: &Receiver<Happening>) -> Result<Happening, RecvTimeoutError> {
        let until = match self.stopping {
            Stopping::No => self.deadline,
            Stopping::Asked { kill_at } => Some(kill_at),
            Stopping::Killed => None,
        };
        match until {
            Some(until) => happenings.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => happenings.recv().map_err(|_| RecvTimeoutError::Disconnected),
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
        happenings: &Receiver<Happening>,
        tail: &Tail,
    ) -> Result<ExitCode, RunError> {
        for happening in happenings.try_iter() {
            if let Happening::Seen(index) = happening {
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

/// The container's first process. Dropped, it is killed if it still runs, and reaped.
struct Init {
    pid: i32,
    pidfd: OwnedFd,
}

impl Init {
    fn open(bundle: &Bundle) -> Result<Self, RunError> {
        let path = bundle.pid_file();
        let text = std::fs::read_to_string(&path).map_err(|source| RunError::File {
            doing: "read the container's process id from",
            path: path.clone(),
            source,
        })?;
        let pid = text
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| RunError::File {
                doing: "read the container's process id from",
                path,
                source: io::ErrorKind::InvalidData.into(),
            })?;
        // It is this process's child now, so its number is its own until it is reaped here.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| RunError::System {
            doing: "find the container's first process",
            source: error.into(),
        })?;
        Ok(Init {
            pid: pid.as_raw_pid(),
            pidfd,
        })
    }

    /// Tells of its end, without reaping it: its number must stay its own while others look at it.
    fn watch(&self, sender: &Sender<Happening>) -> Result<(), RunError> {
        let failed = |source| RunError::System {
            doing: "watch the container's first process",
            source,
        };
        let (pidfd, sender) = (self.pidfd.try_clone().map_err(failed)?, sender.clone());
        let watch = move || {
            let code = loop {
                match waitid(
                    WaitId::PidFd(pidfd.as_fd()),
                    WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
                ) {
                    Err(rustix::io::Errno::INTR) => {}
                    Ok(Some(status)) => break exit_code(&status),
                    Ok(None) | Err(_) => break ExitCode(u8::MAX),
                }
            };
            let _ = sender.send(Happening::Exited(code));
        };
        thread::Builder::new()
            .name("container-exit".into())
            .spawn(watch)
            .map_err(failed)?;
        Ok(())
    }

    fn send(&self, signal: Signal) {
        // It may have ended a moment ago.
        if let Err(error) = pidfd_send_signal(&self.pidfd, signal) {
            tracing::debug!(%error, "the container's first process took no signal");
        }
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        self.send(Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

fn exit_code(status: &WaitIdStatus) -> ExitCode {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitCode(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => exit_code_of(signal),
        (None, None) => ExitCode(u8::MAX),
    }
}

/// Hands this process's signals to the supervisor while it lives.
struct SignalWatch(Handle);

impl SignalWatch {
    fn start(sender: &Sender<Happening>) -> Result<Self, RunError> {
        let failed = |source| RunError::System {
            doing: "listen for signals",
            source,
        };
        let mut signals = Signals::new(SIGNALS).map_err(failed)?;
        let handle = signals.handle();
        let sender = sender.clone();
        let listen = move || {
            for signal in signals.forever() {
                if sender.send(Happening::Signal(signal)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(listen)
            .map_err(failed)?;
        Ok(SignalWatch(handle))
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// How the container's standard streams will reach this process.
#[derive(Default)]
struct Connection {
    socket: Option<ConsoleSocket>,
    pipes: Vec<(io::PipeReader, Destination)>,
}

impl Connection {
    fn prepare(bundle: &Bundle, options: &RunOptions) -> Result<Self, RunError> {
        let socket = match options.tty {
            true => Some(ConsoleSocket::bind(bundle.console_socket())?),
            false => None,
        };
        Ok(Connection {
            socket,
            pipes: Vec::new(),
        })
    }

    /// The streams to give to the runtime. With a terminal the container gets none of them.
    fn streams(&mut self, options: &RunOptions) -> Result<Streams, RunError> {
        if options.tty {
            return Ok(Streams {
                stdin: Stdio::null(),
                stdout: Stdio::null(),
                stderr: Stdio::null(),
            });
        }
        let stdin = if options.interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        };
        if options.probes.is_empty() {
            return Ok(Streams {
                stdin,
                stdout: Stdio::inherit(),
                stderr: Stdio::inherit(),
            });
        }
        let (stdout, stderr) = (self.pipe(Destination::Stdout)?, self.pipe(Destination::Stderr)?);
        Ok(Streams {
            stdin,
            stdout,
            stderr,
        })
    }

    fn pipe(&mut self, to: Destination) -> Result<Stdio, RunError> {
        let (reader, writer) = io::pipe().map_err(|source| RunError::System {
            doing: "make a pipe for the container's output",
            source,
        })?;
        self.pipes.push((reader, to));
        Ok(writer.into())
    }

    /// Begins to pass on what the container writes.
    fn open(
        self,
        options: &RunOptions,
        tail: &Tail,
        sender: &Sender<Happening>,
    ) -> Result<Passing, RunError> {
        let failed = |source| RunError::System {
            doing: "copy the container's output",
            source,
        };
        let search = || Search::new(&options.probes, tail, sender);
        let mut copies = Vec::new();
        for (pipe, to) in self.pipes {
            copies.push(output::copy(pipe, to, search()).map_err(failed)?);
        }
        let Some(socket) = self.socket else {
            return Ok((None, copies));
        };
        let terminal = Terminal::join(socket.receive()?, options.interactive)?;
        copies.push(output::copy(terminal.output()?, Destination::Stdout, search()).map_err(failed)?);
        Ok((Some(terminal), copies))
    }
}

/// The container's output while it is passed on: its terminal, if it has one, and the copies under way.
type Passing = (Option<Terminal>, Vec<Copying>);

/// Waits for the rest of the output.
fn finish(copies: Vec<Copying>) {
    let until = Instant::now() + OUTPUT_PATIENCE;
    for copy in copies {
        copy.finish(until.saturating_duration_since(Instant::now()));
    }
}
