//! The name of a cached layer, and the place of a mismatch in it.

use std::fmt;
use std::path::{Path, PathBuf};

use xebec_format::digest::Digest;
use xebec_format::runtime_image::RecordedLayer;

/// Name of the data file.
pub(crate) const DATA: &str = "data";

/// A layer as one index describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerKey {
    /// Digest of the layer blob.
    pub layer: Digest,
    /// Digest of the encoded index.
    pub index: Digest,
}

impl From<&RecordedLayer> for LayerKey {
    fn from(layer: &RecordedLayer) -> Self {
        Self {
            layer: layer.layer,
            index: layer.index,
        }
    }
}

impl LayerKey {
    /// The layer's folder below the store's: `<layer>/<index>`, in hexadecimal digits.
    pub fn folder(&self) -> PathBuf {
        Path::new(&self.layer.hex()).join(self.index.hex())
    }

    /// The layer's data file, where `layers` is the store's directory or a mount of it.
    pub fn data_path(&self, layers: &Path) -> PathBuf {
        layers.join(self.folder()).join(DATA)
    }
}

impl fmt::Display for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {} by index {}", self.layer.short(), self.index.short())
    }
}
