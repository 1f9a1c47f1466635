//! Containers for real: busybox on a runtime, as root. Every case runs in a process of its own (this same test
//! binary), because signals and the death of the supervisor are what is tested; a watchdog ends each.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod container_support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use container_support::{Case, case, supervise_if_asked};
use xebec_host::container::{Record, cleanup_stale, list};

/// Not a test: the other side of every case.
#[test]
fn supervisor_process() {
    supervise_if_asked();
}

#[test]
fn a_command_runs_as_the_image_says_and_its_exit_code_is_passed_on() {
    let mut case = case!();
    case.image(r#"{"Entrypoint":["/bin/sh","-c"],"Cmd":["false"],"Env":["A=image","B=image"],"User":"app","WorkingDir":"/srv"}"#);
    case.command(&["id; pwd; echo $A $B $HOME; hostname; echo oops >&2; exit 7"]);
    case.set("env", "B=user").set("hostname", "ship");
    let run = case.run();
    assert_eq!(run.code, 7, "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "uid=1000(app) gid=100(users) groups=50(staff)",
            "/srv",
            "image user /home/app",
            "ship"
        ]
    );
    assert_eq!(run.stderr, "oops\n");
    assert_eq!(run.events(), ["mounted", "created", "started", "exited 7"]);
    case.assert_clean();
}

#[test]
fn the_view_never_changes_and_the_layer_is_kept_or_removed() {
    let mut case = case!();
    case.shell("echo changed > /etc/motd; rm /etc/group; echo new > /new; chmod 700 /")
        .set("id", "kept");
    let before = case.view_listing();
    assert_eq!(case.run().code, 0);
    assert_eq!(case.view_listing(), before);
    let upper = case.state().join("kept/upper");
    assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), "new\n");
    assert!(
        fs::metadata(upper.join("etc/group"))
            .unwrap()
            .file_type()
            .is_char_device(),
        "a whiteout"
    );
    case.assert_unmounted();
    let again = case.run();
    assert_eq!(again.code, 125, "the name is taken");
    assert!(
        again.error.contains("exists already") && again.error.contains("another name"),
        "{}",
        again.error
    );
    assert_eq!(
        fs::read_to_string(upper.join("new")).unwrap(),
        "new\n",
        "and nothing is lost by that"
    );

    case.set("id", "gone").flag("rm");
    assert_eq!(case.run().code, 0);
    assert!(!case.state().join("gone").exists());
    assert_eq!(case.view_listing(), before);
}

#[test]
fn the_root_directory_looks_as_in_the_image() {
    let mut case = case!();
    case.view_mode(0o751);
    case.shell("stat -c '%a %u' /").flag("rm");
    assert_eq!(case.run().stdout, "751 0\n");
}

#[test]
fn a_container_gets_what_docker_gives_by_default() {
    let mut case = case!();
    case.flag("rm").set("net", "none").set("id", "box");
    case.shell(
        "grep -E 'CapEff|CapInh|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t' ' '; echo $$; ulimit -n; hostname;
         cat /proc/kcore | wc -c; ls /sys/firmware | wc -l; touch /sys/x 2>&1; echo 1 2>&1 >/proc/sys/kernel/panic;
         mount -t tmpfs x /mnt 2>&1; unshare -U true 2>&1; ls /dev; cat /etc/hostname; grep box /etc/hosts;
         cat /sys/class/net/lo/operstate; ls /sys/class/net; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; echo $PATH",
    );
    let run = case.run();
    let text = &run.stdout;
    for expected in [
        "CapInh: 0000000000000000",
        "CapEff: 00000000a80425fb",
        "NoNewPrivs: 0",
        "Seccomp: 2",
        "\n1\n1024\nbox\n0\n0\n",
        "touch: /sys/x: Read-only file system",
        "can't create /proc/sys/kernel/panic: Read-only file system",
        "mount: permission denied",
        "unshare: unshare(0x10000000): Operation not permitted",
        "\nfull\n",
        "\nmqueue\nnull\nptmx\npts\nrandom\nshm\n",
        "\nurandom\nzero\nbox\n127.0.0.1\tlocalhost box\nunknown\nlo\n0\n/usr/local/sbin:/usr/local/bin",
    ] {
        assert!(
            format!("{text}{}", run.stderr).contains(expected),
            "{expected:?} in {run:?}"
        );
    }
    case.assert_clean();
}

