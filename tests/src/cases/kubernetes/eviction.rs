//! Pages that are read lazily fill a node's disk: the kubelet removes the image that nobody uses, and as that is not enough, it
//! evicts the pod that is worth least. Then its image goes, which gives the space back, and the node takes pods again.

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::{index, push_indexed};
use crate::cases::kubelet::room::{DISK, FREE, available, taken};
use crate::lab;
use crate::runner::Outcome;
use crate::world::{World, run};
use xebec_testkit::tar::TarBuilder;

/// The bytes that are read of the image that nobody uses any more.
const UNUSED: u64 = 24 << 20;
/// The bytes that are read of the image whose pod goes. Without them there is room enough; with them there is not, whatever else goes.
const FILLING: u64 = 60 << 20;
/// Other bytes of images, at most: directories, and pages of files that all of them have.
const OTHER: u64 = 16 << 20;
/// Reads what an image has and the others have not.
const READ: &str = "cat /filler > /dev/null";
/// A class of pods that are not to go first.
const CLASS: &str = "/apis/scheduling.k8s.io/v1/priorityclasses/important";

fn pod(image: &str, line: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
                           "command": ["sh", "-c", line]}]})
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    lab::mount_small_with(&world.path("root"), DISK, &[])?;
    let staying = push_indexed(world, "redis")?;
    let unused = push_with(world, &staying, "unused", UNUSED)?;
    let filling = push_with(world, &staying, "filling", FILLING)?;
    let limits = json!({"evictionHard": {"imagefs.available": format!("{FREE}Mi"), "nodefs.available": "1Mi"},
                        "evictionPressureTransitionPeriod": "1s"});
    let mut cluster = Cluster::start(world, &limits)?;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                       "metadata": {"name": "important"}, "value": 1000});
    cluster.plane.apply(CLASS, &class.to_string())?;

    let mut once = pod(&unused, READ);
    once["restartPolicy"] = json!("Never");
    cluster.plane.add_pod("default", "once", &once)?;
    let is_over = |status: &Value| status["phase"] == "Succeeded";
    cluster
        .plane
        .comes_to(("default", "once"), "the pod has ended", is_over)?;
    cluster.plane.remove_pod("default", "once")?;
    let mut stays = pod(&staying, "exec sleep 1d");
    stays["priorityClassName"] = json!("important");
    cluster.plane.add_pod("default", "stays", &stays)?;
    let begun = cluster.plane.is_ready_pod("default", "stays")?;
    let waits = format!("until [ -e /tmp/go ]; do sleep 0.2; done; {READ}; exec sleep 1d");
    cluster
        .plane
        .add_pod("default", "fills", &pod(&filling, &waits))?;
    let (id, _) = cluster.plane.is_ready_pod("default", "fills")?[0].clone();
    // It removes no image that it has not seen before, and looks when it starts.
    cluster.restart_kubelet()?;

    // When all is read there is too little by what the unused image takes and a third of what was read.
    let left = (FREE << 20) + FILLING - UNUSED - FILLING / 3;
    let ballast = File::create(world.path("root/ballast"))?;
    let size = available(world)?
        .checked_sub(left)
        .context("the disk is too small")?;
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, size)?;
    drop(ballast);
    ensure!(
        !cluster.kubelet.log()?.contains("must evict pod(s)"),
        "it goes for pods before anything is read"
    );
    cluster.exec(&id, "touch /tmp/go")?;
    cluster.plane.has_node("DiskPressure", "True")?;
    let is_evicted = |status: &Value| status["phase"] == "Failed" && status["reason"] == "Evicted";
    let status = cluster
        .plane
        .comes_to(("default", "fills"), "the pod is evicted", is_evicted)
        .with_context(|| cluster.kubelet.last_words(&["viction", "image_gc"]))?;
    let listed = || {
        let words = ["--namespace", cri::NAMESPACE, "images", "ls", "--quiet"];
        cluster.containerd.does(&words)
    };
    ensure!(!listed()?.contains(&unused), "a pod went before an unused image");
    cluster.plane.has_node("DiskPressure", "False")?;
    ensure!(!listed()?.contains(&filling), "the evicted pod's image stays");
    let (room, rest) = (available(world)?, taken(world)?);
    ensure!(
        room > left + UNUSED - OTHER && rest < OTHER,
        "{room} bytes are free, and images take {rest}"
    );
    ensure!(
        cluster.plane.is_ready_pod("default", "stays")? == begun,
        "the other pod was started again"
    );
    cluster.exec(&begun[0].0, "cat /usr/bin/[a-f]* > /dev/null")?;

    // The node takes pods again, also of that image.
    fs::remove_file(world.path("root/ballast"))?;
    cluster
        .plane
        .add_pod("default", "again", &pod(&filling, "exec sleep 1d"))?;
    cluster.plane.is_ready_pod("default", "again")?;
    Ok(Outcome::Passed(format!(
        "{room} bytes are free again, and images take {rest}; {}",
        status["message"]
    )))
}

/// Pushes an image with a file of that size more, and its indexes.
fn push_with(world: &World, base: &str, name: &str, size: u64) -> Result<String> {
    let mut bytes = Vec::new();
    // Nothing that could be kept as less.
    File::open("/dev/urandom")?.take(size).read_to_end(&mut bytes)?;
    let mut tar = TarBuilder::new();
    tar.file("filler", &bytes);
    let layer = world.path(&format!("{name}.tar"));
    fs::write(&layer, tar.into_bytes())?;
    let reference = format!("{}/{name}:latest", world.registry);
    let mut crane = Command::new(World::tool("crane")?);
    crane.args(["append", "--insecure", "--base", base, "--new_tag", &reference]);
    run(crane.arg("--new_layer").arg(&layer))?;
    fs::remove_file(layer)?;
    index(world, &reference)?;
    Ok(reference)
}
