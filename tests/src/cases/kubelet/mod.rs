//! A real kubelet on containerd and Xebec.

mod full;
mod logins;
mod namespaces;
mod pods;
pub(super) mod room;
mod uninstalled;

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cases::containerd::{SOON, cri};
use crate::containerd::Containerd;
use crate::kubelet::Kubelet;
use crate::lab::wait_until;
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("kubelet/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("pods", pods::run_case),
        case("logins", logins::run_case),
        case("room", room::run_case),
        case("namespaces", namespaces::run_case),
        case("full", full::run_case),
        case("uninstalled", uninstalled::run_case),
    ]
}

/// Runs a command in a pod's container, and gives what it printed. The kubelet's id of it says what keeps it.
fn exec(containerd: &Containerd<'_>, id: &str, command: &str) -> Result<String> {
    // One name for each, as the last one may not be forgotten yet.
    let name = format!("exec-{}", fastrand::u64(..));
    let words = [
        "--namespace",
        cri::NAMESPACE,
        "tasks",
        "exec",
        "--exec-id",
        &name,
        bare(id),
        "sh",
        "-c",
        command,
    ];
    containerd.does(&words)
}

/// Kills a container's process.
fn kill(containerd: &Containerd<'_>, id: &str) -> Result<()> {
    let words = [
        "--namespace",
        cri::NAMESPACE,
        "tasks",
        "kill",
        "--signal",
        "SIGKILL",
        bare(id),
    ];
    containerd.does(&words).map(|_| ())
}

/// Waits until a pod is ready with a container that was started again once, and gives the id of that.
fn is_started_again(kubelet: &Kubelet<'_>, pod: &str, container: usize) -> Result<String> {
    let mut id = String::new();
    wait_until(SOON, "a container is started again", || {
        let containers = kubelet.is_ready(pod)?;
        let (now, restarts) = containers.get(container).context("no such container")?;
        id.clone_from(now);
        Ok(*restarts == 1)
    })
    .with_context(|| kubelet.last_words(&[pod]))?;
    Ok(id)
}

/// The id that containerd knows.
fn bare(id: &str) -> &str {
    id.trim_start_matches("containerd://")
}
