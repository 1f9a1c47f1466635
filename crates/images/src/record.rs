//! This host's knowledge of an image, kept in `images/<manifest>.json`: enough to start it again without asking
//! the registry for anything but the tag.

mod records;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use xebec_cache::store::LayerKey;
use xebec_container::Identity;
use xebec_format::digest::Digest;
use xebec_oci::{ImageConfig, Platform};
use xebec_trust::Root;

pub use records::Records;

/// An image that was prepared on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// References by which it was asked for, in full.
    pub references: BTreeSet<String>,
    /// References by which it was asked for until they named another manifest.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub former: BTreeSet<String>,
    /// The image indexes that led to the manifest, by the reference that named one: what an index binds counts for the reference that named
    /// it.
    #[serde(default)]
    pub indexes: BTreeMap<String, Digest>,
    /// For which platforms it was asked for, in one spelling ([`xebec_oci::Platform::normalized`]).
    #[serde(default)]
    pub platforms: BTreeSet<String>,
    /// The manifest.
    pub manifest_digest: Digest,
    /// Its media type.
    pub media_type: String,
    /// Its bytes (a manifest is JSON, so text).
    pub manifest: String,
    /// The configuration's bytes.
    pub config: String,
    /// The layers, bottom to top.
    pub layers: Vec<LayerRecord>,
    /// When it was last prepared, in seconds since 1970.
    pub last_used: u64,
    /// Whether its layers stay, whatever the cache's limit is.
    #[serde(default)]
    pub pinned: bool,
    /// For whom it is kept. Records of earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<KeptFor>,
    /// The numbers of the configuration's user, as a recording has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Identity>,
}

/// For whom an image is kept on this host; the later one counts, if both want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptFor {
    /// For containerd alone: when containerd has removed it, its cached layers go.
    Containerd,
    /// Wanted by a command of Xebec that named it, until `xebec rmi`.
    Commands,
}

/// How an image that this host knows fits a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Its registry has it for just that platform.
    Exactly,
    /// It can be run there as far as it says, but the registry may have another one for that platform.
    Perhaps,
}

impl ImageRecord {
    /// How it fits a platform; `None` if it cannot be run there as far as it says. The platforms in an image index win over those that
    /// its images say themselves.
    pub fn fit(&self, platform: &Platform) -> Option<Fit> {
        if self.platforms.contains(&platform.normalized().to_string()) {
            return Some(Fit::Exactly);
        }
        match ImageConfig::parse(self.config.as_bytes()).ok()?.platform() {
            Some(own) => platform.rank(&own).map(|_| Fit::Perhaps),
            None => Some(Fit::Perhaps),
        }
    }
}

/// By which index a layer was used, and why that index was admitted for this image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// The root of trust of the admission. Facts about this image (*bound*, *signed*, *registry*), so they are kept
    /// here; *proven* is a fact about the layer, and is kept with it.
    pub root: Root,
}

impl LayerRecord {
    /// The layer's key in the store.
    pub fn key(&self) -> LayerKey {
        LayerKey {
            layer: self.layer,
            index: self.index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(reference: &str) -> ImageRecord {
        ImageRecord {
            references: [reference.to_owned()].into(),
            former: BTreeSet::new(),
            indexes: BTreeMap::new(),
            platforms: BTreeSet::new(),
            manifest_digest: Digest::of(b"manifest"),
            media_type: String::new(),
            manifest: String::new(),
            config: String::new(),
            layers: Vec::new(),
            last_used: 1,
            pinned: false,
            kept_for: None,
            user: None,
        }
    }

    #[test]
    fn an_image_is_for_the_platforms_that_it_was_asked_for() {
        let fit = |config: &str, asked: &[&str], platform: &str| {
            let record = ImageRecord {
                config: format!(r#"{{{config}"rootfs":{{"type":"layers","diff_ids":[]}}}}"#),
                platforms: asked.iter().map(|&text| text.to_owned()).collect(),
                ..record("")
            };
            record.fit(&platform.parse().unwrap())
        };
        let amd64 = r#""os":"linux","architecture":"amd64","#;
        assert_eq!(fit(amd64, &["linux/amd64"], "linux/amd64"), Some(Fit::Exactly));
        assert_eq!(fit(amd64, &["linux/amd64"], "linux/x86_64"), Some(Fit::Exactly));
        assert_eq!(fit(amd64, &["linux/amd64"], "linux/amd64/v3"), Some(Fit::Perhaps));
        assert_eq!(fit(amd64, &["linux/amd64"], "linux/arm64"), None);
        // As an index has it that says something else than its image.
        assert_eq!(fit(amd64, &["linux/arm64"], "linux/arm64"), Some(Fit::Exactly));
        assert_eq!(fit(amd64, &["linux/arm64"], "linux/amd64"), Some(Fit::Perhaps));
        assert_eq!(fit("", &[], "linux/amd64"), Some(Fit::Perhaps));
    }
}
