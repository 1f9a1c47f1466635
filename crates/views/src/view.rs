//! An image's view: its layers' trees merged into one EROFS metadata image, mounted over the layers' data files.
//!
//! The metadata is written here, never taken from the network, and whole before the mount. Data files that are
//! incomplete are opened by the guarded path, so that reading them raises events; complete ones by the ordinary
//! path, and so are the devices of start-up pages ([`crate::bypass_devices`]) once these are there. A file whose contents this host
//! has hashed in another complete layer points there instead of to its own layer, so those bytes are never fetched.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use xebec_cache::store::LayerKey;
use xebec_fill::page_set::PageSet;
use xebec_format::digest::Digester;
use xebec_format::erofs::{self, Device};
use xebec_format::image::ImageTree;
use xebec_format::merge::merge;
use xebec_images::prepared_layer::PreparedLayer;
use xebec_kernel::file::write_for_this_boot;
use xebec_kernel::mount::{Attributes, BackingDevice, Erofs};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::bypass_devices::{self, Arriving};
use crate::sharing::SharedContents;

/// A view that is built but perhaps not mounted.
pub struct BuiltView {
    /// Its name: two images with the same tree over the same data, reached by the same devices, share it.
    pub name: String,
    /// Where its metadata image is while it is mounted.
    pub metadata: PathBuf,
    /// The metadata image.
    pub bytes: Vec<u8>,
    /// The layers whose data files it reads, in the order of its devices.
    pub devices: Vec<LayerKey>,
    /// From this place on the devices are free.
    pub first_free: usize,
    /// Of which part of the start-up pages each of these is.
    pub parts: Vec<usize>,
    /// How long merging took, in milliseconds.
    pub milliseconds: f64,
    /// The tree that it shows, its contents as ranges of the devices.
    pub tree: Arc<ImageTree>,
}

impl BuiltView {
    /// The layers that it reads, each once.
    pub fn layers(&self) -> &[LayerKey] {
        self.devices.get(..self.first_free).unwrap_or(&self.devices)
    }
}

/// The options of a view, on which it depends beside its layers.
pub struct ViewOptions<'a> {
    /// Contents that are complete in other layers; `None` to read every layer's own.
    pub shared: Option<&'a SharedContents>,
    /// Pages that are present or on their way, in the parts in which they come, that have none in common.
    pub free: &'a [PageSet],
    /// Whether a layer is complete.
    pub is_complete: &'a dyn Fn(LayerKey) -> bool,
    /// Makes the view another than all others with the same contents, so that nothing of it is in any page cache.
    pub salt: Option<&'a str>,
}

/// Merges the layers' trees and makes the metadata image.
///
/// # Errors
/// Layers that do not go together (a hard link without target, say).
pub fn build(
    paths: &Paths,
    layers: &[PreparedLayer],
    options: &ViewOptions<'_>,
) -> Result<BuiltView, Failure> {
    let start = Instant::now();
    let indexes: Vec<_> = layers.iter().map(|layer| layer.index.as_ref()).collect();
    let mut tree: ImageTree = merge(&indexes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let mut devices: Vec<(LayerKey, u64)> = layers
        .iter()
        .map(|layer| (layer.key, layer.index.data_size))
        .collect();
    if let Some(shared) = options.shared {
        shared.redirect(layers, &mut tree, &mut devices);
    }
    let first_free = devices.len();
    let parts = bypass_devices::redirect(options.free, &mut tree, &mut devices, options.is_complete);
    let table: Vec<Device> = devices.iter().map(|(key, size)| device(*key, *size)).collect();
    let erofs_options = erofs::Options {
        uuid: uuid(&devices, &parts, options.salt),
    };
    let bytes = erofs::write(&tree, &table, &erofs_options)
        .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let name = blake3::hash(&bytes).to_hex()[..32].to_owned();
    let metadata = metadata(paths, &name);
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    Ok(BuiltView {
        name,
        metadata,
        bytes,
        devices: devices.into_iter().map(|(key, _)| key).collect(),
        first_free,
        parts,
        milliseconds,
        tree: Arc::new(tree),
    })
}

/// The tag ties the device to layer and index, and so the view's name to the data that it reads.
fn device(key: LayerKey, data_size: u64) -> Device {
    let mut tag = [0; 64];
    tag[..32].copy_from_slice(key.layer.as_bytes());
    tag[32..].copy_from_slice(key.index.as_bytes());
    Device { tag, data_size }
}

/// Overlayfs tells lower file systems apart by their UUID, so views over different data have different ones. So have those whose
/// start-up pages come in other parts: the mounts by which they are reached are named after view and part.
fn uuid(devices: &[(LayerKey, u64)], parts: &[usize], salt: Option<&str>) -> [u8; 16] {
    let mut digester = Digester::new();
    for (key, _) in devices {
        digester.update(key.layer.as_bytes());
        digester.update(key.index.as_bytes());
    }
    for part in parts {
        digester.update(&part.to_le_bytes());
    }
    digester.update(salt.unwrap_or_default().as_bytes());
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digester.finish().as_bytes()[..16]);
    uuid
}

