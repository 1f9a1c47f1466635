//! Containers that outlive the command that started them: kept, listed, logged, stopped, started again, removed.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use xebec_container::{
    Container, Directories, ExitCode, FindError, HeldLayer, LifecycleError, Removal, SavedStatus, Status,
    cleanup_stale, containers, find, remove, rename, send_signal, set_paused, stop, wait,
};
use xebec_container_log::{Entry, LogRange, LogReader, Stream};

use crate::support::{Case, case, wait_until};

const FORCED: Removal = Removal {
    force: true,
    volumes: false,
};

const LIMITS: &str = r#"{"size":1000000,"files":3}"#;

fn found(case: &Case, name: &str) -> Container {
    find(&case.dirs(), name).unwrap()
}

fn log(container: &Container) -> Vec<(Stream, String)> {
    let mut lines = Vec::new();
    let take = |entry: Entry| {
        lines.push((entry.stream, String::from_utf8(entry.text).unwrap()));
        Ok::<(), io::Error>(())
    };
    LogReader::new(&container.directory, LogRange::default())
        .read(take)
        .unwrap();
    lines
}

#[test]
fn a_kept_container_is_listed_started_again_on_its_layer_and_removed() {
    let mut case = case!();
    case.set("id", "web")
        .set("caller", "as before")
        .shell("echo once >> /count; cat /count; exit 3");
    assert_eq!(case.run().code, 3);
    let web = found(&case, "web");
    assert_eq!(
        (web.status(), web.exit_code()),
        (Status::Exited, Some(ExitCode(3)))
    );
    assert_eq!(
        (web.image(), web.command()[0].as_str()),
        ("test/image:1", "/bin/sh")
    );
    let saved = web.saved.clone().unwrap();
    assert_eq!(saved.caller, "as before");
    assert!(saved.started_ms.unwrap() >= saved.created_ms && saved.finished_ms >= saved.started_ms);
    assert_eq!(found(&case, &web.id()[..5]).name, "web");

    let again = case.flag("again").run();
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (3, "once\nonce\n"),
        "{again:?}"
    );
    let after = found(&case, "web");
    assert_eq!((after.id(), after.created_ms()), (web.id(), web.created_ms()));
    case.assert_clean();

    remove(&case.dirs(), &after, Removal::default()).unwrap();
    assert!(!case.state().join("web").exists());
    assert!(matches!(find(&case.dirs(), "web"), Err(FindError::Missing(_))));
    let missing = case.run();
    assert!(
        missing.code == 125 && missing.error.contains("no container is named web"),
        "{missing:?}"
    );
}

#[test]
fn a_start_that_fails_again_keeps_the_layer_and_the_reason() {
    let mut case = case!();
    case.set("id", "web").shell("echo kept > /kept");
    assert_eq!(case.run().code, 0);
    case.flag("again").command(&["/no/such/program"]);
    assert_eq!(case.run().code, 127);
    let web = found(&case, "web");
    assert!(case.state().join("web/upper/kept").exists());
    assert_eq!(web.status(), Status::Exited);
    assert!(web.saved.unwrap().reason.unwrap().contains("/no/such/program"));
    assert_eq!(case.set("user", "nobody-here").run().code, 125);
    let reason = found(&case, "web").saved.unwrap().reason.unwrap();
    assert!(reason.contains("nobody-here"), "{reason}");
    // Errors that are found before the image is looked for.
    let reason = |case: &Case| found(case, "web").saved.unwrap().reason.unwrap();
    assert_eq!(case.set("net", "no-such-network").run().code, 125);
    assert!(reason(&case).contains("no-such-network"), "{}", reason(&case));
    case.orders_without("net")
        .set("pid", "container:no-such-container");
    assert_eq!(case.run().code, 125);
    assert!(reason(&case).contains("no-such-container"), "{}", reason(&case));
    case.assert_clean();
}

/// A restart policy tries again, and the reason of a failed start is known meanwhile.
#[test]
fn a_failed_restart_keeps_its_reason() {
    let mut case = case!();
    case.set("id", "web")
        .set("restart", "always")
        .set("detached", LIMITS);
    case.shell("exit 3");
    assert_eq!(case.run().code, 3);
    for (order, value) in [("net", "no-such-network"), ("hostname", "a b")] {
        case.flag("by_policy").set(order, value);
        assert_eq!(case.run().code, 125);
        let web = found(&case, "web").saved.unwrap();
        assert_eq!(web.status, SavedStatus::Restarting, "{web:?}");
        let reason = web.reason.clone().unwrap_or_default();
        let wanted = if order == "net" { value } else { "host name" };
        assert!(reason.contains(wanted) && web.exit_code == Some(125), "{web:?}");
        case.orders_without(order);
    }
    assert_eq!(found(&case, "web").saved.unwrap().restarts, 2);
    case.assert_clean();
}

