//! Commands of every kind are killed at any moment: the daemon and the cache stay whole, all later commands work,
//! and nothing is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use xebec_testkit::compression::Compression;

use super::support::{container_image, containers, no_view_is_left, sized, tell_log};
use crate::lab::{Lab, Names, contents, expect_contents, wait_until};
use crate::runner::Outcome;
use crate::world::{World, run as run_program};

/// The root that all share.
const ROOT: &str = "root";
/// Commands at a time.
const AT_ONCE: usize = 4;
/// Longest life of a command, in milliseconds.
const LIFE: u64 = 400;
/// How long what a killed command asked for may go on.
const CALM: Duration = Duration::from_secs(30);
/// Size of the file that is in each image beside the program.
const FILE: usize = 2 << 20;

/// The roots, images and directories that the commands work on.
struct Stage<'a> {
    lab: &'a Lab<'a>,
    images: Vec<(Names, Vec<u8>)>,
    directories: Vec<PathBuf>,
    /// Commands that this binary has, of those that not every version does.
    optional: Vec<&'static [&'static str]>,
}

pub(super) fn run(world: &World) -> Result<Outcome> {
    let kills = sized(60, 5_000);
    let lab = Lab::new(world)?;
    let program = fs::read(World::go_tool("linger")?).context("read the program of the containers")?;
    let mut images = Vec::new();
    for (number, name) in ["first", "second", "third"].into_iter().enumerate() {
        let file = contents(40 + number as u64, FILE);
        let image = container_image(&program, &file, Compression::Gzip(1))?;
        // The last one has no index: a start reads it whole.
        let names = if number < 2 {
            lab.push_indexed(&image, name)?
        } else {
            lab.push(&image, name)
        };
        images.push((names, file));
    }
    let directories = (0..4).map(|number| lab.mount_point(&format!("mnt{number}")));
    let optional: [&[&str]; 2] = [&["rmi"], &["cache", "gc"]];
    let knows = |command: &&[&str]| {
        let help = [*command, &["--help"]].concat();
        lab.xebec(ROOT, &help).is_ok_and(|ended| ended.code == 0)
    };
    let stage = Stage {
        lab: &lab,
        directories: directories.collect::<Result<_>>()?,
        optional: optional.into_iter().filter(knows).collect(),
        images,
    };
    let (begin, tried, killed) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| stage.kill_commands(&tried, &killed, kills)))
            .collect();
        let mut ended = threads.into_iter().map(|thread| thread.join());
        ended.try_for_each(|ended| ended.map_err(|_| anyhow!("a thread died"))?)
    })?;
    let tried = tried.load(Ordering::Relaxed);
    let took = begin.elapsed();
    let outcome = stage.afterwards();
    outcome.inspect_err(|_| tell_log(&lab, ROOT))?;
    let kinds = stage
        .optional
        .iter()
        .map(|words| format!(", {}", words.join(" ")));
    Ok(Outcome::Passed(format!(
        "{tried} commands in {:.0} s, {AT_ONCE} at a time, {kills} of them killed before they ended (run, mount, umount, \
         index, pull, check, inspect{}); then every command works, and no mount, view, container, process or \
         temporary file is left",
        took.as_secs_f64(),
        kinds.collect::<String>()
    )))
}

