//! The report of a start: what its recording was good for, and what it lacked.

use std::os::unix::fs::symlink;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::registry::Options;

use super::support::{PAGE, STRAY, Service, number};
use crate::lab::{Names, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// A service whose command line says nothing of which file it reads: that is a link in a directory of the host.
pub(super) struct Choosing<'a> {
    pub(super) service: Service<'a>,
    pub(super) names: Names,
    volume: String,
}

impl<'a> Choosing<'a> {
    pub(super) fn new(world: &'a World) -> Result<Self> {
        Self::with(Service::new(world)?)
    }

    /// With so many bytes in the files that can be chosen.
    pub(super) fn of(world: &'a World, sizes: [usize; 2]) -> Result<Self> {
        Self::with(Service::of(world, Options::default(), sizes)?)
    }

    fn with(service: Service<'a>) -> Result<Self> {
        let names = service.lab.push_indexed(&service.image, "app")?;
        let directory = service.lab.path("choice");
        std::fs::create_dir_all(&directory)?;
        let volume = format!("{}:/choice:ro", directory.to_string_lossy());
        Ok(Self {
            service,
            names,
            volume,
        })
    }

    /// Starts from now on read this file of the image.
    pub(super) fn choose(&self, file: &str) -> Result<()> {
        let link = self.service.lab.path("choice").join("file");
        let _ = std::fs::remove_file(&link);
        symlink(file, link).context("choose a file")
    }

    /// The words of a command that starts it: until it is ready, with more options.
    pub(super) fn words<'b>(&'b self, options: &[&'b str]) -> Vec<&'b str> {
        self.words_until("log:^ready$", options)
    }

    fn words_until<'b>(&'b self, probe: &'b str, options: &[&'b str]) -> Vec<&'b str> {
        let probe = ["--volume", &self.volume, "--probe", probe];
        [&probe, options, &[&self.names.tag, "60s", "/choice/file"]].concat()
    }

    pub(super) fn record(&self, root: &str) -> Result<Value> {
        self.service.record(root, &self.words(&[]))
    }

    /// A start to readiness, and the report of it.
    pub(super) fn start(&self, root: &str, options: &[&str]) -> Result<Value> {
        let options = [&["--exit-on-ready"], options].concat();
        self.service.start(root, &self.words(&options))?;
        explained(&self.service, root, &[])
    }

    /// A start that goes on.
    fn spawn(&self, root: &str, name: &str, probe: &str) -> Result<Child> {
        self.spawn_with(root, name, probe, &[])
    }

    /// One with more options.
    pub(super) fn spawn_with(&self, root: &str, name: &str, probe: &str, options: &[&str]) -> Result<Child> {
        let options = [&["--name", name], options].concat();
        let words = [&["run", "--rm"][..], &self.words_until(probe, &options)].concat();
        self.service.lab.spawn(root, &words)
    }
}

/// `xebec explain --start --json`.
pub(super) fn explained(service: &Service<'_>, root: &str, words: &[&str]) -> Result<Value> {
    let words = [&["explain", "--start", "--json"], words].concat();
    let ended = service.lab.xebec(root, &words)?;
    ended.expect(0, &[])?;
    serde_json::from_str(&ended.out).with_context(|| format!("{ended:?}"))
}

/// Pages of a file.
pub(super) fn pages(service: &Service<'_>, file: &str) -> Result<u64> {
    Ok(service.file(file)?.len().div_ceil(PAGE) as u64)
}

/// Asks that two numbers are the same but for what threads of a program read or do not.
pub(super) fn expect_about(value: &Value, pointer: &str, wanted: u64) -> Result<()> {
    let found = number(value, pointer)?;
    ensure!(
        found.abs_diff(wanted) <= STRAY,
        "{pointer} {found}, not {wanted}: {value:#}"
    );
    Ok(())
}

