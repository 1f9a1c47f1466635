//! The view is mounted, and the container runs, while the start-up pages come.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Fault, Options, When};

use super::interrupted_recording::{entries, mounted_below};
use super::support::{PAGE, Published, START, STRAY, Service, number, problem};
use crate::cases::succession::kill_both;
use crate::lab::{Names, expect_contents, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// So slow that a container reads before all has come: the zone has 1.6 MB.
pub(super) const SLOW: u64 = 600_000;
/// So slow that it is not there for a long time.
const VERY_SLOW: u64 = 20_000;
pub(super) const SOON: Duration = Duration::from_secs(30);

/// A service that is recorded, whose zone comes slowly. It goes on after it has read its files.
pub(super) struct Slow<'a> {
    pub(super) service: Service<'a>,
    pub(super) names: Names,
    pub(super) zone: Digest,
}

impl<'a> Slow<'a> {
    pub(super) fn new(world: &'a World, bytes_per_second: u64) -> Result<Self> {
        Self::of(Service::new(world)?, bytes_per_second)
    }

    fn of(service: Service<'a>, bytes_per_second: u64) -> Result<Self> {
        let lab = &service.lab;
        // The case looks for things that go with a view.
        lab.daemon_settings("root", "linger = \"0s\"\n")?;
        let names = lab.push_indexed(&service.image, "app")?;
        let words = [&["--probe", "log:ready"], &command(&names)[..]].concat();
        let told = service.record("recorder", &words)?;
        let zone = Published::new(lab, "app", &told)?.zone()?;
        let when = When::blob().path(&zone.to_string());
        lab.registry.inject(when, Fault::Trickle { bytes_per_second });
        Ok(Self { service, names, zone })
    }

    /// A started container, which writes its statistics once it has read its files.
    fn spawn(&self, world: &World, stats: &str) -> Result<Running> {
        let lab = &self.service.lab;
        // Not by the container's command, whose child the daemon would be.
        lab.xebec("root", &["pull", &self.names.tag])?.expect(0, &[])?;
        self.spawn_at_once(world, stats)
    }

    /// A daemon that goes on when a container ends, and knows nothing of the image.
    pub(super) fn start_daemon(&self) -> Result<()> {
        let lab = &self.service.lab;
        let other = lab.push_indexed(
            &crate::lab::image(&[&[("file", b"file")]], Compression::Gzip(1))?,
            "other",
        )?;
        lab.mount("root", &other.tag, &[]).map(drop)
    }

