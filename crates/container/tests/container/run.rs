//! A container's surroundings, and its leftovers.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use crate::support::{Case, case};

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
fn standard_input_is_passed_only_with_interactive() {
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
fn signals_are_forwarded() {
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
fn the_error_names_what_cannot_run() {
    let mut case = case!();
    case.flag("rm").command(&["/no/such/program"]);
    let run = case.run();
    assert!(
        run.code == 127 && run.error.contains("/no/such/program") && run.stderr.is_empty(),
        "{run:?}"
    );
    case.command(&["/etc/passwd"]);
    let run = case.run();
    assert!(run.code == 126 && run.error.contains("exec"), "{run:?}");
    for (command, code) in [("nosuch", 127), ("/bin", 126)] {
        let run = case.command(&[command]).run();
        assert!(run.code == code && run.error.contains(command), "{run:?}");
        // The runtime says nothing beside.
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""), "{command}");
    }
    case.image(r#"{"User":"nobody-here"}"#);
    let run = case.run();
    assert!(
        run.error.contains("no user \"nobody-here\"") && run.stderr.is_empty(),
        "{run:?}"
    );
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

fn libc_signal(name: &str) -> i32 {
    name.parse::<xebec_container::StopSignal>().unwrap().number()
}
