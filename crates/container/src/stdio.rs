//! How a container's standard streams reach this process: not at all (they are this process's own), by pipes,
//! or by a terminal.

use std::io;
use std::process::Stdio;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::bundle::Bundle;
use super::output::{self, Copying, Destination, Search, Tail};
use super::runtime::Streams;
use super::supervisor::SupervisorEvent;
use super::terminal::{ConsoleSocket, OUTPUT_PATIENCE, Terminal};
use super::{RunError, RunOptions};

/// How the container's standard streams will reach this process.
#[derive(Default)]
pub(super) struct ContainerStdio {
    pub socket: Option<ConsoleSocket>,
    pipes: Vec<(io::PipeReader, Destination)>,
}

impl ContainerStdio {
    pub(super) fn prepare(bundle: &Bundle, options: &RunOptions) -> Result<Self, RunError> {
        let socket = match options.tty {
            true => Some(ConsoleSocket::bind(bundle.console_socket())?),
            false => None,
        };
        Ok(ContainerStdio {
            socket,
            pipes: Vec::new(),
        })
    }

    /// The streams to give to the runtime. With a terminal the container gets none of them.
    pub(super) fn streams(&mut self, options: &RunOptions) -> Result<Streams, RunError> {
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

    fn pipe(&mut self, to: Destination) -> Result<Stdio, RunError> {
        let (reader, writer) = io::pipe().map_err(|source| RunError::System {
            doing: "make a pipe for the container's output",
            source,
        })?;
        self.pipes.push((reader, to));
        Ok(writer.into())
    }

    /// Begins to pass on what the container writes.
    pub(super) fn open(
        self,
        options: &RunOptions,
        tail: &Tail,
        sender: &Sender<SupervisorEvent>,
    ) -> Result<Passing, RunError> {
        let failed = |source| RunError::System {
            doing: "copy the container's output",
            source,
        };
        let search = |from| Search::new(&options.probes, from, tail, sender);
        let mut copies = Vec::new();
        for (pipe, to) in self.pipes {
            copies.push(output::copy(pipe, search(to)).map_err(failed)?);
        }
        let Some(socket) = self.socket else {
            return Ok((None, copies));
        };
        let terminal = Terminal::join(socket.receive()?, options.interactive)?;
        copies.push(output::copy(terminal.output()?, search(Destination::Stdout)).map_err(failed)?);
        Ok((Some(terminal), copies))
    }
}

/// The container's output while it is passed on: its terminal, if it has one, and the copies under way.
pub(super) type Passing = (Option<Terminal>, Vec<Copying>);

/// Waits for the rest of the output.
pub(super) fn finish(copies: Vec<Copying>) {
    let until = Instant::now() + OUTPUT_PATIENCE;
    for copy in copies {
        copy.finish(until.saturating_duration_since(Instant::now()));
    }
}