    /// The same as [`Self::spawn`], where the daemon runs already.
    pub(super) fn spawn_at_once(&self, world: &World, stats: &str) -> Result<Running> {
        let options = ["run", "--rm", "--probe", "log:ready", "--stats", stats];
        let mut run = world.xebec_at("root", &[&options[..], &command(&self.names)].concat());
        run.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(run.spawn()?))
    }

    fn arriving(&self) -> PathBuf {
        self.service.lab.path("root-run/arriving")
    }

    /// One whose pages come in several parts, within some 20 s.
    fn in_parts(world: &'a World) -> Result<Self> {
        let service = Service::of(world, Options::default(), [5 << 20; 2])?;
        Self::of(service, SLOW)
    }

    /// Where the view is mounted.
    fn wait_for_view(&self) -> Result<PathBuf> {
        self.wait_for_own_mount()?;
        wait_until(SOON, "a view", || Ok(view_of(&self.service, "root").is_ok()))?;
        let view = view_of(&self.service, "root")?;
        wait_until(SOON, "the view is mounted", || Ok(view.join("start").is_dir()))?;
        Ok(view)
    }

    /// Reads pages of the first part until that raises no events, which is before all have come.
    fn wait_for_the_first_part(&self, view: &Path) -> Result<()> {
        let lab = &self.service.lab;
        let events = || number(&lab.status("root")?, "/counters/events");
        let pages: Vec<usize> = (0..600).collect();
        let first = File::open(view.join(START[0].trim_start_matches('/')))?;
        let truth = self.service.file("start/a")?;
        let mut most = 0;
        wait_until(SOON, "the first part is free", || {
            let before = events()?;
            rustix::fs::fadvise(&first, 0, None, rustix::fs::Advice::DontNeed)?;
            // The first time this waits until they have come.
            for at in pages.iter().map(|page| page * PAGE) {
                let mut bytes = [0; PAGE];
                first.read_exact_at(&mut bytes, at as u64)?;
                ensure!(
                    truth.get(at..at + PAGE) == Some(&bytes[..]),
                    "wrong bytes at {at}"
                );
            }
            let raised = events()? - before;
            most = most.max(raised);
            // The container reads, too, as its pages come.
            Ok(raised < pages.len() as u64 / 2)
        })?;
        let guarded = pages.len() as u64 * 9 / 10;
        ensure!(most >= guarded, "it was free at once, so this tests nothing");
        ensure!(!is_over(view)?, "it was free only when all had come");
        Ok(())
    }

    fn wait_for_own_mount(&self) -> Result<()> {
        wait_until(SOON, "an own mount", || Ok(!entries(&self.arriving()).is_empty()))
    }

    pub(super) fn wait_for_its_end(&self) -> Result<()> {
        wait_until(SOON, "the own mount is gone", || {
            Ok(entries(&self.arriving()).is_empty() && mounted_below(&self.arriving())?.is_empty())
        })
    }
}

/// A container that is ended with the test.
pub(super) struct Running(Child);

impl Running {
    /// The first process of a process namespace, which is still being loaded perhaps, ignores what it does not handle yet. So
    /// it is asked again; the third signal kills.
    pub(super) fn end(mut self) -> Result<()> {
        while self.0.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.0), Signal::TERM)?;
            let soon = Instant::now() + Duration::from_secs(2);
            while self.0.try_wait()?.is_none() && Instant::now() < soon {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(names: &Names) -> Vec<&str> {
    [&[&names.tag[..], "60s"][..], &START[..]].concat()
}

/// A reader that reads early waits for what is on its way, and fetches nothing else; once all is there Xebec asks no registry.
pub(super) fn overlap(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, SLOW)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    let file = lab.path("stats");
    lab.registry.clear_log();
    let running = slow.spawn(world, &file.to_string_lossy())?;
    slow.wait_for_own_mount()?;
    wait_until(SOON, "it is ready", || Ok(file.exists()))?;
    let stats: Value = serde_json::from_slice(&fs::read(&file)?)?;
    let problem = problem(&stats)?;
    ensure!(problem.is_none(), "{problem:?}");
    ensure!(service.layer_requests(1)? == 0, "fetched twice: {stats:#}");
    ensure!(number(&stats, "/fills/spans")? <= STRAY, "{stats:#}");
    let early = number(&stats, "/fills/events")?;
    ensure!(
        early > STRAY,
        "nobody read early, so this tests nothing: {stats:#}"
    );

    let view = view_of(service, "root")?;
    wait_until(SOON, "all is there", || {
        let record = fs::read_to_string(view.with_extension("json"))?;
        Ok(record.contains("\"over\": true"))
    })?;
    let events = || number(&lab.status("root")?, "/counters/events");
    let before = events()?;
    for name in START {
        let truth = service.file(name.trim_start_matches('/'))?;
        expect_contents(&view.join(name.trim_start_matches('/')), truth)?;
    }
    let late = events()? - before;
    ensure!(late <= STRAY, "{late} events after all had come");
    running.end()?;
    slow.wait_for_its_end()?;
    service.expect_truth("root", &slow.names.tag)?;
    service.expect_sound("root", &slow.names.tag)?;
    Ok(Outcome::Passed(format!(
        "{early} events while they came, {late} afterwards"
    )))
}

