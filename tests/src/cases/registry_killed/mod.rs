//! `xebec-registry serve` is killed at random, again and again, while clients push, pull, move and delete, and while garbage is
//! collected by a command that is killed, too. Nothing that was acknowledged is lost, no byte is wrong, and in the end there are as many
//! objects as there are blobs in images, and none when all images are deleted.
//!
//! Ordinary runs kill it some twenty times in all; `make soak-registry` a thousand times over each engine (`XEBEC_REGISTRY_KILLS`). In
//! a case of its own the power goes as well.

mod client;
mod image;
mod model;
mod power;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

use client::{GRACE, UPLOAD_LASTS, Worker};
use model::{Counts, Fact, Model, Place};
use power::Disk;

use super::registry::missing;
use crate::engines::Engines;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::World;

const KILLS: &str = "XEBEC_REGISTRY_KILLS";
/// Kills where nothing is told: of one node with engines of its own, of two that share theirs, and of one by the power.
const FEW: [u32; 3] = [12, 8, 6];
const WORKERS: u64 = 4;
/// So long clients may take, after the last kill, until they have done enough.
const LONGEST: Duration = Duration::from_secs(60);
/// So long before its grace ends a blob is not asked for any more: the answer may take a while.
const MARGIN: Duration = Duration::from_millis(300);
/// Milliseconds between a start and the next kill, of two kinds: while it begins to serve, and while it serves.
const EARLY: std::ops::Range<u64> = 0..60;
const LATER: std::ops::Range<u64> = 50..900;
/// Images that are looked at after each start.
const SAMPLE: usize = 5;
/// How long collections may take until all garbage is gone: the grace twice, and what an upload may rest.
const UNTIL_COLLECTED: Duration = Duration::from_secs(90);

/// If no blob is taken apart in this time, none is due.
const TAKING_APART: Duration = Duration::from_secs(3);

pub(crate) fn cases() -> Vec<Case> {
    let limit = match std::env::var_os(KILLS) {
        Some(_) => Duration::from_secs(4 * 3600),
        None => Duration::from_secs(240),
    };
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry/{name}"),
        limit,
        run: Box::new(run),
    };
    vec![
        case("killed", killed),
        case("killed-deduplicating", killed_deduplicating),
        case(
            "killed-deduplicating-postgresql-and-s3",
            killed_deduplicating_over_others,
        ),
        case("power-cut-deduplicating", cut_deduplicating),
        case("killed-postgresql-and-s3", killed_over_others),
        case("power-cut", cut),
    ]
}

fn kills(usual: u32) -> Result<u32> {
    let told = std::env::var(KILLS).ok().map(|text| text.parse());
    told.unwrap_or(Ok(usual)).context("a number of kills")
}

/// One node, with SQLite and a directory.
fn killed(world: &World) -> Result<Outcome> {
    killed_alone(world, Keeping::Blobs)
}

/// The same, while each file is kept once.
fn killed_deduplicating(world: &World) -> Result<Outcome> {
    killed_alone(world, Keeping::Files)
}

fn killed_alone(world: &World, keeping: Keeping) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let objects = vec![world.path("node0/data/objects")];
    let (soak, kills) = (Soak::new(world, 1, keeping, None, objects), kills(FEW[0])?);
    soak.run(kills, |nodes, addresses| {
        soak.kill_again_and_again(nodes, addresses, kills)
    })
}

/// One node, with SQLite and a directory, whose disk loses its power.
fn cut(world: &World) -> Result<Outcome> {
    cut_keeping(world, Keeping::Blobs)
}

/// The same, while each file is kept once.
fn cut_deduplicating(world: &World) -> Result<Outcome> {
    cut_keeping(world, Keeping::Files)
}

fn cut_keeping(world: &World, keeping: Keeping) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let disk = Disk::new(world.path("node0/data"))?;
    let objects = vec![world.path("node0/data/objects")];
    let (soak, cuts) = (Soak::new(world, 1, keeping, None, objects), kills(FEW[2])?);
    soak.run(cuts, |nodes, addresses| {
        for cut in 0..cuts {
            let done = soak.cut(&disk, nodes, addresses);
            done.with_context(|| format!("cut {cut}"))?;
        }
        Ok(())
    })
}

