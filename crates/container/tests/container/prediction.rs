//! Predicted containers: the runtime creates them when the image's configuration is known, and they wait for
//! its files.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Case, Running, case, wait_until};
use xebec_container::cleanup_stale;
use xebec_kernel::mount::automount::Automount;

const APP: &str = r#"{"uid":1000,"gid":100,"additional":[50],"home":"/home/app"}"#;

/// A case, unless the kernel has no automounts here: then the test prints SKIPPED with the reason, and
/// returns.
macro_rules! prediction_case {
    () => {{
        let case = case!();
        let tried = case.make_directory("tried");
        match Automount::attach(&tried, rustix::process::getpid()) {
            Err(error) => {
                println!("SKIPPED: {error}");
                return;
            }
            Ok(_) => rustix::mount::unmount(&tried, rustix::mount::UnmountFlags::DETACH).unwrap(),
        }
        case
    }};
}

/// How long the image takes in a case that ends before that: longer than the container takes to wait for it, however busy the
/// machine is.
const LONG: Duration = Duration::from_secs(600);

/// How long the image takes in a case whose container has to wait at its root before it is discarded.
const SHORT: Duration = Duration::from_millis(1500);

/// Starts a case whose image takes so long, and returns when the container waits at its root.
fn start_and_wait(case: &mut Case, image: Duration) -> Running {
    let id = id(case);
    case.set("id", &id)
        .set("image_after_ms", &image.as_millis().to_string());
    let running = case.start();
    wait_until("a process waits for a root", || waiting(case) > 0);
    running
}

/// A name of this case's container that no other case has.
fn id(case: &Case) -> String {
    let name = case.state().parent().unwrap().file_name().unwrap().to_owned();
    name.to_str().unwrap().to_owned()
}

fn read(process: i32, what: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default()
}

/// Whether a process waits at a root, of any case.
fn waits(process: i32) -> bool {
    read(process, "wchan") == "autofs_wait"
}

/// The processes of this case's container that wait for its root, by their control group. By their mounts they are not told from
/// those of cases that run meanwhile: each sees the roots of all.
fn waiting_processes(case: &Case) -> Vec<i32> {
    let group = format!("/xebec/{}@", id(case));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process| waits(*process) && read(*process, "cgroup").contains(&group))
        .collect()
}

/// Whether a runtime runs that creates this case's container: it outlives a killed supervisor, and removes what it made.
fn runtime_runs(case: &Case) -> bool {
    let bundle = case.bundle(&id(case)).into_os_string().into_encoded_bytes();
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.any(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|one| one == bundle)
    })
}

fn waiting(case: &Case) -> usize {
    waiting_processes(case).len()
}

/// Nothing of the case's container is left, and no process waits.
fn assert_gone(case: &Case) {
    wait_until("no process waits", || waiting(case) == 0);
    let id = id(case);
    assert!(!case.state().join(&id).exists() && !case.bundle(&id).exists());
    // The runtime of a killed supervisor may remove some itself, and later.
    wait_until("there are no control groups", || {
        let groups = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        let groups = groups.map(|entry| entry.path()).chain(["/sys/fs/cgroup".into()]);
        let groups = groups
            .filter_map(|group| fs::read_dir(group.join("xebec")).ok())
            .flatten();
        let mut names = groups.map(|group| group.unwrap().file_name().into_string().unwrap());
        !names.any(|name| name.split('@').next() == Some(&id))
    });
    case.assert_clean();
}

#[test]
fn the_container_waits_for_its_image() {
    let mut case = prediction_case!();
    case.flag("rm")
        .shell("cat /etc/motd; echo here; exit 5")
        .before_create("");
    let running = start_and_wait(&mut case, SHORT);
    assert_eq!(waiting(&case), 1, "the runtime itself does not wait");
    let run = running.finish();
    assert!(run.code == 5 && run.stdout.ends_with("here\n"), "{run:?}");
    assert_eq!(run.events(), ["mounted", "created", "started", "exited 5"]);
    assert_eq!(case.creates(), 1, "the container was created again");
    assert_gone(&case);
}