/// A part of the pages that is there as a whole is read without events while the others are still coming.
pub(super) fn parts(world: &World) -> Result<Outcome> {
    let slow = Slow::in_parts(world)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    let running = slow.spawn(world, &lab.path("stats").to_string_lossy())?;
    let view = slow.wait_for_view()?;
    let mounts = entries(&slow.arriving()).len();
    ensure!(mounts > 1, "{mounts} parts");
    slow.wait_for_the_first_part(&view)?;
    wait_until(SOON, "all is there", || is_over(&view))?;
    for name in START.map(|name| name.trim_start_matches('/')) {
        expect_contents(&view.join(name), service.file(name)?)?;
    }
    running.end()?;
    slow.wait_for_its_end()?;
    service.expect_sound("root", &slow.names.tag)?;
    Ok(Outcome::Passed(format!(
        "the first of {mounts} parts was free before the others"
    )))
}

/// Whether no part of a view's pages is awaited any more.
fn is_over(view: &Path) -> Result<bool> {
    let record = fs::read_to_string(view.with_extension("json"))?;
    Ok(!record.contains("\"over\": false"))
}

/// Where the only view of a root is mounted.
fn view_of(service: &Service<'_>, root: &str) -> Result<PathBuf> {
    let views = service.lab.path(&format!("{root}-run/views"));
    let found = fs::read_dir(&views)?.flatten().map(|entry| entry.path());
    let mut mounted = found.filter(|path| path.is_dir());
    mounted
        .next()
        .with_context(|| format!("no view in {}", views.display()))
}

/// Pages that never come are fetched as they are read, by the ordinary path.
pub(super) fn cut_off(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let told = service.record("recorder", &[&names.tag])?;
    let zone = Published::new(lab, "app", &told)?.zone()?;
    let bytes = lab.registry.blob("app", &zone).context("no zone")?;
    // Half of it is there; then the blob is gone.
    let when = When::blob().path(&zone.to_string());
    lab.registry
        .inject(when.clone().times(1), Fault::Truncate(bytes.len() as u64 / 2));
    let gone = Fault::Status {
        code: 404,
        retry_after: None,
    };
    lab.registry.inject(when, gone);
    let stats = service.start("root", &[&names.tag])?;
    ensure!(problem(&stats)?.is_some(), "{stats:#}");
    ensure!(number(&stats, "/runtime_image/injected")? > 0, "{stats:#}");
    ensure!(number(&stats, "/fills/spans")? > 0, "{stats:#}");
    ensure!(number(&stats, "/fills/failures")? == 0, "{stats:#}");
    service.expect_truth("root", &names.tag)?;
    service.expect_sound("root", &names.tag)?;
    Ok(Outcome::Passed(format!(
        "{} pages brought, the rest by {} spans",
        number(&stats, "/runtime_image/injected")?,
        number(&stats, "/fills/spans")?
    )))
}

/// The worker dies while they come: the next one fetches what is read.
pub(super) fn worker_killed(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, VERY_SLOW)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    let file = lab.path("stats");
    let running = slow.spawn(world, &file.to_string_lossy())?;
    let view = slow.wait_for_view()?;
    std::thread::sleep(Duration::from_millis(fastrand::u64(0..500)));
    kill_process(lab.pid("root", "worker_pid")?, Signal::KILL)?;
    for name in START.map(|name| name.trim_start_matches('/')) {
        expect_contents(&view.join(name), service.file(name)?)?;
    }
    wait_until(SOON, "it is ready", || Ok(file.exists()))?;
    service.expect_truth("root", &slow.names.tag)?;
    service.expect_sound("root", &slow.names.tag)?;
    running.end()?;
    slow.wait_for_its_end()?;
    Ok(Outcome::Passed("the start went on by another worker".to_owned()))
}

