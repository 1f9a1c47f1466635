//! Everything is restarted under Docker's containers: what runs goes on, or starts again as its restart policy says.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::host::{Host, SOON};
use crate::docker::Docker;
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

impl Host<'_> {
    /// Whether a container runs, can be entered and can be ended by Docker.
    fn is_well(&self, name: &str, step: &str) -> Result<()> {
        let well = || {
            wait_until(SOON, "it runs", || {
                let entered = self.docker.ask(&["exec", name, "cat", "/etc/passwd"])?;
                Ok(self.docker.runs(name)? && entered.code == 0)
            })
        };
        well().with_context(|| format!("{name} after {step}: {}", self.docker.last_words()))
    }
}

fn begun(docker: &Docker<'_>, name: &str) -> Result<String> {
    docker.does(&["inspect", "--format", "{{.State.StartedAt}}", name])
}

/// With `live-restore`, containers go on through every restart.
pub(super) fn live(world: &World) -> Result<Outcome> {
    let mut host = Host::start(world, true)?;
    host.pull()?;
    host.waits("web", &host.names.tag, &[])?;
    let first = begun(&host.docker, "web")?;
    host.snapshots.kill("worker_pid")?;
    host.is_well("web", "the worker's death")?;
    host.snapshots.kill("keeper_pid")?;
    host.is_well("web", "the keeper's death")?;
    host.docker.kill()?;
    host.docker.begin()?;
    host.is_well("web", "Docker's death")?;
    host.docker.stop()?;
    host.docker.begin()?;
    host.is_well("web", "a restart of Docker")?;
    host.relay.kill()?;
    host.relay.begin()?;
    host.is_well("web", "the relay's death")?;
    host.relay.stop()?;
    host.is_well("web", "the relay's end")?;
    host.relay.begin()?;
    host.containerd.kill()?;
    host.containerd.wake()?;
    host.is_well("web", "containerd's death")?;
    ensure!(begun(&host.docker, "web")? == first, "it was started again");
    // Commands to Docker about it still arrive.
    host.docker.does(&["stop", "web"])?;
    host.docker.does(&["start", "web"])?;
    host.is_well("web", "a start again")?;
    let large = host.docker.does(&["exec", "web", "sha256sum", "/large"])?;
    let wanted = xebec_format::digest::Digest::of(&host.large).to_string();
    ensure!(large.starts_with(wanted.trim_start_matches("sha256:")), "{large}");
    Ok(Outcome::Passed("one container under eight restarts".to_owned()))
}

/// Keeper and worker die at once, with no service manager: the next daemon names the container that read zeros meanwhile, and
/// when Docker has stopped and started it, it reads what is right.
pub(super) fn daemon_lost(world: &World) -> Result<Outcome> {
    let host = Host::start(world, false)?;
    let docker = &host.docker;
    host.pull()?;
    host.waits("web", &host.names.tag, &[])?;
    let wanted = xebec_format::digest::Digest::of(&host.large).to_string();
    let wanted = wanted.trim_start_matches("sha256:");
    host.snapshots.kill_whole()?;
    let meanwhile = docker.does(&["exec", "web", "sha256sum", "/large"])?;
    ensure!(
        !meanwhile.starts_with(wanted),
        "this kernel guards without a group"
    );
    host.snapshots.begin()?;
    let first = docker.does(&["inspect", "--format", "{{.State.Pid}}", "web"])?;
    let status = host.lab.status("root")?;
    let processes = status.pointer("/suspects/0/processes").and_then(Value::as_array);
    let processes = processes.with_context(|| format!("no suspects: {status}"))?;
    let is_named = processes.iter().any(|process| {
        let pid = process.get("pid").and_then(Value::as_u64);
        pid.is_some_and(|pid| pid.to_string() == first)
    });
    ensure!(is_named, "{first} is not named: {status}");
    docker.does(&["stop", "--time", "1", "web"])?;
    docker.does(&["start", "web"])?;
    let read = docker.does(&["exec", "web", "sha256sum", "/large"])?;
    ensure!(read.starts_with(wanted), "after a start again: {read}");
    wait_until(SOON, "no suspects are left", || {
        let status = host.lab.status("root")?;
        let suspects = status.get("suspects").and_then(Value::as_array);
        Ok(suspects.is_some_and(Vec::is_empty))
    })?;
    Ok(Outcome::Passed(format!("{} processes named", processes.len())))
}