/// A recording of another path of the same program: what it lacks is named, and what it brought for nothing counted.
pub(super) fn another_path(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let (service, tag) = (&choosing.service, choosing.names.tag.as_str());
    let (a, b) = (pages(service, "start/a")?, pages(service, "start/b")?);
    choosing.choose("/start/a")?;

    // Before there is a recording.
    let lazy = choosing.start("root", &[])?;
    ensure!(lazy["loaded"].is_null() && lazy["recorded"].is_null(), "{lazy:#}");
    ensure!(
        number(&lazy, "/missed_pages")? >= a && number(&lazy, "/waits")? > 0,
        "{lazy:#}"
    );
    ensure!(lazy["with_read_ahead"] == true, "{lazy:#}");
    let told = choosing.record("recorder")?;
    let recorded = number(&told, "/pages")?;

    choosing.choose("/start/b")?;
    let other = choosing.start("other", &["--name", "other"])?;
    ensure!(
        other["end"] == "ready" && other["container"] == "other",
        "{other:#}"
    );
    ensure!(
        other["with_read_ahead"] == false && other["shared"] == false,
        "{other:#}"
    );
    ensure!(number(&other, "/recorded/pages")? == recorded, "{other:#}");
    ensure!(number(&other, "/recorded/fetched")? == recorded, "{other:#}");
    ensure!(number(&other, "/recorded/unknown")? == 0, "{other:#}");
    expect_about(&other, "/recorded/unused", a)?;
    expect_about(&other, "/recorded/touched", recorded - a)?;
    ensure!(
        other["recorded"]["unused"] == other["recorded"]["fetched_unused"],
        "{other:#}"
    );
    ensure!(
        other.pointer("/missed_files/0/path") == Some(&"/start/b".into()),
        "{other:#}"
    );
    ensure!(number(&other, "/missed_files/0/pages")? == b, "{other:#}");
    expect_about(&other, "/missed_pages", b)?;
    let asked = number(&other, "/missed_pages")? + number(&other, "/local_pages")?;
    ensure!(asked.abs_diff(b) <= STRAY, "{other:#}");
    ensure!(number(&other, "/waits")? > 0, "{other:#}");
    let advice = other["advice"].as_str().unwrap_or_default();
    ensure!(advice.contains("record --merge"), "{other:#}");
    let shown = service.lab.xebec("other", &["explain", "--start", "other"])?;
    shown.expect(0, &["/start/b: ", "unused", "record --merge", tag])?;

    // By the path that was recorded.
    choosing.choose("/start/a")?;
    let same = choosing.start("same", &[])?;
    expect_about(&same, "/recorded/touched", recorded)?;
    expect_about(&same, "/missed_pages", 0)?;
    expect_about(&same, "/local_pages", 0)?;
    ensure!(same["advice"].is_null(), "{same:#}");
    let again = choosing.start("same", &[])?;
    ensure!(number(&again, "/recorded/present")? == recorded, "{again:#}");
    ensure!(number(&again, "/recorded/fetched")? == 0, "{again:#}");
    expect_about(&again, "/recorded/touched", recorded)?;

    // By name, by image, and when there is none.
    ensure!(
        explained(service, "other", &["other"])? == other,
        "by its container"
    );
    ensure!(explained(service, "other", &[tag])? == other, "by its image");
    service
        .lab
        .xebec("other", &["explain", "--start", "nobody"])?
        .expect(3, &["nobody"])?;
    Ok(Outcome::Passed(shown.out.trim().to_owned()))
}

/// Two containers on one view: what the one reads is not said of the other, where that can be told; and where it cannot,
/// that is said.
pub(super) fn others_on_the_view(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let service = &choosing.service;
    let a = pages(service, "start/a")?;
    choosing.choose("/start/a")?;
    let recorded = number(&choosing.record("recorder")?, "/pages")?;
    let mut first = choosing.spawn("root", "first", "log:^ready$")?;
    wait_until(Duration::from_secs(60), "the first container is ready", || {
        Ok(explained(service, "root", &["first"]).is_ok())
    })?;
    ensure!(
        explained(service, "root", &["first"])?["shared"] == false,
        "it was alone"
    );
    choosing.choose("/start/b")?;
    let second = choosing.start("root", &[])?;
    // Asked to, so that it leaves nothing.
    kill_process(Pid::from_child(&first), Signal::TERM)
        .map_err(std::io::Error::from)
        .and_then(|()| first.wait())
        .context("end the first container")?;
    ensure!(second["shared"] == true, "{second:#}");
    // The first one read it.
    ensure!(
        number(&second, "/recorded/touched")? > recorded - a + STRAY,
        "{second:#}"
    );
    let asked = number(&second, "/missed_pages")? + number(&second, "/local_pages")?;
    ensure!(asked.abs_diff(pages(service, "start/b")?) <= STRAY, "{second:#}");
    Ok(Outcome::Passed(format!("{asked} pages besides the recording")))
}

/// While one container starts, another one on the same view does, too: each is told of what it read itself.
pub(super) fn two_starts(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let service = &choosing.service;
    choosing.choose("/start/a")?;
    // It is not ready before the file is there.
    let mut first = choosing.spawn("root", "first", "file:/choice/go")?;
    wait_until(
        Duration::from_secs(60),
        "the first container has read its file",
        || {
            let waits = service.lab.xebec("root", &["explain", "--json", "first"])?;
            Ok(waits.out.contains("/start/a"))
        },
    )?;
    choosing.choose("/start/b")?;
    let second = choosing.start("root", &["--name", "second"])?;
    std::fs::write(service.lab.path("choice").join("go"), "")?;
    wait_until(Duration::from_secs(60), "the first container is ready", || {
        Ok(explained(service, "root", &["first"]).is_ok())
    })?;
    let one = explained(service, "root", &["first"])?;
    kill_process(Pid::from_child(&first), Signal::TERM)
        .map_err(std::io::Error::from)
        .and_then(|()| first.wait())
        .context("end the first container")?;
    for (report, own, other) in [(&one, "/start/a", "/start/b"), (&second, "/start/b", "/start/a")] {
        let files = report["missed_files"].as_array().context("no files")?;
        let has = |path: &str| files.iter().any(|file| file["path"] == path);
        ensure!(has(own) && !has(other), "{report:#}");
        ensure!(report["shared"] == true && report["end"] == "ready", "{report:#}");
    }
    Ok(Outcome::Passed("each has its own file".to_owned()))
}
