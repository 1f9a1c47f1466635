//! An index that lies, with all its digests right, and what it is attached to.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_format::digest::Digest;
use xebec_format::layer::{EntryKind, LayerIndex, Section};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::Image;

use crate::lab::{self, Lab, Names, contents, expect_contents, read_cold};
use crate::world::World;

/// Size of the files whose contents an index exchanges.
pub(super) const FILE: usize = 300_000;

const INDEX_TYPE: &str = "application/vnd.xebec.layer.index.v1";
const CONTENTS_TYPE: &str = "application/vnd.xebec.layer.contents.v1";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image with a file `truth` and a file `other` of the same size; an index of it that says otherwise.
pub(super) struct Lie<'a> {
    pub(super) lab: Lab<'a>,
    pub(super) image: Image,
    pub(super) truth: Vec<u8>,
    pub(super) other: Vec<u8>,
    /// The image in a repository where the index that lies is attached.
    pub(super) liar: Names,
    /// Digest and size of the artifact with that index.
    pub(super) artifact: (Digest, usize),
}

impl<'a> Lie<'a> {
    pub(super) fn new(world: &'a World) -> Result<Self> {
        Self::with(world, |index, _| exchange(index))
    }

    /// With an index that is spoilt in another way; `spoil` gets the content digests, too.
    pub(super) fn with(
        world: &'a World,
        spoil: impl FnOnce(&mut LayerIndex, &mut Vec<u8>) -> Result<()>,
    ) -> Result<Self> {
        let lab = Lab::new(world)?;
        let (truth, other) = (contents(21, FILE), contents(22, FILE));
        let image = lab::image(&[&[("truth", &truth), ("other", &other)]], Compression::Gzip(1))?;
        let liar = lab.push(&image, "app");
        let artifact = attach_lie(&lab, &image, &liar, spoil)?;
        Ok(Self {
            lab,
            image,
            truth,
            other,
            liar,
            artifact,
        })
    }

    /// Whether the image mounted there tells the truth; anything but truth or lie is a failure.
    fn is_true(&self, mnt: &std::path::Path) -> Result<bool> {
        let bytes = read_cold(&mnt.join("truth"))?;
        let mode = fs::metadata(mnt.join("truth"))?.permissions().mode() & 0o7777;
        ensure!(
            bytes == self.truth || bytes == self.other,
            "neither the truth nor the lie"
        );
        ensure!(
            mode == if bytes == self.truth { 0o644 } else { 0o4755 },
            "mode {mode:o}"
        );
        Ok(bytes == self.truth)
    }

    pub(super) fn expect_lie(&self, mnt: &std::path::Path) -> Result<()> {
        ensure!(
            !self.is_true(mnt)?,
            "the lie is not shown: this test tests nothing"
        );
        Ok(())
    }

    pub(super) fn expect_truth(&self, mnt: &std::path::Path) -> Result<()> {
        ensure!(self.is_true(mnt)?, "the lie reached a reader");
        expect_contents(&mnt.join("other"), &self.other)
    }
}

/// Gives `truth` the contents of `other`, and makes it setuid.
pub(super) fn exchange(index: &mut LayerIndex) -> Result<()> {
    let other = index
        .entries
        .iter()
        .find(|entry| entry.path.as_bytes() == b"other")
        .context("no other")?;
    let (other_kind, mut changed) = (other.kind.clone(), 0);
    for entry in index
        .entries
        .iter_mut()
        .filter(|entry| entry.path.as_bytes() == b"truth")
    {
        entry.kind = other_kind.clone();
        entry.metadata.mode = 0o4755;
        changed += 1;
    }
    ensure!(
        changed == 1 && matches!(other_kind, EntryKind::File { .. }),
        "nothing to lie about"
    );
    Ok(())
}

/// Attaches to the image an artifact with a spoilt index. All digests are right, so nothing but a comparison with the
/// layer itself can tell.
fn attach_lie(
    lab: &Lab<'_>,
    image: &Image,
    names: &Names,
    spoil: impl FnOnce(&mut LayerIndex, &mut Vec<u8>) -> Result<()>,
) -> Result<(Digest, usize)> {
    // A true index to start from, in a repository that nobody reads.
    let workshop = lab.push(image, "workshop");
    let mut artifact = pushed_artifact(lab, &workshop, &["--push"])?;
    let find = |artifact: &Value, media_type: &str| -> Result<(usize, Digest)> {
        let layers = artifact
            .get("layers")
            .and_then(Value::as_array)
            .context("no layers")?;
        let is_it = |blob: &Value| blob.get("mediaType").and_then(Value::as_str) == Some(media_type);
        let position = layers
            .iter()
            .position(is_it)
            .with_context(|| format!("no {media_type}"))?;
        let digest = layers.get(position).and_then(|blob| blob.get("digest")?.as_str());
        Ok((position, digest.context("no digest")?.parse()?))
    };
    let blob = |digest: &Digest| lab.registry.blob("workshop", digest).context("no such blob");
    let (index_place, index_digest) = find(&artifact, INDEX_TYPE)?;
    let (contents_place, contents_digest) = find(&artifact, CONTENTS_TYPE)?;
    let mut index = LayerIndex::decode(&blob(&index_digest)?)?;
    let mut digests = blob(&contents_digest)?.to_vec();

    spoil(&mut index, &mut digests)?;
    index.contents = Some(Section {
        digest: Digest::of(&digests),
        size: digests.len() as u64,
    });

    for (place, bytes) in [(index_place, index.encode()), (contents_place, digests)] {
        let descriptor = artifact
            .pointer_mut(&format!("/layers/{place}"))
            .context("no descriptor")?;
        descriptor["digest"] = Digest::of(&bytes).to_string().into();
        descriptor["size"] = bytes.len().into();
        lab.registry.put_blob("workshop", bytes);
    }
    for blob in artifact
        .get("layers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let digest: Digest = blob
            .get("digest")
            .and_then(Value::as_str)
            .context("no digest")?
            .parse()?;
        let bytes = lab.registry.blob("workshop", &digest).context("no such blob")?;
        lab.registry.put_blob(&names.repository, bytes);
    }
    lab.registry.put_blob(&names.repository, &b"{}"[..]);
    let bytes = serde_json::to_vec(&artifact)?;
    let (digest, size) = (Digest::of(&bytes), bytes.len());
    lab.registry
        .put_manifest(&names.repository, &digest.to_string(), MANIFEST_TYPE, bytes);
    Ok((digest, size))
}

/// Indexes an image with these options and gives the artifact's manifest.
pub(super) fn pushed_artifact(lab: &Lab<'_>, names: &Names, options: &[&str]) -> Result<Value> {
    let ended = lab.xebec(
        "builder",
        &[&["index", "--json"], options, &[&names.tag]].concat(),
    )?;
    ended.expect(0, &[])?;
    let published: Value = serde_json::from_str(&ended.out)?;
    let digest = published
        .get("artifact")
        .and_then(Value::as_str)
        .context("no artifact")?;
    let manifest = lab
        .registry
        .manifest(&names.repository, digest)
        .context("the artifact is not there")?;
    Ok(serde_json::from_slice(&manifest)?)
}