/// Two nodes, of which one is killed each time, with PostgreSQL and S3.
fn killed_over_others(world: &World) -> Result<Outcome> {
    killed_over(world, Keeping::Blobs)
}

/// The same, while each file is kept once.
fn killed_deduplicating_over_others(world: &World) -> Result<Outcome> {
    killed_over(world, Keeping::Files)
}

fn killed_over(world: &World, keeping: Keeping) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let Some(engines) = Engines::start(world)? else {
        let reason = "PostgreSQL or versitygw is not installed (make setup-test)";
        return Ok(Outcome::Skipped(reason.to_owned()));
    };
    let objects = vec![engines.bucket.clone()];
    let (soak, kills) = (
        Soak::new(world, 2, keeping, Some(engines), objects),
        kills(FEW[1])?,
    );
    soak.run(kills, |nodes, addresses| {
        soak.kill_again_and_again(nodes, addresses, kills)
    })
}

/// How blobs are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// As they were pushed.
    Blobs,
    /// Each file once: blobs are taken apart.
    Files,
}

struct Soak<'a> {
    world: &'a World,
    keeping: Keeping,
    names: Vec<String>,
    configuration: String,
    environment: Vec<(String, String)>,
    /// Where the files of objects are.
    objects: Vec<PathBuf>,
    model: Model,
    /// Held while a collection runs, and while the disk is away.
    disk: Mutex<()>,
    _engines: Option<Engines>,
}

impl<'a> Soak<'a> {
    fn new(
        world: &'a World,
        nodes: usize,
        keeping: Keeping,
        engines: Option<Engines>,
        objects: Vec<PathBuf>,
    ) -> Self {
        let more = engines.as_ref().map_or("", |engines| &engines.configuration);
        let configuration = format!(
            "[storage]\nreserve = \"1m\"\ngrace = \"{}s\"\nupload_timeout = \"{}s\"\n{more}[collection]\nevery = \"1s\"\n[indexing]\nenabled = false\n\
             [deduplication]\nenabled = {}\nleast_size = \"1\"\nlevel = 1\n",
            GRACE.as_secs(),
            2 * UPLOAD_LASTS.as_secs(),
            keeping == Keeping::Files,
        );
        let environment = engines.as_ref().map(|engines| engines.environment.clone());
        Self {
            world,
            keeping,
            names: (0..nodes).map(|number| format!("node{number}")).collect(),
            configuration,
            environment: environment.unwrap_or_default(),
            objects,
            model: Model::default(),
            disk: Mutex::default(),
            _engines: engines,
        }
    }

    /// Starts a node, at a port of its own that it keeps.
    fn spawn(&self, node: usize, port: u16) -> Result<OwnRegistry> {
        let (name, configuration) = (&self.names[node], &self.configuration);
        OwnRegistry::spawn(self.world, name, configuration, port, &self.environment)
    }

    fn start(&self, node: usize, port: u16) -> Result<OwnRegistry> {
        let mut registry = self.spawn(node, port)?;
        registry.wait()?;
        Ok(registry)
    }

