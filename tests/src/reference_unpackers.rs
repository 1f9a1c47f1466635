//! Independent unpackers, against which a mounted view is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xebec_testkit::odd::Unpacker;

use crate::tree::{self, Difference, Tree};
use crate::world::{World, in_memory, run};

/// A tree as an unpacker left it.
pub(crate) struct Truth {
    /// The tree that it unpacked.
    pub(crate) tree: Tree,
    /// When it began, in seconds since 1970: a later time in the tree is not from the image.
    pub(crate) began: i64,
}

/// Unpacks a layout's image into a fresh directory and reads the result.
pub(crate) fn unpack(world: &World, layout: &Path, unpacker: Unpacker) -> Result<Truth> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    let root = unpack_to(world, layout, unpacker)?;
    let tree = tree::read(&root)?;
    Ok(Truth { tree, began })
}

/// Unpacks a layout's image and tells where its root now is.
pub(crate) fn unpack_to(world: &World, layout: &Path, unpacker: Unpacker) -> Result<PathBuf> {
    // ext4 searches long for inodes where many were just removed: for a third of the processors' time.
    let target = in_memory(&world.path("unpacked"))?.join(format!("{unpacker:?}"));
    let blobs = layer_blobs(layout)?;
    match unpacker {
        Unpacker::Umoci => {
            run(Command::new("umoci")
                .args(["unpack", "--image", &format!("{}:latest", layout.display())])
                .arg(&target))?;
            Ok(target.join("rootfs"))
        }
        Unpacker::Containerd => {
            fs::create_dir(&target)?;
            run(Command::new(World::go_tool("apply")?).arg(&target).args(blobs))?;
            Ok(target)
        }
        Unpacker::GnuTar => {
            fs::create_dir(&target)?;
            let [blob] = blobs.as_slice() else {
                bail!("GNU tar unpacks one layer")
            };
            run(Command::new("tar")
                .args([
                    "--extract",
                    "--gzip",
                    "--same-owner",
                    "--preserve-permissions",
                    "--numeric-owner",
                ])
                .args(["--xattrs", "--xattrs-include=*", "--file"])
                .arg(blob)
                .arg("--directory")
                .arg(&target))?;
            Ok(target)
        }
    }
}

/// The files of a layout's layers, lowest first.
pub(crate) fn layer_blobs(layout: &Path) -> Result<Vec<PathBuf>> {
    let blob = |digest: &Value| -> Result<PathBuf> {
        let hex = digest
            .as_str()
            .and_then(|text| text.strip_prefix("sha256:"))
            .context("no digest")?;
        Ok(layout.join("blobs/sha256").join(hex))
    };
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifest = blob(index.pointer("/manifests/0/digest").context("empty index")?)?;
    let manifest: Value = serde_json::from_slice(&fs::read(manifest)?)?;
    let layers = manifest
        .pointer("/layers")
        .and_then(Value::as_array)
        .context("no layers")?;
    layers
        .iter()
        .map(|layer| blob(layer.get("digest").context("no digest")?))
        .collect()
}

/// The files that eStargz adds to a layer for itself: its table of contents and marks for prefetching. Unpackers that do not know the
/// format show them; a view does not, nor does stargz-snapshotter.
const OF_ESTARGZ: &[&[u8]] = &[
    b"stargz.index.json",
    b".no.prefetch.landmark",
    b".prefetch.landmark",
];

/// The differences between a view and a truth, less those that an unpacker is known to get wrong or cannot know; the view follows
/// `docs/decisions/0004-merge-semantics.md`.
pub(crate) fn differences(view: &Tree, truth: &Truth, unpacker: Unpacker) -> Vec<Difference> {
    let mut found = tree::compare(&comparable(view, unpacker), &comparable(&truth.tree, unpacker));
    found.retain(|difference| !is_artefact(difference, view, truth, unpacker));
    found
}

/// The tree without attributes that cannot be compared.
fn comparable(tree: &Tree, unpacker: Unpacker) -> Tree {
    let mut tree = tree.clone();
    for node in tree.nodes.values_mut() {
        node.xattrs.retain(|name, value| match unpacker {
            // umoci does not set attributes whose value is empty.
            Unpacker::Umoci => !value.is_empty(),
            // containerd leaves these to overlayfs.
            Unpacker::Containerd => !name.starts_with(b"trusted."),
            Unpacker::GnuTar => true,
        });
    }
    tree
}

fn is_artefact(difference: &Difference, view: &Tree, truth: &Truth, unpacker: Unpacker) -> bool {
    let Some(node) = truth.tree.nodes.get(&difference.path) else {
        return false;
    };
    if difference.field == "existence" && OF_ESTARGZ.contains(&difference.path.as_slice()) {
        return true;
    }
    let is_directory = node.mode & 0o170_000 == 0o040_000;
    match (difference.field, unpacker) {
        // A directory that no layer describes, or that a later layer only puts things into, gets the time of the
        // unpacking: known by being later than its start.
        ("mtime", _) if is_directory && node.modified.0 >= truth.began => true,
        // containerd sets times before 1970 to 1970.
        ("mtime", Unpacker::Containerd)
            if node.modified == (0, 0) && difference.values.0.starts_with("(-") =>
        {
            true
        }
        // containerd sets the owner once more for a hard link, upon which the kernel drops the file's capabilities.
        ("xattrs", Unpacker::Containerd) if node.links > 1 => {
            let mut expected = view
                .nodes
                .get(&difference.path)
                .map(|node| node.xattrs.clone())
                .unwrap_or_default();
            expected.remove(b"security.capability".as_slice());
            expected == node.xattrs
        }
        // containerd passes over entries for the root.
        ("mode" | "owner" | "mtime" | "xattrs", Unpacker::Containerd) => difference.path.is_empty(),
        _ => false,
    }
}