#[test]
fn a_detached_container_writes_to_its_log_and_reads_nothing() {
    let mut case = case!();
    case.set("id", "web")
        .set("detached", LIMITS)
        .flag("interactive")
        .input("not read\n");
    case.shell(
        "echo out; echo err >&2; printf 'no end'; exec 3<&0; (cat <&3; echo 'end of input') & sleep 0.3",
    );
    let run = case.run();
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", ""),
        "{run:?}"
    );
    let mut lines = log(&found(&case, "web"));
    lines.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    let lines: Vec<(Stream, &str)> = lines
        .iter()
        .map(|(stream, line)| (*stream, line.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            (Stream::Stdout, "out"),
            (Stream::Stdout, "no end"),
            (Stream::Stderr, "err")
        ]
    );
    // A terminal of its own, which nobody types at.
    case.set("id", "tty").flag("tty").shell("tty; echo typed: $TERM");
    assert_eq!(case.run().code, 0);
    let lines: Vec<String> = log(&found(&case, "tty"))
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    assert_eq!(lines, ["/dev/pts/0\r", "typed: xterm\r"]);
    case.assert_clean();
}

#[test]
fn stop_asks_and_then_kills() {
    let mut case = case!();
    case.set("detached", LIMITS)
        .set("id", "polite")
        .set("stop_signal", "USR1");
    case.shell("trap 'exit 5' USR1; trap '' TERM; echo ready; while :; do sleep 0.02; done");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("ready", || !log(&found(&case, "polite")).is_empty());
    stop(&case.dirs(), &found(&case, "polite"), None).unwrap();
    assert_eq!(running.finish().code, 5);
    assert_eq!(found(&case, "polite").exit_code(), Some(ExitCode(5)));
    stop(&case.dirs(), &found(&case, "polite"), None).expect("it does not run, and that is no error");
    case.assert_clean();

    case.set("id", "deaf")
        .shell("trap '' USR1; echo ready; while :; do sleep 0.02; done");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("ready", || !log(&found(&case, "deaf")).is_empty());
    let began = Instant::now();
    stop(
        &case.dirs(),
        &found(&case, "deaf"),
        Some(Duration::from_millis(200)),
    )
    .unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(running.finish().code, 137);
    case.assert_clean();
}

/// Where the containers are, of which a process of its own is to hold a layer.
const HOLDS: &str = "XEBEC_TEST_HOLDS";

