//! A registry that is away for a while: readers wait, whatever they are, and go on when it is back; what is local needs
//! no registry. With the settings that a host has by default, except where a case is about them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::lab::{self, Lab, Names, contents, expect_contents, is_eio, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How long the registry is away.
const OUTAGE: Duration = Duration::from_secs(20);
/// How soon after the end of an outage a reader has its bytes: a second or so, and slack for a busy machine.
const SOON: Duration = Duration::from_secs(4);
/// How long an image that is local may take to start while nobody answers.
const LOCAL_START: Duration = Duration::from_secs(12);
/// Exit codes: no such image, a registry that has nothing that fits or is away, and a layer that cannot be read lazily.
const NOT_FOUND: i32 = 3;
const REGISTRY: i32 = 4;
const NOT_LAZY: i32 = 5;
/// Size of the files that are read: several spans.
const FILE: usize = 3 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("away/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("readers-wait", readers_wait),
        case("time-is-up", time_is_up),
        case("blob-is-gone", blob_is_gone),
        case("local-image-starts", local_image_starts),
        case("pull-policy", pull_policy),
        case("credentials-renewed", credentials_renewed),
        case("damaged-mirror", damaged_mirror),
        case("another-registry", another_registry),
        case("worker-killed-meanwhile", worker_killed_meanwhile),
    ]
}

/// A root with these settings instead of those that give up soon.
fn root(lab: &Lab<'_>, name: &str, registries: &str, daemon: &str) -> Result<()> {
    fs::create_dir_all(lab.path(name))?;
    fs::write(lab.path(name).join("registries.toml"), registries)?;
    fs::write(lab.path(name).join("daemon.toml"), daemon)?;
    Ok(())
}

fn two_files(lab: &Lab<'_>) -> Result<(Names, Vec<u8>, Vec<u8>)> {
    let (one, two) = (contents(51, FILE), contents(52, FILE));
    // In layers of their own, so that reading ahead in one brings nothing of the other.
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    Ok((lab.push_indexed(&image, "app")?, one, two))
}

/// Reads one file by `read(2)` and one by page faults during an outage: both wait, and get the right bytes.
fn outlast(
    lab: &Lab<'_>,
    mnt: &Path,
    outage: impl FnOnce() -> Result<()>,
) -> Result<(Vec<u8>, Vec<u8>, Duration)> {
    let program = World::go_tool("mapped")?;
    let (one, two) = (mnt.join("one"), mnt.join("two"));
    lab.registry.set_down(true);
    std::thread::scope(|scope| {
        let read = scope.spawn(move || read_cold(&one).map(|bytes| (bytes, Instant::now())));
        let mapped = scope.spawn(move || Command::new(program).arg(two).output());
        outage()?;
        ensure!(
            !read.is_finished() && !mapped.is_finished(),
            "a reader did not wait"
        );
        let back = Instant::now();
        lab.registry.set_down(false);
        let (read, at) = read
            .join()
            .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        let mapped = mapped
            .join()
            .map_err(|_| anyhow::anyhow!("the starter panicked"))??;
        ensure!(
            mapped.status.success(),
            "the program that faulted: {}",
            mapped.status
        );
        Ok((read, mapped.stdout, at.duration_since(back).max(Duration::ZERO)))
    })
}

/// An outage of twenty seconds, with the default settings.
fn readers_wait(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, one, two) = two_files(&lab)?;
    root(&lab, "root", "", "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.clear_log();
    let (read, mapped, took) = outlast(&lab, &mnt, || {
        std::thread::sleep(OUTAGE);
        let oldest = lab.status("root")?.pointer("/oldest_wait_ms").cloned();
        let waited = oldest
            .and_then(|oldest| oldest.as_u64())
            .context("nobody waits")?;
        ensure!(waited + 2000 > OUTAGE.as_millis() as u64, "{waited} ms");
        Ok(())
    })?;
    ensure!(read == one && mapped == two, "wrong bytes");
    ensure!(took < SOON, "served {took:?} after the registry was back");
    let failures = lab.counter("root", "failures")?;
    ensure!(failures == 0, "{failures} fills failed");
    Ok(Outcome::Passed(format!(
        "right; served {:.2} s after the end of {} s, {} retries",
        took.as_secs_f64(),
        OUTAGE.as_secs(),
        lab.counter("root", "network_retries")?
    )))
}

