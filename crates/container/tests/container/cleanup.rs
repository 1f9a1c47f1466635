//! Leftovers of containers in records, on the disk and in the mount table, and their cleanup.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Case, case, wait_until};
use xebec_container::{Record, Removal, Status, cleanup_stale, find, list, remove};
use xebec_kernel::mount::{Attributes, Overlay};

/// `SIGKILL`, which a process cannot handle.
const KILL: i32 = 9;

/// A container that was not created leaves nothing, even without --rm, and its name stays free.
#[test]
fn a_failed_start_leaves_nothing() {
    let mut case = case!();
    case.set("id", "never").command(&["/no/such/program"]);
    for _ in 0..2 {
        assert_eq!(case.run().code, 127);
        assert!(!case.state().join("never").exists());
        case.assert_clean();
    }
    assert_eq!(case.command(&["/bin/true"]).run().code, 0);
}

/// The name of a container whose directories cannot be made stays free, too.
#[test]
fn a_container_without_directories_leaves_nothing() {
    let mut case = case!();
    case.shell("exit 3").set("id", "placed");
    let place = case.bundle("placed");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "another file").unwrap();
    let run = case.run();
    assert!(run.error.contains("bundles/placed"), "{run:?}");
    assert!(!case.state().join("placed").exists());
    fs::remove_file(&place).unwrap();
    assert_eq!(case.run().code, 3);
}

/// Containers that share their directories share names, records and cleanups.
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
fn running_containers_are_listed() {
    let mut case = case!();
    case.flag("rm")
        .set("id", "listed")
        .shell("echo ready; sleep 60")
        .set("stop_timeout_ms", "100");
    let mut running = case.start();
    running.wait_for_output("ready");
    let listed = list(&case.dirs().run).unwrap().records;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].id.as_str(), listed[0].image.as_str()),
        ("listed", "test/image:1")
    );
    assert!(listed[0].command.join(" ").contains("sleep 60") && listed[0].is_running());
    let twice = case.run();
    assert!(twice.error.contains("running already"), "{twice:?}");
    assert_eq!(list(&case.dirs().run).unwrap().records.len(), 1);
    running.signal(KILL);
    running.finish();
}

/// A container whose supervisor was killed runs on, also when another one is started. It keeps its name until it
/// has ended and is cleaned up.
#[test]
fn a_container_that_outlives_its_supervisor_is_cleaned_up_when_it_ends() {
    let mut case = case!();
    case.flag("rm").set("id", "orphan").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    let is_noted = |run: &std::path::Path| list(run).unwrap().records[0].has_begun == Some(true);
    wait_until("the start is recorded", || is_noted(&case.dirs().run));
    running.signal(KILL);
    running.finish();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 0);
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    assert!(record.is_running() && !record.is_supervised());
    let twice = case.run();
    assert!(twice.error.contains("running already"), "{twice:?}");
    assert_eq!(case.set("id", "another").shell("exit 3").run().code, 3);
    assert!(record.is_running(), "another run ended it");
    assert!(case.state().join("orphan").exists());
    end(&record);
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    case.assert_clean();
    assert!(!case.state().join("orphan").exists());
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 0);
    assert_eq!(
        case.set("id", "orphan").shell("exit 3").run().code,
        3,
        "the name is free again"
    );
}

/// A container whose supervisor was killed before the start never starts.
#[test]
fn a_container_that_never_started_is_cleaned_up() {
    let mut case = case!();
    case.flag("rm").set("id", "unborn").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    running.signal(KILL);
    running.finish();
    record_no_start(&case, "unborn");
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_for_end(&record);
    case.assert_clean();
}

/// A namespace of processes goes with all that is in it, and the run directory stays. The next process that
/// sees that they are gone cleans up what they left, and their names are free again.
#[test]
fn containers_of_a_namespace_that_is_gone_are_cleaned_up() {
    let mut case = case!();
    for (id, rm) in [("kept", false), ("brief", true)] {
        case.set("id", id).shell("echo ready; sleep 60");
        if rm {
            case.flag("rm");
        }
        let mut running = case.start_in_own_namespace();
        running.wait_for_output("ready");
        let status = || find(&case.dirs(), id).unwrap().status();
        wait_until("running elsewhere", || status() == Status::Running);
        let found = find(&case.dirs(), id).unwrap();
        let how = Removal {
            force: true,
            volumes: false,
        };
        let refused = remove(&case.dirs(), &found, how).unwrap_err().to_string();
        assert!(refused.contains("another namespace"), "{refused}");
        running.signal(KILL);
        running.finish();
        wait_until("it is seen to be gone", || {
            !find(&case.dirs(), id).unwrap().is_active()
        });
        let found = find(&case.dirs(), id).unwrap();
        match rm {
            false => {
                case.flag("again").shell("exit 5");
                assert_eq!(case.run().code, 5, "it starts again");
                case.orders_without("again");
                remove(&case.dirs(), &find(&case.dirs(), id).unwrap(), Removal::default()).unwrap();
            }
            true => remove(&case.dirs(), &found, how).unwrap(),
        }
        assert!(!case.state().join(id).exists());
        case.assert_clean();
    }
}

