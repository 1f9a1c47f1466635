//! Helpers that cases of containerd share.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::odd::Unpacker;

use crate::containerd::{Containerd, http};
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::tree;
use crate::world::{World, run};

/// Where nginx listens in our image of it.
pub(crate) const PORT: u16 = 8080;
/// Longest that a service may take until it answers.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Starts a container in the network of the case and waits until it answers.
pub(super) fn start_web(containerd: &Containerd<'_>, reference: &str, name: &str) -> Result<()> {
    containerd.does(&["run", "--detach", "--net-host", reference, name])?;
    wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))
        .with_context(|| containerd.last_words())?;
    let answer = http(PORT).context("no answer")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// The blobs that containerd asked the registry for.
pub(super) fn downloads(world: &World) -> Result<Vec<String>> {
    let access = fs::read(world.path("registry/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_download = |line: &&str| {
        line.contains("\"GET /v2/") && line.contains("/blobs/sha256:") && line.contains("\"containerd/")
    };
    Ok(text.lines().filter(is_download).map(str::to_owned).collect())
}

/// Mounts a snapshot to be read, by a view of it that is called "check".
pub(super) fn mount_view(world: &World, containerd: &Containerd<'_>, snapshot: &str) -> Result<PathBuf> {
    containerd.view(&[], "check", snapshot)?;
    let place = world.path("check");
    fs::create_dir(&place)?;
    let mount = containerd.does(&["snapshots", "mounts", &place.to_string_lossy(), "check"])?;
    run(Command::new("sh").args(["-c", &mount]))?;
    Ok(place)
}

/// Compares the image, as `ctr` mounts it from our snapshots, with what containerd's own code unpacks.
pub(super) fn compare(
    world: &World,
    containerd: &Containerd<'_>,
    image: &str,
    reference: &str,
) -> Result<()> {
    let place = world.path("image");
    fs::create_dir(&place)?;
    containerd.does(&["images", "mount", reference, &place.to_string_lossy()])?;
    let found = {
        let tree = tree::read(&place)?;
        let truth = reference_unpackers::unpack(world, &World::built_image(image)?, Unpacker::Containerd)?;
        let mut found = reference_unpackers::differences(&tree, &truth, Unpacker::Containerd);
        // overlayfs does not count the directories in a directory.
        let is_directory = |path: &Vec<u8>| {
            let node = truth.tree.nodes.get(path);
            node.is_some_and(|node| node.mode & 0o170_000 == 0o040_000)
        };
        found.retain(|difference| difference.field != "links" || !is_directory(&difference.path));
        found
    };
    ensure!(
        found.is_empty(),
        "{} differences, the first: {}",
        found.len(),
        found.first().context("none")?
    );
    containerd.does(&["images", "unmount", "--rm", &place.to_string_lossy()])?;
    Ok(())
}