/// Readers wait for `fill_wait` and get an error; a later read is served as usual.
fn time_is_up(world: &World) -> Result<Outcome> {
    const WAIT: Duration = Duration::from_secs(4);
    let lab = Lab::new(world)?;
    let (names, one, two) = two_files(&lab)?;
    root(&lab, "root", "", "fill_wait = \"4s\"\n")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.set_down(true);
    let begin = Instant::now();
    let failed = is_eio(&read_cold(&mnt.join("one")))?;
    let waited = begin.elapsed();
    ensure!(failed, "there was nobody to read from");
    // Once more for each of the events that one read raises, and slack.
    ensure!(
        waited >= WAIT && waited < WAIT + Duration::from_secs(8),
        "a reader waited {waited:?}\n{}",
        lab.daemon_log("root")?
    );
    let said = lab.logged("root", &["a reader gets EIO", &lab.registry.host()])?;
    lab.registry.set_down(false);
    expect_contents(&mnt.join("one"), &one)?;
    expect_contents(&mnt.join("two"), &two)?;
    Ok(Outcome::Passed(format!(
        "EIO after {:.1} s, then right; the log: {}",
        waited.as_secs_f64(),
        said.trim()
    )))
}

/// A registry that has the image no more: waiting would be in vain, so readers are told at once.
fn blob_is_gone(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(53, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    root(&lab, "root", "", "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let layer = image.layers.first().context("no layer")?;
    lab.registry.remove_blob("app", &layer.digest);
    let begin = Instant::now();
    ensure!(
        is_eio(&read_cold(&mnt.join("file")))?,
        "a blob was read that is gone"
    );
    let took = begin.elapsed();
    ensure!(took < SOON, "a reader waited {took:?} in vain");
    lab.logged("root", &["a reader gets EIO", "was not found"])?;
    lab.registry.put_blob_as("app", layer.digest, layer.bytes.clone());
    expect_contents(&mnt.join("file"), &file)?;
    Ok(Outcome::Passed(format!("EIO after {:.2} s", took.as_secs_f64())))
}

/// Binds an image to its indexes and gives the reference of what binds them, by digest.
fn bound(lab: &Lab<'_>, names: &Names) -> Result<String> {
    let ended = lab.xebec("builder", &["index", "--bind", "--json", &names.tag])?;
    ended.expect(0, &[])?;
    let published: Value = serde_json::from_str(&ended.out)?;
    let digest = published.get("bound").and_then(Value::as_str);
    let digest = digest.context("nothing bound")?;
    Ok(format!("{}/{}@{digest}", lab.registry.host(), names.repository))
}

/// An image whose needed spans are local starts while nobody answers: at once when connections are refused, after a
/// few seconds when they are taken and nothing comes.
fn local_image_starts(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, one, two) = two_files(&lab)?;
    let digest = bound(&lab, &names)?;
    root(&lab, "root", "", "")?;
    for reference in [&names.tag, &digest] {
        let mnt = lab.mount("root", reference, &["--require-lazy"])?;
        expect_contents(&mnt.join("one"), &one)?;
        lab.umount("root", &mnt)?;
    }
    let mut figures = Vec::new();
    for (what, hangs) in [("refused", false), ("hangs", true)] {
        if hangs {
            lab.registry.set_down(false);
            lab.registry.inject(When::any(), Fault::Hang);
        } else {
            lab.registry.set_down(true);
        }
        for (how, reference) in [("tag", &names.tag), ("digest", &digest)] {
            // The daemon knows nothing but what is on disk.
            lab.stop("root")?;
            let begin = Instant::now();
            let mnt = lab.mount("root", reference, &["--require-lazy"])?;
            let took = begin.elapsed();
            expect_contents(&mnt.join("one"), &one)?;
            lab.umount("root", &mnt)?;
            ensure!(took < LOCAL_START, "by {how}, {what}: {took:?}");
            figures.push(format!("by {how}, {what}: {:.2} s", took.as_secs_f64()));
        }
    }
    // The rest waits for the registry, and does not give up an answer only after half a minute.
    lab.stop("root")?;
    fs::write(
        lab.path("root/registries.toml"),
        "[budget]\nresponse_timeout = \"5s\"\n",
    )?;
    let mnt = lab.mount("root", &digest, &["--require-lazy"])?;
    let path = mnt.join("two");
    let reader = std::thread::spawn(move || read_cold(&path));
    std::thread::sleep(Duration::from_secs(1));
    ensure!(!reader.is_finished(), "there was nobody to read from");
    lab.registry.clear_faults();
    // Requests that hang are given up by the client's own limit, or answered by the next request.
    let read = reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    ensure!(read == two, "wrong bytes");
    Ok(Outcome::Passed(figures.join("; ")))
}

/// Xebec asks the registry what a tag means: at each start, only if this host does not know, or never.
fn pull_policy(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, one, two) = two_files(&lab)?;
    root(&lab, "root", "", "")?;
    let refused = |options: &[&str], code: i32, words: &[&str]| {
        let ended = lab.try_mount("root", &names.tag, options)?;
        ended.expect(code, words)
    };
    let shows = |policy: &str, wanted: &[u8], asked: bool| {
        lab.registry.clear_log();
        let mnt = lab.mount("root", &names.tag, &["--require-lazy", "--pull", policy])?;
        let questions = lab.registry.count("/manifests/");
        expect_contents(&mnt.join("one"), wanted).with_context(|| format!("--pull {policy}"))?;
        lab.umount("root", &mnt)?;
        ensure!((questions > 0) == asked, "--pull {policy}: {questions} questions");
        anyhow::Ok(())
    };
    refused(
        &["--pull", "never"],
        NOT_FOUND,
        &["knows no image", "--pull never"],
    )?;
    ensure!(lab.registry.count("") == 0, "the registry was asked");
    shows("missing", &one, true)?;
    // Also by a daemon that knows nothing but what is on disk.
    lab.stop("root")?;
    shows("missing", &one, false)?;
    shows("never", &one, false)?;
    shows("always", &one, true)?;
    // The tag moves.
    let image = lab::image(&[&[("one", &two)]], Compression::Gzip(1))?;
    let newer = lab.push_indexed(&image, "app")?;
    shows("missing", &one, false)?;
    shows("never", &one, false)?;
    shows("always", &two, true)?;
    shows("missing", &two, false)?;
    // Another platform is another image, whichever registry is asked.
    let other = |policy| ["--pull", policy, "--platform", "linux/s390x"];
    refused(&other("never"), NOT_FOUND, &["knows no image", "linux/s390x"])?;
    for policy in ["missing", "always"] {
        refused(&other(policy), REGISTRY, &["no image for linux/s390x"])?;
    }
    let by_digest = lab.try_mount("root", &newer.digest, &other("always"))?;
    by_digest.expect(REGISTRY, &["no image for linux/s390x"])?;
    lab.registry.set_down(true);
    refused(&other("always"), REGISTRY, &[&lab.registry.host()])?;
    shows("missing", &two, false)?;
    // A command that starts nothing does not speak of a start.
    let known = lab.xebec("root", &["pull", &names.tag])?;
    known.expect(0, &["using what this host knows of"])?;
    ensure!(!known.err.contains("start"), "{known:?}");
    lab.registry.set_down(false);
    // Without its index a layer is read whole if nobody is to be asked for one.
    lab.xebec("root", &["cache", "gc", "--to", "0"])?.expect(0, &[])?;
    refused(&["--pull", "never", "--require-lazy"], NOT_LAZY, &[])?;
    lab.registry.clear_log();
    let mnt = lab.mount("root", &names.tag, &["--pull", "never"])?;
    expect_contents(&mnt.join("one"), &two)?;
    let asked = (
        lab.registry.count("/manifests/"),
        lab.registry.count("/referrers/"),
    );
    ensure!(asked == (0, 0), "{asked:?}");
    Ok(Outcome::Passed(
        "the registry was asked when it was to be".to_owned(),
    ))
}

