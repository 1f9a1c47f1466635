//! A lease proves that nobody else has the file open, neither by a descriptor nor by a map.
//!
//! Each test is a process of its own: a child that another test starts has copies of this program's descriptors until it runs its own.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};
use xebec_kernel::lease::Lease;

use crate::isolation::isolated;

const LIMIT: Duration = Duration::from_secs(20);

fn open(path: &Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

#[test]
fn a_lease_is_refused_while_somebody_has_the_file_open() {
    isolated(
        "lease::a_lease_is_refused_while_somebody_has_the_file_open",
        LIMIT,
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data");
            let file = open(&path);
            file.set_len(4096).unwrap();
            let other = File::open(&path).unwrap();
            assert!(
                Lease::take(file.as_fd()).unwrap().is_none(),
                "open in this process"
            );
            // SAFETY: a new map of a file, at a place that the kernel chooses; nothing reads through it.
            let map = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    4096,
                    ProtFlags::READ,
                    MapFlags::SHARED,
                    &other,
                    0,
                )
            };
            let map = map.unwrap();
            drop(other);
            assert!(Lease::take(file.as_fd()).unwrap().is_none(), "mapped");
            // SAFETY: the map made above, which nothing uses.
            unsafe { rustix::mm::munmap(map, 4096) }.unwrap();
            assert!(Lease::take(file.as_fd()).unwrap().is_some());
        },
    );
}

#[test]
fn an_open_waits_until_the_lease_is_given_back() {
    isolated(
        "lease::an_open_waits_until_the_lease_is_given_back",
        LIMIT,
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data");
            let file = open(&path);
            let lease = Lease::take(file.as_fd()).unwrap().unwrap();
            let held = Duration::from_millis(300);
            let opener = std::thread::spawn({
                let path = path.clone();
                move || {
                    let start = Instant::now();
                    File::open(path).unwrap();
                    start.elapsed()
                }
            });
            std::thread::sleep(held);
            drop(lease);
            // The signal that the opener raised did not end this process, or nobody would be here.
            let waited = opener.join().unwrap();
            assert!(waited > held / 2, "waited {waited:?}");
            assert!(waited < Duration::from_secs(10), "waited {waited:?}");
        },
    );
}
