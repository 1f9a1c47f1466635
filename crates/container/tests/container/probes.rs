//! Probes, and containers that become ready or do not.

use std::time::{Duration, Instant};

use crate::support::{case, free_port};

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
fn every_kind_of_probe_succeeds() {
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
            let port = free_port().to_string();
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
fn the_output_of_a_short_container_is_searched() {
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
fn all_probes_must_succeed() {
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
fn the_error_of_a_container_that_is_never_ready_has_its_last_lines() {
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
