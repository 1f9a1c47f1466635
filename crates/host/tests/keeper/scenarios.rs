//! What is tried, each by name in a world of its own.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::kill_time;
use crate::reader::{FILES, PAGE, PAGES, guarded, pattern, tally};
use crate::worker::POISON_PAGE;

const READERS: u64 = 16;
/// A reader that makes no progress for so long is stuck: no death takes nearly that long to get over.
const STUCK: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);

static PLACE: OnceLock<PathBuf> = OnceLock::new();

type Scenario = (&'static str, fn());

const ALL: [Scenario; 7] = [
    ("workers_killed_at_every_point_under_load", killed_at_every_point),
    ("an_event_that_killed_three_workers_is_denied", poisoned),
    ("a_stop_ends_everything", stop),
    (
        "readers_that_wait_at_the_end_get_an_error_not_zeros",
        denied_at_the_end,
    ),
    ("a_second_keeper_is_refused", second_keeper),
    (
        "a_client_that_comes_as_the_worker_ends_is_served",
        client_at_the_end,
    ),
    ("mounts_of_a_killed_keeper_are_cleared", stale_mounts),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Runs one scenario with `directory`, which is empty, as its place.
pub fn run(name: &str, directory: &str) -> ExitCode {
    PLACE.set(PathBuf::from(directory)).unwrap();
    match ALL.iter().find(|(other, _)| *other == name) {
        Some((_, scenario)) => scenario(),
        None => panic!("no scenario {name}"),
    }
    ExitCode::SUCCESS
}

fn killed_at_every_point() {
    let daemon = Daemon::start("kill-at-stages");
    let mut readers: Vec<Child> = (1..=READERS)
        .map(|seed| daemon.role("as-reader", &seed.to_string()))
        .collect();
    let started = Instant::now();
    let mut progress = vec![(0u64, Instant::now()); READERS as usize];
    let mut kills = 0u64;
    let mut state = u64::from(std::process::id()) | 1;
    while started.elapsed() < kill_time() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(500 + (state >> 33) % 4000));
        if (state >> 40) % 3 == 0 && daemon.kill_worker() {
            kills += 1;
        }
        for (seed, progress) in (1..).zip(&mut progress) {
            let reads = daemon.tally(seed)[0];
            if reads != progress.0 {
                *progress = (reads, Instant::now());
            }
            assert!(
                progress.1.elapsed() < STUCK,
                "reader {seed} is stuck after {reads} reads"
            );
        }
    }
    let mut total = [0u64; 3];
    for (seed, reader) in (1..).zip(&mut readers) {
        for (sum, count) in total.iter_mut().zip(daemon.tally(seed)) {
            *sum += count;
        }
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    let counters = daemon.stop();
    let [reads, wrong, errors] = total;
    println!("{reads} reads, {wrong} wrong, {errors} errors; {kills} kills from outside; {counters}");
    assert_eq!((wrong, errors), (0, 0));
    assert!(reads > 1000, "only {reads} reads: this run shows nothing");
}

fn poisoned() {
    let daemon = Daemon::start("poisoned");
    let beside = daemon.read_in_background(1, 17);
    let error = daemon.read(0, POISON_PAGE).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error()),
        "{error}"
    );
    assert!(
        beside.join().unwrap().unwrap() == pattern(1, 17),
        "another reader suffered for it"
    );
    assert!(daemon.read(0, POISON_PAGE + 1).unwrap() == pattern(0, POISON_PAGE + 1));
    let counters = daemon.stop();
    assert!(
        counters.contains("deaths: 3,") && counters.contains("denied: 1,"),
        "{counters}"
    );
}

fn stop() {
    let daemon = Daemon::start("plain");
    assert!(daemon.read(2, 5).unwrap() == pattern(2, 5));
    let run = daemon.directory.join("run");
    assert!(run.join("keeper.pid").exists());
    assert!(is_mounted(&run.join("guarded")));
    daemon.stop();
    assert!(!is_mounted(&run.join("guarded")));
    for name in ["keeper.pid", "xebec.sock", "xebec.sock.ending"] {
        assert!(!run.join(name).exists(), "{name} is left behind");
    }
}

fn denied_at_the_end() {
    let daemon = Daemon::start_with("leaves-readers", &[("XEBEC_TEST_NEVER_ANSWER", "1")]);
    let readers: Vec<_> = (0..8).map(|page| daemon.read_in_background(0, page)).collect();
    std::thread::sleep(Duration::from_millis(300));
    daemon.stop();
    for reader in readers {
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::IO.raw_os_error()),
            "{error}"
        );
    }
}

fn second_keeper() {
    let daemon = Daemon::start("plain");
    let mut other = daemon.role("as-keeper", "plain");
    assert_eq!(wait_for_end(&mut other), Some(1));
    // Neither with the same root and another run directory.
    let elsewhere = daemon.directory.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(daemon.directory.join("root"), elsewhere.join("root")).unwrap();
    let mut other = role(&elsewhere, "as-keeper", "plain", &[]);
    assert_eq!(wait_for_end(&mut other), Some(1));
    assert!(
        daemon.read(0, 1).unwrap() == pattern(0, 1),
        "the first one suffered"
    );
    daemon.stop();
}

