//! Containers in user namespaces: containerd maps lazy layers as it maps unpacked ones.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::lazy::{pull, push_indexed, push_mixed};
use super::support::{SOON, downloads};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// The ids on this host of root in the container: user and group.
const ROOT: (u32, u32) = (100_000, 200_000);
/// The words that tell containerd of it.
const MAPPED: &[&str] = &[
    "run",
    "--detach",
    "--uidmap=0:100000:65536",
    "--gidmap=0:200000:65536",
];
/// A file of all images here that nothing needs.
const COLD: &str = "usr/bin/perl";

/// The owner of a file: user and group.
pub(in crate::cases) fn owner(path: &Path) -> Result<(u32, u32)> {
    let status = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    Ok((status.uid(), status.gid()))
}

/// Where snapshots keep what their containers write.
pub(in crate::cases) fn uppers(world: &World) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(world.path("root/snapshots/u"))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The owners of the files "made" that were made since `before`.
pub(in crate::cases) fn written(world: &World, before: &BTreeSet<PathBuf>) -> Result<Vec<(u32, u32)>> {
    let mut written = Vec::new();
    for upper in uppers(world)?.difference(before) {
        let made = upper.join("made");
        written.extend(made.exists().then(|| owner(&made)).transpose()?);
    }
    Ok(written)
}

/// Asks that nothing of snapshots is mounted any more.
pub(in crate::cases) fn nothing_is_mounted() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let left = mounts
        .lines()
        .filter(|line| line.contains("/root/snapshots/"))
        .count();
    ensure!(left == 0, "{left} mounts are left");
    Ok(())
}

/// Starts a container that waits, and asks that all is as it should be in it. It must have added `snapshots`: its own, and the copy with
/// other owners that containerd makes of an image where the snapshotter does not map it.
fn check(
    world: &World,
    containerd: &Containerd<'_>,
    reference: &str,
    name: &str,
    more: &[&str],
    snapshots: usize,
) -> Result<()> {
    let had = containerd.snapshots()?;
    let uppers_before = uppers(world)?;
    let wait = [reference, name, "sleep", "600"];
    containerd.does(&[MAPPED, more, &wait].concat())?;
    let mut added = containerd.snapshots()?;
    added.retain(|key| !had.contains(key));
    ensure!(
        added.len() == snapshots && added.iter().any(|key| key == name),
        "container {name} added {added:?}"
    );
    is_well(containerd, name, "first").with_context(|| format!("container {name}"))?;
    let written = written(world, &uppers_before)?;
    ensure!(
        written == [ROOT],
        "what container {name} wrote belongs to {written:?} on disk"
    );
    Ok(())
}

fn is_well(containerd: &Containerd<'_>, name: &str, step: &str) -> Result<()> {
    let exec = |command: &str| {
        let id = format!("{step}-{}", command.len());
        containerd.does(&["tasks", "exec", "--exec-id", &id, name, "sh", "-c", command])
    };
    let told = exec("id -u; stat -c %u:%g / /etc/os-release; echo of root > /made; stat -c %u:%g /made")?;
    let told: Vec<&str> = told.split_whitespace().collect();
    ensure!(told == ["0", "0:0", "0:0", "0:0"], "inside: {told:?}");
    let inside = containerd.root_of(name);
    for name in ["etc/os-release", "made"] {
        let found = owner(&inside.join(name))?;
        ensure!(found == ROOT, "{name} belongs to {found:?}");
    }
    Ok(())
}

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    // Programs of root's children in the container come here by the directories of this case.
    run(Command::new("chmod").arg("711").arg(&world.directory))?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    let truth = reference_unpackers::unpack_to(
        world,
        &World::built_image("nginx")?,
        xebec_testkit::odd::Unpacker::Containerd,
    )?;

    let before = downloads(world)?.len();
    check(world, &containerd, &reference, "web", &["--remap-labels"], 1)?;
    // Beside one that is not mapped, on the same view.
    containerd.does(&["run", "--detach", &reference, "other", "sleep", "600"])?;
    let found = owner(&containerd.root_of("other").join("etc/os-release"))?;
    ensure!(found == (0, 0), "not mapped, and it belongs to {found:?}");
    // Pages that were not read yet come through the mapped mount, whichever worker answers now.
    snapshots.kill("worker_pid")?;
    let cold = fs::read(containerd.root_of("web").join(COLD))?;
    ensure!(cold == fs::read(truth.join(COLD))?, "wrong bytes in {COLD}");
    containerd.end("other")?;
    containerd.end("web")?;
    snapshots.restart()?;
    wait_until(SOON, "the task starts again", || {
        let started = containerd.ctr(&["tasks", "start", "--detach", "web"])?.output()?;
        Ok(started.status.success())
    })?;
    is_well(&containerd, "web", "again")?;
    let asked = downloads(world)?.len() - before;
    ensure!(asked == 0, "containerd downloaded {asked} blobs");

    // Unpacked layers on lazy ones, mapped by us and as containerd does it by itself.
    let mixed = push_mixed(world)?;
    containerd.does(&["images", "pull", "--plain-http", &mixed])?;
    check(world, &containerd, &mixed, "mixed", &["--remap-labels"], 1)?;
    check(world, &containerd, &mixed, "copied", &[], 2)?;

    for name in ["web", "mixed", "copied"] {
        containerd.end(name)?;
    }
    for name in ["web", "other", "mixed", "copied"] {
        containerd.does(&["containers", "rm", name])?;
    }
    for image in [&reference, &mixed] {
        containerd.does(&["images", "rm", "--sync", image])?;
    }
    containerd.collect()?;
    containerd.has_none()?;
    snapshots.has_only(&[])?;
    nothing_is_mounted()?;
    Ok(Outcome::Passed(format!(
        "root is {ROOT:?} on disk; no layer downloaded"
    )))
}
