//! What containers leave on record, on the disk and in the mount table, and who cleans it up. As in `container_run`, every case runs
//! in a process of its own.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Case, case, wait_until};
use xebec_container::{Record, cleanup_stale, list};
use xebec_kernel::mount::{Attributes, Overlay};

/// Asks nobody before it ends a process.
const KILL: i32 = 9;

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

/// Nor does one whose directories cannot be made: its name stays free, too.
#[test]
fn what_has_no_place_leaves_nothing() {
    let mut case = case!();
    case.shell("exit 3").set("id", "placed");
    let place = case.bundle("placed");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, "somebody's file").unwrap();
    let run = case.run();
    assert!(run.error.contains("bundles/placed"), "{run:?}");
    assert!(!case.state().join("placed").exists());
    fs::remove_file(&place).unwrap();
    assert_eq!(case.run().code, 3);
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

/// A container whose supervisor was killed serves on: nobody who happens to run another one ends it. It keeps its name, and is
/// cleaned up once it has ended.
#[test]
fn what_outlives_its_supervisor_is_left_alone_until_it_ends() {
    let mut case = case!();
    case.flag("rm").set("id", "orphan").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    let is_noted = |run: &std::path::Path| list(run).unwrap().records[0].has_begun == Some(true);
    wait_until("noted that it began", || is_noted(&case.dirs().run));
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

/// A container whose supervisor was killed before it was told to begin will never begin.
#[test]
fn what_never_began_is_cleaned_up() {
    let mut case = case!();
    case.flag("rm").set("id", "unborn").shell("echo ready; sleep 60");
    let mut running = case.start();
    running.wait_for_output("ready");
    running.signal(KILL);
    running.finish();
    forget_that_it_began(&case, "unborn");
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_for_end(&record);
    case.assert_clean();
}

/// Two run directories, a container of one name in each: neither what becomes of the one nor who cleans up after it touches the
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
    // One that died, too.
    other.shell("echo ready; sleep 60");
    let mut dead = other.start();
    dead.wait_for_output("ready");
    let its = list(&other.dirs().run).unwrap().records.remove(0);
    dead.signal(KILL);
    dead.finish();
    forget_that_it_began(&other, "twin");
    assert_eq!(cleanup_stale(&other.dirs()).unwrap(), 1);
    wait_for_end(&its);
    other.assert_clean();
    assert!(record.is_running(), "who cleaned up after the other one ended it");
    end(&record);
    running.finish();
    one.assert_clean();
}

/// A record of a version that named the control groups by the container alone.
#[test]
fn control_groups_of_earlier_versions_are_found() {
    let mut case = case!();
    let name = format!("early-{}", std::process::id());
    case.flag("rm").set("id", &name).shell("echo ready; sleep 60");
    // Where that version would have put it.
    case.before_making(
        r#"while [ -L "$config" ]; do sleep 0.01; done
        sed -i 's|\("cgroupsPath":"/xebec/[^"@]*\)@[0-9a-f]*"|\1"|' "$config""#,
    );
    case.set("predicted_image", "none");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = list(&case.dirs().run).unwrap().records.remove(0);
    running.signal(KILL);
    running.finish();
    forget_that_it_began(&case, &name);
    let path = case.dirs().run.join(format!("containers/{name}.json"));
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    text.as_object_mut().unwrap().remove("control_group");
    fs::write(&path, text.to_string()).unwrap();
    // The runtime knows nothing of it, so that only its control groups tell.
    fs::remove_dir_all(case.dirs().run.join("runtime").join(&name)).unwrap();
    assert_eq!(cleanup_stale(&case.dirs()).unwrap(), 1);
    wait_for_end(&record);
    case.assert_clean();
}

/// A container of a version that had the bundle beside the layer, and a bundle that nobody has on record, of a layer that is kept.
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

/// The supervisor's record is lost too, as if it had been cleaned up while the runtime was still at work.
#[test]
fn a_container_that_nobody_knows_is_cleaned_up() {
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

/// As if its supervisor had been killed a moment earlier.
fn forget_that_it_began(case: &Case, id: &str) {
    let path = case.dirs().run.join(format!("containers/{id}.json"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"has_begun\": true", "\"has_begun\": false")).unwrap();
}

fn end(record: &Record) {
    let pid = record.pid.and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_for_end(record);
}

/// A killed process whose parent is gone ends a moment later.
fn wait_for_end(record: &Record) {
    let began = Instant::now();
    while record.is_running() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!record.is_running());
}
