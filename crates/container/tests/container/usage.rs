//! The usage and the processes of a container.

use xebec_container::{Record, processes, usage};

use crate::support::{case, wait_until};

#[test]
fn what_a_container_uses_is_counted() {
    let mut case = case!();
    case.set("id", "box").flag("rm").set("net", "none");
    case.set("memory", "64m").set("pids", "33");
    case.shell("trap 'exit 0' TERM; seq 100000 > /tmp/x; echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = case.record("box");
    let first = usage(&record).unwrap();
    assert!(first.memory.is_some_and(|bytes| bytes > 0), "{first:?}");
    assert_eq!(first.memory_limit, Some(64 << 20), "{first:?}");
    assert_eq!(first.pids_limit, Some(33), "{first:?}");
    assert!(first.pids.is_some_and(|count| count >= 1), "{first:?}");
    assert_eq!(first.network, Some((0, 0)), "{first:?}");
    let cpu = || usage(&record).unwrap().cpu_ns;
    wait_until("counted", || cpu() > first.cpu_ns);
    running.signal(15);
    assert_eq!(running.finish().code, 0);
    assert!(usage(&record).is_err(), "it has ended");
}

#[test]
fn the_hosts_traffic_is_not_the_containers() {
    let mut case = case!();
    case.set("id", "box").flag("rm").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    assert_eq!(usage(&case.record("box")).unwrap().network, None);
    running.signal(9);
    running.finish();
}

#[test]
fn the_processes_of_a_container_are_listed_with_their_users() {
    let mut case = case!();
    case.set("id", "box").set("user", "app");
    case.shell("sleep 61 & echo ready; wait");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = case.record("box");
    let commands = |record: &Record| -> Vec<String> {
        let found = processes(record).unwrap();
        found.into_iter().map(|process| process.command).collect()
    };
    wait_until("listed", || commands(&record).contains(&"sleep 61".to_owned()));
    let found = processes(&record).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    for process in &found {
        assert_eq!(process.user.as_deref(), Some("app"));
        assert_eq!(process.uid, 1000);
        assert!(process.pid_inside.is_some_and(|inside| inside < process.pid));
    }
    // The ids on the host may have begun anew in between.
    let inside = |pid: i32| found.iter().find(|process| process.pid == pid)?.pid_inside;
    assert_eq!(inside(record.pid.unwrap()), Some(1));
    running.signal(9);
    running.finish();
}
