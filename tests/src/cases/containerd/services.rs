//! Runtime images under containerd, which says what runs after it has asked for a root: the group's default service comes
//! with the pull, and the others follow.

use std::fs;

use anyhow::{Context, Result, ensure};

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

/// Most requests of the daemon for a pull: the manifest, the configuration, who refers to it (by the referrers API, which
/// this registry lacks, and by tag), the three recordings, and what the last of them brings.
const PULL: u64 = 8;

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
    let count = |words: &str| -> Result<usize> {
        let log = fs::read_to_string(world.path("daemon.log"))?;
        Ok(log.lines().filter(|line| line.contains(words)).count())
    };
    let asked = || -> Result<u64> {
        let status = world.daemon_status()?;
        status["counters"]["network_requests"]
            .as_u64()
            .context("no count of requests")
    };
    pull(world, &containerd, Line::Two, &reference)?;
    wait_until(SOON, "the pull has brought the first service's pages", || {
        Ok(count("runtime image loaded")? == 1)
    })?;
    let for_pull = asked()?;
    ensure!(for_pull <= PULL, "{for_pull} requests for a pull");
    containerd.does(&["run", "--detach", &reference, "one", "sleep", "600"])?;
    wait_until(SOON, "the other service has followed", || {
        Ok(count("what another service of the image needs has followed")? == SERVICES.len() - 1)
    })?;
    let loaded = count("runtime image loaded")?;
    ensure!(loaded == 2, "{loaded} runtime images were loaded");
    let found = count("missing=0 ")?;
    ensure!(found == 1, "{found} starts lacked nothing");
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
        "one of {} with the pull, by {for_pull} requests; the rest after it",
        SERVICES.len()
    )))
}
