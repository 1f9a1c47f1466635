//! Commands that need the blobs of a lazy image's layers, which containerd does not have: each fails and says so, or gets them elsewhere;
//! and `xebec ctr-pull --blobs` brings them.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::registry::FaultyRegistry;

use super::ctr_pull::{layers_of, pull};
use super::lazy::push_indexed;
use super::support::start_web;
use crate::containerd::{Containerd, Line, Snapshots};
use crate::runner::Outcome;
use crate::world::{World, run};

/// The layers of an image, as skopeo finds them.
fn layers_at(place: &str) -> Result<BTreeSet<String>> {
    let mut skopeo = Command::new("skopeo");
    let told = run(skopeo.args(["inspect", "--no-tags", "--tls-verify=false", place]))?;
    let told: Value = serde_json::from_slice(&told.stdout)?;
    let layers = told
        .get("Layers")
        .and_then(Value::as_array)
        .context("no layers")?;
    let digests = layers
        .iter()
        .filter_map(|layer| layer.as_str().map(str::to_owned));
    Ok(digests.collect())
}

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    let layers: BTreeSet<String> = layers_of("nginx")?.into_iter().collect();
    super::lazy::pull(world, &containerd, Line::Two, &reference)?;
    let other = FaultyRegistry::start()?;
    let other = format!("{}/copy:latest", other.host());
    let archive = world.path("image.tar");
    let archive = archive.to_str().context("an odd path")?;
    let export = ["images", "export", "/dev/null", &reference];
    // By the transfer service `ctr` may end before all that it was sent is written (nobody waits for who copies it,
    // core/transfer/archive/exporter.go of containerd 2.4), so what is read afterwards is exported by `ctr` itself.
    let export_here = ["images", "export", "--local", archive, &reference];
    let convert = [
        "images",
        "convert",
        "--oci",
        "--uncompress",
        &reference,
        "converted",
    ];
    let push = ["images", "push", "--plain-http", &other, &reference];

    let told = containerd.does(&["images", "check"])?;
    ensure!(told.contains("incomplete"), "{told}");
    for needs in [&export[..], &export_here, &convert, &push] {
        let said = containerd.refuses(needs)?;
        ensure!(said.contains("not found"), "{needs:?}: {said}");
    }
    // The registry has them.
    let beside = format!("{}/beside:latest", world.registry);
    containerd.does(&["images", "push", "--plain-http", &beside, &reference])?;
    let found = layers_at(&format!("docker://{beside}"))?;
    ensure!(found == layers, "pushed: {found:?}");

    for layer in pull(&containerd, &["--blobs", &reference])? {
        let fetched = layer.get("fetched") == layer.get("size");
        ensure!(
            fetched && layer.get("is_lazy") == Some(&Value::Bool(true)),
            "{layer}"
        );
    }
    // Nothing but the image's name holds them. (`collect` would take their labels.)
    containerd.does(&["leases", "create", "--id", "none"])?;
    containerd.does(&["leases", "delete", "--sync", "none"])?;
    let told = containerd.does(&["images", "check"])?;
    ensure!(!told.contains("incomplete"), "{told}");
    for needs in [&export[..], &export_here, &convert, &push] {
        containerd.does(needs)?;
    }
    for place in [format!("oci-archive:{archive}"), format!("docker://{other}")] {
        let found = layers_at(&place)?;
        ensure!(found == layers, "{place}: {found:?}");
    }
    start_web(&containerd, &reference, "web")?;
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;
    for image in [&*reference, "converted"] {
        containerd.does(&["images", "rm", "--sync", image])?;
    }
    containerd.collect()?;
    super::ctr_pull::has_nothing(&containerd)?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{} layers exported, converted, pushed; what runs stays lazy",
        layers.len()
    )))
}
