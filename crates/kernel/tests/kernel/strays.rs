//! Stray descriptors, which a daemon was started with by accident, are closed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use xebec_kernel::process::{Ending, Spawn, close_strays};

const ROLE: &str = "XEBEC_TEST_STRAYS";
const STRAY: i32 = 57;

fn is_open(number: i32) -> bool {
    std::path::Path::new("/proc/self/fd")
        .join(number.to_string())
        .exists()
}

#[test]
fn strays_are_closed_and_nothing_else() {
    if std::env::var_os(ROLE).is_some() {
        let own = File::open("/proc/self/exe").unwrap();
        assert!(is_open(STRAY));
        close_strays().unwrap();
        assert!(!is_open(STRAY) && is_open(own.as_raw_fd()) && is_open(2));
        return;
    }
    let file = File::open("/dev/null").unwrap();
    let child = Spawn::own_executable()
        .arguments([
            "--exact",
            "strays::strays_are_closed_and_nothing_else",
            "--nocapture",
        ])
        .variable(ROLE, "1")
        .descriptor(file.as_fd(), STRAY)
        .start()
        .unwrap();
    assert_eq!(child.wait().unwrap(), Ending::Exited(0));
}
