//! Namespaces that a container shares with the host or with another container, and other things that it is given.

use std::fs;

use crate::support::{case, wait_until};

#[test]
fn processes_and_memory_of_the_host_are_seen_if_the_user_says_so() {
    let mut case = case!();
    let own = |kind: &str| {
        fs::read_link(format!("/proc/self/ns/{kind}"))
            .unwrap()
            .display()
            .to_string()
    };
    case.flag("rm").set("pid", "host").set("ipc", "host").shell(
        "ls -l /proc/self/ns/pid /proc/self/ns/ipc; (sleep 77 &); grep -c ' /dev/shm ' /proc/self/mountinfo",
    );
    let run = case.run();
    assert_eq!(run.code, 0, "{run:?}");
    for kind in ["pid", "ipc"] {
        assert!(run.stdout.contains(&own(kind)), "{kind}: {run:?}");
    }
    // Processes that it left running end with it.
    let is_left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .any(|line| line == b"sleep\x0077\x00")
    };
    wait_until("ended", || !is_left());
    case.assert_clean();
}

#[test]
fn a_container_joins_the_processes_of_another_one() {
    let mut first = case!();
    first.set("id", "first").flag("rm");
    first.shell("echo ready; while [ ! -e /tmp/end ]; do sleep 0.02; done; echo over");
    let mut running = first.start();
    running.wait_for_output("ready");
    // The other one sees it as process 1, and so its files.
    first.set("id", "second").set("pid", "container:first");
    first.shell("tr '\\0' ' ' </proc/1/cmdline; touch /proc/1/root/tmp/end");
    let run = first.run();
    assert!(run.stdout.contains("echo over"), "{run:?}");
    let ended = running.finish();
    assert_eq!(ended.stdout, "ready\nover\n", "{ended:?} {run:?}");
    first.set("pid", "container:gone");
    let run = first.run();
    assert!(run.code == 125 && run.error.contains("gone"), "{run:?}");
    first.assert_clean();
}

#[test]
fn groups_devices_and_settings_are_given() {
    let mut case = case!();
    case.flag("rm")
        .set("user", "app")
        .set("group_add", "staff")
        .add("group_add", "4711")
        .set("device", "/dev/null:/dev/other:rw")
        .set("net", "none")
        .set("sysctl", "net.ipv4.ip_default_ttl=33")
        .set("oom_score_adj", "500")
        .set("cpu_shares", "512")
        .set("cpuset_cpus", "0");
    case.shell(
        "id; cat /proc/sys/net/ipv4/ip_default_ttl /proc/self/oom_score_adj; echo x > /dev/other && echo wrote; \
         grep Cpus_allowed_list /proc/self/status",
    );
    let run = case.run();
    for expected in ["4711", "\n33\n500\nwrote\n", "Cpus_allowed_list:\t0\n"] {
        assert!(run.stdout.contains(expected), "{expected}: {run:?}");
    }
    case.assert_clean();
    for (key, value, word) in [
        ("sysctl", "kernel.panic=1", "whole host"),
        ("sysctl", "vm.swappiness", "NAME=VALUE"),
        ("device", "/dev/no-such-device", "no such device"),
        ("device", "/etc/passwd", "no device"),
        ("group_add", "nobody-here", "nobody-here"),
        ("pid", "container:../x", "--pid"),
        ("ipc", "container:x", "--ipc"),
        ("cpuset_cpus", "3-1", "list of numbers"),
    ] {
        let mut case = case!();
        let run = case.flag("rm").set(key, value).shell("true").run();
        assert!(
            run.code == 125 && run.error.contains(word),
            "{key} {value}: {run:?}"
        );
    }
    let mut case = case!();
    let run = case
        .flag("rm")
        .set("sysctl", "net.ipv4.ip_forward=1")
        .shell("true")
        .run();
    assert!(run.code == 125 && run.error.contains("host's network"), "{run:?}");
}

#[test]
fn a_program_of_the_host_is_the_first_process() {
    let mut case = case!();
    // A static program, which here only says how it was started.
    case.flag("rm").set("init", "/bin/busybox").shell("true");
    let run = case.run();
    assert!(
        run.stderr.contains("applet not found") || run.code == 127,
        "{run:?}"
    );
    let mut case = case!();
    case.flag("rm").set("init", "/bin/bash").shell("true");
    let run = case.run();
    assert!(run.code == 125 && run.error.contains("not static"), "{run:?}");
    case.assert_clean();
}