/// Several containers of one image are started at once, and one of them ends early: all see the truth, by one view, and
/// nothing is left.
pub(super) fn several(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, SLOW)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    lab.registry.clear_log();
    let files: Vec<PathBuf> = (0..4)
        .map(|number| lab.path(&format!("stats-{number}")))
        .collect();
    let running = files
        .iter()
        .map(|file| slow.spawn(world, &file.to_string_lossy()));
    let mut running = running.collect::<Result<Vec<Running>>>()?;
    slow.wait_for_own_mount()?;
    running.pop().context("none")?.end()?;
    wait_until(SOON, "they are ready", || {
        Ok(files[..3].iter().all(|file| file.exists()))
    })?;
    let view = view_of(service, "root")?;
    for name in START.map(|name| name.trim_start_matches('/')) {
        expect_contents(&view.join(name), service.file(name)?)?;
    }
    ensure!(service.layer_requests(1)? == 0, "fetched twice");
    running.into_iter().try_for_each(Running::end)?;
    slow.wait_for_its_end()?;
    service.expect_sound("root", &slow.names.tag)?;
    Ok(Outcome::Passed("four at once".to_owned()))
}

/// A container ends before all has come: the rest is not fetched, the daemon may stop, and nothing is left.
pub(super) fn ends_early(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, VERY_SLOW)?;
    let lab = &slow.service.lab;
    let running = slow.spawn(world, &lab.path("stats").to_string_lossy())?;
    slow.wait_for_own_mount()?;
    running.end()?;
    slow.wait_for_its_end()?;
    wait_until(SOON, "the daemon may stop", || {
        Ok(lab.xebec("root", &["daemon", "stop"])?.code == 0)
    })?;
    Ok(Outcome::Passed("stopped with the container".to_owned()))
}

/// Keeper and worker die at the same moment while pages come. Pages that the old view had not read yet are right afterwards.
pub(super) fn both_killed(world: &World) -> Result<Outcome> {
    both_killed_when(world, &Slow::new(world, VERY_SLOW)?, |_| Ok(()))
}

/// The same when the first part of the pages is free, and others are not there.
pub(super) fn both_killed_between_parts(world: &World) -> Result<Outcome> {
    let slow = Slow::in_parts(world)?;
    both_killed_when(world, &slow, |view| slow.wait_for_the_first_part(view))
}

fn both_killed_when(
    world: &World,
    slow: &Slow<'_>,
    is_time: impl FnOnce(&Path) -> Result<()>,
) -> Result<Outcome> {
    let (service, lab) = (&slow.service, &slow.service.lab);
    let truth = service.file("start/b")?;
    let running = slow.spawn(world, &lab.path("stats").to_string_lossy())?;
    let view = slow.wait_for_view()?;
    is_time(&view)?;
    let file = File::open(view.join("start/b"))?;
    // Its supervisor would start another daemon as soon as the container fails.
    let supervisor = Pid::from_child(&running.0);
    kill_process(supervisor, Signal::STOP)?;
    kill_both(lab, "root")?;
    let mut bytes = [0; PAGE];
    let pages = truth.len() / PAGE;
    file.read_exact_at(&mut bytes, ((pages - 1) * PAGE) as u64)?;
    ensure!(
        bytes == [0; PAGE],
        "it was there already, so this test tests nothing"
    );
    // The command that starts the next daemon brings nothing in.
    lab.registry.clear_faults();
    lab.xebec("root", &["pull", &slow.names.tag])?.expect(0, &[])?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    for number in 0..pages {
        file.read_exact_at(&mut bytes, (number * PAGE) as u64)?;
        let wanted = truth.get(number * PAGE..(number + 1) * PAGE);
        ensure!(
            Some(&bytes[..]) == wanted,
            "page {number} is wrong: not guarded again"
        );
    }
    lab.logged("root", &["may have given zeros", &slow.names.tag])?;
    drop(file);
    kill_process(supervisor, Signal::CONT)?;
    running.end()?;
    service.expect_truth("root", &slow.names.tag)?;
    Ok(Outcome::Passed(format!("{pages} pages right afterwards")))
}
