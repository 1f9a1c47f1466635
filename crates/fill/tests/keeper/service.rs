//! The keeper under a service manager that keeps its descriptors.

use std::time::Duration;

use rustix::process::Signal;
use xebec_kernel::process::{Child, Ending};
use xebec_testkit::service_manager::ServiceManager;

use crate::kill_time;
use crate::load::{Daemon, Load, PATIENCE};
use crate::reader::pattern;
use crate::scenarios::place;

fn manager() -> (Daemon, ServiceManager) {
    let daemon = Daemon::of_somebody(place());
    let program = std::env::current_exe().unwrap();
    let arguments = ["as-keeper", daemon.directory.to_str().unwrap(), "under-load"];
    let manager = ServiceManager::new(&daemon.directory, program, arguments).unwrap();
    (daemon, manager)
}

/// Keeper and worker are killed at the same moment, again and again: nobody sees zeros, since the manager holds the
/// group and the journal.
pub fn both_killed() {
    let (daemon, manager) = manager();
    let mut keeper = Some(manager.start(PATIENCE).unwrap());
    let load = Load::start(&daemon);
    let mut rounds = 0u64;
    load.go_on(kill_time() / 2, |chance| {
        // Messages sent before the kill are in the socket, as they are for a real manager.
        manager.listen().unwrap();
        let old = keeper.take().unwrap();
        let worker = daemon.pids().1.and_then(|pid| Child::open(pid).ok());
        let keeper_first = chance.one_in(2);
        if keeper_first {
            old.kill().unwrap();
        }
        if let Some(worker) = worker {
            let _ = worker.kill();
        }
        if !keeper_first {
            old.kill().unwrap();
        }
        assert_eq!(old.wait().unwrap(), Ending::Killed(9));
        keeper = Some(manager.start(PATIENCE).unwrap());
        rounds += 1;
    });
    let total = load.end();
    println!("{total}; keeper and worker killed {rounds} times");
    total.assert_right();
    assert!(rounds >= 5, "only {rounds} rounds");
    manager.listen().unwrap();
    let mut kept = manager.kept();
    kept.sort();
    assert_eq!(
        kept,
        [
            "group",
            "journal",
            "root-lock",
            "run-lock",
            "snapshots",
            "socket",
            "worker"
        ]
    );
}

fn stop(manager: &ServiceManager, keeper: &Child) {
    manager.listen().unwrap();
    keeper.signal(Signal::TERM.as_raw()).unwrap();
    assert_eq!(keeper.wait().unwrap(), Ending::Exited(0));
}

/// A stopped service leaves its worker; even when that dies, readers wait until the service is started again.
pub fn stopped() {
    let (daemon, manager) = manager();
    let keeper = manager.start(PATIENCE).unwrap();
    assert!(daemon.read(0, 1).unwrap() == pattern(0, 1));
    stop(&manager, &keeper);
    assert!(daemon.read(0, 2).unwrap() == pattern(0, 2), "the worker goes on");
    assert!(daemon.kill_worker());
    let reader = daemon.read_in_background(0, 3);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!reader.is_finished(), "it reads what nobody guards");
    let again = manager.start(PATIENCE).unwrap();
    assert!(reader.join().unwrap().unwrap() == pattern(0, 3));
    stop(&manager, &again);
}

/// A manager that drops what it keeps when the service stops: the worker still has it all.
pub fn stopped_and_forgotten() {
    let (daemon, manager) = manager();
    let keeper = manager.start(PATIENCE).unwrap();
    let worker = daemon.pids().1;
    stop(&manager, &keeper);
    drop(manager);
    std::fs::remove_file(daemon.directory.join("notify")).unwrap();
    let manager = self::manager().1;
    assert!(daemon.read(0, 2).unwrap() == pattern(0, 2), "the worker goes on");
    let again = manager.start(PATIENCE).unwrap();
    assert_eq!(daemon.pids().1, worker, "the worker was taken over");
    assert!(daemon.read(0, 3).unwrap() == pattern(0, 3));
    assert!(daemon.kill_worker());
    assert!(daemon.read(0, 4).unwrap() == pattern(0, 4));
    // The worker may answer before the keeper has written its process id.
    daemon.wait_until("another worker", || daemon.pids().1 != worker);
    stop(&manager, &again);
}
