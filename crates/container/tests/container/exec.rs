//! Commands that join a container.

use std::time::Duration;

use serde_json::json;

use crate::support::{Case, Running, case, wait_until};

/// Starts a container that runs until it is told to end.
fn start(case: &mut Case) -> Running {
    case.set("id", "box").flag("rm");
    case.shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    // It is noted after the command was told to run.
    wait_until("noted", || case.record("box").has_begun == Some(true));
    running
}

fn stop(case: &Case, running: Running) {
    running.signal(15);
    assert_eq!(running.finish().code, 0);
    case.assert_clean();
}

/// Prints the limits of a process, as the kernel tells them.
const CONFINEMENT: &str = "grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|Uid|Gid)' /proc/self/status; cat /proc/self/attr/current 2>/dev/null; ulimit -Hn; umask";

/// The lines of [`CONFINEMENT`] that the container's own first command wrote, and those of a command that
/// joined.
fn confinements(case: &mut Case) -> (String, String) {
    case.set("id", "box").flag("rm");
    case.shell(&format!(
        "{CONFINEMENT}; echo ready; trap 'exit 0' TERM; while :; do sleep 0.02; done"
    ));
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = case.record("box");
    let joined = case.exec(&record, CONFINEMENT, json!({}));
    assert_eq!(joined.code, 0, "{joined:?}");
    running.signal(15);
    let own = running.finish().stdout.replace("ready\n", "");
    case.assert_clean();
    (own, joined.stdout)
}

#[test]
fn a_command_that_joins_is_confined_as_the_container() {
    let mut case = case!();
    let changes: [&[(&str, &str)]; 4] = [
        &[],
        &[("net", "none"), ("cap_drop", "ALL")],
        &[("user", "app"), ("security", "no-new-privileges")],
        &[("cap_add", "SYS_ADMIN"), ("ulimit", "nofile=77:99")],
    ];
    for change in changes {
        for (key, value) in change {
            case.set(key, value);
        }
        let (own, joined) = confinements(&mut case);
        assert!(own.contains("Seccomp:\t2"), "{own}");
        assert_eq!(own, joined);
    }
}

#[test]
fn a_container_without_a_filter_has_commands_without_one() {
    let mut case = case!();
    case.set("security", "seccomp=unconfined");
    let (own, joined) = confinements(&mut case);
    assert_eq!(own, joined);
    // This test may run under a filter itself, as in a container.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let inherited: Vec<&str> = status
        .lines()
        .filter(|line| line.starts_with("Seccomp"))
        .collect();
    assert!(!inherited.is_empty(), "the kernel does not tell");
    for line in inherited {
        assert!(own.lines().any(|own| own == line), "{line} is not in {own}");
    }
}

#[test]
fn a_command_gets_the_containers_environment_and_what_was_asked() {
    let mut case = case!();
    case.image(r#"{"Env":["A=image","B=image"],"User":"app","WorkingDir":"/srv"}"#)
        .set("env", "B=run");
    let running = start(&mut case);
    let record = case.record("box");
    let show = "id; pwd; echo $A $B $C $HOME $TERM; cat; exit 7";
    let plain = case.exec(&record, show, json!({}));
    assert_eq!(plain.code, 7, "{plain:?}");
    assert_eq!(
        plain.stdout,
        "uid=1000(app) gid=100(users) groups=50(staff)\n/srv\nimage run /home/app\n"
    );
    let asked =
        json!({ "env": [["B", "exec"], ["C", "c"]], "workdir": "/tmp", "user": "root", "interactive": true });
    case.input("input\n");
    let changed = case.exec(&record, show, asked);
    assert_eq!(
        changed.stdout, "uid=0(root) gid=0(root)\n/tmp\nimage exec c /root\ninput\n",
        "{changed:?}"
    );
    let numbers = case.exec(&record, "id", json!({ "user": "7:8" }));
    assert_eq!(numbers.stdout, "uid=7 gid=8\n", "{numbers:?}");
    stop(&case, running);
}

#[test]
fn the_error_names_what_cannot_run_in_the_container() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    for (command, code) in [
        ("/no/such/program", 127),
        ("no-such-program", 127),
        ("/etc/passwd", 126),
    ] {
        let run = case.start_exec(&record, &[command], json!({})).finish();
        assert!(
            run.code == code && run.error.contains(command),
            "{command}: {run:?}"
        );
    }
    let nobody = case.exec(&record, "true", json!({ "user": "nobody-here" }));
    assert!(
        nobody.code == 125 && nobody.error.contains("nobody-here"),
        "{nobody:?}"
    );
    let nowhere = case.exec(&record, "true", json!({ "workdir": "relative" }));
    assert!(
        nowhere.code == 125 && nowhere.error.contains("absolute"),
        "{nowhere:?}"
    );
    let no_terminal = case.exec(&record, "true", json!({ "tty": true, "interactive": true }));
    assert!(
        no_terminal.code == 125 && no_terminal.error.contains("terminal"),
        "{no_terminal:?}"
    );
    let entries = || std::fs::read_dir(case.bundle("box")).unwrap();
    let left = entries().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("exec-")
    });
    assert_eq!(left.count(), 0, "files of a start stay");
    stop(&case, running);
    let ended = case.exec(&record, "true", json!({}));
    assert!(
        ended.code == 125 && ended.error.contains("box is not running"),
        "{ended:?}"
    );
}

