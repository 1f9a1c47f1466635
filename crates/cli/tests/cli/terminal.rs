//! A terminal for the program.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A terminal, and the output that was written to it.
pub(crate) struct Terminal {
    master: File,
    slave: File,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let master = File::from(master);
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (master.try_clone().unwrap(), written.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with an error when nobody has the other side any more.
            while let Ok(length) = from.read(&mut buffer) {
                to.lock().extend_from_slice(&buffer[..length]);
            }
        });
        Self {
            master,
            slave,
            written,
            reader,
        }
    }

    /// The side of the program.
    pub(crate) fn side(&self) -> OwnedFd {
        self.slave.try_clone().unwrap().into()
    }

    /// The output so far.
    pub(crate) fn shows(&self) -> String {
        String::from_utf8_lossy(&self.written.lock()).into_owned()
    }

    /// Waits until this is shown.
    pub(crate) fn wait_for(&self, text: &str) {
        let begin = std::time::Instant::now();
        while !self.shows().contains(text) {
            assert!(
                begin.elapsed().as_secs() < 60,
                "{text:?} is not in {:?}",
                self.shows()
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Types something.
    pub(crate) fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Whether typed text is shown.
    pub(crate) fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// Runs a command that writes its errors here, to its end. Gives all that was shown.
    pub(crate) fn runs(self, mut command: Command) -> (ExitStatus, String) {
        let status = command.stderr(self.side()).status().unwrap();
        drop(command);
        let Self {
            slave,
            written,
            reader,
            ..
        } = self;
        drop(slave);
        reader.join().unwrap();
        let shown = String::from_utf8_lossy(&written.lock()).into_owned();
        (status, shown)
    }
}
