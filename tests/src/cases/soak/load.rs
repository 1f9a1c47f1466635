//! Processes that walk a mounted image and compare digests, and what they saw.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::daemon::now;
use crate::lab::Lab;

/// The program that walks.
const WALKER: &str = include_str!("../../../tools/walker.py");
/// Bytes of a slot in the file that shows how far the walkers are.
const SLOT: usize = 64;
/// A walker that reads one file for so long is stuck. A file may have tens of spans, and what was on its way when a
/// worker died is fetched again.
const STUCK: Duration = Duration::from_secs(120);
/// How long walkers may take to end once they were told to.
const END: Duration = Duration::from_secs(60);

/// Walkers at work. They are killed when it is dropped.
pub(super) struct Load {
    directory: PathBuf,
    progress: File,
    walkers: Vec<Child>,
}

/// How far a walker is.
#[derive(Clone, Copy, Debug)]
struct Slot {
    files: u64,
    bytes: u64,
    walks: u64,
    wrong: u64,
    errors: u64,
    since: u64,
}

/// The observations of all walkers.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Files that were read.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Whole walks.
    pub(super) walks: u64,
    /// The faults, in words.
    pub(super) faults: Vec<String>,
    /// From when to when readings lasted that took long, in nanoseconds.
    pub(super) waits: Vec<(u64, u64)>,
}

impl Seen {
    /// Adds what others saw.
    pub(super) fn add(&mut self, other: Seen) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.walks += other.walks;
        self.faults.extend(other.faults);
        self.waits.extend(other.waits);
    }

    /// Asks for not one wrong byte and not one error.
    pub(super) fn expect_no_fault(&self, when: &str) -> Result<()> {
        let faults = &self.faults;
        let first: Vec<&str> = faults.iter().take(20).map(String::as_str).collect();
        ensure!(
            faults.is_empty(),
            "{} faults {when}:\n{}",
            faults.len(),
            first.join("\n")
        );
        Ok(())
    }
}

impl Load {
    /// Starts walkers over the files that the file `truth` lists.
    pub(super) fn start(lab: &Lab<'_>, name: &str, mount: &Path, walkers: usize) -> Result<Self> {
        let directory = lab.mount_point(&format!("load-{name}"))?;
        let script = directory.join("walker.py");
        fs::write(&script, WALKER)?;
        let place = directory.join("progress");
        fs::write(&place, vec![0; SLOT * (walkers + 1)])?;
        let progress = File::options().read(true).write(true).open(&place)?;
        let mut load = Self {
            directory,
            progress,
            walkers: Vec::new(),
        };
        for number in 0..walkers {
            let words = |suffix: &str| load.directory.join(format!("{number}.{suffix}"));
            let said = File::create(words("said"))?;
            let walker = Command::new("python3")
                .arg(&script)
                .args([mount, &lab.path("truth"), &place])
                .args([number.to_string(), fastrand::u32(..).to_string()])
                .arg(words("waits"))
                .stdin(Stdio::null())
                .stderr(said.try_clone()?)
                .stdout(said)
                .spawn()
                .context("cannot start python3")?;
            load.walkers.push(walker);
        }
        Ok(load)
    }

    fn slot(&self, number: usize) -> Result<Slot> {
        let mut bytes = [0; SLOT];
        self.progress
            .read_exact_at(&mut bytes, ((number + 1) * SLOT) as u64)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        };
        Ok(Slot {
            files: word(0),
            bytes: word(1),
            walks: word(2),
            wrong: word(3),
            errors: word(4),
            since: word(5),
        })
    }

    fn slots(&self) -> Result<Vec<Slot>> {
        (0..self.walkers.len()).map(|number| self.slot(number)).collect()
    }

    /// Whether each walker has walked so often. Fails when one is stuck, or ended.
    pub(super) fn has_walked(&mut self, walks: u64) -> Result<bool> {
        let slots = self.slots()?;
        for (number, slot) in slots.iter().enumerate() {
            let waited = Duration::from_nanos(now().saturating_sub(slot.since));
            ensure!(
                slot.since == 0 || waited < STUCK,
                "walker {number} is stuck: it has read one file for {waited:?}"
            );
        }
        for (number, walker) in self.walkers.iter_mut().enumerate() {
            let ended = walker.try_wait()?;
            ensure!(
                ended.is_none(),
                "walker {number} ended ({ended:?}): {}",
                fs::read_to_string(self.directory.join(format!("{number}.said")))?
            );
        }
        Ok(slots.iter().all(|slot| slot.walks >= walks))
    }

    /// Tells the walkers to end, and gives what they saw.
    pub(super) fn stop(mut self) -> Result<Seen> {
        self.progress.write_all_at(&[1], 0)?;
        let deadline = Instant::now() + END;
        let mut seen = Seen::default();
        for (number, walker) in self.walkers.iter_mut().enumerate() {
            let status = loop {
                match walker.try_wait()? {
                    Some(status) => break status,
                    None => ensure!(Instant::now() < deadline, "walker {number} does not end"),
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            // A reader of a mapping that is denied its page is killed by SIGBUS.
            if !status.success() {
                seen.faults.push(format!("walker {number} ended: {status}"));
            }
        }
        for (number, slot) in self.slots()?.into_iter().enumerate() {
            seen.files += slot.files;
            seen.bytes += slot.bytes;
            seen.walks += slot.walks;
            let said = fs::read_to_string(self.directory.join(format!("{number}.said")))?;
            let lines = said.lines().map(|line| format!("walker {number}: {line}"));
            let before = seen.faults.len();
            seen.faults.extend(lines);
            let told = (seen.faults.len() - before) as u64;
            ensure!(
                told >= slot.wrong + slot.errors,
                "walker {number} told of {told} faults of {}",
                slot.wrong + slot.errors
            );
            let waits = fs::read_to_string(self.directory.join(format!("{number}.waits")))?;
            let pair = |line: &str| {
                let (begin, end) = line.split_once(' ')?;
                Some((begin.parse().ok()?, end.parse().ok()?))
            };
            seen.waits.extend(waits.lines().filter_map(pair));
        }
        Ok(seen)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for walker in &mut self.walkers {
            let _ = walker.kill();
            let _ = walker.wait();
        }
    }
}
