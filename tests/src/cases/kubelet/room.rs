//! Images on a small disk: the kubelet sees what they take, and when the disk gets full it removes the one that nobody uses,
//! which makes room, so that no pod has to go.

use std::fs::{self, File};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::push_indexed;
use crate::cases::containerd::support::SOON;
use crate::containerd::{Containerd, Line, Snapshots, listens};
use crate::kubelet::Kubelet;
use crate::lab::{self, wait_until};
use crate::runner::Outcome;
use crate::world::{World, run};

/// Size of the disk, in bytes.
pub(in crate::cases) const DISK: u64 = 800 << 20;
/// How much of it is to be free, in MiB.
pub(in crate::cases) const FREE: u64 = 200;
/// How long containers of a pod that is gone may stay: the kubelet collects them once a minute.
const COLLECTED: Duration = Duration::from_secs(130);
/// Reads all files of an image.
pub(in crate::cases) const READ_ALL: &str =
    "find /usr /etc /bin /lib -xdev -type f -exec cat {} + > /dev/null 2>&1 || true";

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    lab::mount_small_with(&world.path("root"), DISK, &[])?;
    let pause = cri::push_pause(world)?;
    let (unused, used) = (push_indexed(world, "python")?, push_indexed(world, "redis")?);
    let snapshots = Snapshots::start(world)?;
    snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
    // The kubelet may remove any image but this one.
    let more = cri::configuration(world, Line::Two, &pause)?;
    let mut containerd = Containerd::start(world, Line::Two, &more)?;
    containerd.tool("cri", &["pull", &pause])?;
    let limits = json!({"evictionHard": {"imagefs.available": format!("{FREE}Mi"), "nodefs.available": "1Mi"},
                        "evictionPressureTransitionPeriod": "1s"});
    let mut kubelet = Kubelet::start(world, &snapshots, &limits)?;

    kubelet.add(
        "stays",
        &json!({"containers": [{"name": "redis", "image": used}]}),
    )?;
    let begun = kubelet.is_ready("stays")?;
    let containers = || containerd.does(&["--namespace", cri::NAMESPACE, "containers", "ls", "--quiet"]);
    let before = containers()?;
    let reads = json!({"restartPolicy": "Never",
                       "containers": [{"name": "reads", "image": unused, "command": ["sh", "-c", READ_ALL]}]});
    kubelet.add("reads", &reads)?;
    kubelet.comes_to("reads", "Succeeded")?;
    kubelet.remove("reads")?;
    // While a container of it is there, its image is in use, and the kubelet looks for pods to evict.
    wait_until(COLLECTED, "the pod's containers are gone", || {
        Ok(containers()? == before)
    })?;
    let taken = taken(world)?;
    // It asks once what a layer takes, and that may have been before all of it was read.
    containerd.kill()?;
    containerd.wake()?;
    // Both look at a cache that may still be written to.
    wait_until(SOON, "the kubelet knows what images take", || {
        // It has none before it has looked at its file systems for the first time.
        let figures = kubelet.image_file_system().unwrap_or_default();
        let believed = figures["usedBytes"].as_u64().unwrap_or_default();
        Ok(believed.abs_diff(taken) < taken / 20)
    })
    .with_context(|| format!("{taken} bytes on disk, and {:?}", kubelet.image_file_system()))?;

    // It looks for images when it starts, then every five minutes, and removes none that it has just seen for the first time.
    kubelet.kill()?;
    kubelet.wake()?;
    ensure!(kubelet.is_ready("stays")? == begun, "the pod was started again");

    // Less room than is wanted, by a quarter of what images take.
    let free = available(world)?;
    let ballast = File::create(world.path("root/ballast"))?;
    let size = free
        .checked_sub((FREE << 20) - taken / 4)
        .context("the disk is too small")?;
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, size)?;
    wait_until(
        SOON,
        "the image makes room",
        || Ok(available(world)? > FREE << 20),
    )
    .with_context(|| kubelet.last_words(&["viction", "image_gc"]))?;
    // It looks at once whether that was enough.
    let words = kubelet.last_words(&["must evict", "image_gc_manager", "containers are still running"]);
    ensure!(
        !kubelet.log()?.contains("must evict pod(s)"),
        "it goes for pods: {words}\n{}",
        fs::read_to_string(world.path("daemon.log"))?
    );
    let listed = containerd.does(&["--namespace", cri::NAMESPACE, "images", "ls", "--quiet"])?;
    ensure!(!listed.contains(&unused) && listed.contains(&used), "{listed}");
    ensure!(
        kubelet.is_ready("stays")? == begun,
        "the other pod was started again"
    );
    let left = self::taken(world)?;
    // And it comes back as lazily as ever.
    drop(ballast);
    fs::remove_file(world.path("root/ballast"))?;
    kubelet.add("reads", &reads)?;
    kubelet.comes_to("reads", "Succeeded")?;
    Ok(Outcome::Passed(format!("{taken} bytes of images became {left}")))
}

/// The room that the cache's layers take, in bytes.
pub(in crate::cases) fn taken(world: &World) -> Result<u64> {
    let layers = world.path("root/layers");
    let told = run(std::process::Command::new("du").args(["-s", "-B1"]).arg(&layers))?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let bytes = told.split_whitespace().next().context("du says nothing")?;
    Ok(bytes.parse()?)
}

/// The free room of the disk, in bytes.
pub(in crate::cases) fn available(world: &World) -> Result<u64> {
    let free = rustix::fs::statvfs(world.path("root").as_path())?;
    Ok(free.f_bavail * free.f_frsize)
}