#[test]
fn on_the_hosts_network_the_hosts_files_are_seen_and_can_be_written() {
    let mut case = case!();
    case.flag("rm").shell(
        "hostname; cat /etc/resolv.conf; echo more >> /etc/resolv.conf && cat /etc/resolv.conf | tail -1",
    );
    let before = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let run = case.run();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(run.stdout, format!("{name}\n{before}more\n"), "{run:?}");
    assert_eq!(
        fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        before,
        "the container wrote to a copy"
    );
}

#[test]
fn volumes_are_seen_and_keep_what_is_written() {
    let mut case = case!();
    let shared = case.make_directory("shared");
    fs::write(shared.join("in"), "in\n").unwrap();
    let volume = |mode: &str| format!("{}:/data{mode}", shared.display());
    case.set("volume", &volume(""))
        .flag("rm")
        .shell("cat /data/in; echo out > /data/out");
    let run = case.run();
    assert_eq!((run.code, run.stdout.as_str()), (0, "in\n"), "{run:?}");
    assert_eq!(fs::read_to_string(shared.join("out")).unwrap(), "out\n");
    case.set("volume", &volume(":ro")).shell("echo out > /data/more");
    assert_eq!(case.run().code, 1);
    assert!(!shared.join("more").exists());
    case.set("volume", "/no/such/source:/data");
    let run = case.run();
    assert!(
        run.code == 125 && run.error.contains("/no/such/source"),
        "{run:?}"
    );
    case.assert_clean();
}

/// A directory of the image that is a link to somewhere on the host must not make a volume appear there.
#[test]
fn a_volumes_target_never_leaves_the_container() {
    let mut case = case!();
    let (shared, outside) = (case.make_directory("shared"), case.make_directory("outside"));
    fs::write(shared.join("in"), "in\n").unwrap();
    std::os::unix::fs::symlink(&outside, case.view().join("data")).unwrap();
    case.set("volume", &format!("{}:/data/sub", shared.display()))
        .flag("rm")
        .shell("cat /data/sub/in");
    let run = case.run();
    // runc resolves the link inside the container; crun refuses it.
    assert!(run.stdout == "in\n" || run.error.contains("data"), "{run:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn standard_input_is_handed_on_only_if_asked() {
    let mut case = case!();
    case.flag("rm").command(&["/bin/cat"]).input("hello\n");
    assert_eq!(case.run().stdout, "");
    case.flag("interactive");
    assert_eq!(case.run().stdout, "hello\n");
    case.set("probe", "log:hello");
    let run = case.run();
    assert_eq!((run.stdout.as_str(), run.code), ("hello\n", 0), "{run:?}");
    assert_eq!(
        run.events(),
        ["mounted", "created", "started", "ready", "exited 0"]
    );
}

#[test]
fn signals_are_handed_on() {
    let mut case = case!();
    case.flag("rm").shell(
        "trap 'echo one' USR1; trap 'echo two' USR2; trap 'echo hup' HUP; trap 'echo bye; exit 3' TERM; \
         echo ready; while :; do sleep 0.02; done",
    );
    let mut running = case.start();
    running.wait_for_output("ready");
    for (signal, answer) in [
        (libc_signal("USR1"), "one"),
        (libc_signal("USR2"), "two"),
        (libc_signal("HUP"), "hup"),
    ] {
        running.signal(signal);
        running.wait_for_output(answer);
    }
    running.signal(libc_signal("WINCH"));
    running.signal(libc_signal("TERM"));
    let run = running.finish();
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.ends_with("bye\n"));
    case.assert_clean();
}

