//! Pull secrets: a pod with the login of a private image reads it lazily and by that login, and no other pod on the node does.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::push_indexed;
use crate::runner::Outcome;
use crate::world::World;

/// Another who may read the images, with the same password.
const OTHER: &str = "android";
/// The name of the secret, in each namespace.
const SECRET: &str = "login";

/// A container that waits to be told what to read.
fn waits(image: &str, policy: &str) -> Value {
    json!({"containers": [{"name": "waits", "image": image, "imagePullPolicy": policy,
                           "command": ["sh", "-c", "exec sleep 1d"]}]})
}

/// The same with the namespace's secret.
fn with_secret(image: &str, policy: &str) -> Value {
    let mut spec = waits(image, policy);
    spec["imagePullSecrets"] = json!([{"name": SECRET}]);
    spec
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let open = push_indexed(world, "nginx")?;
    let entries = [cri::ENTRY, &cri::ENTRY.replace(cri::USER, OTHER)].join("\n");
    let locked = world.lock_registry(&entries)?;
    let image = open.replace(&world.registry, &locked.address);
    let cluster = Cluster::start(world, &json!({}))?;
    let plane = &cluster.plane;
    for namespace in ["one", "two", "three"] {
        plane.add_namespace(namespace)?;
    }
    let tell = |namespace: &str, user: &str, password: &str| {
        plane.tell_login(namespace, SECRET, &locked.address, [user, password])
    };

    // Nobody has shown a login that is right.
    plane.add_pod("three", "without", &waits(&image, "IfNotPresent"))?;
    is_told(&plane.is_refused("three", "without")?)?;
    tell("one", cri::USER, cri::WRONG)?;
    plane.add_pod("one", "reads", &with_secret(&image, "IfNotPresent"))?;
    is_told(&plane.is_refused("one", "reads")?)?;
    ensure!(cri::blobs(world)? == 0, "read without a login");
    // The secret is changed under the pod, as it is rotated.
    tell("one", cri::USER, cri::PASSWORD)?;
    let begun = plane.is_ready_pod("one", "reads")?;
    let downloads = downloads(world)?;
    ensure!(
        downloads.len() == 1,
        "containerd downloads more than the configuration: {downloads:#?}"
    );
    let reads = |begun: &[(String, u64)], files: &str| -> Result<usize> {
        let before = cri::blobs(world)?;
        let (id, _) = begun.first().context("no container")?;
        cluster.exec(id, &format!("cat {files} > /dev/null"))?;
        let read = cri::blobs(world)? - before;
        ensure!(read > 0, "{files} were there already");
        Ok(read)
    };
    let mut read = vec![reads(&begun, "/usr/bin/[a-d]*")?];
    cluster.snapshots.kill("worker_pid")?;
    read.push(reads(&begun, "/usr/bin/[e-k]*")?);

    // The image is here, and the login too, but neither is another namespace's.
    let before = cri::blobs(world)?;
    tell("two", OTHER, cri::WRONG)?;
    for (namespace, spec) in [("two", with_secret as fn(&str, &str) -> Value), ("three", waits)] {
        plane.add_pod(namespace, "asks", &spec(&image, "Always"))?;
        plane.add_pod(namespace, "takes", &spec(&image, "IfNotPresent"))?;
        plane.add_pod(namespace, "has", &spec(&image, "Never"))?;
    }
    for namespace in ["two", "three"] {
        is_told(&plane.is_refused(namespace, "asks")?)?;
        is_told(&plane.is_refused(namespace, "takes")?)?;
        plane.is_refused(namespace, "has")?;
    }
    ensure!(cri::blobs(world)? == before, "read for who has no login");
    tell("two", OTHER, cri::PASSWORD)?;
    let other = plane.is_ready_pod("two", "takes")?;
    read.push(reads(&other, "/usr/bin/[l-o]*")?);
    read.push(reads(&begun, "/usr/bin/[p-z]*")?);
    ensure!(
        plane.is_ready_pod("one", "reads")? == begun,
        "the first pod was started again"
    );
    Ok(Outcome::Passed(format!(
        "{read:?} reads of blobs with two logins; refused without one, with a wrong one, and to other namespaces"
    )))
}

/// A user who looks at the pod sees what is wrong.
fn is_told(message: &str) -> Result<()> {
    let words = ["401", "authorization failed", "no basic auth credentials"];
    ensure!(words.iter().any(|word| message.contains(word)), "{message}");
    Ok(())
}

/// The blobs that containerd asked the locked registry for.
fn downloads(world: &World) -> Result<Vec<String>> {
    let access = fs::read(world.path("locked/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_download = |line: &&str| {
        line.contains("\"GET /v2/") && line.contains("/blobs/sha256:") && line.contains("\"containerd/")
    };
    Ok(text.lines().filter(is_download).map(str::to_owned).collect())
}
