//! Daemon and containerd are killed and restarted, in every order: what runs goes on, what was stopped starts again.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lazy::{pull, push_indexed};
use super::support::{PORT, SOON, start_web};
use crate::containerd::{Containerd, Line, Snapshots, http};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

/// Files of the image that nginx does not need, so that they are not there when they are asked for.
const COLD: &[&str] = &["usr/bin/perl", "usr/bin/dpkg", "usr/bin/apt-get", "usr/bin/tar"];

/// A container on a lazy image, and what its files hold.
struct Web<'a> {
    containerd: &'a Containerd<'a>,
    truth: &'a Path,
}

impl Web<'_> {
    /// It answers, a program can be started in it, and a file that nobody has read yet is right.
    fn is_well(&self, step: &str, cold: &str) -> Result<()> {
        let well = || -> Result<()> {
            wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))?;
            let exec = [
                "tasks",
                "exec",
                "--exec-id",
                step,
                "web",
                "cat",
                "/etc/os-release",
            ];
            ensure!(self.containerd.does(&exec)?.contains("Debian"), "no exec");
            let bytes = fs::read(self.containerd.root_of("web").join(cold))?;
            ensure!(bytes == fs::read(self.truth.join(cold))?, "wrong bytes in {cold}");
            Ok(())
        };
        well().with_context(|| format!("after {step}"))
    }
}

/// Kills one process at a time under a container that runs.
pub(super) fn killed(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let mut containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    start_web(&containerd, &reference, "web")?;
    let layout = World::built_image("nginx")?;
    let truth =
        crate::reference_unpackers::unpack_to(world, &layout, xebec_testkit::odd::Unpacker::Containerd)?;
    let web = |containerd: &Containerd<'_>, step: &str, cold: &str| {
        let truth = &truth;
        Web { containerd, truth }.is_well(step, cold)
    };
    let [one, two, three, four] = COLD else {
        anyhow::bail!("four files are read")
    };
    snapshots.kill("worker_pid")?;
    web(&containerd, "worker-killed", one)?;
    snapshots.kill("keeper_pid")?;
    web(&containerd, "keeper-killed", two)?;
    containerd.kill()?;
    ensure!(http(PORT).is_some(), "without containerd");
    snapshots.kill("worker_pid")?;
    containerd.wake()?;
    web(&containerd, "containerd-killed", three)?;
    // A container that is started now needs all of them.
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;
    start_web(&containerd, &reference, "web")?;
    web(&containerd, "container-replaced", four)?;
    let status = world.daemon_status()?;
    let suspects = status.get("suspects").and_then(Value::as_array);
    ensure!(suspects.is_some_and(Vec::is_empty), "{status}");
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(
        "worker, keeper and containerd killed under a container".to_owned(),
    ))
}

/// How a socket stops being at its place.
#[derive(Clone, Copy)]
pub(super) enum Loss {
    NameRemoved,
    DirectoryReplaced,
    OtherSocket,
}

impl Loss {
    fn happens_to(self, world: &World, directory: &Path) -> Result<()> {
        let socket = directory.join("snapshots.sock");
        match self {
            Self::NameRemoved => fs::remove_file(&socket)?,
            Self::DirectoryReplaced => {
                fs::rename(directory, world.path("gone"))?;
                fs::create_dir(directory)?;
            }
            Self::OtherSocket => {
                fs::remove_file(&socket)?;
                drop(UnixListener::bind(&socket)?);
            }
        }
        Ok(())
    }
}

/// The socket is lost under a container: the keeper makes it again, a worker serves it, readers and containerd go on.
pub(super) fn socket_renewed(world: &World, loss: Loss) -> Result<Outcome> {
    let directory = world.path("at");
    let snapshots = Snapshots::start_in(world, &directory)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    start_web(&containerd, &reference, "web")?;
    let layout = World::built_image("nginx")?;
    let truth =
        crate::reference_unpackers::unpack_to(world, &layout, xebec_testkit::odd::Unpacker::Containerd)?;
    let keeper = snapshots.pid("keeper_pid")?;
    let worker = snapshots.pid("worker_pid")?;
    let socket = directory.join("snapshots.sock");
    loss.happens_to(world, &directory)?;
    let begun = Instant::now();
    wait_until(SOON, "the socket is there again", || {
        // There is none for a moment.
        let is_next = snapshots.pid("worker_pid").is_ok_and(|next| next != worker);
        Ok(is_next && UnixStream::connect(&socket).is_ok())
    })?;
    let took = begun.elapsed().as_secs();
    ensure!(snapshots.pid("keeper_pid")? == keeper, "another keeper");
    wait_until(SOON, "containerd has snapshots again", || {
        let mut listed = containerd.ctr(&["snapshots", "usage"])?;
        Ok(listed.output()?.status.success())
    })?;
    let web = Web {
        containerd: &containerd,
        truth: &truth,
    };
    web.is_well("socket-renewed", COLD.first().context("a file")?)?;
    containerd.does(&["run", "--detach", &reference, "new", "sleep", "600"])?;
    for container in ["new", "web"] {
        containerd.end(container)?;
        containerd.does(&["containers", "rm", container])?;
    }
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "there again after {took} s, by the same keeper"
    )))
}

/// Restarts both in each order while the container is stopped; it keeps what it wrote.
pub(super) fn in_any_order(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let mut containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    start_web(&containerd, &reference, "web")?;
    let write = [
        "tasks",
        "exec",
        "--exec-id",
        "w",
        "web",
        "sh",
        "-c",
        "echo mine > /kept",
    ];
    containerd.does(&write)?;
    for round in 0..4 {
        containerd.end("web")?;
        match round {
            0 => snapshots.restart()?,
            1 => {
                containerd.kill()?;
                snapshots.restart()?;
                containerd.wake()?;
            }
            2 => {
                snapshots.restart()?;
                containerd.kill()?;
                containerd.wake()?;
            }
            // containerd is up first, and finds nobody.
            _ => {
                snapshots.stop()?;
                containerd.kill()?;
                containerd.wake()?;
                containerd.refuses(&["snapshots", "usage"])?;
                snapshots.begin()?;
            }
        }
        // containerd tries a connection that was refused again after some seconds.
        wait_until(SOON, "the task starts", || {
            Ok(containerd
                .ctr(&["tasks", "start", "--detach", "web"])?
                .output()?
                .status
                .success())
        })
        .with_context(|| format!("round {round}"))?;
        wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))
            .with_context(|| format!("round {round}: {}", containerd.last_words()))?;
        let kept = fs::read(containerd.root_of("web").join("kept"))?;
        ensure!(kept == b"mine\n", "round {round}: what was written is not there");
    }
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(
        "four orders; the container started again each time".to_owned(),
    ))
}
