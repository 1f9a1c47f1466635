//! A cache that may not grow without end: what goes, what stays, and that no reader ever sees what is gone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, Names, contents, expect_contents, is_eio, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Size of the file that each image has.
const FILE: usize = 6 << 20;
/// Last uses are told apart by seconds.
const APART: Duration = Duration::from_millis(1100);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("quota/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("oldest-goes-first", oldest_goes_first),
        case("freed-after-a-stop", freed_after_a_stop),
        case("in-use-stays", in_use_stays),
        case("limit-is-kept", limit_is_kept),
        case("full-disk-makes-room", full_disk_makes_room),
        case("full-disk-makes-no-storm", full_disk_makes_no_storm),
        case("killed-midway", killed_midway),
        case("rmi", rmi),
        case("unknown-data-is-denied", unknown_data_is_denied),
        case("strange-files-are-cheap", strange_files_are_cheap),
    ]
}

/// An image with one file, `file`, of contents that its number determines.
fn push(lab: &Lab<'_>, number: u64) -> Result<Names> {
    let file = contents(number, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    lab.push_indexed(&image, &format!("image{number}"))
}

fn json(lab: &Lab<'_>, arguments: &[&str]) -> Result<Value> {
    let ended = lab.xebec("root", arguments)?;
    ended.expect(0, &[])?;
    serde_json::from_str(&ended.out).with_context(|| format!("{arguments:?}: {}", ended.out))
}

fn number(value: &Value, name: &str) -> Result<u64> {
    value
        .get(name)
        .and_then(Value::as_u64)
        .with_context(|| format!("no number {name} in {value}"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value
        .get(name)
        .and_then(Value::as_array)
        .with_context(|| format!("no list {name} in {value}"))
}

/// Mounts an image, reads its file cold, unmounts it, and asks that nothing wrong is cached.
fn read_again(lab: &Lab<'_>, names: &Names, number: u64) -> Result<()> {
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &contents(number, FILE))?;
    lab.umount("root", &mnt)?;
    let checked = lab.check("root", &names.tag)?;
    ensure!(checked.wrong == 0, "{checked:?}");
    Ok(())
}

/// Three images, used one after the other: of the oldest everything goes, of the next as much as is needed, and a layer
/// that was complete and silent raises events again.
fn oldest_goes_first(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let images = [push(&lab, 1)?, push(&lab, 2)?, push(&lab, 3)?];
    for (names, seed) in images.iter().zip(1..) {
        // Read whole through a lazy mount: such a layer has an ignore mark.
        read_again(&lab, names, seed)?;
        std::thread::sleep(APART);
    }
    // The worker has a layer open while it proves it, so the layer stays for that long.
    lab::wait_until(Duration::from_secs(60), "all are proven", || {
        Ok(lab.daemon_log("root")?.matches("is proven").count() == images.len())
    })?;
    let before = json(&lab, &["cache", "stat", "--json"])?;
    ensure!(list(&before, "layers")?.len() == 3, "{before}");
    let used = number(&before, "used_bytes")?;
    let target = (used - FILE as u64 - FILE as u64 / 3).to_string();
    let plan = json(&lab, &["cache", "gc", "--to", &target, "--dry-run", "--json"])?;
    let unchanged = json(&lab, &["cache", "stat", "--json"])?;
    ensure!(
        number(&unchanged, "used_bytes")? == used,
        "a dry run changed something: {unchanged}"
    );
    let done = json(&lab, &["cache", "gc", "--to", &target, "--json"])?;
    ensure!(
        list(&plan, "layers")? == list(&done, "layers")?,
        "{plan} but {done}"
    );
    let steps = list(&done, "layers")?;
    ensure!(steps.len() == 2, "{done}");
    let punched: Vec<_> = steps.iter().map(|step| step.get("punched_pages")).collect();
    ensure!(
        punched[0] == Some(&Value::Null) && punched[1].and_then(Value::as_u64).is_some(),
        "{done}"
    );
    let after = json(&lab, &["cache", "stat", "--json"])?;
    let left = number(&after, "used_bytes")?;
    ensure!(list(&after, "layers")?.len() == 2, "{after}");
    ensure!(left <= target.parse()?, "{left} bytes left, {target} wanted");
    let (first, second) = (
        lab.check("root", &images[1].tag)?,
        lab.check("root", &images[2].tag)?,
    );
    ensure!(first.wrong == 0 && first.present < first.pages, "{first:?}");
    ensure!(second.present == second.pages, "{second:?}");
    for (names, seed) in images.iter().zip(1..) {
        read_again(&lab, names, seed)?;
    }
    Ok(Outcome::Passed(format!(
        "{used} bytes brought to {left}: one layer removed, {} pages of another punched; all right afterwards",
        punched[1].unwrap_or(&Value::Null)
    )))
}

/// Images of several layers are fetched whole, and the daemon is stopped at once: nothing that it left keeps the next one from
/// evicting all of them.
fn freed_after_a_stop(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let mut images = Vec::new();
    let compressions = [
        Compression::Gzip(1),
        Compression::Gzip(1),
        Compression::Zstd,
        Compression::Tar,
    ];
    for (seed, compression) in (1..).zip(compressions) {
        let files = [0, 1, 2].map(|layer| contents(10 * seed + layer, FILE / 4));
        // The lowest one is the same in the first two.
        let base = contents(1, FILE / 4);
        let layers: [&[(&str, &[u8])]; 4] = [
            &[("base", &base)],
            &[("file", &files[0])],
            &[("file", &files[1]), ("other", &files[0])],
            &[("last", &files[2])],
        ];
        images.push(lab.push_indexed(&lab::image(&layers, compression)?, &format!("image{seed}"))?);
    }
    let mut freed = 0;
    for round in 1..=3 {
        for names in &images {
            lab.xebec("root", &["pull", "--complete", &names.tag])?
                .expect(0, &[])?;
        }
        lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
        let done = json(&lab, &["cache", "gc", "--to", "0", "--json"])?;
        let steps = list(&done, "layers")?;
        ensure!(!steps.is_empty(), "round {round}: {done}");
        for step in steps {
            ensure!(step.get("kept") == Some(&Value::Null), "round {round}: {done}");
        }
        freed += number(&done, "used_before")? - number(&done, "used_after")?;
        let after = json(&lab, &["cache", "stat", "--json"])?;
        ensure!(list(&after, "layers")?.is_empty(), "round {round}: {after}");
    }
    for names in &images {
        lab.xebec("root", &["pull", "--complete", &names.tag])?
            .expect(0, &[])?;
        let checked = lab.check("root", &names.tag)?;
        ensure!(
            checked.wrong == 0 && checked.present == checked.pages,
            "{checked:?}"
        );
    }
    Ok(Outcome::Passed(format!("{freed} bytes freed in three rounds")))
}

/// A layer that a view reads stays. A layer whose reader holds it after its view was unmounted stays too, even if nobody knows.
fn in_use_stays(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (push(&lab, 1)?, push(&lab, 2)?);
    lab.xebec("root", &["pull", "--complete", &one.tag])?
        .expect(0, &[])?;
    let complete = lab.mount("root", &one.tag, &[])?;
    let lazy = lab.mount("root", &two.tag, &[])?;
    expect_contents(&lazy.join("file"), &contents(2, FILE))?;
    let gc = || json(&lab, &["cache", "gc", "--to", "0", "--json"]);
    let removed = |done: &Value| -> Result<usize> {
        let layers = list(done, "layers")?.iter();
        Ok(layers
            .filter(|layer| layer.get("kept") == Some(&Value::Null))
            .count())
    };
    let done = gc()?;
    ensure!(removed(&done)? == 0, "a mounted image lost a layer: {done}");
    lab.xebec("root", &["rmi", &one.tag])?.expect(2, &["in use by"])?;
    expect_contents(&complete.join("file"), &contents(1, FILE))?;
    // Unmounted under readers: the views are in no table any more.
    let readers = [File::open(complete.join("file"))?, File::open(lazy.join("file"))?];
    lab.umount("root", &complete)?;
    lab.umount("root", &lazy)?;
    let done = gc()?;
    ensure!(removed(&done)? == 0, "a reader lost its layer: {done}");
    let said = list(&done, "layers")?
        .iter()
        .filter(|layer| layer.to_string().contains("has its data open"));
    ensure!(said.count() == 2, "{done}");
    for (reader, seed) in readers.iter().zip(1..) {
        rustix::fs::fadvise(reader, 0, None, rustix::fs::Advice::DontNeed)?;
        let mut bytes = vec![0; FILE];
        reader.read_exact_at(&mut bytes, 0)?;
        ensure!(bytes == contents(seed, FILE), "wrong bytes of image {seed}");
    }
    drop(readers);
    lab::wait_until(
        Duration::from_secs(20),
        "the layers go once nobody reads them",
        || Ok(removed(&gc()?)? == 2),
    )?;
    read_again(&lab, &one, 1)?;
    read_again(&lab, &two, 2)?;
    Ok(Outcome::Passed(
        "mounted, and unmounted under readers: nothing went; afterwards both".to_owned(),
    ))
}

/// `cache_size` is kept by itself, and a pinned image is not touched.
fn limit_is_kept(world: &World) -> Result<Outcome> {
    const LIMIT_BYTES: u64 = 16 << 20;
    let lab = Lab::new(world)?;
    std::fs::create_dir_all(lab.path("root"))?;
    std::fs::write(lab.path("root").join("daemon.toml"), "cache_size = \"16MiB\"\n")?;
    let images = (1..=5).map(|seed| push(&lab, seed)).collect::<Result<Vec<_>>>()?;
    let mut used = Vec::new();
    for (names, seed) in images.iter().zip(1..) {
        lab.xebec("root", &["pull", "--complete", &names.tag])?
            .expect(0, &[])?;
        if seed == 1 {
            lab.xebec("root", &["cache", "pin", &names.tag])?.expect(0, &[])?;
        }
        std::thread::sleep(APART);
        let stat = json(&lab, &["cache", "stat", "--json"])?;
        let now = number(&stat, "used_bytes")?;
        ensure!(now <= LIMIT_BYTES, "{now} bytes after image {seed}: {stat}");
        used.push(now);
    }
    let pinned = lab.check("root", &images[0].tag)?;
    ensure!(pinned.present == pinned.pages && pinned.pages > 0, "{pinned:?}");
    lab.xebec("root", &["rmi", &images[0].tag])?
        .expect(2, &["pinned"])?;
    // Without a pull: what readers bring in counts as well.
    let mounts = [1, 2].map(|number: usize| lab.mount("root", &images[number].tag, &[]));
    for (mnt, seed) in mounts.into_iter().zip(2..) {
        let mnt = mnt?;
        expect_contents(&mnt.join("file"), &contents(seed, FILE))?;
        lab.umount("root", &mnt)?;
    }
    lab::wait_until(Duration::from_secs(30), "the limit is kept after reads", || {
        Ok(number(&json(&lab, &["cache", "stat", "--json"])?, "used_bytes")? <= LIMIT_BYTES)
    })?;
    lab.xebec("root", &["cache", "unpin", &images[0].tag])?
        .expect(0, &[])?;
    // One that is just being synced or proven stays until that is done.
    lab::wait_until(Duration::from_secs(30), "everything goes", || {
        json(&lab, &["cache", "gc", "--to", "0", "--json"])?;
        let stat = json(&lab, &["cache", "stat", "--json"])?;
        Ok(list(&stat, "layers")?.is_empty())
    })?;
    for (names, seed) in images.iter().zip(1..) {
        read_again(&lab, names, seed)?;
    }
    Ok(Outcome::Passed(format!(
        "bytes used after each of 5 pulls: {used:?}"
    )))
}

/// A full disk: what is not in use goes, and the read succeeds; when nothing may go it gets EIO, and goes on later.
fn full_disk_makes_room(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let images = (1..=3).map(|seed| push(&lab, seed)).collect::<Result<Vec<_>>>()?;
    lab::mount_small(&lab.path("root"), 40 << 20)?;
    for names in &images[..2] {
        lab.xebec("root", &["pull", "--complete", &names.tag])?
            .expect(0, &[])?;
    }
    let held = lab.mount("root", &images[1].tag, &[])?;
    let mnt = lab.mount("root", &images[2].tag, &["--require-lazy"])?;
    let ballast = lab.path("root").join("ballast");
    let free = rustix::fs::statvfs(lab.path("root"))?;
    let room = usize::try_from(free.f_bavail * free.f_frsize)?;
    std::fs::write(&ballast, vec![1; room - (2 << 20)])?;
    expect_contents(&mnt.join("file"), &contents(3, FILE))?;
    let said = lab.logged("root", &["the disk is full", "evicted"])?;
    expect_contents(&held.join("file"), &contents(2, FILE))?;
    // Now nothing may go: the first image again, while the others are mounted.
    let first = lab.mount("root", &images[0].tag, &["--require-lazy"])?;
    let free = rustix::fs::statvfs(lab.path("root"))?;
    let room = usize::try_from(free.f_bavail * free.f_frsize)?;
    let more = lab.path("root").join("more-ballast");
    std::fs::write(&more, vec![1; room.saturating_sub(2 << 20)])?;
    ensure!(
        is_eio(&read_cold(&first.join("file")))?,
        "a file was read that has no room"
    );
    std::fs::remove_file(&ballast)?;
    expect_contents(&first.join("file"), &contents(1, FILE))?;
    for names in &images {
        let checked = lab.check("root", &names.tag)?;
        ensure!(checked.wrong == 0, "{checked:?}");
    }
    Ok(Outcome::Passed(format!(
        "right, EIO when nothing may go, right; {}",
        said.trim()
    )))
}

/// Somebody reads again and again what there is no room for: nothing is fetched for that, and the log says little about it.
fn full_disk_makes_no_storm(world: &World) -> Result<Outcome> {
    const READS: usize = 200;
    let lab = Lab::new(world)?;
    let names = push(&lab, 1)?;
    lab::mount_small(&lab.path("root"), 40 << 20)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let ballast = lab.path("root").join("ballast");
    let free = rustix::fs::statvfs(lab.path("root"))?;
    let room = usize::try_from(free.f_bavail * free.f_frsize)?;
    std::fs::write(&ballast, vec![1; room - (2 << 20)])?;
    // The bytes for which there is room come.
    let _ = read_cold(&mnt.join("file"));
    let (before, lines) = (lab.registry.log().len(), lab.daemon_log("root")?.lines().count());
    for _ in 0..READS {
        ensure!(
            read_cold(&mnt.join("file")).is_err(),
            "a file was read that has no room"
        );
    }
    let (after, said) = (lab.registry.log().len(), lab.daemon_log("root")?.lines().count());
    ensure!(
        after == before,
        "{} requests for what would be thrown away",
        after - before
    );
    ensure!(said - lines <= 2, "{} lines in the log", said - lines);
    lab.logged("root", &["a reader gets ENOSPC", "no room"])?;
    std::fs::remove_file(&ballast)?;
    expect_contents(&mnt.join("file"), &contents(1, FILE))?;
    Ok(Outcome::Passed(format!(
        "{READS} reads on a full disk: nothing fetched, {} lines said; right when there was room",
        said - lines
    )))
}

fn worker(lab: &Lab<'_>) -> Result<Pid> {
    let pid = number(&lab.status("root")?, "worker_pid")?;
    Pid::from_raw(i32::try_from(pid)?).context("no process id")
}

/// The worker is killed at random moments of an eviction; the layers that are left are consistent.
fn killed_midway(world: &World) -> Result<Outcome> {
    const ROUNDS: usize = 25;
    let lab = Lab::new(world)?;
    let images = (1..=3).map(|seed| push(&lab, seed)).collect::<Result<Vec<_>>>()?;
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..ROUNDS {
        for names in &images {
            lab.xebec("root", &["pull", "--complete", &names.tag])?
                .expect(0, &[])?;
        }
        let target = random.u64(0..2 * FILE as u64).to_string();
        let victim = worker(&lab)?;
        let mut gc = lab.spawn("root", &["cache", "gc", "--to", &target])?;
        std::thread::sleep(Duration::from_micros(random.u64(0..60_000)));
        let _ = kill_process(victim, Signal::KILL);
        gc.wait()?;
        for names in &images {
            let checked = lab.check("root", &names.tag);
            // One whose layers are gone cannot be checked.
            if let Ok(checked) = checked {
                ensure!(checked.wrong == 0, "round {round}: {checked:?}");
            }
        }
        for (names, seed) in images.iter().zip(1..) {
            read_again(&lab, names, seed).with_context(|| format!("round {round}"))?;
        }
    }
    let layers = lab.path("root").join("layers");
    let left = std::fs::read_dir(layers)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    ensure!(left.count() == 0, "temporary folders are left");
    Ok(Outcome::Passed(format!(
        "{ROUNDS} workers killed in a collection: 0 wrong bytes"
    )))
}

/// `rmi` takes names, then the image, and leaves layers that another image refers to.
fn rmi(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (base, own) = (contents(1, FILE), contents(2, FILE));
    let shared = lab::image(&[&[("base", &base)]], Compression::Gzip(1))?;
    let derived = lab::image(&[&[("base", &base)], &[("own", &own)]], Compression::Gzip(1))?;
    let (shared, derived) = (
        lab.push_indexed(&shared, "shared")?,
        lab.push_indexed(&derived, "derived")?,
    );
    for names in [&shared, &derived] {
        lab.xebec("root", &["pull", "--complete", &names.tag])?
            .expect(0, &[])?;
    }
    let layers = |expected: usize| -> Result<()> {
        let stat = json(&lab, &["cache", "stat", "--json"])?;
        ensure!(
            list(&stat, "layers")?.len() == expected,
            "not {expected} layers: {stat}"
        );
        Ok(())
    };
    layers(2)?;
    lab.xebec("root", &["rmi", "nobody/knows:this"])?
        .expect(3, &["not known"])?;
    lab.xebec("root", &["rmi", &derived.tag])?
        .expect(0, &["removed, with 1 layer;"])?;
    layers(1)?;
    lab.xebec("root", &["rmi", &derived.tag])?.expect(3, &[])?;
    lab.xebec("root", &["rmi", &shared.tag])?
        .expect(0, &["removed, with 1 layer;"])?;
    layers(0)?;
    ensure!(
        json(&lab, &["images", "--json"])?
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    let mnt = lab.mount("root", &derived.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("base"), &base)?;
    expect_contents(&mnt.join("own"), &own)?;
    Ok(Outcome::Passed(
        "names, images and layers go; what is shared stays".to_owned(),
    ))
}

/// A data file that was taken away by hand and is read through the guarded mount: an error, not zeros.
fn unknown_data_is_denied(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = push(&lab, 1)?;
    // Another image keeps the daemon and its guarded mount alive.
    let other = push(&lab, 2)?;
    let _other = lab.mount("root", &other.tag, &[])?;
    lab.xebec("root", &["pull", &names.tag])?.expect(0, &[])?;
    let guarded = lab.path("root-run").join("guarded");
    let folder = incomplete_layer(&lab, &names)?;
    let data = File::open(guarded.join(&folder).join("data"))?;
    let index = File::open(guarded.join(&folder).join("index"))?;
    let mut bytes = [0; 64];
    index.read_exact_at(&mut bytes, 0)?;
    std::fs::rename(lab.path("root").join("layers").join(&folder), lab.path("taken"))?;
    let read = data.read_exact_at(&mut bytes, 0);
    ensure!(is_eio(&read)?, "zeros of a file that nobody fills");
    let said = lab.logged("root", &["is no layer's data", "EIO"])?;
    Ok(Outcome::Passed(said))
}

/// Reads through the guarded mount of files that are no data: each is an event. In a cache of many layers they are
/// answered as quickly as in an empty one, and nobody waits behind them.
fn strange_files_are_cheap(world: &World) -> Result<Outcome> {
    const LAYERS: usize = 3000;
    const READS: u32 = 400;
    let lab = Lab::new(world)?;
    let names = push(&lab, 1)?;
    let _mounted = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let folder = incomplete_layer(&lab, &names)?;
    let layers = lab.path("root").join("layers");
    for number in 0..LAYERS {
        let layer = layers.join(format!("{number:064x}/{number:064x}"));
        std::fs::create_dir_all(&layer)?;
        for name in ["index", "data", "present"] {
            File::create(layer.join(name))?;
        }
    }
    std::fs::write(layers.join("strange"), [1; 64])?;
    let guarded = lab.path("root-run").join("guarded");
    let read = |file: &File| file.read_exact_at(&mut [0; 64], 0);
    let timed = |file: File, is_given: bool| {
        let begun = Instant::now();
        for _ in 0..READS {
            ensure!(read(&file).is_ok() == is_given, "given: {}", !is_given);
        }
        Ok(begun.elapsed() / READS)
    };
    let known = timed(File::open(guarded.join(&folder).join("index"))?, true)?;
    ensure!(
        known < Duration::from_millis(2),
        "{known:?} for each read of an index"
    );
    // A file that is nothing of a layer's has to be looked for, by somebody whom nobody else waits for.
    let stop = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let strange = File::open(guarded.join("strange"));
                while !stop.load(Ordering::Relaxed) {
                    let refused = strange.as_ref().is_ok_and(|file| read(file).is_err());
                    assert!(refused, "a strange file was read");
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let beside = File::open(guarded.join(&folder).join("index")).map_err(anyhow::Error::from);
        let beside = beside.and_then(|file| timed(file, true));
        stop.store(true, Ordering::Relaxed);
        beside
    })?;
    ensure!(
        beside < Duration::from_millis(2),
        "{beside:?} for each read beside four of strange files"
    );
    let said = lab.daemon_log("root")?.matches("is no layer's data").count();
    ensure!(said == 1, "said {said} times");
    Ok(Outcome::Passed(format!(
        "{LAYERS} layers: {known:?} for a read of an index, {beside:?} beside four who read strange files"
    )))
}

/// The folder of the one layer of an image, below `layers`.
fn incomplete_layer(lab: &Lab<'_>, names: &Names) -> Result<PathBuf> {
    let ended = lab.xebec("root", &["check", "--json", &names.tag])?;
    let layers: Vec<Value> = serde_json::from_str(&ended.out)?;
    let digits = |name: &str| -> Result<String> {
        let digest = layers.first().and_then(|layer| layer.get(name)?.as_str());
        let digest = digest.and_then(|digest| digest.strip_prefix("sha256:"));
        digest
            .map(str::to_owned)
            .with_context(|| format!("no {name}: {}", ended.out))
    };
    Ok(Path::new(&digits("layer")?).join(digits("index")?))
}