impl Stage<'_> {
    /// Starts commands and kills them, until so many had not ended by then.
    fn kill_commands(&self, tried: &AtomicUsize, killed: &AtomicUsize, kills: usize) -> Result<()> {
        while killed.load(Ordering::Relaxed) < kills {
            tried.fetch_add(1, Ordering::Relaxed);
            let words = self.any_command();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut child = self.lab.spawn(ROOT, &words)?;
            // Half of them early, where commands are short.
            let life = if fastrand::bool() { LIFE } else { LIFE / 8 };
            std::thread::sleep(Duration::from_millis(fastrand::u64(..life)));
            killed.fetch_add(usize::from(child.try_wait()?.is_none()), Ordering::Relaxed);
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn any_command(&self) -> Vec<String> {
        let choose = |bound: usize| fastrand::usize(..bound);
        let image = &self.images[choose(self.images.len())].0.tag;
        let directory = self.directories[choose(self.directories.len())].to_string_lossy();
        let words: Vec<&str> = match choose(12 + self.optional.len()) {
            0..=2 => vec!["run", "--rm", image],
            3 => vec!["run", image],
            4..=5 => vec!["mount", image, &directory],
            6 => vec!["umount", &directory],
            7 => vec!["index", "--push", image],
            8 => vec!["pull", "--complete", image],
            9 => vec!["check", "--prove", image],
            10 => vec!["check", "--all", image],
            11 => vec!["inspect", image],
            other => match self.optional[other - 12] {
                words @ ["rmi"] => [words, &[image]].concat(),
                words => words.to_vec(),
            },
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// All commands work, and nothing is left.
    fn afterwards(&self) -> Result<()> {
        let lab = self.lab;
        for directory in &self.directories {
            let place = directory.to_string_lossy().into_owned();
            // Work that a killed command asked for goes on; it may be mounting still.
            wait_until(CALM, "unmounted", || {
                let ended = lab.xebec(ROOT, &["umount", &place])?;
                Ok(ended.code != 0 && fs::read_dir(directory)?.next().is_none())
            })?;
        }
        for (names, file) in &self.images {
            let mnt = lab.mount(ROOT, &names.tag, &[])?;
            expect_contents(&mnt.join("file"), file)?;
            lab.umount(ROOT, &mnt)?;
            let checked = lab.check(ROOT, &names.tag)?;
            ensure!(checked.wrong == 0, "{checked:?}");
            for words in [
                vec!["run", "--rm", &names.tag],
                vec!["index", "--push", &names.tag],
                vec!["pull", "--complete", &names.tag],
                vec!["check", "--prove", &names.tag],
                vec!["inspect", &names.tag],
            ] {
                lab.xebec(ROOT, &words)?
                    .expect(0, &[])
                    .with_context(|| words.join(" "))?;
            }
        }
        let containers = containers(lab, ROOT)?;
        ensure!(containers.is_empty(), "containers are left: {containers:?}");
        no_view_is_left(lab, ROOT, CALM)?;
        // A worker clears away when it starts.
        lab.xebec(ROOT, &["daemon", "stop"])?.expect(0, &[])?;
        lab.xebec(ROOT, &["images"])?.expect(0, &[])?;
        let mnt = lab.mount(ROOT, &self.images[0].0.tag, &[])?;
        lab.umount(ROOT, &mnt)?;
        lab.xebec(ROOT, &["daemon", "stop"])?.expect(0, &[])?;
        self.nothing_is_left()
    }

    fn nothing_is_left(&self) -> Result<()> {
        let (root, run) = (self.lab.path(ROOT), self.lab.path(&format!("{ROOT}-run")));
        let ours = |text: &str| {
            [&root, &run]
                .iter()
                .any(|path| text.contains(&*path.to_string_lossy()))
        };
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts: Vec<&str> = mounts.lines().filter(|line| ours(line)).collect();
        ensure!(mounts.is_empty(), "mounts are left:\n{}", mounts.join("\n"));
        // The keeper says that it has ended just before it does.
        wait_until(CALM, "no process is left", || {
            let output = run_program(Command::new("ps").args(["-e", "-o", "pid,args"]))?;
            let processes = String::from_utf8_lossy(&output.stdout).into_owned();
            let left = processes
                .lines()
                .filter(|line| line.contains("linger") || ours(line));
            Ok(left.inspect(|line| eprintln!("still there: {line}")).count() == 0)
        })?;
        let (mut temporary, mut marked) = (Vec::new(), Vec::new());
        for path in files_below(&root)?.into_iter().chain(files_below(&run)?) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with('.') || [".new", ".tmp", ".part"].iter().any(|end| name.ends_with(end)) {
                temporary.push(path);
            } else if name == "remove" {
                marked.push(path);
            }
        }
        // Commands without --rm leave their layer; those with it mark theirs.
        ensure!(
            marked.is_empty(),
            "containers that were to go are left: {marked:?}"
        );
        ensure!(temporary.is_empty(), "temporary files are left: {temporary:?}");
        let bundles = files_below(&run.join("bundles"))?;
        ensure!(bundles.is_empty(), "bundles are left: {bundles:?}");
        Ok(())
    }
}

/// All files and directories below a directory.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    Ok(found)
}