fn client_at_the_end() {
    let mut daemon = Daemon::start("idle-after-client");
    let socket = daemon.directory.join("run/xebec.sock");
    // Both are in the queue before the first is answered, after which the worker ends with status 0.
    let mut clients: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    std::fs::write(daemon.directory.join("accept"), "").unwrap();
    let mut answers = clients.iter_mut().map(|client| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    });
    let (first, second) = (answers.next().unwrap(), answers.next().unwrap());
    assert!(
        !first.is_empty() && !second.is_empty() && first != second,
        "{first} {second}"
    );
    assert_eq!(
        wait_for_end(&mut daemon.keeper),
        Some(0),
        "nobody waits, so the keeper ends"
    );
    assert!(!socket.exists());
}

fn stale_mounts() {
    let mut daemon = Daemon::start("plain");
    let guarded = daemon.directory.join("run/guarded");
    daemon.keeper.kill().unwrap();
    daemon.keeper.wait().unwrap();
    assert!(is_mounted(&guarded), "a killed keeper leaves its mount");
    // A worker that lost its keeper goes on and keeps the directories; only without it may another start.
    let killed = Instant::now();
    while UnixStream::connect(daemon.directory.join("run/xebec.sock")).is_ok() {
        assert!(killed.elapsed() < PATIENCE, "the worker does not end");
        // Again and again, for it may only just be starting and not have said yet who it is.
        daemon.kill_worker();
        std::thread::sleep(Duration::from_millis(2));
    }
    let daemon = Daemon::start_in(daemon.directory.clone(), "plain", &[]);
    assert!(daemon.read(1, 3).unwrap() == pattern(1, 3));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(mounts.matches("/run/guarded ").count(), 1, "{mounts}");
    daemon.stop();
}

/// A keeper with its worker, and the files they serve.
struct Daemon {
    directory: PathBuf,
    keeper: Child,
}

impl Daemon {
    fn start(behaviour: &str) -> Daemon {
        Daemon::start_with(behaviour, &[])
    }

    fn start_with(behaviour: &str, variables: &[(&str, &str)]) -> Daemon {
        Daemon::start_in(PLACE.get().unwrap().clone(), behaviour, variables)
    }

    fn start_in(directory: PathBuf, behaviour: &str, variables: &[(&str, &str)]) -> Daemon {
        let layers = directory.join("root/layers");
        std::fs::create_dir_all(&layers).unwrap();
        for file in 0..FILES {
            File::create(layers.join(format!("data{file}")))
                .unwrap()
                .set_len(PAGES * PAGE as u64)
                .unwrap();
        }
        let keeper = role(&directory, "as-keeper", behaviour, variables);
        let started = Instant::now();
        // The keeper writes its process id when it guards, and listens after that.
        let pid_file = directory.join("run/keeper.pid");
        let own = format!("{}\n", keeper.id());
        while std::fs::read_to_string(&pid_file).ok().as_ref() != Some(&own)
            || !directory.join("run/xebec.sock").exists()
        {
            assert!(started.elapsed() < PATIENCE, "the keeper does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
        Daemon { directory, keeper }
    }

    fn role(&self, role_name: &str, argument: &str) -> Child {
        role(&self.directory, role_name, argument, &[])
    }

    fn read(&self, file: u64, page: u64) -> std::io::Result<[u8; PAGE]> {
        read_page(&guarded(&self.directory, file), page)
    }

    fn read_in_background(
        &self,
        file: u64,
        page: u64,
    ) -> std::thread::JoinHandle<std::io::Result<[u8; PAGE]>> {
        let path = guarded(&self.directory, file);
        std::thread::spawn(move || read_page(&path, page))
    }

    fn tally(&self, seed: u64) -> [u64; 3] {
        let bytes = std::fs::read(tally(&self.directory, seed)).unwrap_or_default();
        let mut counts = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        [(); 3].map(|()| counts.next().unwrap_or(0))
    }

    /// Kills the worker by its process id, if there is one.
    fn kill_worker(&self) -> bool {
        let text = std::fs::read_to_string(self.directory.join("worker.pid")).unwrap_or_default();
        let Some(pid) = text.parse().ok().and_then(Pid::from_raw) else {
            return false;
        };
        rustix::process::kill_process(pid, Signal::KILL).is_ok()
    }

    /// Stops the keeper and gives the counters that its last worker left.
    fn stop(mut self) -> String {
        let pid = Pid::from_child(&self.keeper);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(
            wait_for_end(&mut self.keeper),
            Some(0),
            "the keeper does not stop"
        );
        std::fs::read_to_string(self.directory.join("counters")).unwrap_or_default()
    }
}

fn role(directory: &Path, role_name: &str, argument: &str, variables: &[(&str, &str)]) -> Child {
    Command::new("/proc/self/exe")
        .arg(role_name)
        .arg(directory)
        .arg(argument)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

fn read_page(path: &Path, page: u64) -> std::io::Result<[u8; PAGE]> {
    let mut bytes = [0; PAGE];
    File::open(path)?.read_exact_at(&mut bytes, page * PAGE as u64)?;
    Ok(bytes)
}

fn is_mounted(path: &Path) -> bool {
    xebec_kernel::mount::is_mounted(path).unwrap()
}

fn wait_for_end(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}