/// How a view is mounted.
pub struct MountOptions<'a> {
    /// The mount of the blob cache by which data files are opened that may lack pages.
    pub guarded: &'a Path,
    /// The mounts by which the devices of each part of the start-up pages are opened: one that is guarded until all of them are there, or
    /// the cache itself.
    pub free: &'a [Option<Arriving>],
    /// Whether all of a layer's pages are there, so that nobody need be asked about them.
    pub is_complete: &'a dyn Fn(LayerKey) -> bool,
    /// How much more than the touched page is read, in KiB; the kernel's default (128) when absent.
    pub read_ahead_kib: Option<u32>,
}

/// Writes a view's metadata and mounts it at `target`. Gives the backing device of its read-ahead, if that can be told.
///
/// Metadata that an earlier start wrote is never used again: a power cut may have torn it. So this one need not be on the disk
/// before the mount, either; [`sync`] brings it there.
///
/// # Errors
/// When the kernel refuses.
pub fn mount(
    paths: &Paths,
    view: &BuiltView,
    options: &MountOptions<'_>,
    target: &Path,
) -> Result<Option<BackingDevice>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::on_root_disk(format_args!("write {}", view.metadata.display()), &error)
    };
    std::fs::create_dir_all(paths.views()).map_err(failed)?;
    write_for_this_boot(&view.metadata, &view.bytes).map_err(failed)?;
    let mut erofs = Erofs::new(&view.metadata);
    for (number, key) in view.devices.iter().enumerate() {
        let part = number
            .checked_sub(view.first_free)
            .and_then(|free| view.parts.get(free));
        let directory = match part.and_then(|part| options.free.get(*part)) {
            Some(Some(arriving)) => arriving.mount.clone(),
            Some(None) => paths.layers(),
            None if (options.is_complete)(*key) => paths.layers(),
            None => options.guarded.to_owned(),
        };
        erofs = erofs.device(key.data_path(&directory));
    }
    if let Some(kib) = options.read_ahead_kib {
        erofs = erofs.read_ahead_kib(kib);
    }
    std::fs::create_dir_all(target)
        .map_err(|error| Failure::host(format!("make the mount point {}", target.display()), error))?;
    let mounted = erofs.mount_at(target, Attributes::MOUNT_ATTR_RDONLY | unsafe_for_hosts());
    let mounted = mounted.map_err(|error| {
        let doing = format!(
            "mount the view {} (`xebec doctor` checks what it needs)",
            view.name
        );
        Failure::host(doing, error)
    })?;
    Ok(mounted.backing().cloned())
}

/// The attributes that keep users of the host from dangerous files of an image: programs that run as somebody else, and devices. A
/// container has both by the overlay on the view, which asks for nothing but its own flags.
pub(crate) fn unsafe_for_hosts() -> Attributes {
    Attributes::MOUNT_ATTR_NOSUID | Attributes::MOUNT_ATTR_NODEV
}

/// Where the metadata of the view of that name is.
pub fn metadata(paths: &Paths, name: &str) -> PathBuf {
    paths.views().join(format!("{name}.erofs"))
}

/// Brings the metadata of a mounted view to the disk: memory that holds it may be wanted for something else. Blocks.
///
/// # Errors
/// When the disk does not take it: the view may come to be damaged.
pub fn sync(metadata: &Path) -> Result<(), Failure> {
    let synced = File::open(metadata).and_then(|file| file.sync_data());
    match synced {
        // The view is gone.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| Failure::host(format!("sync {}", metadata.display()), error)),
    }
}
