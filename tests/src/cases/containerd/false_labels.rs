//! A client that says of one layer that it is another: nothing lazy comes to stand for a chain by that, and a user who
//! runs the images later sees what is theirs.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::{index, pull};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::contents;
use crate::runner::Outcome;
use crate::world::World;

/// An image of two layers, indexed: a program that waits, and a file that no other image has.
struct Made {
    reference: String,
    manifest: Digest,
    layers: [Digest; 2],
    chains: [Digest; 2],
    file: Vec<u8>,
}

impl Made {
    fn push(world: &World, name: &str, seed: u64) -> Result<Made> {
        let file = contents(seed, 1 << 20);
        let mut lower = TarBuilder::new();
        lower.file("name", name.as_bytes());
        let program = fs::read(World::go_tool("linger")?)?;
        lower.file_with(&Header::new("linger", Kind::File).mode(0o755), &program);
        let mut upper = TarBuilder::new();
        upper.file("file", &file);
        let tars = [lower.into_bytes(), upper.into_bytes()];
        let image = tars.iter().try_fold(ImageBuilder::new(), |image, tar| {
            image.layer(tar, Compression::Gzip(1))
        })?;
        let image = image.config("Entrypoint", json!(["/linger", "1h"])).build();
        let layout = world.path(name);
        image.write_layout(&layout, "latest")?;
        let reference = world.push(&layout, name)?;
        index(world, &reference)?;
        let [lower, upper] = tars.map(|tar| Digest::of(&tar));
        Ok(Made {
            reference,
            manifest: image.manifest.digest,
            layers: [0, 1].map(|number| image.layers[number].digest),
            chains: [lower, Digest::of(format!("{lower} {upper}").as_bytes())],
            file,
        })
    }

    /// The true labels of a layer.
    fn truth(&self, number: usize) -> Said<'_> {
        Said {
            image: self,
            manifest: Some(self),
            layer: self.layers[number],
            chain: self.chains[number],
            parent: number.checked_sub(1).map(|below| self.chains[below]),
        }
    }
}

/// The labels that a client gives a layer, and the snapshot below it.
struct Said<'a> {
    image: &'a Made,
    manifest: Option<&'a Made>,
    layer: Digest,
    chain: Digest,
    parent: Option<Digest>,
}

impl Said<'_> {
    /// The same, but for this.
    fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The answer to the client: gRPC's word, and a message if that is not good.
    fn answer(&self, containerd: &Containerd<'_>, key: &str) -> Result<String> {
        let label = |name: &str, value: String| format!("containerd.io/{name}={value}");
        let mut words = vec![
            "one".to_owned(),
            key.to_owned(),
            self.parent.map_or_else(String::new, |parent| parent.to_string()),
            label("snapshot.ref", self.chain.to_string()),
            label("snapshot/cri.image-ref", self.image.reference.clone()),
            label("snapshot/cri.layer-digest", self.layer.to_string()),
        ];
        words.extend(
            self.manifest
                .map(|made| label("snapshot/cri.manifest-digest", made.manifest.to_string())),
        );
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(containerd.tool("offer", &words)?.trim().to_owned())
    }
}

pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let (a, b) = (Made::push(world, "one", 1)?, Made::push(world, "two", 2)?);
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    containerd.does(&["leases", "create", "--id", "offers"])?;
    let lies = lies(&a, &b);
    expect_unbelieved(&containerd, "lie", &lies)?;
    containerd.has_none()?;
    let status = world.daemon_status()?;
    let figure = |name: &str| status.pointer(&format!("/snapshots/{name}")).cloned();
    ensure!(figure("committed_lazy") == Some(json!(0)), "{status}");
    ensure!(figure("lazy") == Some(json!(0)), "{status}");

    // The truth is believed; then what lies on it is asked for what it is.
    for (image, key) in [(&a, "a"), (&b, "b")] {
        let answer = image.truth(0).answer(&containerd, key)?;
        ensure!(answer.starts_with("AlreadyExists"), "{answer}");
    }
    let on = lies_on_the_truth(&a, &b);
    expect_unbelieved(&containerd, "on", &on)?;

    for (image, name) in [(&a, "one"), (&b, "two")] {
        pull(world, &containerd, Line::Two, &image.reference)?;
        containerd.does(&["run", "--detach", &image.reference, name])?;
        let root = containerd.root_of(name);
        ensure!(
            fs::read(root.join("name"))? == name.as_bytes(),
            "{name} has another's layer"
        );
        ensure!(
            fs::read(root.join("file"))? == image.file,
            "{name} has wrong bytes"
        );
    }
    for (image, name) in [(&a, "one"), (&b, "two")] {
        containerd.end(name)?;
        containerd.does(&["containers", "rm", name])?;
        containerd.does(&["images", "rm", "--sync", &image.reference])?;
    }
    containerd.does(&["leases", "rm", "offers"])?;
    containerd.collect()?;
    containerd.has_none()?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "{} lies, none believed",
        lies.len() + on.len()
    )))
}

/// Labels of layers of which nothing is here yet.
fn lies<'a>(a: &'a Made, b: &'a Made) -> Vec<(&'static str, Said<'a>)> {
    let nowhere = Digest::of(b"nowhere");
    vec![
        ("another's chain", a.truth(0).but(|said| said.chain = b.chains[0])),
        ("another's layer", a.truth(0).but(|said| said.layer = b.layers[0])),
        (
            "another's layer and chain",
            a.truth(0).but(|said| {
                said.layer = b.layers[0];
                said.chain = b.chains[0];
            }),
        ),
        (
            "another's manifest",
            b.truth(0).but(|said| said.manifest = Some(a)),
        ),
        (
            "another's manifest and layer",
            b.truth(0).but(|said| {
                said.manifest = Some(a);
                said.layer = a.layers[0];
            }),
        ),
        ("another's name", b.truth(0).but(|said| said.image = a)),
        (
            "another's name, and no manifest",
            b.truth(0).but(|said| {
                said.image = a;
                said.manifest = None;
            }),
        ),
        (
            "the upper one as the lowest",
            a.truth(1).but(|said| said.parent = None),
        ),
        (
            "the upper one by the lower's chain",
            a.truth(1).but(|said| {
                said.chain = a.chains[0];
                said.parent = None;
            }),
        ),
        (
            "the whole by the lower layer",
            a.truth(0).but(|said| said.chain = a.chains[1]),
        ),
        ("a chain of nothing", a.truth(0).but(|said| said.chain = nowhere)),
        ("a layer of nothing", a.truth(0).but(|said| said.layer = nowhere)),
    ]
}

/// Labels of layers on one that is here.
fn lies_on_the_truth<'a>(a: &'a Made, b: &'a Made) -> Vec<(&'static str, Said<'a>)> {
    vec![
        (
            "the upper one on another's lower",
            a.truth(1).but(|said| said.parent = Some(b.chains[0])),
        ),
        (
            "another's upper layer",
            a.truth(1).but(|said| said.layer = b.layers[1]),
        ),
        (
            "another's upper layer by its chain",
            a.truth(1).but(|said| {
                said.layer = b.layers[1];
                said.chain = b.chains[1];
            }),
        ),
    ]
}

/// The snapshotter takes no layer for what its labels say: it leaves each to be unpacked.
fn expect_unbelieved(containerd: &Containerd<'_>, prefix: &str, lies: &[(&str, Said<'_>)]) -> Result<()> {
    for (number, (what, lie)) in lies.iter().enumerate() {
        let answer = lie.answer(containerd, &format!("{prefix}-{number}"))?;
        ensure!(answer == "OK", "{what}: {answer}");
    }
    Ok(())
}
