//! The disk of images is full to its last byte. Pods that run go on with the bytes that are here. A pod that needs more is told why and
//! asks the registry for nothing. When there is room again everything goes on by itself.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::support::{bare, exec, is_started_again, kill};
use crate::cases::containerd::cri;
use crate::cases::containerd::full::fill_with_bytes;
use crate::cases::containerd::lazy::push_indexed;
use crate::cases::containerd::support::{PORT, SOON};
use crate::containerd::{Containerd, Line, Snapshots, http, listens};
use crate::kubelet::Kubelet;
use crate::lab::{self, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// Size of the disk, in bytes.
const DISK: u64 = 128 << 20;
/// The message then.
const FULL: &str = "No space left on device";
/// How often a pod tries to read what it cannot.
const READS: usize = 20;
/// A file that nothing has read when the disk gets full, longer than what is left for the daemon's notes.
const COLD: &str = "/usr/bin/perl";
/// Longest that one reading may take until it is refused.
const REFUSED: Duration = Duration::from_secs(10);
/// The daemon asks for each blob of the image, of its indexes and of a recording once at most, whatever it reads in the background
/// meanwhile.
const MOST_REQUESTS: u64 = 12;
/// Lines that the daemon may log meanwhile.
const LINES: usize = 40;

/// The requests of the daemon to the registry until now.
fn requests(world: &World) -> Result<u64> {
    let status = world.daemon_status()?;
    let count = status["counters"]["network_requests"].as_u64();
    count.context("no count of requests")
}

/// The requests to the registry, a line for each.
fn access(world: &World) -> Result<Vec<String>> {
    let access = fs::read(world.path("registry/access"))?;
    Ok(String::from_utf8_lossy(&access)
        .lines()
        .map(str::to_owned)
        .collect())
}

fn lines(world: &World) -> Result<usize> {
    Ok(fs::read_to_string(world.path("daemon.log"))?.lines().count())
}

/// A container that waits.
fn waits(image: &str) -> Value {
    json!({"containers": [{"name": "waits", "image": image, "imagePullPolicy": "IfNotPresent",
                           "command": ["sleep", "1d"]}]})
}

/// Why a pod's container does not run.
fn why(kubelet: &Kubelet<'_>, name: &str) -> Result<String> {
    let status = kubelet.status(name)?.unwrap_or_default();
    Ok(status["containerStatuses"][0]["state"]["waiting"].to_string())
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    lab::mount_small(&world.path("root"), DISK)?;
    let pause = cri::push_pause(world)?;
    let reference = push_indexed(world, "nginx")?;
    let snapshots = Snapshots::start(world)?;
    snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
    let more = cri::configuration(world, Line::Two, &pause)?;
    let containerd = Containerd::start(world, Line::Two, &more)?;
    containerd.tool("cri", &["pull", &pause])?;
    let kubelet = Kubelet::start(world, &snapshots, &json!({}))?;

    let probe = json!({"httpGet": {"host": "127.0.0.1", "path": "/", "port": PORT}, "periodSeconds": 1});
    let web = json!({"containers": [{"name": "web", "image": reference, "imagePullPolicy": "IfNotPresent",
                                     "readinessProbe": probe, "livenessProbe": probe}]});
    kubelet.add("web", &web)?;
    let begun = kubelet.is_ready("web")?;
    let (reader, _) = begun.first().context("no container")?;
    kubelet.add("waits", &waits(&reference))?;
    let waiting = kubelet.is_ready("waits")?;
    // The files that the shell needs are here, and one file is not.
    exec(
        &containerd,
        reader,
        "cat /etc/os-release; sha256sum < /etc/os-release",
    )?;
    let ballast = world.path("root/ballast");
    fill_with_bytes(&ballast)?;

    let (before, said) = ((requests(world)?, access(world)?.len()), lines(world)?);
    let mut longest = Duration::ZERO;
    for number in 0..READS {
        let begun = Instant::now();
        let words = ["--namespace", cri::NAMESPACE, "tasks", "exec", "--exec-id"];
        let id = format!("read-{number}");
        let refused = containerd.refuses(&[&words[..], &[&id, bare(reader), "cat", COLD]].concat())?;
        longest = longest.max(begun.elapsed());
        ensure!(refused.contains("Input/output error"), "{refused}");
    }
    ensure!(longest < REFUSED, "a reading was refused after {longest:?}");
    // One that is wanted, and one that is to be started again.
    kubelet.add("another", &waits(&reference))?;
    let (killed, _) = waiting.first().context("no container")?;
    kill(&containerd, killed)?;
    wait_until(SOON, "the kubelet says why it starts no pod", || {
        let log = kubelet.log()?;
        let is_said = |line: &str| line.contains("another-node") && line.contains(FULL);
        Ok(log.lines().any(is_said))
    })
    .with_context(|| kubelet.last_words(&["another-node"]))?;
    wait_until(
        SOON,
        "a pod's status says why its container is not started",
        || Ok(why(&kubelet, "waits")?.contains(FULL)),
    )
    .with_context(|| format!("{:?}", why(&kubelet, "waits")))?;
    ensure!(
        kubelet.is_ready("web")? == begun,
        "the other pod was started again"
    );
    ensure!(http(PORT).is_some(), "nginx does not answer");
    let (asked, told) = (requests(world)? - before.0, lines(world)? - said);
    let asked_for = access(world)?.split_off(before.1);
    // The registry gave a part of a blob.
    let read = asked_for.iter().filter(|line| line.contains("\" 206 ")).count();
    // There is room for a span as long as nobody has tried to write one.
    ensure!(read <= 1, "{read} parts fetched that there is no room for");
    // Nothing is asked for again and again.
    let blobs: BTreeSet<&str> = asked_for
        .iter()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    ensure!(blobs.len() == asked_for.len(), "asked for twice: {asked_for:#?}");
    ensure!(asked <= MOST_REQUESTS, "{asked} requests: {asked_for:#?}");
    ensure!(told < LINES, "{told} lines in the daemon's log");
    // Nothing was lost, and nobody is told so.
    let log = fs::read_to_string(world.path("daemon.log"))?;
    ensure!(!log.contains("restart containers"), "{log}");

    fs::remove_file(&ballast)?;
    is_started_again(&kubelet, "waits", 0)?;
    kubelet.is_ready("another")?;
    // The file that could not be read is a program.
    let said = exec(&containerd, reader, "perl -e 'print 6 * 7'")?;
    ensure!(said == "42", "{said}");
    ensure!(
        kubelet.is_ready("web")? == begun,
        "the other pod was started again"
    );
    for name in ["web", "waits", "another"] {
        kubelet.remove(name)?;
    }
    Ok(Outcome::Passed(format!(
        "{READS} readings refused, the slowest after {longest:?}, with {asked} requests and {told} lines; two containers \
         started when there was room"
    )))
}
