//! Many containers of several lazy images at once, the daemon killed meanwhile: counted are errors, wrong bytes, and what
//! is left.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::pull;
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::contents;
use crate::runner::Outcome;
use crate::world::{World, run};

const IMAGES: usize = 10;
const CONTAINERS: usize = 50;
/// Containers that are started, or killed and started again, at a time.
const AT_ONCE: usize = 5;
/// Size of the file that is an image's own.
const FILE: usize = 1 << 20;

/// Starts all, kills and starts again every other, and removes all.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let program = fs::read(World::go_tool("linger")?)?;
    let images = (0..IMAGES)
        .map(|number| push(world, &program, number))
        .collect::<Result<Vec<_>>>()?;
    for reference in &images {
        pull(world, &containerd, Line::Two, reference)?;
    }
    let name = |number: usize| format!("c{number}");
    let reference = |number: usize| images.get(number % IMAGES).context("no such image");
    let is_right = |number: usize| -> Result<()> {
        let bytes = fs::read(containerd.root_of(&name(number)).join("file"))?;
        ensure!(
            bytes == file(number % IMAGES),
            "container {number} reads wrong bytes"
        );
        Ok(())
    };
    // Killed when about half of them are there. What containerd asks just then fails, and is asked again, as a kubelet does.
    let repeated = AtomicUsize::new(0);
    at_once(0..CONTAINERS, |number| {
        if number == CONTAINERS / 2 {
            snapshots.kill("worker_pid")?;
        }
        let run = ["run", "--detach", "--net-host", reference(number)?, &name(number)];
        if containerd.does(&run).is_err() {
            repeated.fetch_add(1, Ordering::Relaxed);
            let _ = containerd.ctr(&["containers", "rm", &name(number)])?.output()?;
            containerd.does(&run)?;
        }
        is_right(number)
    })?;
    let repeated = repeated.into_inner();
    ensure!(
        repeated <= AT_ONCE,
        "{repeated} starts failed, of {AT_ONCE} that were under way at the kill"
    );
    at_once((0..CONTAINERS).step_by(2), |number| {
        containerd.end(&name(number))?;
        containerd.does(&["tasks", "start", "--detach", &name(number)])?;
        is_right(number)
    })?;
    at_once(0..CONTAINERS, |number| {
        is_right(number)?;
        containerd.end(&name(number))?;
        containerd.does(&["containers", "rm", &name(number)]).map(|_| ())
    })?;
    for reference in &images {
        containerd.does(&["images", "rm", "--sync", reference])?;
    }
    containerd.collect()?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{CONTAINERS} containers of {IMAGES} images; {repeated} starts repeated because the worker was killed"
    )))
}

/// Does something for each number, [`AT_ONCE`] at a time, and gives the first failure.
fn at_once(numbers: impl Iterator<Item = usize>, act: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let numbers: Vec<usize> = numbers.collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            act(number).with_context(|| format!("container {number}"))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread died"))?)
    })
}

/// The contents of an image's own file.
fn file(number: usize) -> Vec<u8> {
    contents(500 + number as u64, FILE)
}

/// An image of two layers, the program that waits and its own file, with indexes.
fn push(world: &World, program: &[u8], number: usize) -> Result<String> {
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("linger", Kind::File).mode(0o755), program);
    let mut upper = TarBuilder::new();
    upper.file("file", file(number));
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .layer(&upper.into_bytes(), Compression::Gzip(1))?
        .config("Entrypoint", json!(["/linger", "1h"]))
        .build();
    let layout = world.path(&format!("image{number}"));
    image.write_layout(&layout, "latest")?;
    let reference = world.push(&layout, &format!("image{number}"))?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    Ok(reference)
}
