//! Containers whose runtime is started before their image is known.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{Case, Running, case, wait_until};
use xebec_container::cleanup_stale;

/// How long the image takes in a case that ends before that.
const LONG: Duration = Duration::from_secs(20);

/// Starts a case whose image takes so long, and returns when its runtime has started.
fn start_and_wait(case: &mut Case, image: Duration) -> Running {
    case.set("id", "early")
        .set("predicted_image", "none")
        .set("image_after_ms", &image.as_millis().to_string());
    let running = case.start();
    wait_until("the runtime has started", || {
        config(case).is_symlink() && !runtimes(case).is_empty()
    });
    running
}

fn config(case: &Case) -> PathBuf {
    case.bundle("early").join("config.json")
}

/// The runtimes that create a container of this case.
fn runtimes(case: &Case) -> Vec<i32> {
    let name = case.bundle("early").to_str().unwrap().to_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.contains(&name) && line.contains("--bundle")
        })
        .collect()
}

#[test]
fn the_runtime_waits_for_the_image() {
    let mut case = case!();
    case.shell("echo here; sleep 1; exit 5");
    case.before_create("");
    let running = start_and_wait(&mut case, Duration::from_secs(3));
    wait_until("one runtime", || runtimes(&case).len() == 1);
    let config = config(&case);
    wait_until("a configuration for programs that read it later", || {
        config.is_file() && !config.is_symlink()
    });
    let text = fs::read_to_string(config).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    let run = running.finish();
    assert_eq!(case.creates(), 1, "the runtime was started again");
    assert_eq!((run.code, run.stdout.as_str()), (5, "here\n"), "{run:?}");
    case.assert_clean();
}

#[test]
fn a_signal_ends_the_wait_for_the_image() {
    let mut case = case!();
    case.shell("echo never");
    let began = Instant::now();
    let running = start_and_wait(&mut case, LONG);
    running.signal(15);
    let run = running.finish();
    assert!(began.elapsed() < LONG, "it does not wait for the image");
    assert_eq!((run.code, run.stdout.as_str()), (143, ""), "{run:?}");
    assert!(!case.state().join("early").exists() && runtimes(&case).is_empty());
    case.assert_clean();
}

#[test]
fn a_killed_supervisor_leaves_no_runtime_that_waits() {
    let mut case = case!();
    case.shell("echo never");
    for is_slow in [false, true] {
        if is_slow {
            // It looks for its configuration after its supervisor was killed.
            case.runtime("sleep 0.3; exec runc \"$@\"");
        }
        let running = start_and_wait(&mut case, LONG);
        running.signal(9);
        running.finish();
        wait_until("ended", || runtimes(&case).is_empty());
        assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
        assert!(!case.state().join("early").exists());
        case.assert_clean();
    }
}

/// A runtime that fails at the link is no error.
#[test]
fn a_runtime_that_takes_no_link_is_started_again() {
    let mut case = case!();
    case.flag("rm").set("predicted_image", "none").shell("exit 6");
    let waits = r#"while [ -L "$config" ]; do sleep 0.01; done"#;
    for (what, rest, calls) in [
        ("fails at once", r#"[ -L "$config" ] && exit 1"#.to_owned(), 2),
        (
            "fails when the configuration is there",
            format!(r#"if [ -L "$config" ]; then {waits}; exit 1; fi"#),
            2,
        ),
        ("waits for the file", waits.to_owned(), 1),
    ] {
        case.before_create(&rest);
        let run = case.set("image_after_ms", "200").run();
        assert_eq!(run.code, 6, "{what}: {run:?}");
        assert_eq!(case.creates(), calls, "{what}");
        case.assert_clean();
    }
    // Its fourth argument is its log.
    let fails = r#"echo '{"level":"error","msg":"no such luck"}' >"$4"; exit 1"#;
    case.before_create(fails);
    let run = case.run();
    assert!(run.code == 125 && run.error.contains("no such luck"), "{run:?}");
    case.assert_clean();
}

#[test]
fn a_configuration_may_be_long() {
    let mut case = case!();
    case.flag("rm")
        .set("image_after_ms", "100")
        .shell("echo $A0 $A11 | wc -c");
    // More than a pipe holds by default, and more than it can hold without CAP_SYS_RESOURCE.
    let (_reader, writer) = std::io::pipe().unwrap();
    for (told, count, bytes) in [
        ("none", 2, 200_000),
        ("{}", 3, 300_000),
        ("none", 12, 1_200_000),
        ("{}", 13, 1_300_000),
    ] {
        case.set("predicted_image", told).before_create("");
        for number in 0..count {
            case.add("env", &format!("A{number}={}", "x".repeat(100_000)));
        }
        let run = case.run();
        assert!(
            run.code == 0 && run.stdout.starts_with(if count > 11 { "20000" } else { "1000" }),
            "{run:?}"
        );
        let fits = rustix::pipe::fcntl_setpipe_size(&writer, bytes).is_ok();
        assert_eq!(case.creates(), if fits { 1 } else { 2 }, "{count} variables");
        case.assert_clean();
    }
}
