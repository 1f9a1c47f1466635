//! Independent unpackers, against which a mounted view is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tree::{self, Difference, Tree};
use crate::world::{World, run};

/// Who unpacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpacker {
    /// umoci, which builds images as well. Knows no zstd.
    Umoci,
    /// containerd's `archive.Apply`, by a small program around it.
    Containerd,
}

/// A tree as an unpacker left it.
pub(crate) struct Truth {
    /// What it unpacked.
    pub(crate) tree: Tree,
    /// When it began, in seconds since 1970: a later time in the tree is not from the image.
    pub(crate) began: i64,
}

/// Unpacks a layout's image into a fresh directory and reads the result.
pub(crate) fn unpack(world: &World, layout: &Path, unpacker: Unpacker) -> Result<Truth> {
    let target = world.path(&format!("unpacked-{unpacker:?}"));
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    let root = match unpacker {
        Unpacker::Umoci => {
            run(Command::new("umoci")
                .args(["unpack", "--image", &format!("{}:latest", layout.display())])
                .arg(&target))?;
            target.join("rootfs")
        }
        Unpacker::Containerd => {
            fs::create_dir(&target)?;
            let blobs = layer_blobs(layout)?;
            run(Command::new(World::go_tool("apply")?).arg(&target).args(blobs))?;
            target
        }
    };
    Ok(Truth {
        tree: tree::read(&root)?,
        began,
    })
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

/// What differs between a view and the truth, less the one thing in which unpacking by extraction cannot be
/// right: a directory that no layer mentions, or that a later layer only puts things into, gets the time of the
/// unpacking. Such times are known by being later than its start.
pub(crate) fn differences(view: &Tree, truth: &Truth) -> Vec<Difference> {
    let mut found = tree::compare(view, &truth.tree);
    found.retain(|difference| {
        let unpacked = truth.tree.nodes.get(&difference.path);
        let artefact = difference.field == "mtime"
            && unpacked
                .is_some_and(|node| node.mode & 0o170_000 == 0o040_000 && node.modified.0 >= truth.began);
        !artefact
    });
    found
}
