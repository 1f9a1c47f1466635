//! Tests of logs: their bounds, and the fate of lines and files that are damaged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn numbers(directory: &Path) -> Vec<u64> {
    let lines = read(directory, "log");
    let numbers = lines.iter().filter_map(|line| serde_json::from_slice(line).ok());
    numbers.collect()
}

#[test]
fn what_was_appended_is_read_by_others_and_later() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("history");
    assert!(numbers(&directory).is_empty());
    let mut log = Log::new(directory.clone(), "log", 1000);
    log.append(&[1, 2]).unwrap();
    log.append(&[3]).unwrap();
    assert_eq!(numbers(&directory), [1, 2, 3]);
    drop(log);
    let mut log = Log::new(directory.clone(), "log", 1000);
    log.append(&[4]).unwrap();
    assert_eq!(numbers(&directory), [1, 2, 3, 4]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("log.jsonl")), 0o600);
    // Also when somebody removes it meanwhile.
    fs::remove_dir_all(&directory).unwrap();
    log.append(&[5]).unwrap();
    assert_eq!(numbers(&directory), [5]);
}

#[test]
fn it_is_bounded_and_the_latest_are_kept() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("history");
    let mut log = Log::new(directory.clone(), "log", 1000);
    for number in 0..10_000 {
        log.append(&[number]).unwrap();
    }
    let kept = numbers(&directory);
    assert_eq!(kept.last(), Some(&9999));
    assert!(kept.len() > 150, "{} are kept", kept.len());
    assert!(kept.windows(2).all(|two| two[0] + 1 == two[1]));
    let sizes = fs::read_dir(&directory).unwrap();
    let sizes: Vec<u64> = sizes
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
    // Many at once, and one that is larger than all may be.
    log.append(&(0..200_000).collect::<Vec<u64>>()).unwrap();
    log.append(&["x".repeat(MAX_LINE)]).unwrap();
    assert_eq!(numbers(&directory).last(), Some(&199_999));
}

#[test]
fn half_a_line_is_none() {
    let top = tempfile::tempdir().unwrap();
    let directory = top.path().join("history");
    Log::new(directory.clone(), "log", 1000).append(&[1, 2]).unwrap();
    let path = directory.join("log.jsonl");
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"kind\":\"wa");
    fs::write(&path, &text).unwrap();
    assert_eq!(numbers(&directory), [1, 2]);
    Log::new(directory.clone(), "log", 1000).append(&[3]).unwrap();
    assert_eq!(numbers(&directory), [1, 2, 3]);
}

#[test]
fn what_is_no_history_is_set_aside() {
    let top = tempfile::tempdir().unwrap();
    let outside = top.path().join("outside");
    fs::write(&outside, "of others").unwrap();
    let made: [fn(&Path, &Path); 5] = [
        |path, _| fs::write(path, "something else\n").unwrap(),
        |path, _| fs::write(path, [0xff; 5]).unwrap(),
        |path, outside| symlink(outside, path).unwrap(),
        |path, _| fs::create_dir(path).unwrap(),
        |path, _| {
            fs::write(path, HEADER).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        },
    ];
    for (number, make) in made.into_iter().enumerate() {
        let directory = top.path().join(format!("history-{number}"));
        fs::create_dir(&directory).unwrap();
        make(&directory.join("log.jsonl"), &outside);
        if number != 4 {
            assert!(numbers(&directory).is_empty());
        }
        Log::new(directory.clone(), "log", 1000).append(&[1]).unwrap();
        assert_eq!(numbers(&directory), [1], "{number}");
        assert!(
            fs::symlink_metadata(directory.join("log.damaged")).is_ok(),
            "{number}"
        );
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "of others");
}
