//! Actions of cases on the containers of pods.

use anyhow::{Context, Result};

use crate::cases::containerd::cri;
use crate::cases::containerd::support::SOON;
use crate::containerd::Containerd;
use crate::kubelet::Kubelet;
use crate::lab::wait_until;

/// Runs a command in a pod's container, and gives what it printed. The kubelet's id of it says what keeps it.
pub(super) fn exec(containerd: &Containerd<'_>, id: &str, command: &str) -> Result<String> {
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
pub(super) fn kill(containerd: &Containerd<'_>, id: &str) -> Result<()> {
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
pub(super) fn is_started_again(kubelet: &Kubelet<'_>, pod: &str, container: usize) -> Result<String> {
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
pub(super) fn bare(id: &str) -> &str {
    id.trim_start_matches("containerd://")
}
