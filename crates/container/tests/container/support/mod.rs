//! A test case: the view of a busybox image in a temporary directory, a supervisor in a process of its own,
//! and checks that nothing is left.

mod exec;
mod supervisor;
mod terminal;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use xebec_container::{Directories, cleanup_stale, list};

/// Longer than any case takes.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The test that runs the supervisor of a case, in a process of its own.
const SUPERVISOR: &str = "support::supervisor::supervisor_process";

/// The environment variable with the path of a supervisor's orders.
const ORDERS: &str = "XEBEC_TEST_CONTAINER_ORDERS";

/// The environment variable with the runtime that all cases use. By default the first that is installed.
const RUNTIME: &str = "XEBEC_TEST_RUNTIME";

const BUSYBOX: &str = "/bin/busybox";

/// The reason why containers cannot run here, if there is one.
pub fn skip_reason() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("containers need root".into());
    }
    if !Command::new("runc")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return Some("runc is not installed (apt install runc)".into());
    }
    let is_static = Command::new("ldd").arg(BUSYBOX).output().is_ok_and(|output| {
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).contains("not a dynamic executable")
    });
    (!is_static).then(|| "there is no static busybox (apt install busybox-static)".into())
}

/// A case, unless containers cannot run here: then the test prints SKIPPED with the reason, and returns.
macro_rules! case {
    () => {
        match $crate::support::skip_reason() {
            Some(reason) => {
                println!("SKIPPED: {reason}");
                return;
            }
            None => $crate::support::Case::new(),
        }
    };
}
pub(crate) use case;

/// Waits until the condition holds. It fails after so long that no load is the reason.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WATCHDOG, "not {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A free port of the host.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// An image view, and the options of a container on it.
pub struct Case {
    directory: tempfile::TempDir,
    image: String,
    orders: Vec<(String, String)>,
    runs: usize,
    input: Vec<u8>,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub error: String,
    pub ready_after: Duration,
    events: Vec<String>,
}

impl Run {
    pub fn events(&self) -> Vec<String> {
        self.events.clone()
    }
}

