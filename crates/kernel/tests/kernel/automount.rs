//! A directory at whose door others wait, as a runtime waits for a container's root.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::isolation::isolated;
use xebec_kernel::mount::automount::Automount;
use xebec_kernel::mount::{Attributes, Overlay};

const LIMIT: Duration = Duration::from_secs(20);

/// A directory to wait for, and the file system that will be mounted on it.
struct Place {
    _top: tempfile::TempDir,
    door: PathBuf,
    overlay: Overlay,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let [door, lower, upper, work] = ["door", "lower", "upper", "work"].map(|name| {
            let path = top.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        fs::write(lower.join("greeting"), "hello").unwrap();
        Self {
            _top: top,
            door,
            overlay: Overlay::new().lower(lower).upper(upper, work),
        }
    }

    fn attach(&self) -> Option<Automount> {
        match Automount::attach(&self.door, rustix::process::getpid()) {
            Ok(automount) => Some(automount),
            Err(error) if !Path::new("/sys/module/autofs4").exists() && !is_known() => {
                println!("SKIPPED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Somebody who enters, of another process group and in a mount namespace of their own, and waits.
    fn enter(&self) -> Child {
        self.enter_with("slave")
    }

    fn enter_with(&self, propagation: &str) -> Child {
        let script = format!("exec cat {}/greeting", self.door.display());
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", propagation, "sh", "-c", &script])
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while waiting() == 0 {
            assert!(Instant::now() < deadline, "nobody waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        child
    }

    /// Takes away all that is mounted there; how much was it?
    fn clear(&self) -> usize {
        std::iter::repeat_with(|| rustix::mount::unmount(&self.door, rustix::mount::UnmountFlags::DETACH))
            .take_while(Result::is_ok)
            .count()
    }
}

fn is_known() -> bool {
    fs::read_to_string("/proc/filesystems")
        .unwrap()
        .contains("autofs")
}

/// How many processes wait at such a door.
fn waiting() -> usize {
    let waits = |entry: io::Result<fs::DirEntry>| {
        let wchan = fs::read_to_string(entry.unwrap().path().join("wchan"));
        wchan.is_ok_and(|place| place == "autofs_wait")
    };
    let all = fs::read_dir("/proc").unwrap();
    all.map(waits).filter(|waits| *waits).count()
}

fn said(child: Child) -> String {
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    String::from_utf8([stdout, stderr].concat()).unwrap()
}

#[test]
fn an_entering_process_waits_for_the_mount() {
    isolated(
        "automount::an_entering_process_waits_for_the_mount",
        LIMIT,
        || {
            let place = Place::new();
            let Some(automount) = place.attach() else { return };
            let (one, other) = (place.enter(), place.enter_with("private"));
            // This process's own group sees an empty directory.
            assert_eq!(fs::read_dir(&place.door).unwrap().count(), 0);
            let mounted = place.overlay.mount_at(&place.door, Attributes::empty()).unwrap();
            assert!(waiting() > 0, "nobody has let them in");
            automount.open(&mounted).unwrap();
            assert_eq!((said(one), said(other)), ("hello".to_owned(), "hello".to_owned()));
            // A process that comes later does not wait, whether there is an answer or not.
            let late = || {
                let mut cat = Command::new("cat");
                let cat = cat.arg(place.door.join("greeting")).process_group(0);
                cat.output().unwrap().stdout
            };
            assert_eq!(late(), b"hello");
            drop(automount);
            assert_eq!(late(), b"hello");
            assert_eq!(place.clear(), 2);
        },
    );
}

#[test]
fn nobody_waits_for_what_will_not_come() {
    isolated("automount::nobody_waits_for_what_will_not_come", LIMIT, || {
        let place = Place::new();
        let Some(automount) = place.attach() else { return };
        let child = place.enter();
        drop(automount);
        let answer = said(child);
        assert!(answer.contains("No such file"), "{answer}");
        let late = Command::new("ls").arg(&place.door).process_group(0).output();
        assert_eq!(late.unwrap().stdout, b"", "an empty directory");
        assert_eq!(place.clear(), 1);
        assert_eq!(fs::read_dir(&place.door).unwrap().count(), 0);
    });
}

#[test]
fn a_waiter_for_a_process_that_died_can_be_killed() {
    isolated(
        "automount::a_waiter_for_a_process_that_died_can_be_killed",
        LIMIT,
        || {
            let place = Place::new();
            let Some(automount) = place.attach() else { return };
            let mut child = place.enter();
            // Nobody will ever answer.
            std::mem::forget(automount);
            child.kill().unwrap();
            child.wait().unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            while waiting() > 0 {
                assert!(Instant::now() < deadline, "somebody still waits");
                std::thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(place.clear(), 1);
            assert_eq!(fs::read_dir(&place.door).unwrap().count(), 0);
        },
    );
}
