//! Containers that are begun when it is known what their image says, and wait for its files. As in `container_run`, every case
//! runs in a process of its own.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Case, Running, case, wait_until};
use xebec_container::cleanup_stale;
use xebec_kernel::mount::automount::Automount;

const APP: &str = r#"{"uid":1000,"gid":100,"additional":[50],"home":"/home/app"}"#;

/// A case, unless nobody can wait for a root here: then that is said, and the test returns.
macro_rules! told_case {
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

/// How long the image takes where it is not waited for.
const LONG: Duration = Duration::from_secs(20);

/// How long it takes at least where a container that waits for it is to be taken back.
const SHORT: Duration = Duration::from_millis(1500);

/// Starts a case whose image takes so long, up to where its first process waits for its root.
fn begun(case: &mut Case, image: Duration) -> Running {
    let id = id(case);
    case.set("id", &id)
        .set("image_after_ms", &image.as_millis().to_string());
    let running = case.start();
    wait_until("somebody waits for a root", || waiting(case) > 0);
    running
}

/// Of this case's container, and of no other's.
fn id(case: &Case) -> String {
    let name = case.state().parent().unwrap().file_name().unwrap().to_owned();
    name.to_str().unwrap().to_owned()
}

/// Those that wait for a root of this case: of such a process nothing else can be seen but what it has mounted.
fn waiting_processes(case: &Case) -> Vec<i32> {
    let name = id(case);
    let waits = |process: &i32| {
        let read = |what| fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default();
        read("wchan") == "autofs_wait" && read("mountinfo").contains(&name)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(waits).collect()
}

fn waiting(case: &Case) -> usize {
    waiting_processes(case).len()
}

/// Nothing of it is left, and nobody waits.
fn assert_gone(case: &Case) {
    wait_until("nobody waits", || waiting(case) == 0);
    let id = id(case);
    assert!(!case.state().join(&id).exists() && !case.bundle(&id).exists());
    // The runtime of a killed supervisor removes some itself.
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
    let mut case = told_case!();
    case.flag("rm")
        .shell("cat /etc/motd; echo here; exit 5")
        .before_making("");
    let running = begun(&mut case, SHORT);
    assert_eq!(waiting(&case), 1, "the runtime itself goes by");
    let run = running.finish();
    assert!(run.code == 5 && run.stdout.ends_with("here\n"), "{run:?}");
    assert_eq!(run.events(), ["mounted", "created", "started", "exited 5"]);
    assert_eq!(case.made(), 1, "it was made again");
    assert_gone(&case);
}

#[test]
fn a_remembered_user_is_compared() {
    let mut case = told_case!();
    case.flag("rm").shell("id; echo $HOME").image(r#"{"User":"app"}"#);
    let right = "uid=1000(app) gid=100(users) groups=50(staff)\n/home/app\n";
    let root = r#"{"uid":0,"gid":0,"additional":[],"home":"/root"}"#;
    let other_home = APP.replace("/home/app", "/home/other");
    for (what, user, made) in [
        ("nobody remembers", "nobody", 1),
        ("as it was", APP, 1),
        ("another user", root, 2),
        ("another home", other_home.as_str(), 2),
    ] {
        case.set("told_user", user).before_making("");
        // What is taken back may have made nothing yet, if nobody waits for that.
        let run = match made {
            1 => case.run(),
            _ => begun(&mut case, SHORT).finish(),
        };
        case.set("image_after_ms", "0");
        assert_eq!((run.code, run.stdout.as_str()), (0, right), "{what}: {run:?}");
        assert_eq!(case.made(), made, "{what}");
        case.assert_clean();
    }
    // It is of the image's user, not of the one who is asked for.
    case.set("told_user", APP).add("user", "0");
    let run = case.run();
    assert!(run.stdout.starts_with("uid=0(root)"), "{run:?}");
    case.assert_clean();
}

#[test]
fn an_image_that_became_another_one_is_what_runs() {
    let mut case = told_case!();
    case.flag("rm")
        .image(r#"{"Entrypoint":["/bin/sh","-c"],"Cmd":["echo new $A; exit 3"],"Env":["A=b"]}"#)
        .set(
            "told",
            r#"{"Entrypoint":["/bin/sh","-c"],"Cmd":["echo old; exit 4"]}"#,
        )
        .before_making("");
    let run = begun(&mut case, SHORT).finish();
    assert_eq!((run.code, run.stdout.as_str()), (3, "new b\n"), "{run:?}");
    assert_eq!(run.stderr, "", "of what is not made nothing is said");
    assert_eq!(case.made(), 2);
    case.assert_clean();
}

#[test]
fn who_wants_the_end_meanwhile_gets_it() {
    let mut case = told_case!();
    case.shell("echo never");
    let began = Instant::now();
    let running = begun(&mut case, LONG);
    running.signal(15);
    let run = running.finish();
    assert!(began.elapsed() < LONG, "it does not wait for the image");
    assert_eq!((run.code, run.stdout.as_str()), (143, ""), "{run:?}");
    assert_eq!(run.stderr, "", "the runtime says nothing");
    assert_gone(&case);
}

#[test]
fn an_image_that_cannot_be_had_leaves_nothing() {
    let mut case = told_case!();
    case.shell("echo never").set("view", "missing");
    let run = begun(&mut case, Duration::from_millis(500)).finish();
    assert!(run.code == 125 && run.error.contains("missing"), "{run:?}");
    assert_eq!(run.stderr, "", "the runtime says nothing");
    assert_gone(&case);
}

#[test]
fn who_waits_for_a_killed_supervisor_is_let_go() {
    let mut case = told_case!();
    case.shell("echo never");
    let running = begun(&mut case, LONG);
    running.signal(9);
    running.finish();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_until("nobody waits", || waiting(&case) == 0);
    // The runtime may have had the last word.
    wait_until("the runtime has ended", || {
        cleanup_stale(&case.dirs()).unwrap();
        fs::read_dir(case.dirs().run.join("runtime")).map_or(0, |entries| entries.count()) == 0
    });
    assert_gone(&case);
}

#[test]
fn somebody_else_who_waits_for_ever_is_said() {
    let mut case = told_case!();
    case.flag("rm").shell("echo never");
    let running = begun(&mut case, LONG);
    running.signal(9);
    running.finish();
    // The container goes first, so that the one who waits is another.
    wait_until("nobody waits", || {
        let waiting = waiting_processes(&case);
        // One that ends meanwhile is no matter.
        let numbers = waiting.iter().map(ToString::to_string);
        let _ = Command::new("kill").arg("-9").args(numbers).output();
        waiting.is_empty()
    });
    let root = case.bundle(&id(&case)).join("merged");
    let mut looks = Command::new("ls")
        .arg(root.join("."))
        .process_group(0)
        .spawn()
        .unwrap();
    // And nobody of the container, who would be ended.
    let looker = looks.id() as i32;
    wait_until("he looks", || waiting_processes(&case) == [looker]);
    let error = cleanup_stale(&case.dirs()).unwrap_err().to_string();
    assert!(
        error.contains("/merged") && error.contains("somebody waits"),
        "{error}"
    );
    looks.kill().unwrap();
    looks.wait().unwrap();
    cleanup_stale(&case.dirs()).unwrap();
    assert_gone(&case);
}

#[test]
fn a_container_with_another_root_is_made_again() {
    let mut case = told_case!();
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
            cat "$config" >"$config.told"
            sed 's#"path":"[^"]*/merged"#"path":"{}"#' "$config.told" >"$config.other"
            mv "$config.other" "$config"
            runc "$@"; status=$?
            mv "$config.told" "$config"
            exit $status
        fi"##,
        other.display()
    );
    case.before_making(&elsewhere);
    let run = case.run();
    assert_eq!((run.code, run.stdout.as_str()), (0, "right\n"), "{run:?}");
    assert_eq!(case.made(), 2);
    case.assert_clean();
}

#[test]
fn what_cannot_run_is_said_as_ever() {
    let mut case = told_case!();
    case.flag("rm").set("id", "nope").command(&["/nope"]);
    let told = case.run();
    let untold = case.set("told", "nothing").run();
    assert!(told.error.contains("/nope"), "{told:?}");
    assert_eq!((told.code, told.error), (untold.code, untold.error));
    case.assert_clean();
}
