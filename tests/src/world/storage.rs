//! Images put into the storage of the reference registry as files, in its own layout: a push without the requests of one. The registry
//! has no cache, so it serves them at once. What a client pushes to Xebec's registry is tried in `cases/registry_clients.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// Layers that a client pushes as they are. It would compress others, and so change the manifest.
const AS_THEY_ARE: [&str; 2] = [
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
];

/// Puts the image "latest" of a layout into the storage, as NAME:latest. `false` if a client would not push exactly these bytes; then
/// nothing was written.
pub(super) fn put(storage: &Path, layout: &Path, name: &str) -> Result<bool> {
    let Some((manifest, blobs)) = image(layout)? else {
        return Ok(false);
    };
    let top = storage.join("docker/registry/v2");
    for hex in blobs.iter().chain([&manifest]) {
        let directory = top
            .join("blobs/sha256")
            .join(hex.get(..2).unwrap_or_default())
            .join(hex);
        let data = directory.join("data");
        if !data.exists() {
            fs::create_dir_all(&directory)?;
            fs::copy(blob(layout, hex), data)?;
        }
    }
    let repository = top.join("repositories").join(name);
    let link = |place: String, hex: &str| -> Result<()> {
        let directory = repository.join(place);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("link"), format!("sha256:{hex}"))?;
        Ok(())
    };
    for hex in &blobs {
        link(format!("_layers/sha256/{hex}"), hex)?;
    }
    link(format!("_manifests/revisions/sha256/{manifest}"), &manifest)?;
    link(
        format!("_manifests/tags/latest/index/sha256/{manifest}"),
        &manifest,
    )?;
    // The tag last: whoever finds it finds all.
    link("_manifests/tags/latest/current".to_owned(), &manifest)?;
    Ok(true)
}

/// The hexadecimal digests of the manifest, and of its configuration and layers.
fn image(layout: &Path) -> Result<Option<(String, Vec<String>)>> {
    if layout.join("push-format").exists() {
        return Ok(None);
    }
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifests = index
        .pointer("/manifests")
        .and_then(Value::as_array)
        .context("no manifests")?;
    let is_latest = |found: &&Value| {
        found.pointer("/annotations/org.opencontainers.image.ref.name") == Some(&"latest".into())
    };
    let Some(manifest) = manifests.iter().find(is_latest).and_then(digest) else {
        return Ok(None);
    };
    let parsed: Value = serde_json::from_slice(&fs::read(blob(layout, &manifest))?)?;
    let (Some(config), Some(layers)) = (
        parsed.get("config"),
        parsed.get("layers").and_then(Value::as_array),
    ) else {
        return Ok(None);
    };
    let is_as_it_is = |layer: &Value| {
        let kind = layer.get("mediaType").and_then(Value::as_str);
        kind.is_some_and(|kind| AS_THEY_ARE.contains(&kind))
    };
    let is_of_oci = config.get("mediaType") == Some(&"application/vnd.oci.image.config.v1+json".into());
    let blobs: Option<Vec<String>> = [config].into_iter().chain(layers).map(digest).collect();
    let Some(blobs) = blobs.filter(|_| is_of_oci && layers.iter().all(is_as_it_is)) else {
        return Ok(None);
    };
    let is_whole = blobs.iter().all(|hex| blob(layout, hex).exists());
    Ok(is_whole.then_some((manifest, blobs)))
}

fn digest(descriptor: &Value) -> Option<String> {
    let hex = descriptor.get("digest")?.as_str()?.strip_prefix("sha256:")?;
    Some(hex.to_owned())
}

fn blob(layout: &Path, hex: &str) -> PathBuf {
    layout.join("blobs/sha256").join(hex)
}
