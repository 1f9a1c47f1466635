//! Cases on a terminal.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Command;

use super::{Case, Collected, Run, Running};

impl Case {
    /// Starts it on a new terminal of this size.
    pub fn start_on_terminal(&mut self, rows: u16, columns: u16) -> OnTerminal {
        let command = self.supervisor();
        self.spawn_on_terminal(command, rows, columns)
    }

    /// Starts a process of the case on a new terminal of this size.
    pub(super) fn spawn_on_terminal(&self, mut command: Command, rows: u16, columns: u16) -> OnTerminal {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || File::options().read(true).write(true).open(&name).unwrap();
        let (slave, observer) = (open(), open());
        resize(&observer.into(), rows, columns);
        command
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        let child = command.spawn().unwrap();
        drop(command);
        let text = Collected::of(File::from(master.try_clone().unwrap()));
        let running = Running {
            child,
            stdout: text.clone(),
            stderr: Collected::default(),
            report: self.report(),
        };
        OnTerminal {
            running,
            master,
            text,
        }
    }
}

/// A supervisor at work on a terminal.
pub struct OnTerminal {
    running: Running,
    master: OwnedFd,
    text: Collected,
}

impl OnTerminal {
    pub fn wait_for(&mut self, text: &str) {
        self.text.wait_for(text);
    }

    pub fn write(&mut self, text: &str) {
        rustix::io::write(&self.master, text.as_bytes()).unwrap();
    }

    pub fn signal(&self, number: i32) {
        self.running.signal(number);
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        resize(&self.master, rows, columns);
    }

    pub fn finish(self) -> (Run, String) {
        let text = self.text;
        let run = self.running.finish();
        (run, text.text())
    }
}

fn resize(terminal: &OwnedFd, rows: u16, columns: u16) {
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}