/// Registry and token server are away until every token has ended: a waiting reader gets its bytes all the same.
fn credentials_renewed(world: &World) -> Result<Outcome> {
    let options = Options {
        access: Access::anonymous_tokens(Duration::from_secs(2)),
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let (names, one, two) = two_files(&lab)?;
    root(&lab, "root", "", "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let worker = lab.status("root")?.pointer("/worker_pid").cloned();
    let (read, mapped, took) = outlast(&lab, &mnt, || {
        std::thread::sleep(Duration::from_secs(6));
        lab.registry.expire_tokens();
        Ok(())
    })?;
    ensure!(read == one && mapped == two, "wrong bytes");
    ensure!(took < SOON, "served {took:?} after the registry was back");
    let status = lab.status("root")?;
    ensure!(
        status.pointer("/worker_pid").cloned() == worker,
        "the worker was restarted"
    );
    Ok(Outcome::Passed(format!(
        "right; served {:.2} s after registry and token server were back",
        took.as_secs_f64()
    )))
}

/// A mirror whose copy of a layer is damaged: the bytes come from the registry instead, and no reader notices.
fn damaged_mirror(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(54, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mirror = FaultyRegistry::start()?;
    let layer = image.layers.first().context("no layer")?;
    let damaged: Vec<u8> = layer.bytes.iter().map(|byte| byte ^ 1).collect();
    mirror.put_blob_as("app", layer.digest, damaged);
    let settings = format!(
        "[[mirrors.\"{}\"]]\nurl = \"http://{}\"\n",
        lab.registry.host(),
        mirror.host()
    );
    root(&lab, "root", &settings, "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let begin = Instant::now();
    expect_contents(&mnt.join("file"), &file)?;
    let (asked, failures) = (mirror.count("/blobs/"), lab.counter("root", "failures")?);
    ensure!(asked > 0, "the mirror was not asked");
    ensure!(
        failures == 0,
        "{failures} fills failed\n{}",
        lab.daemon_log("root")?
    );
    let said = lab.logged("root", &["fetched again", "wrong bytes"])?;
    Ok(Outcome::Passed(format!(
        "right after {:.2} s, {asked} requests to the mirror; the log: {}",
        begin.elapsed().as_secs_f64(),
        said.trim()
    )))
}

/// A layer that was seen in two registries: when one is away, the other serves its readers at once.
fn another_registry(world: &World) -> Result<Outcome> {
    let (one, other) = (Lab::new(world)?, Lab::new(world)?);
    let file = contents(55, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    root(&one, "root", "", "")?;
    let mut mounts = Vec::new();
    for lab in [&one, &other] {
        let names = lab.push_indexed(&image, "app")?;
        mounts.push(lab.mount("root", &names.tag, &["--require-lazy"])?);
    }
    // The one that was used last is asked first.
    other.registry.set_down(true);
    other.registry.clear_log();
    one.registry.clear_log();
    let begin = Instant::now();
    for mnt in &mounts {
        expect_contents(&mnt.join("file"), &file)?;
    }
    let took = begin.elapsed();
    ensure!(took < SOON, "it took {took:?}");
    let asked = one.registry.count("/blobs/");
    ensure!(asked > 0, "the other registry was not asked");
    Ok(Outcome::Passed(format!(
        "right after {:.2} s, {asked} requests to the registry that was there",
        took.as_secs_f64()
    )))
}

/// The worker dies while a reader waits for a registry: the reader's time goes on, and so does its waiting.
fn worker_killed_meanwhile(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, one, two) = two_files(&lab)?;
    root(&lab, "root", "", "")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let mut age = 0;
    let (read, mapped, took) = outlast(&lab, &mnt, || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_secs(2));
            let status = lab.status("root")?;
            let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64);
            let (oldest, worker) = (number("/oldest_wait_ms"), number("/worker_pid"));
            let oldest = oldest.context("nobody waits")?;
            ensure!(
                oldest > age + 1500,
                "{oldest} ms after {age} ms: the time began anew"
            );
            age = oldest;
            let pid = worker.and_then(|pid| Pid::from_raw(pid as i32));
            kill_process(pid.context("no worker")?, Signal::KILL)?;
        }
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    ensure!(read == one && mapped == two, "wrong bytes");
    ensure!(took < SOON, "served {took:?} after the registry was back");
    Ok(Outcome::Passed(format!(
        "right over 3 kills; served {:.2} s after the registry was back",
        took.as_secs_f64()
    )))
}