#[test]
fn a_remembered_user_is_compared_with_the_image() {
    let mut case = prediction_case!();
    case.flag("rm").shell("id; echo $HOME").image(r#"{"User":"app"}"#);
    let right = "uid=1000(app) gid=100(users) groups=50(staff)\n/home/app\n";
    let root = r#"{"uid":0,"gid":0,"additional":[],"home":"/root"}"#;
    let other_home = APP.replace("/home/app", "/home/other");
    for (what, user, made) in [
        ("no user is remembered", "none", 1),
        ("the right user", APP, 1),
        ("another user", root, 2),
        ("another home", other_home.as_str(), 2),
    ] {
        case.set("predicted_user", user).before_create("");
        // Without the wait a wrong prediction may be discarded before the runtime creates a container of it.
        let run = match made {
            1 => case.run(),
            _ => start_and_wait(&mut case, SHORT).finish(),
        };
        case.set("image_after_ms", "0");
        assert_eq!((run.code, run.stdout.as_str()), (0, right), "{what}: {run:?}");
        assert_eq!(case.creates(), made, "{what}");
        case.assert_clean();
    }
    // The remembered user is the image's, not the one of the option.
    case.set("predicted_user", APP).add("user", "0");
    let run = case.run();
    assert!(run.stdout.starts_with("uid=0(root)"), "{run:?}");
    case.assert_clean();
}

#[test]
fn a_changed_image_runs_with_its_new_configuration() {
    let mut case = prediction_case!();
    case.flag("rm")
        .image(r#"{"Entrypoint":["/bin/sh","-c"],"Cmd":["echo new $A; exit 3"],"Env":["A=b"]}"#)
        .set(
            "predicted_image",
            r#"{"Entrypoint":["/bin/sh","-c"],"Cmd":["echo old; exit 4"]}"#,
        )
        .before_create("");
    let run = start_and_wait(&mut case, SHORT).finish();
    assert_eq!((run.code, run.stdout.as_str()), (3, "new b\n"), "{run:?}");
    assert_eq!(run.stderr, "", "the discarded container reports something");
    assert_eq!(case.creates(), 2);
    case.assert_clean();
}

#[test]
fn a_signal_ends_the_wait_for_the_image() {
    let mut case = prediction_case!();
    case.shell("echo never");
    let began = Instant::now();
    let running = start_and_wait(&mut case, LONG);
    running.signal(15);
    let run = running.finish();
    assert!(began.elapsed() < LONG, "it does not wait for the image");
    assert_eq!((run.code, run.stdout.as_str()), (143, ""), "{run:?}");
    assert_eq!(run.stderr, "", "the runtime reports something");
    assert_gone(&case);
}

#[test]
fn a_missing_image_leaves_nothing() {
    let mut case = prediction_case!();
    case.shell("echo never").set("view", "missing");
    let run = start_and_wait(&mut case, Duration::from_millis(500)).finish();
    assert!(run.code == 125 && run.error.contains("missing"), "{run:?}");
    assert_eq!(run.stderr, "", "the runtime reports something");
    assert_gone(&case);
}

#[test]
fn the_container_of_a_killed_supervisor_stops_waiting() {
    let mut case = prediction_case!();
    case.shell("echo never");
    let running = start_and_wait(&mut case, LONG);
    running.signal(9);
    running.finish();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_until("no process waits", || waiting(&case) == 0);
    // The runtime may have written its state after the cleanup.
    wait_until("the runtime has ended", || {
        cleanup_stale(&case.dirs()).unwrap();
        fs::read_dir(case.dirs().run.join("runtime")).map_or(0, |entries| entries.count()) == 0
    });
    assert_gone(&case);
}

/// A process that enters a directory, and waits there. Dropped, it is killed, after a failed test, too.
struct Waiter(std::process::Child);

impl Waiter {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new("ls");
        command
            .arg(directory)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_process_that_waits_at_the_root_is_reported() {
    let mut case = prediction_case!();
    case.flag("rm").shell("echo never");
    let running = start_and_wait(&mut case, LONG);
    running.signal(9);
    running.finish();
    // The container is ended first, so that only another process waits, and its runtime, so that nothing is made any more.
    wait_until("the runtime has ended", || {
        // One may have ended meanwhile.
        for process in waiting_processes(&case).into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(process, Signal::KILL);
        }
        !runtime_runs(&case)
    });
    let root = case.bundle(&id(&case)).join("merged");
    let waiter = Waiter::start(&root.join("."));
    wait_until("it waits", || waits(waiter.0.id() as i32));
    // A cleanup would end it.
    assert_eq!(waiting(&case), 0, "a process of the container waits, too");
    let error = cleanup_stale(&case.dirs()).unwrap_err().to_string();
    assert!(
        error.contains("/merged") && error.contains("a process waits"),
        "{error}"
    );
    drop(waiter);
    // A busy machine may take longer to open the root than a cleanup waits.
    wait_until("it is cleaned up", || cleanup_stale(&case.dirs()).is_ok());
    assert_gone(&case);
}

#[test]
fn a_container_with_another_root_is_created_again() {
    let mut case = prediction_case!();
    case.flag("rm").shell("cat /which").set("image_after_ms", "100");
    fs::write(case.view().join("which"), "right\n").unwrap();
    let other = case.make_directory("other");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", case.view().display()))
        .arg(&other)
        .status();
    assert!(copied.unwrap().success());
    fs::write(other.join("which"), "wrong\n").unwrap();
    let elsewhere = format!(
        r##"if [ ! -e "$config.once" ]; then
            touch "$config.once"
            cat "$config" >"$config.predicted"
            sed 's#"path":"[^"]*/merged"#"path":"{}"#' "$config.predicted" >"$config.other"
            mv "$config.other" "$config"
            runc "$@"; status=$?
            mv "$config.predicted" "$config"
            exit $status
        fi"##,
        other.display()
    );
    case.before_create(&elsewhere);
    let run = case.run();
    assert_eq!((run.code, run.stdout.as_str()), (0, "right\n"), "{run:?}");
    assert_eq!(case.creates(), 2);
    case.assert_clean();
}

#[test]
fn a_missing_command_is_reported_as_without_a_prediction() {
    let mut case = prediction_case!();
    case.flag("rm").set("id", "nope").command(&["/nope"]);
    let predicted = case.run();
    let ordinary = case.set("predicted_image", "none").run();
    assert!(predicted.error.contains("/nope"), "{predicted:?}");
    assert_eq!((predicted.code, predicted.error), (ordinary.code, ordinary.error));
    case.assert_clean();
}
