//! Compares two processes that could read events: the worker itself, by the journal's rules (A), or the keeper, which passes each
//! on to the worker and answers for it (B). Measures both on a guarded file whose pages are all there, so that nothing but the way
//! of an event is measured. It gives the reads a second, how long one takes, and how long a reader waits when the worker is killed
//! and replaced. `docs/decisions/0003-who-reads-events.md` has the results.
//!
//! `bench_who_reads DIRECTORY [SECONDS]`, as root; the directory must be on ext4, xfs or btrfs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that cannot go on has nothing better to do"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xebec_kernel::fanotify::{Events, Group};
use xebec_kernel::journal::{Journal, Verdict};
use xebec_kernel::process::{self, Child, Spawn};
use xebec_kernel::{memory, mount};

const PAGES: u64 = 1024;
const PAGE: usize = 4096;
/// A message between keeper and worker in B: serial, inode, offset, count; back goes the serial.
const MESSAGE: usize = 32;
const KILLS: usize = 60;
const BETWEEN_KILLS: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_millis(200);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["as-worker-a"] => worker_a(),
        ["as-worker-b"] => worker_b(),
        ["as-keeper-b", pid_file] => keeper_b(Path::new(pid_file)),
        [directory] => measure(Path::new(directory), 3),
        [directory, seconds] => measure(
            Path::new(directory),
            seconds.parse().expect("a number of seconds"),
        ),
        _ => eprintln!("usage: bench_who_reads DIRECTORY [SECONDS]"),
    }
}

