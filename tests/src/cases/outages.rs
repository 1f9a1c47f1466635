//! A registry that stalls or is gone, processes that are killed, layers that lie: readers wait or get an error, and
//! otherwise the right bytes.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::tar::TarBuilder;

use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Contents of the one large file in these tests' image.
const LARGE: usize = 48 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("outages/{name}"),
        limit: Duration::from_secs(240),
        run: Box::new(run),
    };
    vec![
        case("registry-stalls", registry_stalls),
        case("worker-killed", worker_killed),
        case("command-killed", command_killed),
        case("mounted-twice", mounted_twice),
        case("complete-needs-no-registry", complete_needs_no_registry),
        case("layers-that-lie", layers_that_lie),
    ]
}

/// Bytes that do not compress, so that plain and stored offsets go together.
fn noise() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(77);
    let mut bytes = vec![0; LARGE];
    random.fill(&mut bytes);
    bytes
}

/// An image with one large file, written as a layout; gives its contents.
fn large_image(world: &World) -> Result<(PathBuf, Image, Vec<u8>)> {
    let contents = noise();
    let mut tar = TarBuilder::new();
    tar.file("large", &contents);
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .build();
    let layout = world.path("layout");
    image.write_layout(&layout, "latest")?;
    Ok((layout, image, contents))
}

/// Reads one page; an error keeps its number.
fn page(file: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut page = vec![0; 4096];
    fs::File::open(file)?.read_exact_at(&mut page, offset)?;
    Ok(page)
}

/// A registry that does not answer for a while: readers wait, and then get the right bytes.
fn registry_stalls(world: &World) -> Result<Outcome> {
    const STALL: Duration = Duration::from_secs(4);
    let (layout, _, contents) = large_image(world)?;
    let mounted = world.mount(&layout, "test/stall")?;
    let registry = world.registry_pid();
    kill_process(registry, Signal::STOP)?;
    let waker = std::thread::spawn(move || {
        std::thread::sleep(STALL);
        kill_process(registry, Signal::CONT)
    });
    let started = Instant::now();
    let got = page(&mounted.directory.join("large"), 20 << 20);
    let waited = started.elapsed();
    waker.join().map_err(|_| anyhow::anyhow!("the waker died"))??;
    ensure!(got? == contents[20 << 20..][..4096], "wrong bytes");
    mounted.umount()?;
    Ok(Outcome::Passed(format!(
        "a reader waited {:.1} s",
        waited.as_secs_f64()
    )))
}

/// The process that answers readers dies, again and again: reads go on.
fn worker_killed(world: &World) -> Result<Outcome> {
    let (layout, _, contents) = large_image(world)?;
    let mounted = world.mount(&layout, "test/worker")?;
    let file = mounted.directory.join("large");
    let mut killed = 0;
    for (number, offset) in (0..LARGE).step_by(1 << 20).enumerate() {
        if number % 6 == 0 {
            kill_process(worker(&world.daemon_status()?)?, Signal::KILL)?;
            killed += 1;
        }
        let got = page(&file, offset as u64).with_context(|| format!("after {killed} kills"))?;
        ensure!(
            got == contents[offset..][..4096],
            "wrong bytes at {offset} after {killed} kills"
        );
    }
    mounted.umount()?;
    Ok(Outcome::Passed(format!(
        "{} MiB right over {killed} kills",
        LARGE >> 20
    )))
}

/// The worker's process id out of `daemon status --json`, whatever the document's shape around it is.
fn worker(status: &Value) -> Result<Pid> {
    fn find(value: &Value) -> Option<i64> {
        match value {
            Value::Object(fields) => fields.iter().find_map(|(name, value)| {
                let own = name
                    .contains("worker")
                    .then(|| value.as_i64().or_else(|| value.get("pid")?.as_i64()));
                own.flatten().or_else(|| find(value))
            }),
            Value::Array(items) => items.iter().find_map(find),
            _ => None,
        }
    }
    let pid = find(status)
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    pid.with_context(|| format!("no worker in {status}"))
}

/// How many mounts there are at a path or below it.
fn mounts_below(path: &Path) -> Result<usize> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(places.filter(|place| Path::new(place).starts_with(path)).count())
}