impl Case {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("xebec-container")
            .tempdir()
            .unwrap();
        build_view(&directory.path().join("view"));
        Case {
            directory,
            image: "{}".into(),
            orders: std::env::var(RUNTIME)
                .ok()
                .map(|runtime| ("runtime".into(), runtime))
                .into_iter()
                .collect(),
            runs: 0,
            input: Vec::new(),
        }
    }

    pub fn dirs(&self) -> Directories {
        Directories {
            state: self.state(),
            run: self.directory.path().join("run, \\odd"),
        }
    }

    /// The bundle of the container of that name.
    pub fn bundle(&self, id: &str) -> PathBuf {
        self.dirs().run.join("bundles").join(id)
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state, with: \\odd name")
    }

    pub fn view(&self) -> PathBuf {
        self.directory.path().join("view")
    }

    pub fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    pub fn image(&mut self, config: &str) -> &mut Self {
        self.image = config.into();
        self
    }

    pub fn set(&mut self, key: &str, value: &str) -> &mut Self {
        self.orders.retain(|(known, _)| known != key);
        self.add(key, value)
    }

    pub fn add(&mut self, key: &str, value: &str) -> &mut Self {
        self.orders.push((key.into(), value.into()));
        self
    }

    pub fn orders_without(&mut self, key: &str) -> &mut Self {
        self.orders.retain(|(known, _)| known != key);
        self
    }

    pub fn flag(&mut self, key: &str) -> &mut Self {
        self.set(key, "yes")
    }

    pub fn command(&mut self, command: &[&str]) -> &mut Self {
        self.set("command", &serde_json::json!(command).to_string())
    }

    pub fn shell(&mut self, script: &str) -> &mut Self {
        self.command(&["/bin/sh", "-c", script])
    }

    pub fn input(&mut self, input: &str) -> &mut Self {
        self.input = input.into();
        self
    }

    /// Uses this script as the runtime. It gets runc's arguments.
    pub fn runtime(&mut self, script: &str) -> &mut Self {
        let path = self.directory.path().join(format!("runc-{}", self.orders.len()));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.set("runtime", path.to_str().unwrap())
    }

    /// Uses runc, and runs this script before each `create`, with the path of `config.json` in `$config`.
    /// [`Case::creates`] counts the calls.
    pub fn before_create(&mut self, rest: &str) -> &mut Self {
        let calls = self.calls();
        let _ = fs::remove_file(&calls);
        let find = r#"config=$(printf '%s\n' "$@" | sed -n '/^--bundle$/{n;p;}')/config.json"#;
        self.runtime(&format!(
            "case \" $* \" in *\" create \"*) echo >>'{}'; {find}\n{rest}\n;; esac\nexec runc \"$@\"",
            calls.display()
        ))
    }

    /// How often the runtime was called to create a container.
    pub fn creates(&self) -> usize {
        fs::read_to_string(self.calls()).map_or(0, |text| text.lines().count())
    }

    fn calls(&self) -> PathBuf {
        self.dirs().run.with_extension("calls")
    }

    pub fn view_mode(&self, mode: u32) {
        fs::set_permissions(self.view(), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Every path of the view with what a write would change.
    pub fn view_listing(&self) -> Vec<(PathBuf, u32, u64, i64, i64)> {
        let mut listing = Vec::new();
        let mut left = vec![self.view()];
        while let Some(path) = left.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            listing.push((path, meta.mode(), meta.len(), meta.mtime(), meta.ctime_nsec()));
        }
        listing.sort();
        listing
    }

    pub fn run(&mut self) -> Run {
        self.start().finish()
    }

    pub fn start(&mut self) -> Running {
        let command = self.supervisor();
        self.spawn(command)
    }

    /// The same in a namespace of processes and one of mounts, which end with the process that this gives.
    pub fn start_in_own_namespace(&mut self) -> Running {
        let supervisor = self.supervisor();
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(supervisor.get_program())
            .args(supervisor.get_args());
        for (name, value) in supervisor.get_envs() {
            unshare.env(name, value.unwrap_or_default());
        }
        self.spawn(unshare)
    }

    /// Starts a process of the case, with the case's input.
    fn spawn(&self, mut command: Command) -> Running {
        // A process group of its own, as a shell gives it: the automount lets this group pass.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&self.input).unwrap();
        let stdout = Collected::of(child.stdout.take().unwrap());
        let stderr = Collected::of(child.stderr.take().unwrap());
        Running {
            child,
            stdout,
            stderr,
            report: self.report(),
        }
    }

    fn report(&self) -> PathBuf {
        self.directory.path().join(format!("report-{}", self.runs))
    }

    /// The command of a supervisor that runs the case's container and reports into the case's directory.
    fn supervisor(&mut self) -> Command {
        self.runs += 1;
        let orders = serde_json::json!({
            "directory": self.directory.path(), "state": self.state(), "run": self.dirs().run, "report": self.report(), "image": self.image, "orders": self.orders,
        });
        let path = self.directory.path().join(format!("orders-{}", self.runs));
        fs::write(&path, orders.to_string()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", SUPERVISOR, "--nocapture", "--quiet"])
            .env(ORDERS, path);
        command
    }

    pub fn assert_unmounted(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = self.directory.path().file_name().unwrap().to_str().unwrap();
        assert!(!mounts.contains(name), "still mounted: {mounts}");
    }

    /// No mount, record, bundle or runtime state is left.
    pub fn assert_clean(&self) {
        self.assert_unmounted();
        let entries = |path: PathBuf| fs::read_dir(path).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!(entries(self.dirs().run.join("containers")), 0);
        assert_eq!(entries(self.dirs().run.join("bundles")), 0);
        assert_eq!(entries(self.dirs().run.join("runtime")), 0);
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        // Containers whose supervisor was killed run on.
        let left = list(&self.dirs().run).unwrap_or_default().records;
        for pid in left.iter().filter_map(|record| Pid::from_raw(record.pid?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let ended = || left.iter().all(|record| !record.is_running());
        let began = Instant::now();
        while !ended() && began.elapsed() < WATCHDOG / 4 {
            thread::sleep(Duration::from_millis(2));
        }
        if let Err(error) = cleanup_stale(&self.dirs()) {
            eprintln!("not cleaned up: {error}");
        }
    }
}

/// A supervisor that runs.
pub struct Running {
    child: Child,
    stdout: Collected,
    stderr: Collected,
    report: PathBuf,
}

impl Running {
    pub fn signal(&self, number: i32) {
        let status = Command::new("kill")
            .arg(format!("-{number}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }

    pub fn wait_for_output(&mut self, text: &str) {
        self.stdout.wait_for(text);
    }

    pub fn wait_for_event(&self, event: &str) {
        let began = Instant::now();
        while !fs::read_to_string(&self.report)
            .unwrap_or_default()
            .contains(event)
        {
            assert!(began.elapsed() < WATCHDOG / 4, "no event {event:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn finish(mut self) -> Run {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > WATCHDOG {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!(
                    "the watchdog had to end it; output: {} {}",
                    self.stdout.text(),
                    self.stderr.text()
                );
            }
            thread::sleep(Duration::from_millis(2));
        };
        let report = fs::read_to_string(&self.report).unwrap_or_default();
        let field = |key: &str| {
            report
                .lines()
                .filter_map(|line| line.strip_prefix(key))
                .map(str::to_owned)
                .collect()
        };
        let (events, ready, error): (Vec<String>, Vec<String>, Vec<String>) =
            (field("event "), field("ready_ms "), field("error "));
        // The container of a killed supervisor still holds the pipes, so they do not end.
        if status.code().is_some() {
            self.stdout.wait_for_end();
            self.stderr.wait_for_end();
        }
        Run {
            code: status.code().unwrap_or(-1),
            stdout: strip_harness(&self.stdout.text()),
            stderr: self.stderr.text(),
            error: error.join("\n"),
            ready_after: Duration::from_millis(ready.first().map_or(0, |ms| ms.parse().unwrap())),
            events,
        }
    }
}

/// Removes the line with which the test harness announces its one test.
fn strip_harness(text: &str) -> String {
    text.strip_prefix("\nrunning 1 test\n").unwrap_or(text).to_owned()
}

/// The text that a stream has had so far.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<(Vec<u8>, bool)>>);

impl Collected {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let collected = Collected::default();
        let other = collected.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                other.0.lock().0.extend_from_slice(&buffer[..length]);
            }
            other.0.lock().1 = true;
        });
        collected
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().0).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let began = Instant::now();
        while !self.text().contains(text) {
            assert!(began.elapsed() < WATCHDOG / 4, "no {text:?} in {:?}", self.text());
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn wait_for_end(&self) {
        let began = Instant::now();
        while !self.0.lock().1 && began.elapsed() < Duration::from_secs(2) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn build_view(view: &Path) {
    for directory in ["bin", "etc", "tmp", "mnt", "root", "proc", "sys", "dev"] {
        fs::create_dir_all(view.join(directory)).unwrap();
    }
    fs::copy(BUSYBOX, view.join("bin/busybox")).unwrap();
    for applet in [
        "sh", "cat", "echo", "false", "true", "id", "hostname", "sleep", "httpd", "mkdir", "touch", "rm",
        "ls", "grep", "tr", "wc", "mount", "unshare", "stat", "chmod", "seq", "tail", "tty", "stty", "ln",
        "test",
    ] {
        symlink("busybox", view.join("bin").join(applet)).unwrap();
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:100::/home/app:/bin/sh\n";
    fs::write(view.join("etc/passwd"), passwd).unwrap();
    fs::write(
        view.join("etc/group"),
        "root:x:0:\nusers:x:100:\nstaff:x:50:app\n",
    )
    .unwrap();
    fs::set_permissions(view, fs::Permissions::from_mode(0o755)).unwrap();
}
