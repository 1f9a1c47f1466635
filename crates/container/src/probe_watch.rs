//! Looking out for probes, each on a thread of its own.
//!
//! The first look is taken at once, and the pause grows with the time that has passed: about a twentieth of
//! it, so that a time to readiness is measured to some 5 % without a busy loop. Network probes of a container
//! that has its own network are made from inside it: the thread moves into the network namespace of the
//! container's first process (`setns(2)`) and ends there.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::probe::{self, Probe};
use super::runtime::Runtime;
use super::supervisor::SupervisorEvent;
use super::{Net, RunError};

/// The first pause, and the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The part of the time passed that a pause takes.
const PAUSE_SHARE: u32 = 20;

/// The container that is watched.
#[derive(Clone)]
pub(super) struct ProbeTarget {
    pub id: String,
    pub pid: i32,
    pub net: Net,
    pub runtime: Runtime,
}

/// The look-outs of a container. They end when this is dropped, at the latest after the attempt that they
/// are making.
pub(super) struct ProbeWatch(Arc<Gate>);

impl ProbeWatch {
    /// Starts a look-out for every probe that needs one: `log:` is seen by the copying of output, and `exit`
    /// by the end of the container.
    pub(super) fn start(
        probes: &[Probe],
        watched: &ProbeTarget,
        sender: &Sender<SupervisorEvent>,
    ) -> Result<Self, RunError> {
        let watch = ProbeWatch(Arc::new(Gate::default()));
        for (index, probe) in probes.iter().enumerate() {
            if matches!(probe, Probe::Log(_) | Probe::Exit) {
                continue;
            }
            let (gate, probe, watched, sender) = (
                Arc::clone(&watch.0),
                probe.clone(),
                watched.clone(),
                sender.clone(),
            );
            let name = probe.to_string();
            thread::Builder::new()
                .name("container-probe".into())
                .spawn(move || {
                    // The receiver is gone when the container has ended; then nobody wants to know.
                    let _ = match look_out(&probe, &watched, &gate) {
                        Ok(true) => sender.send(SupervisorEvent::Seen(index)),
                        Ok(false) => Ok(()),
                        Err(error) => sender.send(SupervisorEvent::Broken(index, error)),
                    };
                })
                .map_err(|source| RunError::Probe { probe: name, source })?;
        }
        Ok(watch)
    }
}

impl Drop for ProbeWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn look_out(probe: &Probe, watched: &ProbeTarget, gate: &Gate) -> io::Result<bool> {
    let network = matches!(probe, Probe::Port(_) | Probe::Http(_));
    if network && watched.net == Net::None {
        let namespace = File::open(format!("/proc/{}/ns/net", watched.pid))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    let began = Instant::now();
    loop {
        let attempt = Instant::now();
        if is_seen(probe, watched)? {
            return Ok(true);
        }
        // A command costs as much as the start of a container: at most half of the time goes to it.
        let cost = if matches!(probe, Probe::Exec(_)) {
            attempt.elapsed()
        } else {
            Duration::ZERO
        };
        let pause = (SHORTEST_PAUSE + began.elapsed() / PAUSE_SHARE)
            .min(LONGEST_PAUSE)
            .max(cost);
        if gate.closed_within(pause) {
            return Ok(false);
        }
    }
}

fn is_seen(probe: &Probe, watched: &ProbeTarget) -> io::Result<bool> {
    match probe {
        Probe::Port(port) => Ok(probe::port_accepts(*port)),
        Probe::Http(url) => Ok(url.is_ready()),
        Probe::File(path) => Ok(exists_in(watched.pid, path)),
        Probe::Exec(args) => {
            let mut exec = watched.runtime.exec(&watched.id, args);
            Ok(watched.runtime.begin(|| exec.status())?.success())
        }
        Probe::Log(_) | Probe::Exit => Ok(false),
    }
}

/// Whether `path` exists as the container sees it, volumes and all: resolved below the root of its first
/// process, which no symbolic link leaves.
fn exists_in(pid: i32, path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(
        CWD,
        format!("/proc/{pid}/root"),
        flags | OFlags::DIRECTORY,
        Mode::empty(),
    );
    let Ok(root) = root else { return false };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(&root, path, flags, Mode::empty(), resolve).is_ok()
}

/// A pause that can be cut short.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `pause`, or until the gate is closed, and tells whether it is.
    fn closed_within(&self, pause: Duration) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(closed, pause, |closed| !*closed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_looked_up_inside_the_root() {
        let pid = std::process::id() as i32;
        assert!(exists_in(pid, "/proc".as_ref()));
        assert!(exists_in(pid, "/../../proc/self/status".as_ref()));
        assert!(!exists_in(pid, "/no/such/file".as_ref()));
        assert!(!exists_in(-1, "/proc".as_ref()));
    }

    #[test]
    fn a_closed_gate_ends_the_pause() {
        let gate = Arc::new(Gate::default());
        assert!(!gate.closed_within(Duration::from_millis(1)));
        let closer = Arc::clone(&gate);
        let thread = thread::spawn(move || closer.close());
        let began = Instant::now();
        assert!(gate.closed_within(Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(30));
        thread.join().unwrap();
    }
}
