//! Runtime images under containerd, which says what runs after it has asked for a root: the group's default service comes
//! at once, and the others follow.

use std::fs;

use anyhow::{Result, ensure};

use super::SOON;
use super::lazy::{pull, push_indexed};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// What is recorded of nginx's image, none of it the image's own command. The last one is the default.
const SERVICES: &[(&str, &str)] = &[
    ("/usr/bin/sort", "/etc/debian_version"),
    ("/usr/bin/md5sum", "/etc/os-release"),
];

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let reference = push_indexed(world, "nginx")?;
    for (program, argument) in SERVICES {
        let record = ["record", "--entrypoint", program, &reference, argument];
        run(&mut world.xebec_at("builder", &record))?;
    }
    run(&mut world.xebec_at("builder", &["record", "--merge", &reference]))?;
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"]))?;

    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    pull(world, &containerd, Line::Two, &reference)?;
    containerd.does(&["run", "--detach", &reference, "one", "sleep", "600"])?;
    let count = |words: &str| -> Result<usize> {
        let log = fs::read_to_string(world.path("daemon.log"))?;
        Ok(log.lines().filter(|line| line.contains(words)).count())
    };
    wait_until(SOON, "the other service has followed", || {
        Ok(count("what another service of the image needs has followed")? == SERVICES.len() - 1)
    })?;
    let loaded = count("runtime image loaded")?;
    ensure!(loaded == 1, "{loaded} runtime images were loaded");
    for (number, (program, argument)) in SERVICES.iter().enumerate() {
        let id = format!("exec-{number}");
        let exec = ["tasks", "exec", "--exec-id", &id, "one", program, argument];
        containerd.does(&exec)?;
    }
    containerd.end("one")?;
    containerd.does(&["containers", "rm", "one"])?;
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "one of {} first, the rest after it",
        SERVICES.len()
    )))
}