#[test]
fn signals_reach_the_command_and_not_the_container() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    let script =
        "trap 'echo one' USR1; trap 'echo bye; exit 3' TERM; echo joined; while :; do sleep 0.02; done";
    let mut joined = case.start_exec(&record, &["/bin/sh", "-c", script], json!({}));
    joined.wait_for_output("joined");
    joined.signal(10);
    joined.wait_for_output("one");
    joined.signal(15);
    let run = joined.finish();
    assert!(run.code == 3 && run.stdout.ends_with("bye\n"), "{run:?}");
    let killed = case.exec(&record, "kill -9 $$", json!({}));
    assert_eq!(killed.code, 137);
    stop(&case, running);
}

#[test]
fn the_end_of_the_container_ends_the_command() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    let mut joined = case.start_exec(&record, &["/bin/sh", "-c", "echo joined; sleep 60"], json!({}));
    joined.wait_for_output("joined");
    stop(&case, running);
    let run = joined.finish();
    assert_eq!(run.code, 137, "{run:?}");
}

#[test]
fn a_detached_command_runs_on() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    // A process that waits for the command waits until the watchdog ends it.
    let command = "until [ -e /tmp/go ]; do sleep 0.1; done; echo $$ > /tmp/done";
    let run = case.exec(&record, command, json!({ "detach": true }));
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    assert_ne!(case.exec(&record, "cat /tmp/done", json!({})).code, 0);
    assert_eq!(case.exec(&record, "touch /tmp/go", json!({})).code, 0);
    wait_until("done", || {
        case.exec(&record, "cat /tmp/done", json!({})).code == 0
    });
    let missing = case
        .start_exec(&record, &["/no/such"], json!({ "detach": true }))
        .finish();
    assert_eq!(missing.code, 127, "{missing:?}");
    stop(&case, running);
}

#[test]
fn a_container_whose_supervisor_was_killed_is_joined_too() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    running.signal(9);
    running.finish();
    let run = case.exec(&record, &format!("echo here; {CONFINEMENT}"), json!({}));
    assert!(run.code == 0 && run.stdout.starts_with("here\n"), "{run:?}");
    assert!(run.stdout.contains("Seccomp:\t2"), "{run:?}");
}

#[test]
fn a_command_gets_a_terminal_of_its_own() {
    let mut case = case!();
    let running = start(&mut case);
    let record = case.record("box");
    let script = "tty; stty size; echo $TERM; echo joined; read x; echo \"got $x\"; read y; stty size; sleep 60 & wait; echo not reached";
    let options = json!({ "tty": true, "interactive": true });
    let mut terminal = case.exec_on_terminal(&record, script, options);
    terminal.wait_for("joined");
    terminal.write("hello\r");
    terminal.wait_for("got hello");
    terminal.resize(50, 100);
    // A shell's terminal would raise it itself; this one controls no session.
    terminal.signal(28);
    std::thread::sleep(Duration::from_millis(100));
    terminal.write("again\r");
    terminal.wait_for("50 100");
    terminal.write("\u{3}");
    let (run, text) = terminal.finish();
    assert_eq!(run.code, 130, "{text} {run:?}");
    for expected in ["/dev/pts/0", "40 132", "xterm"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    stop(&case, running);
}
