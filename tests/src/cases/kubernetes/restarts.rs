//! etcd and the API server die while pods start and read: what runs goes on, and what was wanted comes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cluster::{Cluster, blobs};
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::push_indexed;
use crate::cases::containerd::support::SOON;
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

/// So many pods start when it happens.
const STARTING: usize = 4;

fn pod(image: &str) -> Value {
    json!({"containers": [{"name": "waits", "image": image, "imagePullPolicy": "IfNotPresent",
                           "command": ["sh", "-c", "cat /usr/bin/[a-c]* > /dev/null && exec sleep 1d"]}]})
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let image = push_indexed(world, "nginx")?;
    let mut cluster = Cluster::start(world, &json!({}))?;
    cluster.plane.add_pod("default", "runs", &pod(&image))?;
    let begun = cluster.plane.is_ready_pod("default", "runs")?;
    let (id, _) = begun.first().context("no container")?.clone();
    let names: Vec<String> = (0..STARTING).map(|number| format!("starts-{number}")).collect();
    for name in &names {
        cluster.plane.add_pod("default", name, &pod(&image))?;
    }
    cluster.plane.kill()?;

    let reads = |files: &str| cluster.exec(&id, &format!("cat {files} > /dev/null"));
    let before = blobs(world)?;
    reads("/usr/bin/[d-k]*")?;
    reads("/usr/bin/[l-z]*")?;
    let read = blobs(world)? - before;
    ensure!(read > 1, "pages were there already: {read} reads of blobs");
    // The kubelet starts a container again by itself, with a new one of our snapshots.
    let task = id.trim_start_matches("containerd://");
    let kill = ["tasks", "kill", "--signal", "SIGKILL", task];
    cluster
        .containerd
        .does(&[&["--namespace", cri::NAMESPACE][..], &kill].concat())?;
    let containers = || -> Result<usize> {
        let listed = cluster
            .containerd
            .does(&["--namespace", cri::NAMESPACE, "containers", "ls"])?;
        Ok(listed.matches(image.as_str()).count())
    };
    let there = containers()?;
    wait_until(SOON, "the container is started again", || {
        Ok(containers()? > there)
    })?;

    cluster.plane.wake()?;
    let mut again = Vec::new();
    wait_until(SOON, "the API server knows of it", || {
        again = cluster.plane.is_ready_pod("default", "runs")?;
        Ok(again.first().is_some_and(|(_, restarts)| *restarts > 0))
    })
    .with_context(|| format!("{again:?}"))?;
    ensure!(
        again.first().is_some_and(|(_, restarts)| *restarts == 1),
        "{again:?}"
    );
    let mut started = Vec::new();
    for name in &names {
        started.push(cluster.plane.is_ready_pod("default", name)?);
    }
    let is_first = |pod: &Vec<(String, u64)>| pod.iter().all(|(_, restarts)| *restarts == 0);
    ensure!(started.iter().all(is_first), "{started:?}");
    for name in &names {
        cluster.plane.remove_pod("default", name)?;
    }
    Ok(Outcome::Passed(format!(
        "{read} reads of blobs and one container started again without an API server; {STARTING} pods that were starting run"
    )))
}