#[test]
fn the_third_request_to_end_kills() {
    let mut case = case!();
    case.flag("rm")
        .shell("trap '' TERM INT; echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    for signal in ["INT", "TERM", "INT"] {
        running.signal(libc_signal(signal));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(running.finish().code, 137);
    case.assert_clean();
}

#[test]
fn a_ready_container_is_stopped_with_the_images_signal_and_killed_if_it_stays() {
    let mut case = case!();
    case.image(r#"{"StopSignal":"SIGUSR2"}"#)
        .flag("rm")
        .flag("exit_on_ready")
        .set("probe", "log:^ready$");
    case.shell(
        "trap 'echo usr2; exit 9' USR2; trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done",
    );
    let run = case.run();
    assert_eq!((run.code, run.stdout.as_str()), (0, "ready\nusr2\n"), "{run:?}");
    assert_eq!(
        run.events(),
        ["mounted", "created", "started", "ready", "exited 9"]
    );

    case.image(r#"{"StopSignal":"RTMIN+3"}"#);
    case.shell("trap 'echo rt; exit 0' 37; echo ready; while :; do sleep 0.02; done");
    assert_eq!(case.run().stdout, "ready\nrt\n", "a real-time signal");

    case.image("{}").set("stop_timeout_ms", "300");
    case.shell("trap '' TERM; echo ready; while :; do sleep 0.02; done");
    let began = Instant::now();
    let run = case.run();
    assert!(
        began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(8),
        "{run:?}"
    );
    assert_eq!(run.events().last().unwrap(), "exited 137");
    case.assert_clean();
}

#[test]
fn every_kind_of_probe_is_seen() {
    let mut case = case!();
    case.flag("rm")
        .flag("exit_on_ready")
        .set("stop_timeout_ms", "100");
    let web = "mkdir /www; echo hi > /www/index.html; sleep 0.1; exec httpd -f -p PORT -h /www";
    for net in ["host", "none"] {
        case.set("net", net);
        for probe in [
            "port:PORT",
            "http://127.0.0.1:PORT/",
            "http://localhost:PORT/index.html",
        ] {
            let port = container_support::free_port().to_string();
            case.set("probe", &probe.replace("PORT", &port))
                .shell(&web.replace("PORT", &port));
            let run = case.run();
            assert_eq!(
                run.events().get(3).map(String::as_str),
                Some("ready"),
                "{net} {probe}: {run:?}"
            );
            assert!(
                run.ready_after >= Duration::from_millis(100),
                "{net} {probe}: {run:?}"
            );
        }
    }
    for (probe, script) in [
        (
            "file:/run/up",
            "mkdir -p /run; sleep 0.1; touch /run/up; sleep 60",
        ),
        (
            "file:/link/up",
            "mkdir /real; ln -s /real /link; sleep 0.1; touch /real/up; sleep 60",
        ),
        ("exec:test -e /up", "sleep 0.1; touch /up; sleep 60"),
        (
            r#"exec:["/bin/test","-e","/up"]"#,
            "sleep 0.1; touch /up; sleep 60",
        ),
        ("log:up (\\d+)", "sleep 0.1; echo up 42 >&2; sleep 60"),
        ("exit", "sleep 0.1"),
    ] {
        let run = case.set("probe", probe).shell(script).run();
        assert_eq!(
            run.events().get(3).map(String::as_str),
            Some("ready"),
            "{probe}: {run:?}"
        );
        assert!(
            run.ready_after >= Duration::from_millis(100) && run.code == 0,
            "{probe}: {run:?}"
        );
    }
    case.assert_clean();
}

#[test]
fn what_is_said_and_over_at_once_is_not_missed() {
    let mut case = case!();
    case.flag("rm").flag("exit_on_ready").set("stop_timeout_ms", "50");
    for _ in 0..20 {
        let run = case.set("probe", "log:^up$").shell("echo up; sleep 60").run();
        assert_eq!(run.events().get(3).map(String::as_str), Some("ready"), "{run:?}");
        let run = case.set("probe", "exit").command(&["/bin/true"]).run();
        assert_eq!(run.code, 0, "{run:?}");
    }
    case.assert_clean();
}

#[test]
fn all_probes_of_several_must_be_seen() {
    let mut case = case!();
    case.flag("rm")
        .set("probe", "log:first")
        .add("probe", "file:/second")
        .add("probe", "exit");
    let run = case
        .shell("echo first; sleep 0.05; touch /second; sleep 0.2")
        .run();
    assert!(
        run.code == 0 && run.ready_after >= Duration::from_millis(200),
        "{run:?}"
    );
    let run = case.shell("echo first; sleep 0.1; exit 4").run();
    assert!(
        run.error.contains("file:/second, exit not seen") && run.code == 4,
        "{run:?}"
    );
    case.assert_clean();
}

#[test]
fn a_container_that_is_never_ready_says_what_it_wrote_last() {
    let mut case = case!();
    case.flag("rm")
        .set("probe", "port:1")
        .shell("for i in $(seq 30); do echo line $i; done; echo cannot bind >&2; exit 5");
    let run = case.run();
    assert_eq!(run.code, 5, "{run:?}");
    for expected in ["exit code 5", "port:1 not seen", "cannot bind", "line 30"] {
        assert!(run.error.contains(expected), "{expected}: {}", run.error);
    }
    assert!(!run.error.contains("line 5\n"));

    case.set("probe_timeout_ms", "300")
        .set("stop_timeout_ms", "100")
        .shell("echo waiting; sleep 60");
    let began = Instant::now();
    let run = case.run();
    assert!(began.elapsed() < Duration::from_secs(8), "{run:?}");
    assert!(
        run.code == 125 && run.error.contains("not ready after 0.3 s") && run.error.contains("waiting"),
        "{run:?}"
    );

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    case.set(
        "probe",
        &format!("port:{}", listener.local_addr().unwrap().port()),
    );
    let run = case.run();
    assert!(run.error.contains("before the container is started"), "{run:?}");
    case.assert_clean();
}

#[test]
fn what_cannot_run_is_named() {
    let mut case = case!();
    case.flag("rm").command(&["/no/such/program"]);
    let run = case.run();
    assert!(
        run.code == 127 && run.error.contains("/no/such/program"),
        "{run:?}"
    );
    case.command(&["/etc/passwd"]);
    let run = case.run();
    assert!(run.code == 126 && run.error.contains("exec"), "{run:?}");
    case.image(r#"{"User":"nobody-here"}"#);
    assert!(case.run().error.contains("no user \"nobody-here\""));
    case.image("{}").command(&[]);
    assert!(case.run().error.contains("no Entrypoint and no Cmd"));
    case.command(&["/bin/true"]).set("runtime", "/no/such/runtime");
    assert!(case.run().error.contains("apt install runc"));
    case.set("runtime", "runc").set("id", "../evil");
    assert!(case.run().error.contains("cannot name a container"));
    case.set("id", "fine").set("hostname", "a b");
    assert!(case.run().error.contains("cannot be a host name"));
    case.assert_clean();
}

/// A container that never was leaves nothing, even without --rm, and its name stays free.
#[test]
fn what_never_ran_leaves_nothing() {
    let mut case = case!();
    case.set("id", "never").command(&["/no/such/program"]);
    for _ in 0..2 {
        assert_eq!(case.run().code, 127);
        assert!(!case.state().join("never").exists());
        case.assert_clean();
    }
    assert_eq!(case.command(&["/bin/true"]).run().code, 0);
}

#[test]
fn a_signal_before_the_start_is_not_lost() {
    let mut case = case!();
    case.flag("rm").runtime("sleep 0.5; exec runc \"$@\"");
    case.shell("echo never; sleep 60");
    let running = case.start();
    running.wait_for_event("mounted");
    running.signal(libc_signal("TERM"));
    let run = running.finish();
    assert_eq!((run.code, run.stdout.as_str()), (143, ""), "{run:?}");
    assert!(run.error.contains("before the container was started"), "{run:?}");
    case.assert_clean();
}

/// Names, records and cleaning are shared by all that use one pair of directories.
#[test]
fn many_containers_share_their_directories() {
    let mut case = case!();
    case.flag("rm").shell("sleep 0.1; exit 2");
    let running: Vec<_> = (0..8).map(|_| case.start()).collect();
    let codes: Vec<i32> = running.into_iter().map(|one| one.finish().code).collect();
    assert_eq!(codes, [2; 8]);
    case.assert_clean();
    case.set("id", "one");
    let running: Vec<_> = (0..8).map(|_| case.start()).collect();
    let codes: Vec<i32> = running.into_iter().map(|one| one.finish().code).collect();
    assert!(
        codes.contains(&2) && codes.iter().all(|code| [2, 125].contains(code)),
        "one at a time has a name: {codes:?}"
    );
    case.assert_clean();
}

#[test]
fn crun_runs_containers_too_or_says_what_to_do() {
    let mut case = case!();
    if !fs::exists("/usr/bin/crun").unwrap_or(false) {
        println!("SKIPPED: crun is not installed");
        return;
    }
    let run = case.flag("rm").set("runtime", "crun").shell("exit 6").run();
    if run.error.contains("hybrid") {
        assert!(run.error.contains("use runc instead"), "{run:?}");
        println!("SKIPPED: crun refuses this host's hybrid control groups");
    } else {
        assert_eq!(run.code, 6, "{run:?}");
    }
    case.assert_clean();
}

#[test]
fn running_containers_are_listed() {
    let mut case = case!();
    case.flag("rm")
        .set("id", "listed")
        .shell("echo ready; sleep 60")
        .set("stop_timeout_ms", "100");
    let mut running = case.start();
    running.wait_for_output("ready");
    let listed = list(&case.dirs().run).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].id.as_str(), listed[0].image.as_str()),
        ("listed", "test/image:1")
    );
    assert!(listed[0].command.join(" ").contains("sleep 60") && listed[0].is_running());
    let twice = case.run();
    assert!(twice.error.contains("running already"), "{twice:?}");
    assert_eq!(list(&case.dirs().run).unwrap().len(), 1);
    running.signal(libc_signal("KILL"));
    running.finish();
}

#[test]
fn what_a_killed_supervisor_leaves_is_cleaned_up() {
    let mut case = case!();
    case.flag("rm").set("id", "orphan").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = list(&case.dirs().run).unwrap().remove(0);
    running.signal(libc_signal("KILL"));
    running.finish();
    assert!(record.is_running(), "the container itself goes on");
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_for_end(&record);
    case.assert_clean();
    assert!(!case.state().join("orphan").exists());
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 0);
    assert_eq!(
        case.set("id", "orphan").shell("exit 3").run().code,
        3,
        "the name is free again"
    );
}

