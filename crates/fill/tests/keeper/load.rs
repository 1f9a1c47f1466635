//! A keeper with its worker and the files they serve, and readers that check every byte meanwhile.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::reader::{FILES, PAGE, PAGES, guarded, tally};
use crate::scenarios::place;

/// Processes that read at once.
const READERS: u64 = 16;
/// A reader that makes no progress for so long is stuck: no death takes nearly that long to get over.
const STUCK: Duration = Duration::from_secs(8);
/// With fewer reads a run shows nothing.
const ENOUGH: u64 = 1000;
/// So long readers may take for that on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);
/// How long anything may take to start or end.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Readers at work.
pub struct Load<'a> {
    daemon: &'a Daemon,
    readers: Vec<Child>,
}

/// The reads of all readers, and their outcome.
pub struct Total {
    reads: u64,
    wrong: u64,
    errors: u64,
    worst: Duration,
}

/// Pseudo-random decisions of a scenario.
pub struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // Knuth's MMIX generator; its high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// True once in so many times.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.next().is_multiple_of(odds)
    }
}

impl<'a> Load<'a> {
    pub fn start(daemon: &'a Daemon) -> Load<'a> {
        let readers = (1..=READERS).map(|seed| daemon.role("as-reader", &seed.to_string()));
        Load {
            daemon,
            readers: readers.collect(),
        }
    }

    /// Lets them read for a time, and until they have read enough, does `harm` every few milliseconds, and watches that nobody is stuck.
    pub fn go_on(&self, time: Duration, mut harm: impl FnMut(&mut Chance)) {
        let started = Instant::now();
        let mut progress = vec![(0u64, Instant::now()); self.readers.len()];
        let mut chance = Chance(u64::from(std::process::id()) | 1);
        let reads = || -> u64 {
            (1..)
                .zip(&self.readers)
                .map(|(seed, _)| self.daemon.tally(seed)[0])
                .sum()
        };
        while started.elapsed() < time || (reads() <= ENOUGH && started.elapsed() < LONGEST) {
            std::thread::sleep(Duration::from_micros(500 + chance.next() % 4000));
            harm(&mut chance);
            for (seed, progress) in (1..).zip(&mut progress) {
                let reads = self.daemon.tally(seed)[0];
                if reads != progress.0 {
                    *progress = (reads, Instant::now());
                }
                assert!(
                    progress.1.elapsed() < STUCK,
                    "reader {seed} is stuck after {reads} reads"
                );
            }
        }
    }

    pub fn end(mut self) -> Total {
        let mut sum = Total {
            reads: 0,
            wrong: 0,
            errors: 0,
            worst: Duration::ZERO,
        };
        for (seed, reader) in (1..).zip(&mut self.readers) {
            let [reads, wrong, errors, worst] = self.daemon.tally(seed);
            sum.reads += reads;
            sum.wrong += wrong;
            sum.errors += errors;
            sum.worst = sum.worst.max(Duration::from_micros(worst));
            reader.kill().unwrap();
            reader.wait().unwrap();
        }
        sum
    }
}

impl Total {
    /// Not one wrong byte, not one error, and enough reads to show something.
    pub fn assert_right(&self) {
        assert_eq!((self.wrong, self.errors), (0, 0));
        assert!(
            self.reads > ENOUGH,
            "only {} reads: this run shows nothing",
            self.reads
        );
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} reads, {} wrong, {} errors, the longest took {:.1} ms",
            self.reads,
            self.wrong,
            self.errors,
            self.worst.as_secs_f64() * 1e3
        )
    }
}

/// A keeper with its worker, and the files they serve.
pub struct Daemon {
    pub directory: PathBuf,
    /// The process that was started; by now another may keep.
    pub keeper: Option<Child>,
}

impl Daemon {
    pub fn start(behaviour: &str) -> Daemon {
        Daemon::start_with(behaviour, &[])
    }

    pub fn start_with(behaviour: &str, variables: &[(&str, &str)]) -> Daemon {
        Daemon::start_in(place(), behaviour, variables)
    }

