//! Keepers that are killed, and keepers that are replaced by another program, while processes read.

use std::path::Path;
use std::time::{Duration, Instant};

use xebec_keeper::{REPLACE, upgrade_file};
use xebec_kernel::process::Child;

use crate::kill_time;
use crate::load::{Daemon, Load, is_mounted};
use crate::reader::pattern;
use crate::scenarios::place;

/// Time between a succession and the next kill. A kill of keeper and worker at the same moment ends the group;
/// that is another scenario.
const BETWEEN: Duration = Duration::from_millis(60);

/// Keeper after keeper is killed, and now and then a worker between them: the worker starts the next keeper, which
/// takes over what the worker holds.
pub fn keepers_killed() {
    let daemon = Daemon::start("under-load");
    let load = Load::start(&daemon);
    let (mut keepers, mut workers) = (0u64, 0u64);
    let mut known = daemon.pids();
    let mut since = Instant::now();
    let mut killed = (None, None);
    load.go_on(kill_time() / 2, |chance| {
        let now = daemon.pids();
        if now != known {
            (known, since) = (now, Instant::now());
        }
        // Not before the successor of the last one is there, and has had a moment.
        if now.0 == killed.0 || now.1 == killed.1 || since.elapsed() < BETWEEN {
            return;
        }
        if chance.one_in(4) {
            killed.1 = now.1;
            workers += u64::from(daemon.kill_worker());
        } else {
            killed.0 = now.0;
            keepers += u64::from(daemon.kill_keeper());
        }
        since = Instant::now();
    });
    let total = load.end();
    daemon.wait_until("a keeper keeps", || {
        daemon.pids().0 != killed.0 && daemon.pids().1 != killed.1
    });
    let counters = daemon.stop();
    println!("{total}; {keepers} keepers and {workers} workers killed; {counters}");
    total.assert_right();
    assert!(keepers >= 5, "only {keepers} keepers were killed");
}

/// The program is replaced again and again.
pub fn upgrades() {
    let daemon = Daemon::start("under-load");
    let load = Load::start(&daemon);
    let keeper = daemon.pids().0;
    let program = std::env::current_exe().unwrap();
    let mut upgrades = 0u64;
    load.go_on(kill_time() / 2, |_| {
        upgrade(&daemon, &program);
        upgrades += 1;
    });
    // A program that is none changes nothing.
    let worker = daemon.pids().1;
    ask_to_upgrade(&daemon, Path::new("/nowhere"));
    daemon.wait_until("the order was taken", || {
        !upgrade_file(&daemon.directory.join("run")).exists()
    });
    assert!(daemon.read(0, 1).unwrap() == pattern(0, 1));
    assert_eq!(daemon.pids(), (keeper, worker));
    let total = load.end();
    let counters = daemon.stop();
    println!("{total}; {upgrades} upgrades; {counters}");
    total.assert_right();
    assert!(upgrades >= 5, "only {upgrades} upgrades");
    assert!(counters.contains("deaths: 0,"), "a worker died of it: {counters}");
}

/// A successor answers the events that a replaced worker gives up: no reader gets an error because of an upgrade.
pub fn given_up() {
    let daemon = Daemon::start("gives-up");
    let reader = daemon.read_in_background(0, 7);
    let noted = daemon.directory.join("has-event");
    daemon.wait_until("the worker has the event", || noted.exists());
    upgrade(&daemon, &std::env::current_exe().unwrap());
    assert!(reader.join().unwrap().unwrap() == pattern(0, 7));
    let counters = daemon.stop();
    assert!(
        counters.contains("denied: 0,") && counters.contains("deaths: 0,"),
        "{counters}"
    );
}

fn ask_to_upgrade(daemon: &Daemon, program: &Path) {
    let file = upgrade_file(&daemon.directory.join("run"));
    std::fs::write(file, program.to_str().unwrap()).unwrap();
    let keeper = Child::open(daemon.pids().0.unwrap()).unwrap();
    keeper.signal(REPLACE).unwrap();
}

fn upgrade(daemon: &Daemon, program: &Path) {
    let before = daemon.pids().1;
    ask_to_upgrade(daemon, program);
    daemon.wait_until("another worker serves", || daemon.pids().1 != before);
}

/// An earlier version named the worker by its id alone: the keeper that comes after an upgrade takes it over all the same.
pub fn named_by_id_alone() {
    let daemon = Daemon::start("plain");
    daemon.wait_until("the worker is known", || daemon.pids().1.is_some());
    let (keeper, worker) = daemon.pids();
    let file = daemon.directory.join("run/worker.pid");
    std::fs::write(file, format!("{}\n", worker.unwrap())).unwrap();
    assert!(daemon.kill_keeper());
    daemon.wait_until("another keeper keeps", || daemon.pids().0 != keeper);
    assert!(daemon.read(0, 1).unwrap() == pattern(0, 1));
    assert_eq!(daemon.pids().1, worker);
    let counters = daemon.stop();
    assert!(counters.contains("deaths: 0,"), "{counters}");
}

/// Nobody holds the group any more: holes read as zeros, which is what all this is about. The next start marks the
/// mount again, and says that there was such a time.
pub fn both_killed() {
    let daemon = Daemon::start("dies-with-its-keeper");
    assert!(daemon.read(1, 1).unwrap() == pattern(1, 1));
    let open = std::fs::File::open(crate::reader::guarded(&daemon.directory, 1)).unwrap();
    // The worker may answer before the keeper has written its process id.
    daemon.wait_until("the worker is known", || daemon.pids().1.is_some());
    let worker = Child::open(daemon.pids().1.unwrap()).unwrap();
    let mut keeper = daemon.keeper.unwrap();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    worker.kill().unwrap();
    let directory = daemon.directory;
    while !worker.has_ended().unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut page = [0xff; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut page, 2 * 4096).unwrap();
    assert!(page == [0; 4096], "this kernel guards without a group");
    let guarded = directory.join("run/guarded");
    assert!(is_mounted(&guarded), "a killed keeper leaves its mount");
    let daemon = Daemon::start_in(place(), "plain", &[]);
    daemon.wait_until("the worker was told", || directory.join("was-unguarded").exists());
    assert!(daemon.read(1, 3).unwrap() == pattern(1, 3));
    // By a descriptor from before, too, and where zeros were read.
    for number in [2, 4] {
        std::os::unix::fs::FileExt::read_exact_at(&open, &mut page, number * 4096).unwrap();
        assert!(page == pattern(1, number), "page {number} is not guarded again");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    // Others of this machine have mounts of that name, too.
    let own = format!(" {} ", guarded.display());
    assert_eq!(mounts.matches(&own).count(), 1, "{mounts}");
    daemon.stop();
    assert!(!is_mounted(&guarded));
}