    /// Has clients and collections work while something happens so often that kills the nodes, and judges.
    fn run(
        &self,
        kills: u32,
        happen: impl FnOnce(&mut [OwnRegistry], &[String]) -> Result<()>,
    ) -> Result<Outcome> {
        let begun = Instant::now();
        let mut nodes = Vec::new();
        for node in 0..self.names.len() {
            nodes.push(self.start(node, 0)?);
        }
        let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 1..=WORKERS {
                let (addresses, stop) = (&addresses, &stop);
                scope.spawn(move || Worker::new(number, &self.model, addresses).work(stop));
            }
            let collecting = scope.spawn(|| self.collect_until(&stop));
            let killed = happen(&mut nodes, &addresses);
            // Beside other cases, clients may come to little between two kills.
            let begun = Instant::now();
            while killed.is_ok() && !self.is_enough(kills) && begun.elapsed() < LONGEST {
                std::thread::sleep(Duration::from_millis(100));
            }
            stop.store(true, Ordering::Relaxed);
            let collected = collecting.join();
            killed?;
            collected.map_err(|_| anyhow::anyhow!("the collector died"))?
        })?;
        let garbage = self.judge(&addresses);
        let counts = self.model.counts();
        let said = self.model.said().join("\n");
        let garbage = garbage.with_context(|| format!("{counts:?}\n{said}"))?;
        ensure!(
            counts.lost == 0 && counts.wrong == 0 && counts.odd == 0,
            "{counts:?}\n{said}\n{}",
            nodes.iter().map(warnings).collect::<String>()
        );
        ensure!(self.is_enough(kills), "{counts:?}: hardly anything was tried");
        Ok(Outcome::Passed(told(kills, &counts, garbage, begun.elapsed())))
    }

    /// Whether clients and collections have done enough for the kills to show something.
    fn is_enough(&self, kills: u32) -> bool {
        let counts = self.model.counts();
        counts.manifests >= u64::from(kills) && counts.collections > 0
    }

    fn kill_again_and_again(
        &self,
        nodes: &mut [OwnRegistry],
        addresses: &[String],
        kills: u32,
    ) -> Result<()> {
        let mut done = 0;
        while done < kills {
            let node = fastrand::usize(..nodes.len());
            let port = addresses[node].rsplit(':').next().unwrap_or_default().parse()?;
            std::thread::sleep(Duration::from_millis(fastrand::u64(LATER)));
            nodes[node].kill()?;
            done += 1;
            // Now and then once more before it serves again.
            while done < kills && fastrand::u8(..4) == 0 {
                let mut early = self.spawn(node, port)?;
                std::thread::sleep(Duration::from_millis(fastrand::u64(EARLY)));
                early.kill()?;
                done += 1;
            }
            nodes[node] = self.start(node, port)?;
            // Connections from before the kill are broken.
            self.look(&mut Worker::new(0, &self.model, addresses))?;
        }
        Ok(())
    }

    /// The power goes; the node, the only one, is killed, and comes back on what is on the disk.
    fn cut(&self, disk: &Disk, nodes: &mut [OwnRegistry], addresses: &[String]) -> Result<()> {
        let (node, address) = nodes.first_mut().zip(addresses.first()).context("no node")?;
        let port = address.rsplit(':').next().unwrap_or_default().parse()?;
        std::thread::sleep(Duration::from_millis(fastrand::u64(LATER)));
        self.model.power(false);
        disk.cut()?;
        node.kill()?;
        {
            let _no_collection = self.disk.lock();
            disk.mount_again()?;
        }
        *node = self.start(0, port)?;
        self.model.power(true);
        self.look(&mut Worker::new(0, &self.model, addresses))
    }

    /// After a start: blobs that were acknowledged a moment ago are there, and some images.
    fn look(&self, worker: &mut Worker<'_>) -> Result<()> {
        let since = Instant::now()
            .checked_sub(GRACE - MARGIN)
            .context("no such time")?;
        for (place, sent) in self.model.fresh(since) {
            worker.check_blob(place, &image::blob(place.1), || {
                sent.elapsed() < GRACE - MARGIN / 2
            })?;
        }
        let is = |(place, fact): (Place, Fact)| (fact == Fact::Is).then_some(place);
        let images: Vec<Place> = self.model.manifests().into_iter().filter_map(is).collect();
        for place in fastrand::choose_multiple(images, SAMPLE) {
            worker.check(place, &image::image(place.1))?;
        }
        Ok(())
    }

    /// A command over what the first node keeps.
    fn command(&self, name: &str) -> Result<Command> {
        let directory = self.world.path(&self.names[0]);
        let mut command = Command::new(OwnRegistry::program().context("xebec-registry is not built")?);
        command
            .arg(name)
            .arg("--config")
            .arg(directory.join("registry.toml"))
            .arg("--root")
            .arg(directory.join("data"))
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        Ok(command)
    }

    fn gc(&self) -> Result<Child> {
        self.command("gc")?
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.world.path("gc.log"))?)
            .spawn()
            .context("cannot start xebec-registry gc")
    }

    /// Collects again and again; each third collection is killed.
    fn collect_until(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let disk = self.disk.lock();
            let mut collector = self.gc()?;
            if fastrand::u8(..3) == 0 {
                std::thread::sleep(Duration::from_millis(fastrand::u64(..150)));
                collector.kill()?;
            }
            if collector.wait()?.success() {
                self.model.count(|counts| counts.collections += 1);
            }
            drop(disk);
            std::thread::sleep(Duration::from_millis(fastrand::u64(..500)));
        }
        Ok(())
    }

    /// At the end: every image that was acknowledged is there whole, and nothing but what images have; and when all are deleted, nothing.
    /// Returns how many objects there were, and how many were left.
    fn judge(&self, addresses: &[String]) -> Result<(usize, usize)> {
        let mut worker = Worker::new(0, &self.model, addresses);
        let mut wanted = BTreeSet::new();
        let manifests = self.model.manifests();
        for (place, fact) in &manifests {
            let image = image::image(place.1);
            let is_there = worker.has(*place, &image)?;
            match (fact, is_there) {
                (Fact::IsNot, true) => {
                    let what = format!("image {place:?} was deleted, and is there again");
                    self.model.fault(what, |counts| &mut counts.wrong);
                }
                (Fact::MayBe, true) => worker.check(*place, &image)?,
                (Fact::Is, _) => worker.check(*place, &image)?,
                (_, false) => {}
            }
            if is_there {
                wanted.extend(image.blobs.iter().map(|blob| blob.digest));
            }
        }
        self.collect_down_to(wanted.len())?;
        for (place, _) in &manifests {
            worker.remove(*place, &image::image(place.1))?;
        }
        let left = self.collect_down_to(0)?;
        Ok((wanted.len(), left))
    }

    /// Collects until there are so many objects and no more.
    fn collect_down_to(&self, wanted: usize) -> Result<usize> {
        let deadline = Instant::now() + UNTIL_COLLECTED;
        loop {
            ensure!(self.gc()?.wait()?.success(), "gc failed: {}", self.gc_log());
            let found: usize = self.objects.iter().map(|directory| files(directory)).sum();
            ensure!(
                self.keeping == Keeping::Files || found >= wanted,
                "{found} objects, and images have {wanted} blobs"
            );
            if found == wanted {
                return Ok(found);
            }
            // Packs and recipes are as many as they are, while there are images.
            if self.keeping == Keeping::Files && wanted > 0 && self.is_taken_apart()? {
                return Ok(found);
            }
            ensure!(
                Instant::now() < deadline,
                "{found} objects, {wanted} blobs in images: garbage that no collection takes"
            );
            std::thread::sleep(GRACE / 4);
        }
    }

    /// Whether blobs were taken apart, and no more are. Some may wait for longer than a test: those that a process had taken that was killed,
    /// and those that no repository had for a moment.
    fn is_taken_apart(&self) -> Result<bool> {
        let look = || {
            let space = self.command("space")?.arg("--json").output()?;
            serde_json::from_slice(&space.stdout).context("the output of space --json")
        };
        let before: serde_json::Value = look()?;
        std::thread::sleep(TAKING_APART);
        let after = look()?;
        let figure = |name: &str| after[name].as_u64().with_context(|| format!("{name} in {after}"));
        ensure!(
            figure("waiting")? > 0 || figure("recipes")? > 0,
            "nothing was taken apart: {after}"
        );
        Ok(before == after && figure("recipes")? > figure("waiting")?)
    }

    fn gc_log(&self) -> String {
        fs::read_to_string(self.world.path("gc.log")).unwrap_or_default()
    }
}

fn told(kills: u32, counts: &Counts, (objects, left): (usize, usize), took: Duration) -> String {
    format!(
        "{kills} kills in {} s: {} blobs and {} manifests acknowledged, {} deletions, {} uploads resumed, {} collections, {} images \
         pulled whole; {} lost, {} wrong; {objects} objects for as many blobs in images, {left} when all were deleted",
        took.as_secs(),
        counts.blobs,
        counts.manifests,
        counts.deleted,
        counts.resumed,
        counts.collections,
        counts.pulled,
        counts.lost,
        counts.wrong,
    )
}

/// The warnings of a node since its last start.
fn warnings(node: &OwnRegistry) -> String {
    let log = node.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The files below a directory, with what an S3 server has of uploads that are not finished; without the lock of a store.
fn files(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let entries = entries.flatten().filter(|entry| entry.file_name() != ".lock");
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => files(&entry.path()),
        false => 1,
    });
    counts.sum()
}
