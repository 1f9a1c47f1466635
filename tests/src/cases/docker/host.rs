//! Docker Engine with an image in a registry, and all that it stands on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::tar::TarBuilder;

use crate::containerd::{Containerd, Line, Snapshots};
use crate::docker::{Docker, Relay};
use crate::lab::{self, Lab, Names, contents, wait_until};
use crate::world::World;

/// How long something may take that happens by itself.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// Length of the file that nobody reads unasked, in bytes.
pub(super) const LARGE: usize = 24 << 20;

/// Docker, with all that it stands on.
pub(super) struct Host<'a> {
    // In the order in which they end.
    pub(super) docker: Docker<'a>,
    pub(super) relay: Relay<'a>,
    pub(super) containerd: Containerd<'a>,
    pub(super) snapshots: Snapshots<'a>,
    pub(super) lab: Lab<'a>,
    pub(super) image: Image,
    pub(super) names: Names,
    /// The contents of the large file.
    pub(super) large: Vec<u8>,
}

impl<'a> Host<'a> {
    /// With an indexed image in a registry: a shell in its lower layer, a large file in its upper one.
    pub(super) fn start(world: &'a World, is_live: bool) -> Result<Self> {
        let lab = Lab::new(world)?;
        let large = contents(7, LARGE);
        let image = shell(&large)?;
        let names = lab.push_indexed(&image, "team/shell")?;
        // With settings by which registries are given up soon.
        lab.xebec("root", &["images"])?.expect(0, &[])?;
        let snapshots = Snapshots::start(world)?;
        let containerd = Containerd::start(world, Line::Two, "")?;
        let relay = Relay::start(world, &containerd)?;
        let docker = Docker::start(world, &containerd, &Relay::link(world), is_live)?;
        Ok(Self {
            docker,
            relay,
            containerd,
            snapshots,
            lab,
            image,
            names,
            large,
        })
    }

    /// Pulls the image, which must be lazy.
    pub(super) fn pull(&self) -> Result<()> {
        self.lab.registry.clear_log();
        self.docker.does(&["pull", &self.names.tag])?;
        self.is_lazy("pull")
    }

    /// Whether most of the upper layer has stayed where it is since the registry's log was cleared.
    pub(super) fn is_lazy(&self, what: &str) -> Result<()> {
        let sent = self.sent()?;
        ensure!(
            sent < LARGE as u64 / 8,
            "{what} fetched {sent} bytes of the upper layer"
        );
        Ok(())
    }

    /// The bytes of the upper layer that were fetched since the registry's log was cleared.
    fn sent(&self) -> Result<u64> {
        let upper = self.image.layers.get(1).context("no upper layer")?.digest;
        let log = self.lab.registry.log();
        let of_it = log
            .iter()
            .filter(|request| request.head.path.contains(&upper.to_string()));
        Ok(of_it.map(|request| request.bytes_sent).sum())
    }

    /// Starts a container that says "began" and waits.
    pub(super) fn waits(&self, name: &str, image: &str, options: &[&str]) -> Result<()> {
        let detached = ["run", "--detach", "--network", "host", "--name", name];
        self.docker.does(&[&detached[..], options, &[image]].concat())?;
        wait_until(SOON, "it began", || {
            Ok(self.docker.ask(&["logs", name])?.out.contains("began"))
        })
    }
}

pub(super) fn shell(large: &[u8]) -> Result<Image> {
    let mut lower = TarBuilder::new();
    lab::put_programs(&mut lower, &["/bin/busybox"], 0o755)?;
    for name in ["sh", "cat", "sleep", "sha256sum", "mkdir"] {
        lower.symlink(format!("bin/{name}"), "busybox");
    }
    lower.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n");
    let mut upper = TarBuilder::new();
    upper.file("large", large);
    let tars = [lower.into_bytes(), upper.into_bytes()];
    let image = tars.iter().try_fold(ImageBuilder::new(), |image, tar| {
        image.layer(tar, Compression::Gzip(1))
    })?;
    let command = "trap 'exit 0' TERM; echo began; while :; do sleep 0.1; done";
    Ok(image
        .config("Cmd", json!(["/bin/sh", "-c", command]))
        .config("Env", json!(["PATH=/bin"]))
        .build())
}