/// Without `live-restore`: containers end with Docker, and those come back that are to.
pub(super) fn policies(world: &World) -> Result<Outcome> {
    let mut host = Host::start(world, false)?;
    host.pull()?;
    let tag = host.names.tag.clone();
    host.waits("always", &tag, &["--restart", "always"])?;
    host.waits("stopped", &tag, &["--restart", "unless-stopped"])?;
    host.waits("never", &tag, &[])?;
    host.docker.does(&["stop", "stopped"])?;
    let fails = [
        "run",
        "--detach",
        "--network",
        "host",
        "--name",
        "fails",
        "--restart",
        "on-failure:3",
    ];
    host.docker
        .does(&[&fails[..], &[&*tag, "sh", "-c", "exit 3"]].concat())?;
    wait_until(SOON, "it has failed four times", || {
        let format = "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}}";
        Ok(host.docker.does(&["inspect", "--format", format, "fails"])? == "3 exited 3")
    })?;
    for step in ["all", "all but Xebec", "with Xebec last"] {
        host.docker.stop()?;
        host.relay.kill()?;
        host.containerd.kill()?;
        if step != "all but Xebec" {
            host.snapshots.stop()?;
        }
        if step == "all" {
            host.snapshots.begin()?;
        }
        host.containerd.wake()?;
        host.relay.begin()?;
        if step == "with Xebec last" {
            host.docker.begin()?;
            let said = host.docker.refuses(&["start", "always"])?;
            ensure!(said.contains("RWLayer"), "{said}");
            host.snapshots.begin()?;
            // containerd tries a connection that was refused again after some seconds.
            wait_until(SOON, "containerd has snapshots again", || {
                let mut listed = host.containerd.ctr(&["snapshots", "usage"])?;
                Ok(listed.output()?.status.success())
            })?;
            // Docker looks for its containers' layers once, when it begins.
            host.docker.stop()?;
            host.docker.begin()?;
        } else {
            host.docker.begin()?;
        }
        host.is_well("always", step)?;
        for ended in ["stopped", "never"] {
            ensure!(!host.docker.runs(ended)?, "{ended} runs after {step}");
        }
    }
    Ok(Outcome::Passed(
        "policies kept over three restarts of everything".to_owned(),
    ))
}

/// Xebec is stopped: Docker goes on with what runs, says why something cannot start, and does not hang.
pub(super) fn without(world: &World) -> Result<Outcome> {
    let mut host = Host::start(world, true)?;
    host.pull()?;
    let tag = host.names.tag.clone();
    // All of it is here.
    host.waits("web", &tag, &[])?;
    host.docker.does(&["exec", "web", "sha256sum", "/large"])?;
    host.snapshots.stop()?;
    host.relay.stop()?;
    host.is_well("web", "Xebec's end")?;
    host.docker.does(&["ps"])?;
    host.docker.does(&["images"])?;
    host.docker.does(&["exec", "web", "sha256sum", "/large"])?;
    // The purpose of the relay: without it, Docker saves next to nothing of an image whose blobs containerd lacks.
    let archive = world.path("saved.tar");
    let archive = archive.to_str().context("an odd path")?;
    host.docker.does(&["save", "--output", archive, &tag])?;
    let length = std::fs::metadata(archive)?.len();
    ensure!(length < 1 << 20, "{length} bytes were saved without the relay");
    let said = host
        .docker
        .refuses(&["run", "--rm", "--network", "host", &tag, "cat", "/etc/passwd"])?;
    ensure!(said.contains("snapshots.sock"), "{said}");
    host.docker.does(&["stop", "web"])?;
    host.snapshots.begin()?;
    host.relay.begin()?;
    wait_until(SOON, "it starts", || {
        Ok(host.docker.ask(&["start", "web"])?.code == 0)
    })?;
    host.is_well("web", "Xebec's return")?;
    Ok(Outcome::Passed(
        "what ran went on; a start said what is missing".to_owned(),
    ))
}