/// Two run directories have a container of one name each. Neither the end of the one nor its cleanup changes the
/// other.
#[test]
fn containers_of_one_name_in_two_run_directories_have_nothing_in_common() {
    let (mut one, mut other) = (case!(), case!());
    one.flag("rm").set("id", "twin").shell("echo ready; sleep 60");
    let mut running = one.start();
    running.wait_for_output("ready");
    let record = list(&one.dirs().run).unwrap().records.remove(0);
    other.flag("rm").set("id", "twin").shell("exit 3");
    assert_eq!(other.run().code, 3);
    assert!(record.is_running(), "it ended with the other one");
    // The same with a container that is cleaned up.
    other.shell("echo ready; sleep 60");
    let mut dead = other.start();
    dead.wait_for_output("ready");
    let its = list(&other.dirs().run).unwrap().records.remove(0);
    dead.signal(KILL);
    dead.finish();
    record_no_start(&other, "twin");
    assert_eq!(cleanup_stale(&other.dirs()).unwrap(), 1);
    wait_for_end(&its);
    other.assert_clean();
    assert!(record.is_running(), "the cleanup of the other one ended it");
    end(&record);
    running.finish();
    one.assert_clean();
}

/// A record of an earlier version, which named the control groups by the container alone.
#[test]
fn control_groups_of_earlier_versions_are_found() {
    let mut case = case!();
    let name = format!("early-{}", std::process::id());
    case.flag("rm").set("id", &name).shell("echo ready; sleep 60");
    // The path of that version.
    case.before_create(
        r#"while [ -L "$config" ]; do sleep 0.01; done
        sed -i 's|\("cgroupsPath":"/xebec/[^"@]*\)@[0-9a-f]*"|\1"|' "$config""#,
    );
    case.set("predicted_image", "none");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    running.signal(KILL);
    running.finish();
    record_no_start(&case, &name);
    let path = case.dirs().run.join(format!("containers/{name}.json"));
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    text.as_object_mut().unwrap().remove("control_group");
    fs::write(&path, text.to_string()).unwrap();
    // The runtime's state is lost, so that only the control groups lead to the container's processes.
    fs::remove_dir_all(case.dirs().run.join("runtime").join(&name)).unwrap();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_for_end(&record);
    case.assert_clean();
}

/// A container of an earlier version, which had the bundle beside the layer, and a bundle without a record
/// whose layer is kept.
#[test]
fn old_and_unknown_bundles_are_cleaned_up() {
    let mut case = case!();
    case.shell("true").set("id", "kept");
    assert_eq!(case.run().code, 0);
    let (layer, old) = (case.state().join("kept"), case.state().join("old"));
    let roots = [case.bundle("kept").join("merged"), old.join("merged")];
    for (root, layer) in roots.iter().zip([&layer, &old]) {
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        for directory in [root, &upper, &work] {
            fs::create_dir_all(directory).unwrap();
        }
        let overlay = Overlay::new().lower("/usr/lib").upper(upper, work);
        drop(overlay.mount_at(root, Attributes::empty()).unwrap());
    }
    fs::write(old.join("remove"), "").unwrap();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1, "the directory");
    case.assert_clean();
    assert!(layer.join("upper").exists() && !old.exists());
}

/// The record is lost, as if it had been cleaned up before the runtime created the container.
#[test]
fn a_container_without_a_record_is_cleaned_up() {
    let mut case = case!();
    case.flag("rm").set("id", "unknown").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    running.signal(KILL);
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

/// Changes the record as if the supervisor had been killed before the start.
fn record_no_start(case: &Case, id: &str) {
    let path = case.dirs().run.join(format!("containers/{id}.json"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"has_begun\": true", "\"has_begun\": false")).unwrap();
}

fn end(record: &Record) {
    let pid = record.pid.and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_for_end(record);
}

/// Waits for the end of a killed process, which is not this process's child.
fn wait_for_end(record: &Record) {
    let began = Instant::now();
    while record.is_running() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!record.is_running());
}
