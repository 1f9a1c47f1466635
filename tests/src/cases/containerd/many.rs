//! Many containers of several lazy images at once, killed and started again, the daemon killed meanwhile: counted are
//! errors, wrong bytes, and what is left.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::pull;
use super::support::SOON;
use crate::containerd::{Containerd, Leftovers, Line, Snapshots};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

const IMAGES: usize = 10;
const CONTAINERS: usize = 50;
/// Containers that are started, or killed and started again, at a time.
const AT_ONCE: usize = 5;
/// Size of a page, in bytes.
const PAGE: usize = 4096;
/// Pages of the file that is an image's own.
const PAGES: usize = 1024;
/// Those that containers read all the time. The rest stays away, so that every one of these reads needs the daemon.
const READ: &str = "512";
/// How long a container pauses between two reads.
const PAUSE: &str = "100ms";
/// Nothing stays for the next start: that would not be told from what is left.
const SETTINGS: &str = "linger = \"0s\"\n";

/// Words in containerd's message about a snapshotter that is not there, or went away while it answered.
const AWAY: &[&str] = &["navailable", "connection", "transport", "reading from server"];

/// A containerd with the images, and what went wrong.
struct Crowd<'a> {
    containerd: &'a Containerd<'a>,
    images: Vec<String>,
    /// Commands that failed because the daemon was killed, and were given again, as a kubelet does.
    repeated: AtomicUsize,
}

/// Starts all, kills and starts again all while the daemon is killed, and removes all.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start_as_service(world, SETTINGS)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let before = Leftovers::now(world, &snapshots)?;
    let program = fs::read(World::go_tool("reread")?)?;
    let images = (0..IMAGES)
        .map(|number| push(world, &program, number))
        .collect::<Result<Vec<_>>>()?;
    for reference in &images {
        pull(world, &containerd, Line::Two, reference)?;
    }
    let crowd = Crowd {
        containerd: &containerd,
        images,
        repeated: AtomicUsize::new(0),
    };
    // In the middle of each round: the worker, then keeper and worker together. Nobody but the service manager is left.
    at_once(|number| {
        if number == CONTAINERS / 2 {
            snapshots.kill("worker_pid")?;
        }
        crowd.start(number)
    })?;
    at_once(|number| {
        if number == CONTAINERS / 2 {
            crowd.read_through(&snapshots)?;
        }
        crowd.restart(number)
    })?;
    let reads = AtomicUsize::new(0);
    at_once(|number| {
        reads.fetch_add(crowd.end(number)?, Ordering::Relaxed);
        Ok(())
    })?;
    for reference in &crowd.images {
        containerd.does(&["images", "rm", "--sync", reference])?;
    }
    containerd.collect()?;
    snapshots.has_only(&[])?;
    let mut left = String::new();
    let is_none = || {
        left = Leftovers::now(world, &snapshots)?.beyond(&before);
        Ok(left.is_empty())
    };
    let waited = wait_until(SOON, "nothing is left", is_none);
    waited.with_context(|| format!("left: {left}"))?;
    let repeated = crowd.repeated.into_inner();
    ensure!(
        repeated <= 2 * AT_ONCE,
        "{repeated} commands failed, of {AT_ONCE} that were under way at each of two kills"
    );
    Ok(Outcome::Passed(format!(
        "{CONTAINERS} containers of {IMAGES} images, each killed and started again, {} pages read meanwhile; {repeated} \
         commands repeated because the daemon was killed",
        reads.into_inner()
    )))
}

