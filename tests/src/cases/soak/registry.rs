//! A registry that fails in every way, mixed at random: each byte that is read is right, or an error that a retry
//! heals.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use xebec_format::digest::Digest;
use xebec_testkit::large::{Large, LargeFile};
use xebec_testkit::registry::{Access, Fault, Options, When};

use super::support::{push_large, sized, tell_log};
use crate::lab::{Lab, is_eio, read_cold};
use crate::runner::Outcome;
use crate::world::World;

/// Readers at a time.
const READERS: usize = 16;
/// How long one mixture of faults lasts, in milliseconds.
const MIXTURE: std::ops::Range<u64> = 50..600;
/// Longest that a registry is down, in milliseconds: more than a read waits for by the settings of these tests, so
/// that some readers get their error.
const DOWN: std::ops::Range<u64> = 200..8_000;
/// Longest reading of a file under faults: a file has many events, each of which may take its time.
const STUCK: Duration = Duration::from_secs(180);

/// The counts of reads that gave right bytes, and of errors.
#[derive(Debug, Default)]
struct Seen {
    right: AtomicU64,
    errors: AtomicU64,
}

pub(super) fn run(world: &World) -> Result<Outcome> {
    let length = Duration::from_secs(sized(8, 300));
    let large = Large {
        layers: 4,
        files: sized(800, 2_000),
        bytes: sized(120_000_000, 400_000_000),
        seed: 3,
    };
    let options = Options {
        access: Access::anonymous_tokens(Duration::from_secs(60)),
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let names = push_large(&lab, &large)?;
    let files: Vec<(LargeFile, Digest)> = large
        .files()
        .into_iter()
        .map(|file| (Digest::of(&file.contents()), file))
        .map(|(digest, file)| (file, digest))
        .collect();
    let (seen, begin) = (Seen::default(), Instant::now());
    let (mut rounds, mut faults, mut requests, mut answers) = (0, 0, 0, [0; 6]);
    while begin.elapsed() < length {
        rounds += 1;
        let root = format!("root{rounds}");
        // So short that some readers get their error.
        fs::create_dir_all(lab.path(&root))?;
        fs::write(lab.path(&root).join("daemon.toml"), "fill_wait = \"2s\"\n")?;
        let mnt = lab.mount(&root, &names.tag, &["--require-lazy"])?;
        lab.registry.clear_log();
        let stop = AtomicBool::new(false);
        let walked: Result<()> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| scope.spawn(|| walk(&mnt, &files, begin + length, &seen)))
                .collect();
            let fiend = scope.spawn(|| misbehave(&lab, &stop));
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            stop.store(true, Ordering::Relaxed);
            faults += fiend.join().map_err(|_| anyhow!("the fiend died"))?;
            results
                .into_iter()
                .try_for_each(|result| result.map_err(|_| anyhow!("a reader died"))?)
        });
        walked.inspect_err(|_| tell_log(&lab, &root))?;
        // Now all is well again, and so is every file.
        lab.registry.set_down(false);
        lab.registry.clear_faults();
        for (file, digest) in &files {
            let bytes = read_cold(&mnt.join(&file.path)).with_context(|| format!("heal {}", file.path));
            let bytes = bytes.inspect_err(|_| tell_log(&lab, &root))?;
            ensure!(Digest::of(&bytes) == *digest, "{} is wrong at the end", file.path);
        }
        let checked = lab.check(&root, &names.tag)?;
        ensure!(checked.wrong == 0, "{checked:?}");
        for request in lab.registry.log() {
            requests += 1;
            if let Some(count) = answers.get_mut(usize::from(request.status / 100)) {
                *count += 1;
            }
        }
        lab.umount(&root, &mnt)?;
        lab.stop(&root)?;
        fs::remove_dir_all(lab.path(&root))?;
    }
    let (right, errors) = (
        seen.right.load(Ordering::Relaxed),
        seen.errors.load(Ordering::Relaxed),
    );
    ensure!(faults > 0 && right > 0, "nothing was tried");
    let [none, _, good, _, refused, broken] = answers;
    Ok(Outcome::Passed(format!(
        "{faults} mixtures of faults in {:.0} s and {rounds} rounds; {requests} requests, of which {none} had no answer, \
         {good} status 2xx, {refused} 4xx, {broken} 5xx; {READERS} readers: {right} files right, {errors} times EIO, \
         0 wrong; afterwards every file right",
        begin.elapsed().as_secs_f64()
    )))
}

/// Reads every file once, in an order of its own, until it is late.
fn walk(mnt: &Path, files: &[(LargeFile, Digest)], end: Instant, seen: &Seen) -> Result<()> {
    let mut order: Vec<&(LargeFile, Digest)> = files.iter().collect();
    fastrand::shuffle(&mut order);
    for (file, digest) in order {
        if Instant::now() > end {
            return Ok(());
        }
        let begin = Instant::now();
        let read = read_cold(&mnt.join(&file.path));
        ensure!(
            begin.elapsed() < STUCK,
            "{} took {:?}",
            file.path,
            begin.elapsed()
        );
        if is_eio(&read)? {
            seen.errors.fetch_add(1, Ordering::Relaxed);
        } else {
            ensure!(Digest::of(&read?) == *digest, "{} has wrong bytes", file.path);
            seen.right.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Changes what goes wrong again and again; gives how often.
fn misbehave(lab: &Lab<'_>, stop: &AtomicBool) -> u64 {
    let mut mixtures = 0;
    while !stop.load(Ordering::Relaxed) {
        mixtures += 1;
        // About as many requests go well as go wrong, or nothing would come in.
        if fastrand::bool() {
            lab.registry.clear_faults();
        }
        let is_down = fastrand::u8(..40) == 0;
        lab.registry.set_down(is_down);
        for _ in 0..fastrand::u8(..4) {
            let when = When::blob().skip(fastrand::u64(..6));
            lab.registry.inject(when.times(fastrand::u64(1..4)), fault());
        }
        if fastrand::u8(..4) == 0 {
            // The connection is reset at every n-th request.
            let every = fastrand::u64(2..6);
            for number in 1..10 {
                let when = When::any().method("GET").skip(every * number).times(1);
                lab.registry.inject(when, Fault::Reset(fastrand::u64(..5_000)));
            }
        }
        let time = fastrand::u64(if is_down { DOWN } else { MIXTURE });
        let until = Instant::now() + Duration::from_millis(time);
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    mixtures
}

fn fault() -> Fault {
    let status = |code, retry_after: Option<&str>| Fault::Status {
        code,
        retry_after: retry_after.map(str::to_owned),
    };
    let some = fastrand::u64(..100_000);
    match fastrand::u8(..17) {
        0 => Fault::Delay(Duration::from_millis(fastrand::u64(..1_500))),
        1 => Fault::Trickle {
            bytes_per_second: fastrand::u64(1_000..200_000),
        },
        2 => Fault::Truncate(some),
        3 | 4 => Fault::WrongBytes,
        5 | 6 => Fault::ExpireTokens,
        7 => status(429, Some("1")),
        8 => status(429, None),
        9 => status(500, None),
        10 => status(503, Some("1")),
        11 => Fault::IgnoreRange,
        12 => Fault::Reset(some),
        13 => Fault::ShortRange(some.max(1)),
        14 => Fault::Hang,
        15 => Fault::WrongContentRange,
        _ => Fault::Html,
    }
}