/// A container of a version that had the bundle beside the layer, and a bundle that nobody has on record, of a layer that is kept.
#[test]
fn old_and_unknown_bundles_are_cleaned_up() {
    let mut case = case!();
    case.shell("true").set("id", "kept");
    assert_eq!(case.run().code, 0);
    let (layer, old) = (case.state().join("kept"), case.state().join("old"));
    let roots = [case.bundle("kept").join("merged"), old.join("merged")];
    for root in &roots {
        fs::create_dir_all(root).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "xebec-test"])
            .arg(root)
            .status();
        assert!(mounted.unwrap().success());
    }
    fs::write(old.join("remove"), "").unwrap();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1, "the directory");
    case.assert_clean();
    assert!(layer.join("upper").exists() && !old.exists());
}

/// The supervisor's record is lost too, as if it had been cleaned up while the runtime was still at work.
#[test]
fn a_container_that_nobody_knows_is_cleaned_up() {
    let mut case = case!();
    case.flag("rm").set("id", "unknown").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = list(&case.dirs().run).unwrap().remove(0);
    running.signal(libc_signal("KILL"));
    running.finish();
    fs::remove_file(case.dirs().run.join("containers/unknown.json")).unwrap();
    assert_eq!(
        cleanup_stale(&case.dirs()).unwrap(),
        2,
        "the container, and its directory"
    );
    wait_for_end(&record);
    case.assert_clean();
    assert!(!case.state().join("unknown").exists());
}