    pub fn start_in(directory: PathBuf, behaviour: &str, variables: &[(&str, &str)]) -> Daemon {
        make_files(&directory);
        let keeper = role(&directory, "as-keeper", behaviour, variables);
        let started = Instant::now();
        // The keeper writes its process id when it guards, and listens after that.
        let pid_file = directory.join("run/keeper.pid");
        let own = keeper.id().cast_signed();
        while named_process(&pid_file) != Some(own) || !directory.join("run/xebec.sock").exists() {
            assert!(started.elapsed() < PATIENCE, "the keeper does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
        Daemon {
            directory,
            keeper: Some(keeper),
        }
    }

    /// One that somebody else starts.
    pub fn of_somebody(directory: PathBuf) -> Daemon {
        make_files(&directory);
        Daemon {
            directory,
            keeper: None,
        }
    }

    /// Process ids of the keeper and of the worker, as the keeper wrote them.
    pub fn pids(&self) -> (Option<i32>, Option<i32>) {
        let read = |name| named_process(&self.directory.join("run").join(name));
        (read("keeper.pid"), read("worker.pid"))
    }

    /// Kills the keeper with SIGKILL.
    pub fn kill_keeper(&self) -> bool {
        let keeper = self
            .pids()
            .0
            .and_then(|pid| xebec_kernel::process::Child::open(pid).ok());
        keeper.is_some_and(|keeper| keeper.kill().is_ok())
    }

    /// Waits until something is so.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn role(&self, role_name: &str, argument: &str) -> Child {
        role(&self.directory, role_name, argument, &[])
    }

    pub fn read(&self, file: u64, page: u64) -> std::io::Result<[u8; PAGE]> {
        read_page(&guarded(&self.directory, file), page)
    }

    pub fn read_in_background(
        &self,
        file: u64,
        page: u64,
    ) -> std::thread::JoinHandle<std::io::Result<[u8; PAGE]>> {
        let path = guarded(&self.directory, file);
        std::thread::spawn(move || read_page(&path, page))
    }

    fn tally(&self, seed: u64) -> [u64; 4] {
        let bytes = std::fs::read(tally(&self.directory, seed)).unwrap_or_default();
        let mut counts = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        [(); 4].map(|()| counts.next().unwrap_or(0))
    }

    /// Kills the worker by its process id, if there is one.
    pub fn kill_worker(&self) -> bool {
        let text = std::fs::read_to_string(self.directory.join("worker.pid")).unwrap_or_default();
        let Some(pid) = text.parse().ok().and_then(Pid::from_raw) else {
            return false;
        };
        rustix::process::kill_process(pid, Signal::KILL).is_ok()
    }

    /// Stops the keeper, whichever process it is by now, and gives the counters that the last worker left.
    pub fn stop(mut self) -> String {
        let pid = self.pids().0.unwrap();
        let keeper = xebec_kernel::process::Child::open(pid).unwrap();
        keeper.signal(Signal::TERM.as_raw()).unwrap();
        match &mut self.keeper {
            Some(child) if child.id().cast_signed() == pid => {
                assert_eq!(wait_for_end(child), Some(0), "the keeper does not stop");
            }
            _ => self.wait_until("the keeper ends", || keeper.has_ended().unwrap()),
        }
        std::fs::read_to_string(self.directory.join("counters")).unwrap_or_default()
    }
}

/// The id that a keeper's file begins with.
fn named_process(file: &Path) -> Option<i32> {
    std::fs::read_to_string(file).ok()?.lines().next()?.parse().ok()
}

/// Makes the files that are served, with nothing in them yet.
pub fn make_files(directory: &Path) {
    let layers = directory.join("root/layers");
    std::fs::create_dir_all(&layers).unwrap();
    for file in 0..FILES {
        let path = layers.join(format!("data{file}"));
        let file = File::options().create(true).append(true).open(path).unwrap();
        file.set_len(PAGES * PAGE as u64).unwrap();
    }
}

pub fn role(directory: &Path, role_name: &str, argument: &str, variables: &[(&str, &str)]) -> Child {
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

pub fn is_mounted(path: &Path) -> bool {
    xebec_kernel::mount::is_mounted(path).unwrap()
}

pub fn wait_for_end(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}
