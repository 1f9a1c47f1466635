//! An image that cannot be lazy: containerd unpacks it into our snapshots as into its own.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use xebec_testkit::odd::Unpacker;

use super::support::{compare, downloads, mount_view, start_web};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Pulled, compared with an independent unpack, run, written to, committed, removed; then nothing is left.
pub(super) fn run_case(world: &World, line: Line) -> Result<Outcome> {
    let layout = World::built_image("nginx")?;
    let reference = world.push(&layout, "nginx")?;
    let layers = reference_unpackers::layer_blobs(&layout)?.len();
    let snapshots = Snapshots::start(world)?;
    let empty = snapshots.directories()?;
    let containerd = Containerd::start(world, line, "")?;

    containerd.does(&["images", "pull", "--plain-http", &reference])?;
    let unpacked = containerd.snapshots()?.len();
    ensure!(unpacked == layers, "{unpacked} snapshots of {layers} layers");
    let downloaded = downloads(world)?.len();
    // The layers and the configuration.
    ensure!(downloaded == layers + 1, "{downloaded} blobs for {layers} layers");
    compare(world, &containerd, "nginx", &reference)?;

    start_web(&containerd, &reference, "web")?;
    let told = containerd.does(&[
        "tasks",
        "exec",
        "--exec-id",
        "one",
        "web",
        "cat",
        "/etc/os-release",
    ])?;
    ensure!(told.contains("Debian"), "{told}");
    let write = "echo made > /made; rm -r /etc/nginx; mkdir /etc/nginx";
    containerd.does(&["tasks", "exec", "--exec-id", "two", "web", "sh", "-c", write])?;
    let inside = containerd.root_of("web");
    ensure!(
        fs::read(inside.join("made"))? == b"made\n",
        "not what was written"
    );

    containerd.end("web")?;
    containerd.does(&["snapshots", "commit", "saved", "web"])?;
    containerd.does(&["containers", "rm", "web"])?;
    let place = mount_view(world, &containerd, "saved")?;
    ensure!(
        fs::read(place.join("made"))? == b"made\n",
        "not what was committed"
    );
    ensure!(
        fs::read_dir(place.join("etc/nginx"))?.next().is_none(),
        "the directory was made anew, and is not empty"
    );
    ensure!(
        fs::write(place.join("more"), "").is_err(),
        "a view can be written to"
    );
    run(Command::new("umount").arg(&place))?;

    for name in ["check", "saved"] {
        containerd.does(&["snapshots", "rm", name])?;
    }
    containerd.collect()?;
    let kept = containerd.snapshots()?.len();
    ensure!(kept == layers, "{kept} snapshots of an image that is still there");
    containerd.does(&["images", "rm", "--sync", &reference])?;
    containerd.has_none()?;
    snapshots.has_only(&empty)?;
    Ok(Outcome::Passed(format!(
        "{layers} layers unpacked, equal to {:?}, run, committed, and gone",
        Unpacker::Containerd
    )))
}