#[test]
fn many_containers_run_at_once() {
    let mut cases: Vec<Case> = Vec::new();
    for _ in 0..8 {
        cases.push(case!());
    }
    let running: Vec<_> = cases
        .iter_mut()
        .map(|case| case.flag("rm").shell("sleep 0.2; exit 2").start())
        .collect();
    for one in running {
        assert_eq!(one.finish().code, 2);
    }
    cases.iter().for_each(Case::assert_clean);
}

#[test]
fn a_terminal_is_joined() {
    let mut case = case!();
    case.flag("rm").flag("tty").flag("interactive");
    case.shell(
        "tty; stty size; echo $TERM; echo ready; read x; echo \"got $x\"; read y; stty size; sleep 60 & wait; echo not reached",
    );
    let mut terminal = case.start_on_terminal(40, 132);
    terminal.wait_for("ready");
    terminal.write("hello\r");
    terminal.wait_for("got hello");
    terminal.resize(50, 100);
    // A shell's terminal would raise it itself; this one controls no session.
    terminal.signal(libc_signal("WINCH"));
    std::thread::sleep(Duration::from_millis(100));
    terminal.write("again\r");
    terminal.wait_for("50 100");
    // The key that raises SIGINT in the container, because this terminal is in raw mode.
    terminal.write("\u{3}");
    let (run, text) = terminal.finish();
    assert_eq!(run.code, 130, "{text}");
    for expected in ["/dev/pts/0", "40 132", "xterm"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("not reached"));
    case.assert_clean();

    case.shell("echo ready; exec cat")
        .set("probe", "log:ready")
        .flag("exit_on_ready");
    let (run, text) = case.start_on_terminal(24, 80).finish();
    assert!(
        run.code == 0 && text.contains("ready") && run.events().contains(&"ready".into()),
        "{text} {run:?}"
    );
    assert!(case.run().error.contains("needs a terminal"), "without one");
    case.assert_clean();
}

#[test]
fn the_bundle_is_readable_by_root_alone() {
    let mut case = case!();
    case.shell("echo ready; sleep 60").set("id", "kept");
    let mut running = case.start();
    running.wait_for_output("ready");
    for directory in [case.state().join("kept"), case.bundle("kept")] {
        let mode = fs::metadata(&directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", directory.display());
    }
    running.signal(libc_signal("KILL"));
    running.finish();
}

/// A killed process whose parent is gone ends a moment later.
fn wait_for_end(record: &Record) {
    let began = Instant::now();
    while record.is_running() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!record.is_running());
}

fn libc_signal(name: &str) -> i32 {
    name.parse::<xebec_host::container::StopSignal>()
        .unwrap()
        .number()
}
