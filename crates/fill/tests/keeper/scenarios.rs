//! The scenarios, each by name in a world of its own.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use crate::kill_time;
use crate::load::{Daemon, Load, is_mounted, role, wait_for_end};
use crate::reader::pattern;
use crate::worker::POISON_PAGE;
use crate::{service, succession};

static PLACE: OnceLock<PathBuf> = OnceLock::new();

type Scenario = (&'static str, fn());

const ALL: [Scenario; 14] = [
    ("workers_killed_at_every_point_under_load", killed_at_every_point),
    ("an_event_that_killed_three_workers_is_denied", poisoned),
    ("a_stop_ends_everything", stop),
    (
        "readers_that_wait_at_the_end_get_an_error_not_zeros",
        denied_at_the_end,
    ),
    ("a_second_keeper_is_refused", second_keeper),
    (
        "a_client_that_comes_as_the_worker_ends_is_served",
        client_at_the_end,
    ),
    (
        "a_keeper_that_is_killed_has_a_successor",
        succession::keepers_killed,
    ),
    ("upgrades_under_load", succession::upgrades),
    (
        "what_a_replaced_worker_gives_up_its_successor_answers",
        succession::given_up,
    ),
    (
        "a_worker_that_an_earlier_version_named_is_taken_over",
        succession::named_by_id_alone,
    ),
    ("both_killed_at_once_and_marked_again", succession::both_killed),
    ("a_service_manager_keeps_what_is_held", service::both_killed),
    ("a_stopped_service_goes_on_serving", service::stopped),
    (
        "a_service_manager_that_forgot_everything",
        service::stopped_and_forgotten,
    ),
];

/// The directory of the scenario that runs.
pub fn place() -> PathBuf {
    PLACE.get().unwrap().clone()
}

pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Runs one scenario with `directory`, which is empty, as its place.
pub fn run(name: &str, directory: &str) -> ExitCode {
    PLACE.set(PathBuf::from(directory)).unwrap();
    match ALL.iter().find(|(other, _)| *other == name) {
        Some((_, scenario)) => scenario(),
        None => panic!("no scenario {name}"),
    }
    ExitCode::SUCCESS
}

fn killed_at_every_point() {
    let daemon = Daemon::start("kill-at-stages");
    let load = Load::start(&daemon);
    let mut kills = 0u64;
    load.go_on(kill_time(), |chance| {
        kills += u64::from(chance.one_in(3) && daemon.kill_worker());
    });
    let total = load.end();
    let counters = daemon.stop();
    println!("{total}; {kills} kills from outside; {counters}");
    total.assert_right();
}

fn poisoned() {
    let daemon = Daemon::start("poisoned");
    let beside = daemon.read_in_background(1, 17);
    let error = daemon.read(0, POISON_PAGE).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error()),
        "{error}"
    );
    assert!(
        beside.join().unwrap().unwrap() == pattern(1, 17),
        "another reader suffered for it"
    );
    assert!(daemon.read(0, POISON_PAGE + 1).unwrap() == pattern(0, POISON_PAGE + 1));
    let counters = daemon.stop();
    assert!(
        counters.contains("deaths: 3,") && counters.contains("denied: 1,"),
        "{counters}"
    );
}

fn stop() {
    let daemon = Daemon::start("plain");
    assert!(daemon.read(2, 5).unwrap() == pattern(2, 5));
    let run = daemon.directory.join("run");
    assert!(run.join("keeper.pid").exists());
    assert!(is_mounted(&run.join("guarded")));
    daemon.stop();
    assert!(!is_mounted(&run.join("guarded")));
    for name in ["keeper.pid", "xebec.sock", "xebec.sock.ending"] {
        assert!(!run.join(name).exists(), "{name} is left behind");
    }
}

fn denied_at_the_end() {
    let daemon = Daemon::start_with("leaves-readers", &[("XEBEC_TEST_NEVER_ANSWER", "1")]);
    let readers: Vec<_> = (0..8).map(|page| daemon.read_in_background(0, page)).collect();
    std::thread::sleep(Duration::from_millis(300));
    daemon.stop();
    for reader in readers {
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::IO.raw_os_error()),
            "{error}"
        );
    }
}

fn second_keeper() {
    let daemon = Daemon::start("plain");
    let mut other = daemon.role("as-keeper", "plain");
    assert_eq!(wait_for_end(&mut other), Some(1));
    // Neither with the same root and another run directory.
    let elsewhere = daemon.directory.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(daemon.directory.join("root"), elsewhere.join("root")).unwrap();
    let mut other = role(&elsewhere, "as-keeper", "plain", &[]);
    assert_eq!(wait_for_end(&mut other), Some(1));
    assert!(
        daemon.read(0, 1).unwrap() == pattern(0, 1),
        "the first one suffered"
    );
    daemon.stop();
}

fn client_at_the_end() {
    let mut daemon = Daemon::start("idle-after-client");
    let socket = daemon.directory.join("run/xebec.sock");
    // Both are in the queue before the first is answered, after which the worker ends with status 0.
    let mut clients: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    std::fs::write(daemon.directory.join("accept"), "").unwrap();
    let mut answers = clients.iter_mut().map(|client| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    });
    let (first, second) = (answers.next().unwrap(), answers.next().unwrap());
    assert!(
        !first.is_empty() && !second.is_empty() && first != second,
        "{first} {second}"
    );
    assert_eq!(
        wait_for_end(daemon.keeper.as_mut().unwrap()),
        Some(0),
        "nobody waits, so the keeper ends"
    );
    assert!(!socket.exists());
}
