//! Registries that do not answer, and requests that are long: each call gets its answer, and no other waits for it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::lazy::{pull, push_indexed};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::runner::Outcome;
use crate::world::{World, run};

/// How many images are pulled whose registry does not answer, and how often one more.
const IMAGES: usize = 25;
/// After how long containerd is left to unpack a layer whose registry does not answer, in seconds, with some for a busy machine.
const GIVEN_UP: std::ops::Range<f64> = 29.0..40.0;
/// How long a call may take that waits for no registry, in seconds.
const AT_ONCE: f64 = 1.0;

/// The registry takes connections and says nothing. Each of the pulls is told in time that its layer is to be unpacked, those
/// that wait for another one too; what is there is told at once meanwhile. Then the registry is back, and nothing is left of it.
pub(super) fn dead_registry(world: &World) -> Result<Outcome> {
    let reference = push_indexed(world, "nginx")?;
    let snapshots = Snapshots::start(world)?;
    kill_process(world.registry_pid(), Signal::STOP)?;
    let mut offer = Command::new(World::go_tool("offer")?);
    offer.arg("many").arg(snapshots.socket());
    let asked = run(offer.arg(&world.registry).arg(IMAGES.to_string()));
    kill_process(world.registry_pid(), Signal::CONT)?;
    let asked: Value = serde_json::from_slice(&asked?.stdout).context("offer prints no JSON")?;
    let number = |name: &str| asked.get(name).and_then(Value::as_f64).context(name.to_owned());
    let pulls = 2 * IMAGES;
    ensure!(
        asked.get("codes") == Some(&serde_json::json!({ "OK": pulls })),
        "{asked}"
    );
    for end in ["quickest", "slowest"] {
        ensure!(GIVEN_UP.contains(&number(end)?), "{asked}");
    }
    ensure!(number("others")? > 100.0 && number("other")? < AT_ONCE, "{asked}");
    let status = world.daemon_status()?;
    let unpacked = status.pointer("/snapshots/unpacked/unreachable");
    ensure!(
        unpacked.and_then(Value::as_u64) == u64::try_from(pulls).ok(),
        "{status}"
    );

    let containerd = Containerd::start(world, Line::Two, "")?;
    pull(world, &containerd, Line::Two, &reference)?;
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{pulls} pulls given up after {:.1} to {:.1} s; {} other calls, the longest took {:.0} ms",
        number("quickest")?,
        number("slowest")?,
        number("others")?,
        number("other")? * 1e3
    )))
}

/// More labels than gRPC takes by default, as containerd passes them on; and more than containerd does.
pub(super) fn many_labels(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    containerd.does(&["leases", "create", "--id", "offers"])?;
    for (bytes, expected) in [(6 << 20, "OK"), (12 << 20, "OK"), (20 << 20, "ResourceExhausted")] {
        let told = containerd.tool("offer", &["much", &bytes.to_string()])?;
        ensure!(told.trim() == expected, "{bytes} bytes: {told}");
    }
    containerd.does(&["leases", "rm", "offers"])?;
    containerd.has_none()?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(
        "12 MiB of labels taken and told again, 20 MiB refused".to_owned(),
    ))
}
