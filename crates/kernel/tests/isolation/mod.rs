//! Runs a test that mounts, marks and kills in a world of its own: a private mount namespace and a process
//! namespace. When the test ends, in whatever way, the kernel takes down every mount and ends every process of
//! it; nothing has to be cleaned up, and a reader that hangs cannot hang the test run.
//!
//! The test binary starts itself again under `unshare(1)`, and a watchdog ends that one process by its id.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Set in the inner process.
const MARK: &str = "XEBEC_TEST_ISOLATED";

/// The first kernel with pre-content events.
const FIRST_KERNEL: (u32, u32) = (6, 14);

/// True in the inner process.
pub fn is_inner() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs `body` isolated, for at most `limit`. `name` is the full name of the calling `#[test]`.
#[allow(
    dead_code,
    reason = "tests without the standard harness call run_isolated themselves"
)]
pub fn isolated(name: &str, limit: Duration, body: impl FnOnce()) {
    if is_inner() {
        return body();
    }
    assert!(is_test(name), "{name} is not the full name of this test");
    let arguments = ["--exact", name, "--nocapture", "--test-threads=1"];
    if let Some(status) = run_isolated(&arguments, limit) {
        assert!(status.success(), "{name}: {status}");
    }
}

/// Whether this program has a test with exactly that name. With another one the inner process would run none, and succeed.
fn is_test(name: &str) -> bool {
    let own = std::env::current_exe().unwrap();
    let listed = Command::new(own).args(["--exact", name, "--list"]).output();
    let listed = String::from_utf8_lossy(&listed.unwrap().stdout).into_owned();
    listed.lines().any(|line| line == format!("{name}: test"))
}

/// Runs this executable with `arguments` in a world of its own; `None` (with a line that says why) when this
/// host cannot. Panics when `limit` passes.
pub fn run_isolated(arguments: &[&str], limit: Duration) -> Option<ExitStatus> {
    if let Some(reason) = unable() {
        println!("SKIPPED: {reason}");
        return None;
    }
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg("--")
        .arg(own)
        .args(arguments)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            // Its first process goes with it (--kill-child), and all others with that one.
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("not done after {limit:?}: ended by the watchdog");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn unable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < FIRST_KERNEL {
        return Some(format!(
            "needs Linux 6.14 for pre-content events, this is {release}"
        ));
    }
    let unshare = Command::new("unshare")
        .arg("--mount")
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if !unshare.is_ok_and(|status| status.success()) {
        return Some("needs unshare(1) of util-linux".to_owned());
    }
    None
}
