//! An image's view: its layers' trees merged into one EROFS metadata image, mounted over the layers' data files.
//!
//! The metadata is written here, never taken from the network, and whole before the mount. Data files that are
//! incomplete are opened by the guarded path, so that reading them raises events; complete ones by the ordinary
//! path. A file whose contents this host has hashed in another complete layer points there instead of to its own
//! layer, so those bytes are never fetched.

use std::path::{Path, PathBuf};
use std::time::Instant;

use xebec_cache::store::LayerKey;
use xebec_format::digest::{Digest, Digester};
use xebec_format::erofs::{self, Device};
use xebec_format::image::ImageTree;
use xebec_format::merge::merge;
use xebec_kernel::mount::{self, Attributes, Erofs};

use crate::failure::{Failure, FailureKind};
use crate::file::write_atomically;
use crate::image::PreparedLayer;
use crate::paths::Paths;
use crate::sharing::SharedContents;

/// A view that is written but perhaps not mounted.
pub struct BuiltView {
    /// Its name: two images with the same tree over the same data share it.
    pub name: String,
    /// The metadata image.
    pub metadata: PathBuf,
    /// The layers whose data files it reads, in the order of its devices.
    pub devices: Vec<LayerKey>,
    /// How long merging and writing took, in milliseconds.
    pub milliseconds: f64,
}

/// Merges the layers' trees and writes the metadata image.
///
/// # Errors
/// Layers that do not go together (a hard link without target, say), and I/O errors.
pub fn build(paths: &Paths, layers: &[PreparedLayer], shared: &SharedContents) -> Result<BuiltView, Failure> {
    let start = Instant::now();
    let indexes: Vec<_> = layers.iter().map(|layer| layer.index.as_ref()).collect();
    let mut tree: ImageTree = merge(&indexes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let mut devices: Vec<(LayerKey, u64)> = layers
        .iter()
        .map(|layer| (layer.key, layer.index.data_size))
        .collect();
    shared.redirect(layers, &mut tree, &mut devices);
    let table: Vec<Device> = devices.iter().map(|(key, size)| device(*key, *size)).collect();
    let options = erofs::Options { uuid: uuid(&devices) };
    let bytes =
        erofs::write(&tree, &table, &options).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let name = Digest::of(&bytes).hex()[..32].to_owned();
    let metadata = paths.views().join(format!("{name}.erofs"));
    let failed = |error| Failure::host(format!("write {}", metadata.display()), error);
    std::fs::create_dir_all(paths.views()).map_err(failed)?;
    if std::fs::metadata(&metadata).map_or(0, |m| m.len()) != bytes.len() as u64 {
        write_atomically(&metadata, &bytes).map_err(failed)?;
    }
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok(BuiltView {
        name,
        metadata,
        devices: devices.into_iter().map(|(key, _)| key).collect(),
        milliseconds,
    })
}

/// The tag ties the device to layer and index, and so the view's name to the data that it reads.
fn device(key: LayerKey, data_size: u64) -> Device {
    let mut tag = [0; 64];
    tag[..32].copy_from_slice(key.layer.as_bytes());
    tag[32..].copy_from_slice(key.index.as_bytes());
    Device { tag, data_size }
}

/// Overlayfs tells lower file systems apart by their UUID, so views over different data have different ones.
fn uuid(devices: &[(LayerKey, u64)]) -> [u8; 16] {
    let mut digester = Digester::new();
    for (key, _) in devices {
        digester.update(key.layer.as_bytes());
        digester.update(key.index.as_bytes());
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digester.finish().as_bytes()[..16]);
    uuid
}

/// Mounts a view at `target`.
///
/// # Errors
/// When the kernel refuses.
pub fn mount(
    paths: &Paths,
    view: &BuiltView,
    is_complete: impl Fn(LayerKey) -> bool,
    target: &Path,
) -> Result<(), Failure> {
    let mut erofs = Erofs::new(&view.metadata);
    for key in &view.devices {
        let directory = if is_complete(*key) {
            paths.layers()
        } else {
            paths.guarded()
        };
        erofs = erofs.device(directory.join(key.folder()).join("data"));
    }
    std::fs::create_dir_all(target)
        .map_err(|error| Failure::host(format!("make the mount point {}", target.display()), error))?;
    let mounted = erofs.mount_at(target, Attributes::MOUNT_ATTR_RDONLY);
    mounted.map(|_| ()).map_err(|error| {
        let doing = format!(
            "mount the view {} (`xebec doctor` checks what it needs)",
            view.name
        );
        Failure::host(doing, error)
    })
}

/// Unmounts a view, lazily if readers hold it.
///
/// # Errors
/// When the kernel refuses even that.
pub fn unmount(target: &Path) -> Result<(), Failure> {
    mount::unmount(target)
        .or_else(|_| mount::unmount_lazily(target))
        .map_err(|error| Failure::host(format!("unmount {}", target.display()), error))
}