/// No test: what a process does that [`held_by_another`] starts.
#[test]
fn holder_of_a_layer() {
    let Some(state) = std::env::var_os(HOLDS) else {
        return;
    };
    let run = std::env::var_os("XEBEC_TEST_RUN").unwrap();
    let dirs = Directories {
        state: state.into(),
        run: run.into(),
    };
    let _held = HeldLayer::hold(&dirs, &find(&dirs, "web").unwrap(), true).unwrap();
    fs::write(dirs.state.join("held"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// A process that holds the layer of `web`, as `xebec commit` does.
fn held_by_another(dirs: &Directories) -> Child {
    let mark = dirs.state.join("held");
    let _ = fs::remove_file(&mark);
    let holder = Command::new(std::env::current_exe().unwrap())
        .args(["lifecycle::holder_of_a_layer", "--exact"])
        .env(HOLDS, &dirs.state)
        .env("XEBEC_TEST_RUN", &dirs.run)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("held", || mark.exists());
    holder
}

fn kill(mut holder: Child) {
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_container_goes_on_when_the_commit_that_paused_it_was_killed() {
    let mut case = case!();
    case.set("id", "web")
        .shell("echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    let dirs = case.dirs();
    wait_until("running", || found(&case, "web").status() == Status::Running);
    let web = found(&case, "web");
    if let Err(LifecycleError::NoFreezer(_)) = set_paused(&web, true) {
        println!("SKIPPED: control groups have no freezer here");
        return;
    }
    set_paused(&web, false).unwrap();
    let holder = held_by_another(&dirs);
    assert_eq!(found(&case, "web").status(), Status::Paused, "while it is read");
    kill(holder);
    assert_eq!(web.status(), Status::Paused, "nobody has looked");
    assert_eq!(found(&case, "web").status(), Status::Running, "by a command");
    kill(held_by_another(&dirs));
    assert_eq!(web.status(), Status::Paused);
    cleanup_stale(&dirs).unwrap();
    assert_eq!(web.status(), Status::Running, "by the daemon");
    // A user's pause stays: one from before the commit, and one from after it.
    set_paused(&web, true).unwrap();
    kill(held_by_another(&dirs));
    assert_eq!(found(&case, "web").status(), Status::Paused);
    set_paused(&web, false).unwrap();
    kill(held_by_another(&dirs));
    set_paused(&web, false).unwrap();
    set_paused(&web, true).unwrap();
    assert_eq!(found(&case, "web").status(), Status::Paused);
    set_paused(&web, false).unwrap();
    send_signal(&web, "KILL".parse().unwrap()).unwrap();
    assert_eq!(running.finish().code, 137);
}

#[test]
fn a_running_container_is_killed_paused_waited_for_and_not_removed() {
    let mut case = case!();
    case.set("id", "web")
        .shell("trap 'echo usr1' USR1; trap 'echo real-time' 37; echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    let dirs = case.dirs();
    wait_until("running", || found(&case, "web").status() == Status::Running);
    let web = found(&case, "web");
    for (signal, said) in [("USR1", "usr1"), ("RTMIN+3", "real-time")] {
        send_signal(&web, signal.parse().unwrap()).unwrap();
        running.wait_for_output(said);
    }
    assert!(matches!(
        remove(&dirs, &web, Removal::default()),
        Err(LifecycleError::InUse { .. })
    ));
    assert!(matches!(
        rename(&dirs, &web, "other"),
        Err(LifecycleError::Active { .. } | LifecycleError::Busy(_))
    ));
    match set_paused(&web, true) {
        Err(LifecycleError::NoFreezer(_)) => println!("SKIPPED: control groups have no freezer here"),
        paused => {
            paused.unwrap();
            assert_eq!(found(&case, "web").status(), Status::Paused);
            assert!(matches!(
                set_paused(&found(&case, "web"), true),
                Err(LifecycleError::Paused(..))
            ));
            set_paused(&found(&case, "web"), false).unwrap();
        }
    }
    assert_eq!(found(&case, "web").status(), Status::Running);
    let waiting = std::thread::spawn({
        let (dirs, web) = (dirs.clone(), web.clone());
        move || wait(&dirs, &web)
    });
    std::thread::sleep(Duration::from_millis(50));
    send_signal(&web, "KILL".parse().unwrap()).unwrap();
    assert_eq!(running.finish().code, 137);
    assert_eq!(waiting.join().unwrap().unwrap(), Some(ExitCode(137)));
    assert!(matches!(
        send_signal(&found(&case, "web"), "KILL".parse().unwrap()),
        Err(LifecycleError::NotRunning(_))
    ));
    case.assert_clean();
}

#[test]
fn the_exit_code_of_a_container_that_is_removed_at_its_end_is_waited_for() {
    let mut case = case!();
    case.set("id", "web").flag("rm").shell("sleep 0.3; exit 9");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("running", || found(&case, "web").status() == Status::Running);
    assert_eq!(
        wait(&case.dirs(), &found(&case, "web")).unwrap(),
        Some(ExitCode(9))
    );
    assert_eq!(running.finish().code, 9);
    assert!(!case.state().join("web").exists());
    case.assert_clean();
}

#[test]
fn a_container_whose_supervisor_was_killed_is_stopped_and_removed() {
    let mut case = case!();
    case.set("id", "web").set("detached", LIMITS).shell("sleep 60");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("noted", || case.record("web").has_begun == Some(true));
    running.signal(9);
    running.finish();
    let orphan = found(&case, "web");
    assert!(orphan.is_orphan() && orphan.status() == Status::Running);
    let again = case.flag("again").run();
    assert!(
        again.code == 125 && again.error.contains("is running already"),
        "{again:?}"
    );
    stop(&case.dirs(), &orphan, Some(Duration::from_millis(100))).unwrap();
    let ended = found(&case, "web");
    assert_eq!((ended.status(), ended.exit_code()), (Status::Exited, None));
    case.assert_clean();
    assert_eq!(case.shell("exit 4").run().code, 4, "it starts again");
    remove(&case.dirs(), &found(&case, "web"), Removal::default()).unwrap();

    case.set("id", "forced").orders_without("again").shell("sleep 60");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("noted", || case.record("forced").has_begun == Some(true));
    running.signal(9);
    running.finish();
    remove(&case.dirs(), &found(&case, "forced"), FORCED).unwrap();
    assert!(containers(&case.dirs()).unwrap().containers.is_empty());
    case.assert_clean();
}

#[test]
fn a_supervisor_that_runs_is_told_to_clean_up_before_a_forced_removal() {
    let mut case = case!();
    case.set("id", "web").shell("sleep 60");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("running", || found(&case, "web").status() == Status::Running);
    let renamed = rename(&case.dirs(), &found(&case, "web"), "other");
    assert!(
        matches!(renamed, Err(LifecycleError::Active { .. })),
        "it says that it runs, not that another command works on it: {renamed:?}"
    );
    remove(&case.dirs(), &found(&case, "web"), FORCED).unwrap();
    assert_eq!(running.finish().code, 137);
    assert!(!case.state().join("web").exists());
    case.assert_clean();
}

#[test]
fn a_name_is_freed_by_a_removal_and_by_a_new_name() {
    let mut case = case!();
    case.set("id", "one").shell("echo one > /file");
    assert_eq!(case.run().code, 0);
    case.set("id", "two");
    assert_eq!(case.run().code, 0);
    let (dirs, one) = (case.dirs(), found(&case, "one"));
    assert!(matches!(
        rename(&dirs, &one, "two"),
        Err(LifecycleError::Taken(_))
    ));
    assert!(matches!(
        rename(&dirs, &one, "../x"),
        Err(LifecycleError::Name(_))
    ));
    rename(&dirs, &one, "three").unwrap();
    let three = found(&case, "three");
    assert_eq!(three.id(), one.id());
    assert!(
        matches!(rename(&dirs, &one, "four"), Err(LifecycleError::Find(_))),
        "it has that name no more"
    );
    case.set("id", "three").flag("again").shell("cat /file");
    assert_eq!(case.run().stdout, "one\n", "the container is the same");
    let mut text = String::new();
    let file = case.state().join("three/container.json");
    fs::File::open(file).unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains(one.id()));
}

#[test]
fn what_an_earlier_version_left_is_listed_and_removed() {
    let case = case!();
    fs::create_dir_all(case.state().join("old/upper/etc")).unwrap();
    let old = found(&case, "old");
    assert_eq!(
        (old.status(), old.id(), old.is_active()),
        (Status::MadeEarlier, "old", false)
    );
    remove(&case.dirs(), &old, Removal::default()).unwrap();
    assert!(!case.state().join("old").exists());
}

#[test]
fn a_policy_asks_for_another_start_unless_a_user_stopped_the_container() {
    let mut case = case!();
    case.set("id", "web")
        .set("restart", "on-failure:2")
        .set("detached", LIMITS)
        .shell("exit 1");
    assert_eq!(case.run().code, 1);
    let saved = |case: &Case| found(case, "web").saved.unwrap();
    assert_eq!((saved(&case).pause_ms, saved(&case).restarts), (Some(100), 0));
    // Its supervisor is this process's child, and has ended.
    assert_eq!(found(&case, "web").status(), Status::Exited);
    for (restarts, pause) in [(1, 200), (2, 200)] {
        assert_eq!(case.flag("by_policy").run().code, 1);
        assert_eq!(
            (saved(&case).restarts, saved(&case).pause_ms),
            (restarts, Some(pause))
        );
    }
    assert_eq!(saved(&case).status, SavedStatus::Exited, "the limit is reached");
    case.orders_without("by_policy")
        .flag("again")
        .set("restart", "always")
        .shell("sleep 60");
    let running = case.start();
    running.wait_for_event("started");
    wait_until("running", || found(&case, "web").status() == Status::Running);
    assert_eq!(saved(&case).restarts, 0, "a user started it");
    stop(&case.dirs(), &found(&case, "web"), Some(Duration::ZERO)).unwrap();
    running.finish();
    assert_eq!(saved(&case).status, SavedStatus::Exited);
    case.assert_clean();
}
