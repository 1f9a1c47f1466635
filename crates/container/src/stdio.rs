//! The container's standard streams: this process's own, pipes to it or to the container's log, or a terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::output::{self, Copying, Destination, LineSearch, Sink, Tail};
use crate::runtime::Streams;
use crate::screen::ScreenWatch;
use crate::supervisor_event::SupervisorEvent;
use crate::terminal::{ConsoleSocket, OUTPUT_PATIENCE, Terminal};
use crate::{RunError, RunOptions};
use xebec_container_log::{LogWriter, Stream};

/// The ends of the container's standard streams on this side.
#[derive(Default)]
pub(crate) struct ContainerStdio {
    socket: Option<ConsoleSocket>,
    pipes: Vec<(io::PipeReader, Destination)>,
    /// The other end of a standard input that nobody writes to and that does not end.
    input: Option<io::PipeWriter>,
}

impl ContainerStdio {
    /// Prepares for a container with these options. `console_socket` is the path at which its terminal will
    /// arrive, if it gets one.
    pub(crate) fn prepare(console_socket: PathBuf, options: &RunOptions) -> Result<Self, RunError> {
        let socket = match options.tty {
            true => Some(ConsoleSocket::bind(console_socket)?),
            false => None,
        };
        Ok(ContainerStdio {
            socket,
            pipes: Vec::new(),
            input: None,
        })
    }

    /// The socket on which the runtime sends the terminal.
    pub(crate) fn console(&self) -> Option<&Path> {
        self.socket.as_ref().map(ConsoleSocket::path)
    }

    /// The streams that the runtime gets. A container with a terminal gets none of them.
    pub(crate) fn streams(&mut self, options: &RunOptions) -> Result<Streams, RunError> {
        if options.tty {
            return Ok(Streams {
                stdin: Stdio::null(),
                stdout: Stdio::null(),
                stderr: Stdio::null(),
            });
        }
        let stdin = match (options.interactive, options.detached) {
            (false, _) => Stdio::null(),
            (true, None) => Stdio::inherit(),
            (true, Some(_)) => self.open_input()?,
        };
        if options.probes.is_empty() && options.detached.is_none() {
            return Ok(Streams {
                stdin,
                stdout: match options.stdout_to_stderr {
                    true => Stdio::from(std::io::stderr()),
                    false => Stdio::inherit(),
                },
                stderr: Stdio::inherit(),
            });
        }
        let stdout = match options.stdout_to_stderr {
            true => Destination::Stderr,
            false => Destination::Stdout,
        };
        let (stdout, stderr) = (self.pipe(stdout)?, self.pipe(Destination::Stderr)?);
        Ok(Streams {
            stdin,
            stdout,
            stderr,
        })
    }

    /// A detached container that reads its standard input does not find its end, as with docker.
    fn open_input(&mut self) -> Result<Stdio, RunError> {
        let pipe = io::pipe();
        let (reader, writer) = pipe.map_err(RunError::system("make a pipe for the container's input"))?;
        self.input = Some(writer);
        Ok(reader.into())
    }

    fn pipe(&mut self, to: Destination) -> Result<Stdio, RunError> {
        let pipe = io::pipe();
        let (reader, writer) = pipe.map_err(RunError::system("make a pipe for the container's output"))?;
        self.pipes.push((reader, to));
        Ok(writer.into())
    }

    /// Forwards the container's output from now on, and searches it for the lines that probes wait for. The output of a detached
    /// container goes to `log`, or nowhere if there is none.
    pub(crate) fn forward(
        self,
        options: &RunOptions,
        log: Option<&LogWriter>,
        tail: &Tail,
        sender: &Sender<SupervisorEvent>,
    ) -> Result<Forwarding, RunError> {
        let failed = RunError::system("copy the container's output");
        let search = |from| LineSearch::new(&options.probes, from, tail, sender);
        let sink = |to| match options.detached {
            None => Sink::Own(to),
            Some(_) => Sink::Log(log.map(|log| log.stream(stream(to)))),
        };
        let mut copies = Vec::new();
        for (pipe, to) in self.pipes {
            copies.push(output::copy(pipe, search(to), sink(to)).map_err(failed)?);
        }
        let input = self.input;
        let Some(socket) = self.socket else {
            return Ok(Forwarding {
                terminal: None,
                copies,
                _input: input,
            });
        };
        let is_joined = options.interactive && options.detached.is_none();
        let terminal = Terminal::join(socket.receive()?, is_joined)?;
        let to = Destination::Stdout;
        let shown = match options.detached {
            None => Sink::Screen(to, ScreenWatch::new(&options.screen)),
            Some(_) => sink(to),
        };
        copies.push(output::copy(terminal.output()?, search(to), shown).map_err(failed)?);
        Ok(Forwarding {
            terminal: Some(terminal),
            copies,
            _input: input,
        })
    }
}

/// The forwarding of a container's output.
pub(crate) struct Forwarding {
    /// The container's terminal, if it has one.
    pub(crate) terminal: Option<Terminal>,
    pub(crate) copies: Vec<Copying>,
    /// See [`ContainerStdio::open_input`]. It is held until the end.
    pub(crate) _input: Option<io::PipeWriter>,
}

fn stream(of: Destination) -> Stream {
    match of {
        Destination::Stdout => Stream::Stdout,
        Destination::Stderr => Stream::Stderr,
    }
}

/// Waits for the rest of the output.
pub(crate) fn finish_copies(copies: Vec<Copying>) {
    let until = Instant::now() + OUTPUT_PATIENCE;
    for copy in copies {
        copy.finish(until.saturating_duration_since(Instant::now()));
    }
}
