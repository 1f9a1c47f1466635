//! The disk of the snapshots is full, of bytes or of files: containerd is told so, nothing is damaged, what is there can be
//! read and removed, and when there is room again everything goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::pull;
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::{self, contents, wait_until};
use crate::runner::Outcome;
use crate::world::{World, run};

/// Size of the disk, in bytes.
const DISK: u64 = 48 << 20;
/// Files that the disk can have.
const FILES: u64 = 600;
/// Size of the file that an image has.
const FILE: usize = 2 << 20;
/// Snapshots made and removed on the full disk: more than fit into what the store has left over.
const REMOVED: usize = 40;
/// The message then.
const FULL: &str = "No space left on device";

/// How a disk is filled.
#[derive(Clone, Copy, Debug)]
enum With {
    Bytes,
    Files,
}

/// Full of bytes.
pub(super) fn of_bytes(world: &World) -> Result<Outcome> {
    run_case(world, With::Bytes)
}

/// Full of files.
pub(super) fn of_files(world: &World) -> Result<Outcome> {
    run_case(world, With::Files)
}

fn run_case(world: &World, with: With) -> Result<Outcome> {
    let root = world.path("root");
    lab::mount_small_with(&root, DISK, &["-N", &FILES.to_string()])?;
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let lazy = push(world, "lazy", 1)?;
    run(&mut world.xebec_at("builder", &["index", "--push", &lazy]))?;
    pull(world, &containerd, Line::Two, &lazy)?;
    let plain = push(world, "plain", 2)?;
    // A disk that is full of snapshots has a store that is full, too.
    let key = |number: usize| format!("s{number}");
    for number in 0..REMOVED {
        containerd.does(&["snapshots", "prepare", &key(number)])?;
    }
    let ballast = root.join("ballast");
    fs::create_dir(&ballast)?;
    fill(&ballast, with)?;

    let refused = containerd.refuses(&["snapshots", "prepare", "more"])?;
    ensure!(refused.contains(FULL), "Prepare: {refused}");
    let refused = containerd.refuses(&["images", "pull", "--plain-http", &plain])?;
    ensure!(
        refused.contains(FULL) || refused.contains("no space left"),
        "pull: {refused}"
    );
    // Reading needs no room, and neither does making some.
    ensure!(containerd.snapshots()?.len() >= REMOVED, "not all are listed");
    containerd.does(&["snapshots", "info", &key(0)])?;
    containerd.does(&["snapshots", "usage", &key(0)])?;
    containerd.does(&["snapshots", "mounts", "/mnt", &key(0)])?;
    // A daemon that starts on the full disk does the same.
    snapshots.kill_whole()?;
    snapshots.begin()?;
    wait_until(super::support::SOON, "snapshots are served", || {
        Ok(containerd
            .ctr(&["snapshots", "info", &key(0)])?
            .output()?
            .status
            .success())
    })?;
    ensure!(containerd.snapshots()?.len() >= REMOVED, "not all are listed");
    for number in 0..REMOVED {
        containerd
            .does(&["snapshots", "rm", &key(number)])
            .with_context(|| format!("the {number}th that is removed"))?;
    }

    fs::remove_dir_all(&ballast)?;
    containerd.does(&["images", "pull", "--plain-http", &plain])?;
    for (reference, name, seed) in [(&lazy, "one", 1), (&plain, "two", 2)] {
        containerd.does(&["run", "--detach", "--net-host", reference, name, "/linger", "1h"])?;
        let bytes = fs::read(containerd.root_of(name).join("file"))?;
        ensure!(bytes == contents(seed, FILE), "wrong bytes in {name}");
        containerd.end(name)?;
        containerd.does(&["containers", "rm", name])?;
    }
    for reference in [&lazy, &plain] {
        containerd.does(&["images", "rm", "--sync", reference])?;
    }
    containerd.collect()?;
    containerd.has_none()?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "full of {with:?}: refused, {REMOVED} snapshots removed, and all works again"
    )))
}

fn is_full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

/// Writes a file until the disk has not a byte more.
pub(in crate::cases) fn fill_with_bytes(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 20, 4096, 512] {
        let bytes = vec![1; size];
        let full = loop {
            if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
                break error;
            }
        };
        ensure!(is_full(&full), "{full}");
    }
    Ok(())
}

/// Fills a disk to the brim.
fn fill(directory: &Path, with: With) -> Result<()> {
    match with {
        With::Bytes => fill_with_bytes(&directory.join("file"))?,
        With::Files => {
            let mut made = 0..FILES;
            let full = made.find_map(|number| File::create(directory.join(number.to_string())).err());
            ensure!(full.as_ref().is_some_and(is_full), "{full:?}");
        }
    }
    Ok(())
}

/// An image of a program that waits, and a file.
fn push(world: &World, name: &str, seed: u64) -> Result<String> {
    let program = fs::read(World::go_tool("linger")?)?;
    let file = contents(seed, FILE);
    let mut lower = TarBuilder::new();
    // No layer of the two is the same: what vouches for one would be asked for of the other.
    lower.file("name", name);
    lower.file_with(&Header::new("linger", Kind::File).mode(0o755), &program);
    let image = ImageBuilder::new()
        .layer(&lower.into_bytes(), Compression::Gzip(1))?
        .layer(&lab::tar(&[("file", &file)]), Compression::Gzip(1))?
        .build();
    let layout = world.path(name);
    image.write_layout(&layout, "latest")?;
    world.push(&layout, name)
}
