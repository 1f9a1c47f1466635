//! A pod of an image whose registry wants a password, which the kubelet gets from a credential provider.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::support::exec;
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::push_indexed;
use crate::cases::containerd::support::SOON;
use crate::containerd::{Containerd, Line, Snapshots, listens};
use crate::kubelet::{Kubelet, give_login};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let pause = cri::push_pause(world)?;
    let open = push_indexed(world, "nginx")?;
    let locked = world.lock_registry(cri::ENTRY)?;
    let reference = open.replace(&world.registry, &locked.address);
    let snapshots = Snapshots::start(world)?;
    snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
    let more = cri::configuration(world, Line::Two, &pause)?;
    let containerd = Containerd::start(world, Line::Two, &more)?;
    containerd.tool("cri", &["pull", &pause])?;

    give_login(world, &locked.address, cri::USER, cri::WRONG)?;
    let kubelet = Kubelet::start(world, &snapshots, &json!({}))?;
    kubelet.add(
        "web",
        &json!({"containers": [{"name": "web", "image": reference}]}),
    )?;
    let is_refused = || {
        let log = kubelet.log()?;
        let mut lines = log.lines();
        Ok(lines.any(|line| line.contains("PullImage") && line.contains("401")))
    };
    wait_until(SOON, "the registry refuses the kubelet", is_refused)
        .with_context(|| kubelet.last_words(&["PullImage", "web-node"]))?;
    ensure!(cri::blobs(world)? == 0, "read with a wrong password");
    give_login(world, &locked.address, cri::USER, cri::PASSWORD)?;
    let begun = kubelet.is_ready("web")?;

    let (id, _) = begun.first().context("no container")?;
    let reads = |files: &str| -> Result<usize> {
        let before = cri::blobs(world)?;
        let command = format!("cat {files} > /dev/null");
        exec(&containerd, id, &command)?;
        Ok(cri::blobs(world)? - before)
    };
    let first = reads("/usr/bin/[a-d]*")?;
    snapshots.kill("worker_pid")?;
    let second = reads("/usr/bin/[e-z]*")?;
    ensure!(first > 0 && second > 0, "{first} and {second} reads of blobs");
    kubelet.remove("web")?;
    Ok(Outcome::Passed(format!(
        "refused with a wrong password; {first} and {second} reads of blobs with the right one"
    )))
}
