//! Tries the probes of a container, each on a thread of its own.
//!
//! The first attempt is made at once. The pause before the next one is a twentieth of the time that has
//! passed, so that a time to readiness is measured to some 5 % without a busy loop. A network probe of a
//! container that has its own network is made from inside it: the thread moves into the network namespace of
//! the container's first process (`setns(2)`) and ends there.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use xebec_kernel::path::open_in_root;
use xebec_probe::{self as probe, Probe};

use crate::runtime::Runtime;
use crate::supervisor_event::SupervisorEvent;
use crate::{Net, RunError, RunOptions};

/// The first pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A pause is this part of the time that has passed.
const PAUSE_SHARE: u32 = 20;

/// The timeout of a probe before the container is started ([`refuse_ready_before`]). A server that is there
/// answers at once, and the start waits for this.
const BEFORE_TIMEOUT: Duration = Duration::from_millis(200);

/// Refuses a probe that succeeds before the container is started: on the host's network another server
/// answers it, so that it would tell nothing about the container.
pub(crate) fn refuse_ready_before(options: &RunOptions) -> Result<(), RunError> {
    if options.net != Net::Host {
        return Ok(());
    }
    let answered = options.probes.iter().find(|probe| match probe {
        Probe::Port(port) => probe::port_accepts_within(*port, BEFORE_TIMEOUT),
        Probe::Http(url) => url.is_ready_within(BEFORE_TIMEOUT),
        _ => false,
    });
    match answered {
        Some(probe) => Err(RunError::ReadyBefore(probe.to_string())),
        None => Ok(()),
    }
}

/// The container that the probes are about.
#[derive(Clone)]
pub(crate) struct ProbeTarget {
    pub id: String,
    pub pid: i32,
    /// Whether it is on the host's network.
    pub on_host: bool,
    pub runtime: Runtime,
}

/// The threads that try a container's probes. They end when this is dropped, at the latest after the attempt
/// that they are making.
pub(crate) struct ProbeWatch(Arc<StopFlag>);

impl ProbeWatch {
    /// Starts a thread for every probe that needs one. `log:` is seen where output is copied, and `exit` when
    /// the container ends.
    pub(crate) fn start(
        probes: &[Probe],
        target: &ProbeTarget,
        sender: &Sender<SupervisorEvent>,
    ) -> Result<Self, RunError> {
        let watch = ProbeWatch(Arc::new(StopFlag::default()));
        for (index, probe) in probes.iter().enumerate() {
            if matches!(probe, Probe::Log(_) | Probe::Exit) {
                continue;
            }
            let (stop, probe, target, sender) = (
                Arc::clone(&watch.0),
                probe.clone(),
                target.clone(),
                sender.clone(),
            );
            let name = probe.to_string();
            thread::Builder::new()
                .name("container-probe".into())
                .spawn(move || {
                    // The supervisor drops the receiver when the container has ended.
                    let _ = match try_until_ready(&probe, &target, &stop) {
                        Ok(true) => sender.send(SupervisorEvent::ProbeSucceeded(index)),
                        Ok(false) => Ok(()),
                        Err(error) => sender.send(SupervisorEvent::ProbeBroken(index, error)),
                    };
                })
                .map_err(|source| RunError::Probe { probe: name, source })?;
        }
        Ok(watch)
    }
}

impl Drop for ProbeWatch {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Tries a probe until it succeeds. Returns false if it was stopped before.
fn try_until_ready(probe: &Probe, target: &ProbeTarget, stop: &StopFlag) -> io::Result<bool> {
    let network = matches!(probe, Probe::Port(_) | Probe::Http(_));
    if network && !target.on_host {
        let namespace = File::open(format!("/proc/{}/ns/net", target.pid))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    let began = Instant::now();
    loop {
        let attempt = Instant::now();
        if succeeds(probe, target)? {
            return Ok(true);
        }
        // A command costs as much as the start of a container, so the pause is at least as long as the
        // command took.
        let cost = if matches!(probe, Probe::Exec(_)) {
            attempt.elapsed()
        } else {
            Duration::ZERO
        };
        let pause = (SHORTEST_PAUSE + began.elapsed() / PAUSE_SHARE)
            .min(LONGEST_PAUSE)
            .max(cost);
        if stop.is_set_within(pause) {
            return Ok(false);
        }
    }
}

/// Tries a probe once.
fn succeeds(probe: &Probe, target: &ProbeTarget) -> io::Result<bool> {
    match probe {
        Probe::Port(port) => Ok(probe::port_accepts(*port)),
        Probe::Http(url) => Ok(url.is_ready()),
        Probe::File(path) => Ok(exists_in(target.pid, path)),
        Probe::Exec(args) => {
            let mut exec = target.runtime.exec_command(&target.id, args);
            Ok(target.runtime.spawn(|| exec.status())?.success())
        }
        Probe::Log(_) | Probe::Exit => Ok(false),
    }
}

/// Whether `path` exists as the container sees it, volumes included: it is resolved below the root of the
/// container's first process, which no symbolic link leaves.
fn exists_in(pid: i32, path: &Path) -> bool {
    open_in_root(Path::new(&format!("/proc/{pid}/root")), path).is_ok()
}

/// Tells threads to stop, and ends their pauses.
#[derive(Default)]
struct StopFlag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl StopFlag {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `pause`, or until the flag is set. Returns whether it is set.
    fn is_set_within(&self, pause: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        self.changed.wait_while_for(&mut is_set, |is_set| !*is_set, pause);
        *is_set
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_succeeds_before_the_start_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = RunOptions {
            probes: vec![Probe::Port(listener.local_addr().unwrap().port())],
            ..RunOptions::default()
        };
        assert!(matches!(
            refuse_ready_before(&options),
            Err(RunError::ReadyBefore(_))
        ));
        let inside = RunOptions {
            net: Net::None,
            ..options.clone()
        };
        assert!(
            refuse_ready_before(&inside).is_ok(),
            "that port is another network's"
        );
        drop(listener);
        assert!(refuse_ready_before(&options).is_ok());
    }

    #[test]
    fn a_path_is_looked_up_inside_the_root() {
        let pid = std::process::id() as i32;
        assert!(exists_in(pid, "/proc".as_ref()));
        assert!(exists_in(pid, "/../../proc/self/status".as_ref()));
        assert!(!exists_in(pid, "/no/such/file".as_ref()));
        assert!(!exists_in(-1, "/proc".as_ref()));
    }

    #[test]
    fn a_stop_ends_the_pause() {
        let stop = Arc::new(StopFlag::default());
        assert!(!stop.is_set_within(Duration::from_millis(1)));
        let other = Arc::clone(&stop);
        let thread = thread::spawn(move || other.set());
        let began = Instant::now();
        assert!(stop.is_set_within(Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(30));
        thread.join().unwrap();
    }
}
