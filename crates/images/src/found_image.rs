//! An image as it was found.

use std::path::Path;

use bytes::Bytes;
use xebec_container::Identity;
use xebec_format::digest::Digest;
use xebec_kernel::clock::seconds_since_1970;
use xebec_oci::{Descriptor, ImageManifest, Manifest, Reference};
use xebec_protocol::wire::Reply;
use xebec_trust::Naming;

use crate::images::Report;
use crate::record::{ImageRecord, KeptFor, LayerRecord};

/// An image as it was found.
#[derive(Clone, Debug)]
pub struct FoundImage {
    /// The reference, in full.
    pub reference: Reference,
    /// The image index on the way to the manifest, with its bytes where they are at hand.
    pub image_index: Option<(Digest, Bytes)>,
    /// For which platform the registry has said that this is it, in one spelling, if it was asked.
    pub platform: Option<String>,
    /// The manifest.
    pub manifest_digest: Digest,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub manifest_bytes: Bytes,
    /// The configuration's bytes.
    pub config_bytes: Bytes,
    /// The layers, bottom to top.
    pub layers: Vec<Descriptor>,
    /// Digests of their plain streams, as the configuration has them.
    pub diff_ids: Vec<Digest>,
    /// Whether the registry was not asked, because it could not be, or was not to be.
    pub offline: bool,
    /// Whether upper layers were left out.
    pub is_part: bool,
    /// The numbers of the configuration's user, as a recording or this host remembers them. Never used without comparing.
    pub user: Option<Identity>,
}

impl FoundImage {
    /// How the user named it.
    pub fn naming(&self) -> Naming {
        Naming::of(self.reference.is_by_digest())
    }

    /// The configuration, as the manifest lists it; `None` if the manifest cannot be read.
    pub fn config(&self) -> Option<Descriptor> {
        let manifest = parse_manifest(&self.manifest_bytes, &self.media_type)?;
        Some(manifest.config)
    }

    /// Tells the client that starts the image what the image is, before its files are there.
    pub(super) fn tell(&self, report: &Report) {
        if let Ok(config) = serde_json::from_slice(&self.config_bytes) {
            let user = self.user.clone();
            report(Reply::Configuration { config, user });
        }
    }

    /// Looks up the numbers of its user, in a view of it. Starts can do without.
    pub fn look_up_user(&mut self, view: &Path) {
        let user = xebec_container::ImageConfig::from_blob(&self.config_bytes).ok();
        self.user = user.and_then(|config| Identity::of(view, &config.user).ok());
    }

    /// The documents that the user's name led through to the manifest, by digest.
    pub fn path(&self) -> Vec<Digest> {
        let index = self.image_index.as_ref().map(|(digest, _)| *digest);
        index.into_iter().chain([self.manifest_digest]).collect()
    }

    /// The fields to add to the image's record ([`Records::put`]).
    pub(crate) fn record(&self, layers: Vec<LayerRecord>, kept_for: KeptFor) -> ImageRecord {
        let reference = self.reference.to_string();
        let index = self.image_index.as_ref();
        ImageRecord {
            former: Default::default(),
            indexes: index
                .map(|(digest, _)| (reference.clone(), *digest))
                .into_iter()
                .collect(),
            platforms: self.platform.iter().cloned().collect(),
            references: [reference].into(),
            manifest_digest: self.manifest_digest,
            media_type: self.media_type.clone(),
            manifest: String::from_utf8_lossy(&self.manifest_bytes).into_owned(),
            config: String::from_utf8_lossy(&self.config_bytes).into_owned(),
            layers,
            last_used: seconds_since_1970(),
            pinned: false,
            kept_for: Some(kept_for),
            user: self.user.clone(),
        }
    }
}

pub(crate) fn parse_manifest(bytes: &[u8], media_type: &str) -> Option<ImageManifest> {
    match Manifest::parse(bytes, Some(media_type)).ok()? {
        Manifest::Image(manifest) => Some(*manifest),
        Manifest::Index(_) => None,
    }
}
