//! A registry that keeps each file once, with clients as they are: what they push is taken apart, and what they pull is the same.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use super::podman::buildah;
use super::registry::{missing, said};
use crate::containerd::{Containerd, Line};
use crate::lab::{self, Lab, contents, expect_contents, wait_until};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Blobs are small here, and the program is compiled for development.
const CONFIGURATION: &str = "[deduplication]\nenabled = true\nleast_size = \"4k\"\nlevel = 1\n";
/// How long it may take until nothing waits.
const PATIENCE: Duration = Duration::from_secs(120);
/// The images, by the program that has compressed them.
const IMAGES: [&str; 5] = [
    "layout/gzip",
    "skopeo/gzip",
    "skopeo/zstd",
    "buildah/app",
    "crane/app",
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "registry/deduplicated".to_owned(),
        limit: Duration::from_secs(400),
        run: Box::new(deduplicated),
    }]
}

/// A registry and what a case asks it.
struct Own<'a> {
    world: &'a World,
    name: &'static str,
    registry: OwnRegistry,
}

impl<'a> Own<'a> {
    fn start(world: &'a World, name: &'static str) -> Result<Self> {
        let registry = OwnRegistry::start(world, name, CONFIGURATION)?;
        Ok(Self {
            world,
            name,
            registry,
        })
    }

    fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}:v1", self.registry.address)
    }

    /// Runs a command of the program on this registry's data.
    fn command(&self, arguments: &[&str]) -> Result<String> {
        let program = OwnRegistry::program().context("xebec-registry is not built")?;
        let directory = self.world.path(self.name);
        said(
            Command::new(program)
                .args(arguments)
                .arg("--config")
                .arg(directory.join("registry.toml"))
                .arg("--root")
                .arg(directory.join("data")),
        )
    }

    fn space(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.command(&["space", "--json"])?)?)
    }

    /// Waits until these images have indexes, which are blobs, too, and all blobs have been looked at.
    fn settle(&self, repositories: &[&str]) -> Result<Value> {
        for repository in repositories {
            let address = format!(
                "http://{}/v2/{repository}/referrers/{}",
                self.registry.address,
                self.digest(repository)?
            );
            wait_until(PATIENCE, "the image has an index", || {
                let told = said(Command::new("curl").args(["-sSf", "--noproxy", "*", &address]))?;
                Ok(told.contains("application/vnd.xebec.index.v1"))
            })
            .with_context(|| self.registry.log())?;
        }
        wait_until(PATIENCE, "no blob waits", || Ok(self.space()?["waiting"] == 0))
            .with_context(|| self.registry.log())?;
        self.space()
    }

    fn crane(&self, arguments: &[&str]) -> Result<String> {
        let mut crane = Command::new(World::tool("crane")?);
        let (command, rest) = arguments.split_first().context("no command")?;
        said(
            crane
                .arg(command)
                .arg("--insecure")
                .args(rest)
                .env("HOME", self.world.path("")),
        )
    }

    fn digest(&self, repository: &str) -> Result<String> {
        self.crane(&["digest", &self.reference(repository)])
    }

    /// Every client gets an image whole, and compares all digests.
    fn pull(&self, repository: &str, digest: &str) -> Result<()> {
        ensure!(self.digest(repository)? == digest, "{repository} is another one");
        let reference = self.reference(repository);
        let layout = self.world.path(&format!("{}-back", self.name));
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--src-tls-verify=false"])
            .arg(format!("docker://{reference}"))
            .arg(format!("oci:{}:back", layout.display())))?;
        // Each image from the registry, and nothing from the one before.
        fs::remove_dir_all(&layout)?;
        self.crane(&["validate", "--remote", &reference])?;
        Ok(())
    }
}