/// `xebec` is killed at any moment of a mount: the next one works, and nothing stays behind.
fn command_killed(world: &World) -> Result<Outcome> {
    let (layout, _, contents) = large_image(world)?;
    let reference = world.push(&layout, "test/killed")?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    let parent = world.path("killed");
    let delays = [0, 2, 5, 10, 20, 40, 80, 160];
    for delay in delays {
        let directory = parent.join(delay.to_string());
        fs::create_dir_all(&directory)?;
        let mut child = world.xebec(&["mount", &reference]).arg(&directory).spawn()?;
        std::thread::sleep(Duration::from_millis(delay));
        child.kill()?;
        child.wait()?;
    }
    // The daemon may still be mounting for commands that are gone; that is as if they had come through.
    std::thread::sleep(Duration::from_secs(1));
    let came_through = mounts_below(&parent)?;
    for delay in delays {
        let directory = parent.join(delay.to_string());
        if mounts_below(&directory)? > 0 {
            ensure!(
                fs::read(directory.join("large"))? == contents,
                "wrong bytes after a kill"
            );
            run(world.xebec(&["umount"]).arg(&directory))?;
        }
    }
    let mounted = world.mount_reference(&reference)?;
    ensure!(
        fs::read(mounted.directory.join("large"))? == contents,
        "wrong bytes"
    );
    mounted.umount()?;
    ensure!(mounts_below(&parent)? == 0, "mounts stayed behind");
    let killed = delays.len();
    Ok(Outcome::Passed(format!(
        "{killed} kills, {came_through} mounts that came through, then one more"
    )))
}

/// On a directory that shows an image the same one is not mounted again, and another one is refused: one mount, undone once.
fn mounted_twice(world: &World) -> Result<Outcome> {
    let (layout, _, contents) = large_image(world)?;
    let mounted = world.mount(&layout, "test/twice")?;
    let other = world.push(&layout, "test/other")?;
    let directory = mounted.directory.clone();
    let reference = format!("{}/test/twice:latest", world.registry);
    let mount = |words: &[&str]| {
        let mut command = world.xebec(&["mount"]);
        command.args(words).arg(&directory);
        command
    };
    for words in [&[reference.as_str()][..], &["--complete", &reference]] {
        let again = run(&mut mount(words))?;
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        ensure!(said.contains("already"), "{said}");
        ensure!(mounts_below(&directory)? == 1, "mounted twice");
    }
    for words in [&[other.as_str()][..], &["--suid", &reference]] {
        let said = crate::world::run_failing(&mut mount(words))?;
        ensure!(said.contains(&format!("{reference} (sha256:")), "{said}");
        ensure!(mounts_below(&directory)? == 1, "mounted twice");
    }
    ensure!(fs::read(directory.join("large"))? == contents, "wrong bytes");
    mounted.umount()?;
    ensure!(mounts_below(&directory)? == 0, "a mount stayed behind");
    Ok(Outcome::Passed(
        "the same image is there already, another one is refused".to_owned(),
    ))
}

/// After `pull --complete` an image needs neither registry nor daemon.
fn complete_needs_no_registry(world: &World) -> Result<Outcome> {
    let (layout, _, contents) = large_image(world)?;
    let reference = world.push(&layout, "test/complete")?;
    run(&mut world.xebec(&["pull", "--complete", &reference]))?;
    let mounted = world.mount_reference(&reference)?;
    let registry = world.registry_pid();
    kill_process(registry, Signal::STOP)?;
    let got = fs::read(mounted.directory.join("large"));
    kill_process(registry, Signal::CONT)?;
    ensure!(got? == contents, "wrong bytes");
    let checked = run(&mut world.xebec(&["check", "--prove", &reference]))?;
    mounted.umount()?;
    Ok(Outcome::Passed(
        String::from_utf8_lossy(&checked.stdout).trim().to_owned(),
    ))
}

/// Layers that promise more than they hold, or reach out of the image, are refused with the reason.
fn layers_that_lie(world: &World) -> Result<Outcome> {
    use xebec_testkit::tar::{Header, Kind};
    let liars: [(&str, Vec<u8>); 3] = [
        ("a file larger than its layer", {
            let mut tar = TarBuilder::new();
            tar.entry(&Header::new("huge", Kind::File).size(1 << 40))
                .raw(b"short");
            tar.into_unfinished_bytes()
        }),
        ("a path that leaves the image", {
            let mut tar = TarBuilder::new();
            tar.file("../../outside", b"x");
            tar.into_bytes()
        }),
        ("a link to nothing", {
            let mut tar = TarBuilder::new();
            tar.hardlink("name", "missing");
            tar.into_bytes()
        }),
    ];
    let mut refusals = Vec::new();
    for (number, (what, tar)) in liars.into_iter().enumerate() {
        let image = ImageBuilder::new().layer(&tar, Compression::Gzip(1))?.build();
        let layout = world.path(&format!("liar-{number}"));
        image.write_layout(&layout, "latest")?;
        let reference = world.push(&layout, &format!("test/liar-{number}"))?;
        let directory = world.path("mnt");
        fs::create_dir_all(&directory)?;
        let said = crate::world::run_failing(world.xebec(&["mount", &reference]).arg(&directory))
            .with_context(|| what.to_owned())?;
        refusals.push(format!("{what}: {}", said.lines().last().unwrap_or_default()));
    }
    Ok(Outcome::Passed(refusals.join("\n")))
}
