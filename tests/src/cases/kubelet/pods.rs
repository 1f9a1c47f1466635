//! A pod through the death of each part and an upgrade, one that is wanted while there is no Xebec, and one whose registry is lost.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::support::{is_started_again, kill};
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::{push_indexed, without_layers};
use crate::cases::containerd::support::{PORT, SOON};
use crate::containerd::{Containerd, Line, Snapshots, http, listens};
use crate::kubelet::Kubelet;
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// nginx behind an init container and beside a sidecar, each with another policy of pulling: the first brings the image, the
/// second has to find it, and the third asks the registry each time.
fn web(image: &str) -> Value {
    let probe = json!({"httpGet": {"host": "127.0.0.1", "path": "/", "port": PORT}, "periodSeconds": 1});
    json!({
        "initContainers": [
            {"name": "first", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["cat", "/etc/os-release"]},
            {"name": "beside", "image": image, "imagePullPolicy": "Never", "restartPolicy": "Always",
             "command": ["sh", "-c", "! touch /written && exec sleep 1d"],
             "securityContext": {"readOnlyRootFilesystem": true}},
        ],
        "containers": [
            {"name": "web", "image": image, "imagePullPolicy": "Always",
             "startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe},
        ],
    })
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let pause = cri::push_pause(world)?;
    let reference = push_indexed(world, "nginx")?;
    let snapshots = Snapshots::start(world)?;
    snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
    let more = cri::configuration(world, Line::Two, &pause)?;
    let mut containerd = Containerd::start(world, Line::Two, &more)?;
    containerd.tool("cri", &["pull", &pause])?;
    let mut kubelet = Kubelet::start(world, &snapshots, &json!({}))?;

    let begun = without_layers(world, || {
        kubelet.add("web", &web(&reference))?;
        kubelet.is_ready("web")
    })?;
    let goes_on = |kubelet: &Kubelet<'_>, after: &str| -> Result<()> {
        let now = kubelet.is_ready("web")?;
        ensure!(now == begun, "after {after}: {begun:?} became {now:?}");
        ensure!(http(PORT).is_some(), "after {after}: nginx does not answer");
        Ok(())
    };
    snapshots.kill("worker_pid")?;
    goes_on(&kubelet, "the death of a worker")?;
    kubelet.kill()?;
    kubelet.wake()?;
    goes_on(&kubelet, "the death of the kubelet")?;
    containerd.kill()?;
    containerd.wake()?;
    goes_on(&kubelet, "the death of containerd")?;
    snapshots.kill_whole()?;
    snapshots.begin()?;
    goes_on(&kubelet, "the death of the daemon")?;
    upgrade(world)?;
    goes_on(&kubelet, "an upgrade")?;

    // Nobody waits without being told why.
    kubelet.remove("web")?;
    snapshots.stop()?;
    kubelet.add("again", &web(&reference))?;
    let socket = snapshots.socket().display().to_string();
    let is_said = |line: &str| line.contains("again-node") && line.contains(&socket);
    wait_until(SOON, "the kubelet says what is missing", || {
        Ok(kubelet.log()?.lines().any(is_said))
    })
    .with_context(|| kubelet.last_words(&["again-node"]))?;
    snapshots.begin()?;
    let begun = kubelet.is_ready("again")?;

    // The second is started again in its pod, and needs nothing that is not here.
    kill_process(world.registry_pid(), Signal::KILL)?;
    let (id, _) = begun.get(1).context("no second container")?;
    kill(&containerd, id)?;
    is_started_again(&kubelet, "again", 1)?;
    ensure!(
        kubelet.is_ready("again")?.get(2) == begun.get(2),
        "the other container was started again"
    );
    ensure!(http(PORT).is_some(), "nginx does not answer");
    kubelet.remove("again")?;
    Ok(Outcome::Passed(format!(
        "{} containers through 4 deaths and an upgrade, one started again without its registry",
        begun.len()
    )))
}

/// The daemon's program is replaced by a copy of it, as a package does.
fn upgrade(world: &World) -> Result<()> {
    let daemon = |name: &str| {
        let pid = world.daemon_status()?[name].as_u64();
        pid.with_context(|| format!("no {name}"))
    };
    let (keeper, worker) = (daemon("keeper_pid")?, daemon("worker_pid")?);
    let next = world.path("next-xebec");
    fs::copy(format!("/proc/{keeper}/exe"), &next)?;
    run(world.xebec(&["daemon", "upgrade", "--program"]).arg(&next))?;
    ensure!(daemon("keeper_pid")? == keeper, "the keeper is another process");
    ensure!(daemon("worker_pid")? != worker, "the worker is the same");
    Ok(())
}