fn deduplicated(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "crane", "buildah", "containerd", "ctr"]) {
        return Ok(skipped);
    }
    let own = Own::start(world, "own")?;
    let lab = Lab::new(world)?;
    let (base, added) = (contents(81, 3 << 20), contents(82, 400_000));
    push_all(&lab, &own, &base, &added)?;
    let space = own.settle(&IMAGES)?;
    let figure = |space: &Value, name: &str| space[name].as_u64().unwrap_or_default();
    let (pushed, stored) = (figure(&space, "blob_bytes"), figure(&space, "stored_bytes"));
    // Of five images that have the same files.
    ensure!(
        figure(&space, "kept_blobs") == 0 && figure(&space, "recipes") >= 6,
        "{space}"
    );
    ensure!(stored * 2 < pushed, "{space}");
    let containerd = Containerd::start_with(world, Line::Two, "")?;
    let mut digests = Vec::new();
    for repository in IMAGES {
        let digest = own.digest(repository)?;
        own.pull(repository, &digest)?;
        let reference = own.reference(repository);
        containerd.does(&[
            "images",
            "pull",
            "--local",
            "--plain-http",
            "--snapshotter",
            "native",
            &reference,
        ])?;
        digests.push((repository, digest));
    }
    let lazy = lab.mount("root", &own.reference("layout/gzip"), &["--require-lazy"])?;
    expect_contents(&lazy.join("base"), &base)?;
    expect_contents(&lazy.join("added"), &added)?;
    again(&own, &space)?;
    let scrubbed = own.command(&["scrub"])?;
    ensure!(scrubbed.contains("nothing is wrong"), "{scrubbed}");
    restored(world, &own, &digests)?;
    ensure!(own.registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(format!(
        "five images of {pushed} bytes take {stored}, and skopeo, crane, containerd and Xebec get what was pushed"
    )))
}

/// Pushes the same files by each program.
fn push_all(lab: &Lab<'_>, own: &Own<'_>, base: &[u8], added: &[u8]) -> Result<()> {
    let world = own.world;
    let layers: &[&[(&str, &[u8])]] = &[&[("base", base)], &[("added", added)]];
    for (layout, compression) in [("gzip", Compression::Gzip(6)), ("plain", Compression::Tar)] {
        lab::image(layers, compression)?.write_layout(&lab.path(layout), "v1")?;
    }
    skopeo(own, "gzip", "layout/gzip", &[])?;
    // skopeo compresses what is not compressed.
    skopeo(own, "plain", "skopeo/gzip", &[])?;
    skopeo(own, "plain", "skopeo/zstd", &["--dest-compress-format", "zstd"])?;
    let from = [
        "from",
        "--tls-verify=false",
        "--quiet",
        &own.reference("layout/gzip"),
    ];
    let container = String::from_utf8(buildah(world, &from)?.stdout)?;
    fs::write(world.path("built"), contents(83, 200_000))?;
    let file = world.path("built").display().to_string();
    buildah(world, &["copy", "--quiet", container.trim(), &file, "/built"])?;
    buildah(world, &["commit", "--quiet", container.trim(), "built"])?;
    let to = format!("docker://{}", own.reference("buildah/app"));
    buildah(world, &["push", "--quiet", "--tls-verify=false", "built", &to])?;
    let tar = world.path("layer.tar");
    fs::write(&tar, lab::tar(&[("base", base), ("added", added)]))?;
    let tar = tar.display().to_string();
    own.crane(&[
        "append",
        "--new_layer",
        &tar,
        "--new_tag",
        &own.reference("crane/app"),
    ])?;
    Ok(())
}

fn skopeo(own: &Own<'_>, layout: &str, repository: &str, options: &[&str]) -> Result<()> {
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--dest-tls-verify=false"])
        .args(options)
        .arg(format!("oci:{}:v1", own.world.path(layout).display()))
        .arg(format!("docker://{}", own.reference(repository))))?;
    Ok(())
}

/// The same images in other repositories take no room.
fn again(own: &Own<'_>, before: &Value) -> Result<()> {
    skopeo(own, "gzip", "again/gzip", &[])?;
    skopeo(own, "plain", "again/plain", &[])?;
    let after = own.settle(&["again/gzip", "again/plain"])?;
    ensure!(
        after == *before,
        "what was pushed again has grown: {before}, {after}"
    );
    Ok(())
}

/// A backup is restored elsewhere, and clients get the same from there.
fn restored(world: &World, own: &Own<'_>, digests: &[(&str, String)]) -> Result<()> {
    let (backup, root) = (world.path("backup"), world.path("restored"));
    let backup = backup.display().to_string();
    own.command(&["backup", &backup])?;
    fs::create_dir(&root)?;
    let program = OwnRegistry::program().context("xebec-registry is not built")?;
    run(Command::new(program)
        .args(["restore", &backup, "--root"])
        .arg(root.join("data")))?;
    let other = Own::start(world, "restored")?;
    ensure!(other.settle(&[])? == own.space()?, "other figures than before");
    for (repository, digest) in digests {
        other.pull(repository, digest)?;
    }
    ensure!(other.registry.end()?, "the restored registry did not end well");
    Ok(())
}