fn measure(directory: &Path, seconds: u64) {
    for readers in [1, 16] {
        for (name, variant) in [
            ("A, the worker reads", variant_a as Variant),
            ("B, the keeper reads", variant_b),
        ] {
            let place = tempfile::tempdir_in(directory).unwrap();
            let (layers, guarded) = (place.path().join("layers"), place.path().join("guarded"));
            std::fs::create_dir(&layers).unwrap();
            std::fs::create_dir(&guarded).unwrap();
            std::fs::write(layers.join("data"), vec![7; PAGES as usize * PAGE]).unwrap();
            let group = Group::new().unwrap();
            mount::bind_private(&layers, &guarded).unwrap();
            group.mark_mount(&guarded).unwrap();
            let load = Load {
                data: guarded.join("data"),
                readers,
                time: Duration::from_secs(seconds),
            };
            let line = variant(group, place.path(), &load);
            println!("{name}, {readers} readers: {line}");
            rustix::mount::unmount(&guarded, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}

type Variant = fn(Group, &Path, &Load) -> String;

/// Readers of random pages, and their counts.
struct Load {
    data: std::path::PathBuf,
    readers: usize,
    time: Duration,
}

impl Load {
    /// Reads undisturbed, then while `kill` kills the worker again and again.
    fn run(&self, mut kill: impl FnMut()) -> String {
        let (mut reads, elapsed) = self.read_while(|| std::thread::sleep(self.time));
        reads.sort();
        let at = |part: usize| reads.get(reads.len() * part / 1000).copied().unwrap_or_default();
        let calm = format!(
            "{:.0} reads/s, median {:?}, p99 {:?}",
            reads.len() as f64 / elapsed.as_secs_f64(),
            at(500),
            at(990)
        );
        let mut gaps = Vec::new();
        for _ in 0..KILLS {
            let (waits, _) = self.read_while(|| {
                std::thread::sleep(BETWEEN_KILLS);
                kill();
                std::thread::sleep(PATIENCE);
            });
            gaps.extend(waits.iter().max().copied());
        }
        gaps.sort();
        format!(
            "{calm}; longest wait around each of {KILLS} kills: median {:?}, worst {:?}",
            gaps[gaps.len() / 2],
            gaps[gaps.len() - 1]
        )
    }

    fn read_while(&self, act: impl FnOnce()) -> (Vec<Duration>, Duration) {
        let ended = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let readers: Vec<_> = (0..self.readers)
            .map(|seed| {
                let (ended, data) = (ended.clone(), self.data.clone());
                std::thread::spawn(move || {
                    let file = File::open(data).unwrap();
                    let (mut page, mut times) = ([0; PAGE], Vec::new());
                    let mut state = seed as u64;
                    while !ended.load(Ordering::Relaxed) {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let begin = Instant::now();
                        file.read_exact_at(&mut page, (state >> 33) % PAGES * PAGE as u64)
                            .unwrap();
                        times.push(begin.elapsed());
                    }
                    times
                })
            })
            .collect();
        act();
        ended.store(true, Ordering::Relaxed);
        let times = readers.into_iter().flat_map(|reader| reader.join().unwrap());
        let times = times.collect();
        (times, started.elapsed())
    }
}

fn variant_a(group: Group, _: &Path, load: &Load) -> String {
    let journal = Arc::new(Journal::create().unwrap());
    let start = |journal: &Journal, group: &Group| {
        let worker = Spawn::own_executable()
            .argument("as-worker-a")
            .descriptor(group.as_fd(), 3)
            .descriptor(journal.as_fd(), 4);
        worker.start().unwrap()
    };
    let mut worker = start(&journal, &group);
    let line = load.run(|| {
        worker.kill().unwrap();
        worker.wait().unwrap();
        journal.record_end(worker.pid(), false);
        worker = start(&journal, &group);
    });
    worker.kill().unwrap();
    worker.wait().unwrap();
    line
}

fn worker_a() {
    let group = Group::from_inherited(process::take_inherited(3).unwrap());
    let journal = Arc::new(Journal::open(process::take_inherited(4).unwrap()).unwrap());
    let (mut intake, mut batch) = journal.adopt().unwrap();
    let _ = memory::lock_all();
    loop {
        for owed in batch.drain(..) {
            owed.begin();
            owed.answer(&group, Verdict::Allow).unwrap();
        }
        if intake.read(&group, &mut batch).unwrap() == 0 {
            group.wait(Duration::from_secs(1)).unwrap();
        }
    }
}

fn variant_b(group: Group, place: &Path, load: &Load) -> String {
    let pid_file = place.join("worker.pid");
    let keeper = Spawn::own_executable()
        .argument("as-keeper-b")
        .argument(&pid_file)
        .descriptor(group.as_fd(), 3)
        .start()
        .unwrap();
    let line = load.run(|| {
        let pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        if let Some(worker) = pid.parse().ok().and_then(|pid| Child::open(pid).ok()) {
            let _ = worker.kill();
        }
    });
    // Readers have ended, so nothing is owed.
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    line
}

/// Reads events, passes them on, and writes the answers that come back. Events that a dead worker did not give back go to the next.
fn keeper_b(pid_file: &Path) {
    let group = Group::from_inherited(process::take_inherited(3).unwrap());
    let _ = memory::lock_all();
    let mut owed: HashMap<u64, (OwnedFd, [u8; MESSAGE])> = HashMap::new();
    let mut serial = 0u64;
    let mut raw = [0; 4096];
    loop {
        let (mut own, theirs) = UnixStream::pair().unwrap();
        let worker = Spawn::own_executable()
            .argument("as-worker-b")
            .descriptor(theirs.as_fd(), 3)
            .start()
            .unwrap();
        drop(theirs);
        std::fs::write(pid_file, worker.pid().to_string()).unwrap();
        let mut alive = owed.values().all(|(_, message)| own.write_all(message).is_ok());
        while alive {
            let mut polled = [
                rustix::event::PollFd::new(&own, rustix::event::PollFlags::IN),
                rustix::event::PollFd::new(&group, rustix::event::PollFlags::IN),
            ];
            rustix::event::poll(&mut polled, None).unwrap();
            let (answers, events) = (!polled[0].revents().is_empty(), !polled[1].revents().is_empty());
            if answers {
                let mut bytes = [0; 8 * 128];
                let length = own.read(&mut bytes).unwrap_or(0);
                alive = length > 0;
                for serial in bytes[..length].chunks_exact(8) {
                    let serial = u64::from_ne_bytes(serial.try_into().unwrap());
                    if let Some((descriptor, _)) = owed.remove(&serial) {
                        group.allow(std::os::fd::AsRawFd::as_raw_fd(&descriptor)).unwrap();
                    }
                }
            }
            if events {
                let length = group.read(&mut raw).unwrap();
                let mut messages = Vec::new();
                for event in Events::new(&raw[..length]) {
                    let event = event.unwrap();
                    // SAFETY is the library's: the event was just read by this process, and is taken once.
                    let Some(descriptor) = take(&event) else { continue };
                    let inode = rustix::fs::fstat(&descriptor).unwrap().st_ino;
                    let mut message = [0; MESSAGE];
                    for (place, word) in
                        message
                            .chunks_exact_mut(8)
                            .zip([serial, inode, event.offset, event.count])
                    {
                        place.copy_from_slice(&word.to_ne_bytes());
                    }
                    messages.extend_from_slice(&message);
                    owed.insert(serial, (descriptor, message));
                    serial += 1;
                }
                alive &= own.write_all(&messages).is_ok();
            }
        }
        worker.wait().unwrap();
    }
}

#[allow(
    unsafe_code,
    reason = "an event's descriptor is a number until somebody owns it"
)]
fn take(event: &xebec_kernel::fanotify::Event) -> Option<OwnedFd> {
    // SAFETY: the caller has just read the event, and takes its descriptor once.
    unsafe { event.take_descriptor() }
}

fn worker_b() {
    let mut keeper = UnixStream::from(process::take_inherited(3).unwrap());
    let _ = memory::lock_all();
    let mut bytes = [0; MESSAGE * 128];
    let mut filled = 0;
    loop {
        let length = keeper.read(&mut bytes[filled..]).unwrap_or(0);
        if length == 0 {
            return;
        }
        filled += length;
        let whole = filled / MESSAGE * MESSAGE;
        let serials: Vec<u8> = bytes[..whole]
            .chunks_exact(MESSAGE)
            .flat_map(|message| message[..8].to_vec())
            .collect();
        keeper.write_all(&serials).unwrap();
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
}