impl Crowd<'_> {
    fn start(&self, number: usize) -> Result<()> {
        let reference = self.images.get(number % IMAGES).context("no such image")?;
        let name = name(number);
        let start = ["run", "--detach", "--net-host", reference, &name];
        if !self.is_started(&start)? {
            for rest in ["containers", "snapshots"] {
                let _ = self.containerd.ctr(&[rest, "rm", &name])?.output()?;
            }
            self.containerd.does(&start)?;
        }
        self.is_right(number)
    }

    /// Whether it worked; it may fail because the daemon was not there, and for no other reason.
    fn is_started(&self, start: &[&str]) -> Result<bool> {
        let output = self.containerd.ctr(start)?.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_away = AWAY.iter().any(|words| said.contains(words));
            ensure!(is_away, "{start:?}: {said}");
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
        Ok(output.status.success())
    }

    /// Kills the process and starts it again on the same snapshot.
    fn restart(&self, number: usize) -> Result<()> {
        self.is_right(number)?;
        self.containerd.end(&name(number))?;
        let start = ["tasks", "start", "--detach", &name(number)];
        if !self.is_started(&start)? {
            self.containerd.does(&start)?;
        }
        self.is_right(number)
    }

    /// Kills the daemon and starts it again while what is missing of each image is read.
    fn read_through(&self, snapshots: &Snapshots<'_>) -> Result<()> {
        snapshots.kill_whole()?;
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..IMAGES)
                .map(|number| scope.spawn(move || self.is_whole(number)))
                .collect();
            // Long enough for all to come to what is missing.
            std::thread::sleep(Duration::from_millis(200));
            let begun = snapshots.begin();
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().map_err(|_| anyhow!("a thread died"))?)
                .and(begun)
        })
    }

    /// The whole file is right.
    fn is_whole(&self, number: usize) -> Result<()> {
        let bytes = fs::read(self.containerd.root_of(&name(number)).join("file"))?;
        ensure!(
            bytes == file(number % IMAGES),
            "container {number} reads wrong bytes"
        );
        Ok(())
    }

    /// It reads, and nothing was wrong.
    fn is_right(&self, number: usize) -> Result<()> {
        let root = self.containerd.root_of(&name(number));
        let count = || fs::read(root.join("reads")).unwrap_or_default();
        let before = count();
        wait_until(SOON, "it reads", || {
            let wrong = fs::read_to_string(root.join("wrong")).unwrap_or_default();
            ensure!(wrong.is_empty(), "{wrong}");
            Ok(count() != before)
        })
    }

    /// Compares the whole file, kills the process, and forgets the container; gives the number of pages that it had read.
    fn end(&self, number: usize) -> Result<usize> {
        self.is_right(number)?;
        let root = self.containerd.root_of(&name(number));
        ensure!(
            fs::read(root.join("file"))? == file(number % IMAGES),
            "wrong bytes"
        );
        let reads = fs::read(root.join("reads"))?;
        let reads = u64::from_le_bytes(reads.try_into().map_err(|_| anyhow!("no count"))?);
        self.containerd.end(&name(number))?;
        self.containerd.does(&["containers", "rm", &name(number)])?;
        Ok(usize::try_from(reads)?)
    }
}

fn name(number: usize) -> String {
    format!("c{number}")
}

/// Does something for each container, [`AT_ONCE`] at a time, and gives the first failure.
fn at_once(act: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= CONTAINERS {
                return Ok(());
            }
            act(number).with_context(|| format!("container {number}"))?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread died"))?)
    })
}

/// The seed of an image's own file.
fn seed(number: usize) -> u64 {
    500 + number as u64
}

/// The contents of an image's own file: words that the program in it can compute, too.
pub(super) fn file(number: usize) -> Vec<u8> {
    let words = (0..(PAGES * PAGE / 8) as u64).map(|place| {
        // splitmix64; tests/gotools/reread has the same.
        let z = seed(number).wrapping_add((place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// An image of two layers, the program that reads and its own file, with indexes.
pub(super) fn push(world: &World, program: &[u8], number: usize) -> Result<String> {
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("reread", Kind::File).mode(0o755), program);
    let mut upper = TarBuilder::new();
    upper.file("file", file(number));
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .layer(&upper.into_bytes(), Compression::Gzip(1))?
        .config(
            "Entrypoint",
            json!(["/reread", seed(number).to_string(), "/file", READ, PAUSE]),
        )
        .build();
    let layout = world.path(&format!("image{number}"));
    image.write_layout(&layout, "latest")?;
    let reference = world.push(&layout, &format!("image{number}"))?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    Ok(reference)
}
