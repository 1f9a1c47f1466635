//! Runtime images under containerd, which says what runs after it has asked for a root: the group's default service comes
//! with the pull, and the others follow.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::lazy::{pull, push_indexed};
use super::support::SOON;
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// The services of nginx's image that are recorded, none of them the image's own command. The last one is the default: merged they are
/// equally new, and its words are the greater ones.
const SERVICES: &[(&str, &str)] = &[
    ("/usr/bin/md5sum", "/etc/os-release"),
    ("/usr/bin/sort", "/etc/debian_version"),
];

/// Most requests of the daemon for a pull: the manifest, the configuration, its referrers (by the referrers API, which
/// this registry lacks, and by tag), the three recordings, and what the last of them brings.
const PULL: u64 = 8;

/// The daemon's message about a service that came after the pull.
const FOLLOWED: &str = "what another service of the image needs has followed";

/// How many pages a merged recording has of a program.
fn pages_of(merged: &[u8], program: &str) -> Result<u64> {
    let merged: Value = serde_json::from_slice(merged)?;
    let services = merged.get("services").and_then(Value::as_array);
    let is_it = |service: &&Value| service.pointer("/argv/0").and_then(Value::as_str) == Some(program);
    let service = services.and_then(|services| services.iter().find(is_it));
    let pages = service.and_then(|service| service.get("pages")?.as_u64());
    pages.with_context(|| format!("no pages of {program} in {merged}"))
}

/// How many pages a line of the log tells of.
fn pages_in(line: &str) -> Result<u64> {
    let pages = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("pages="));
    let pages = pages.with_context(|| format!("no pages in {line:?}"))?;
    pages.parse().with_context(|| line.to_owned())
}

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let reference = push_indexed(world, "nginx")?;
    for (program, argument) in SERVICES {
        let record = ["record", "--entrypoint", program, &reference, argument];
        run(&mut world.xebec_at("builder", &record))?;
    }
    let merged = run(&mut world.xebec_at("builder", &["record", "--merge", "--json", &reference]))?;
    let default = pages_of(&merged.stdout, SERVICES.last().context("no service")?.0)?;
    let other = pages_of(&merged.stdout, SERVICES.first().context("no service")?.0)?;
    ensure!(default != other, "{default} pages tell neither from the other");
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"]))?;

    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let lines = |words: &str| -> Result<Vec<String>> {
        let log = fs::read_to_string(world.path("daemon.log"))?;
        let found = log.lines().filter(|line| line.contains(words));
        Ok(found.map(str::to_owned).collect())
    };
    let count = |words: &str| Ok::<_, anyhow::Error>(lines(words)?.len());
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
    let loaded = lines("runtime image loaded")?.concat();
    ensure!(
        pages_in(&loaded)? == default,
        "not the {default} pages of the default service: {loaded}"
    );
    let for_pull = asked()?;
    ensure!(for_pull <= PULL, "{for_pull} requests for a pull");
    let early = lines(FOLLOWED)?;
    ensure!(early.is_empty(), "nobody has started yet: {early:?}");
    containerd.does(&["run", "--detach", &reference, "one", "sleep", "600"])?;
    wait_until(SOON, "the other service has followed", || {
        Ok(count(FOLLOWED)? == SERVICES.len() - 1)
    })?;
    for line in lines(FOLLOWED)? {
        ensure!(pages_in(&line)? > 0, "nothing followed: {line}");
    }
    let loaded = lines("runtime image loaded")?;
    let [_, at_start] = &loaded[..] else {
        bail!("not one for the pull and one for the start: {loaded:?}")
    };
    ensure!(
        at_start.contains("missing=0 "),
        "the pull did not bring all: {at_start}"
    );
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
