//! `xebec ctr-pull`: lazy images for a containerd whose own clients tell a snapshotter nothing.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::{Fault, FaultyRegistry, When};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::{push_indexed, push_mixed};
use super::support::{compare, start_web};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Pulls an image; gives the objects that were printed of its layers.
pub(super) fn pull(containerd: &Containerd<'_>, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = run(&mut containerd.xebec(&[&["ctr-pull", "--json"], arguments].concat()))?;
    let told: Value = serde_json::from_slice(&output.stdout).context("it printed no JSON")?;
    let layers = told.get("layers").and_then(Value::as_array);
    layers.cloned().context("no layers")
}

/// Which of these blobs anybody got whole.
fn got_whole(world: &World, blobs: &[String]) -> Result<Vec<String>> {
    let access = fs::read(world.path("registry/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_got = |blob: &&String| {
        let path = format!("/blobs/{blob} HTTP/1.1\" 200");
        text.lines()
            .any(|line| line.contains("\"GET /v2/") && line.contains(&path))
    };
    Ok(blobs.iter().filter(is_got).cloned().collect())
}

/// The digests of a built image's layers.
pub(super) fn layers_of(image: &str) -> Result<Vec<String>> {
    let paths = reference_unpackers::layer_blobs(&World::built_image(image)?)?;
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    Ok(names.map(|name| format!("sha256:{name}")).collect())
}

/// Nothing by these listings.
pub(super) fn has_nothing(containerd: &Containerd<'_>) -> Result<()> {
    for listing in [
        ["leases", "ls", "--quiet"],
        ["content", "ls", "--quiet"],
        ["images", "ls", "--quiet"],
    ] {
        let left = containerd.does(&listing)?;
        ensure!(left.trim().is_empty(), "{listing:?}: {left}");
    }
    let active = containerd.does(&["content", "active"])?;
    ensure!(active.lines().count() <= 1, "{active}");
    containerd.has_none()
}

/// Pulled without a layer, run, pulled again, removed; then an image of which the uppermost layer has to be unpacked.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::OneSeven, "")?;
    let reference = push_indexed(world, "nginx")?;
    // The indexing fetched the layers' blobs; those requests do not count.
    fs::write(world.path("registry/access"), "")?;
    for again in [false, true] {
        let layers = pull(&containerd, &[&reference])?;
        let are_lazy = layers
            .iter()
            .all(|layer| layer.get("is_lazy") == Some(&json!(true)));
        ensure!(are_lazy && !layers.is_empty(), "again: {again}: {layers:?}");
    }
    let whole = got_whole(world, &layers_of("nginx")?)?;
    ensure!(whole.is_empty(), "downloaded: {whole:?}");
    // Nothing but the image's name holds it from here on.
    let leases = containerd.does(&["leases", "ls", "--quiet"])?;
    ensure!(leases.trim().is_empty(), "{leases}");
    containerd.collect()?;
    compare(world, &containerd, "nginx", &reference)?;
    start_web(&containerd, &reference, "web")?;
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;

    let mixed = push_mixed(world)?;
    let refused = containerd
        .xebec(&["ctr-pull", "--require-lazy", &mixed])
        .output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        refused.status.code() == Some(5) && said.contains("no-index"),
        "{}: {said}",
        refused.status
    );
    let layers = pull(&containerd, &[&mixed])?;
    let (top, below) = layers.split_last().context("no layers")?;
    let why = top
        .get("unpacked_because")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ensure!(why.starts_with("no-index"), "{top}");
    let are_lazy = below
        .iter()
        .all(|layer| layer.get("is_lazy") == Some(&json!(true)));
    ensure!(are_lazy && !below.is_empty(), "{layers:?}");
    containerd.collect()?;
    let said = containerd.does(&["run", "--rm", &mixed, "mixed", "cat", "/etc/on-top"])?;
    ensure!(said.trim() == "on top", "{said}");

    for image in [&reference, &mixed] {
        containerd.does(&["images", "rm", "--sync", image])?;
    }
    containerd.collect()?;
    has_nothing(&containerd)?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{} layers lazy, one of {} unpacked",
        layers.len(),
        layers.len()
    )))
}

/// One that is interrupted while it waits for a layer leaves nothing, nor does one that cannot begin; both say why.
pub(super) fn broken_off(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let mut containerd = Containerd::start(world, Line::OneSeven, "")?;
    let registry = FaultyRegistry::start()?;
    let mut image = ImageBuilder::new();
    for number in 0..2_u8 {
        let mut tar = TarBuilder::new();
        tar.file_with(&Header::new("file", Kind::File).mode(0o644), &[number; 10_000]);
        image = image.layer(&tar.into_bytes(), Compression::Gzip(1))?;
    }
    let image = image.build();
    for blob in image.blobs() {
        registry.put_blob("app", blob.bytes.clone());
    }
    registry.put_manifest(
        "app",
        "latest",
        &image.manifest.media_type,
        image.manifest.bytes.clone(),
    );
    let reference = format!("{}/app:latest", registry.host());
    let upper = image.layers.last().context("no layer")?.digest.to_string();
    registry.inject(When::blob().path(&upper), Fault::Hang);
    let mut command = containerd.xebec(&["ctr-pull", &reference]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    wait_until(
        super::support::SOON,
        "it asks for the layer that never comes",
        || {
            ensure!(child.try_wait()?.is_none(), "it has ended");
            let leases = containerd.does(&["leases", "ls", "--quiet"])?;
            Ok(registry.count(&upper) > 0 && leases.contains("xebec-ctr-pull"))
        },
    )?;
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process id")?;
    kill_process(pid, Signal::INT)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(125) && said.contains("interrupted"),
        "{}: {said}",
        output.status
    );
    has_nothing(&containerd)?;
    snapshots.has_only(&[])?;

    let says = |arguments: &[&str], words: &str| -> Result<()> {
        let output = containerd.xebec(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            !output.status.success() && said.contains(words),
            "{arguments:?}: {said}"
        );
        Ok(())
    };
    says(
        &["ctr-pull", "--snapshotter", "other", &reference],
        "xebec install",
    )?;
    says(&["ctr-pull", "--namespace", "a b", &reference], "a b")?;
    containerd.kill()?;
    let output = containerd.xebec(&["ctr-pull", &reference]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("containerd cannot be reached at"), "{said}");
    Ok(Outcome::Passed("nothing is left".to_owned()))
}
