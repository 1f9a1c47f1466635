//! From a reference to one image: index, manifest, config, each verified by its digest.

use bytes::Bytes;
use xebec_format::digest::Digest;

use super::{Client, FetchedManifest};
use crate::error::{ClientError, Object, Target};
use crate::image_config::{ImageConfig, MAX_CONFIG_SIZE};
use crate::manifest::{Descriptor, ImageManifest, Index, Manifest};
use crate::media_type::{ACCEPT_IMAGE, layer_encoding};
use crate::reference::{Reference, Repository};
use xebec_format::platform::Platform;

/// Indexes may point to indexes; real ones do so once at most.
const MAX_INDEX_DEPTH: usize = 3;

/// One image, found and verified.
#[derive(Debug, Clone)]
pub struct ResolvedImage {
    /// The reference that was asked for.
    pub reference: Reference,
    /// Where its manifest and blobs are.
    pub repository: Repository,
    /// The indexes on the way to the manifest, as they were sent, the first one first.
    pub indexes: Vec<FetchedManifest>,
    /// The index that named the manifest, if one did; of several, the first.
    pub index_digest: Option<Digest>,
    /// That index, parsed.
    pub index: Option<Index>,
    /// That index as it was sent.
    pub index_bytes: Option<Bytes>,
    /// Digest of the manifest: the identity of the image.
    pub manifest_digest: Digest,
    /// The manifest as it was sent.
    pub manifest_bytes: Bytes,
    /// Type of the manifest.
    pub manifest_media_type: String,
    /// The manifest, parsed.
    pub manifest: ImageManifest,
    /// The config as it was sent.
    pub config_bytes: Bytes,
    /// The config, parsed. It has one diff ID for each layer.
    pub config: ImageConfig,
    /// The platform that the image runs on, by its index or its config.
    pub platform: Platform,
}

impl ResolvedImage {
    /// The descriptor of the manifest, for artifacts that refer to it.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.manifest_media_type, &self.manifest_bytes)
    }

    /// Layers with the digests of their plain tars, lowest first.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = (&Descriptor, Digest)> {
        self.manifest
            .layers
            .iter()
            .zip(self.config.rootfs.diff_ids.iter().copied())
    }
}

/// An image whose manifest is found and verified, and whose config is still to be fetched: from the registry, or from
/// wherever there are bytes with its digest.
#[derive(Debug, Clone)]
pub struct LocatedImage {
    reference: Reference,
    platform: Platform,
    target: Target,
    fetched: FetchedManifest,
    manifest: ImageManifest,
    index: Option<(Digest, Index, Bytes)>,
    indexes: Vec<FetchedManifest>,
    /// The platform for which the index lists the manifest.
    chosen: Option<Platform>,
}

impl LocatedImage {
    /// Digest of the manifest: the identity of the image.
    pub fn manifest_digest(&self) -> Digest {
        self.fetched.digest
    }

    /// Where its manifest and blobs are.
    pub fn repository(&self) -> &Repository {
        self.reference.repository()
    }

    /// Its layers, lowest first.
    pub fn layers(&self) -> impl Iterator<Item = Digest> {
        self.manifest.layers.iter().map(|layer| layer.digest)
    }

    /// The config that is to be fetched.
    pub fn config(&self) -> &Descriptor {
        &self.manifest.config
    }
}

impl Client {
    /// Finds the image that `reference` means for `platform`, following indexes.
    ///
    /// # Errors
    /// If it is not there, not for this platform, not an image, or not what its digests say.
    pub async fn resolve(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<ResolvedImage, ClientError> {
        let located = self.locate(reference, platform).await?;
        self.resolve_located(located, None).await
    }

    /// Finds the manifest of the image that `reference` means for `platform`, following indexes.
    ///
    /// # Errors
    /// If it is not there, not for this platform, not an image, or not what its digests say.
    pub async fn locate(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<LocatedImage, ClientError> {
        let repository = reference.repository();
        let mut name = reference.manifest_name();
        let mut index = None;
        let mut indexes = Vec::new();
        let mut chosen = None;
        for _ in 0..=MAX_INDEX_DEPTH {
            let fetched = match self.manifest(repository, &name, ACCEPT_IMAGE).await {
                Err(error @ ClientError::NotFound { .. }) if !name.contains(':') => {
                    return Err(self.explain_missing_tag(repository, &name, error).await);
                }
                fetched => fetched?,
            };
            let target = self.target(repository, Object::Manifest(name));
            let parsed = fetched.parse().map_err(|source| ClientError::Manifest {
                target: Box::new(target.clone()),
                source,
            })?;
            match parsed {
                Manifest::Image(manifest) if !manifest.is_image() => {
                    let media_type = manifest.artifact_type.unwrap_or(manifest.config.media_type);
                    return Err(ClientError::NotAnImage {
                        target: Box::new(target),
                        media_type,
                    });
                }
                Manifest::Image(manifest) => {
                    return Ok(LocatedImage {
                        reference: reference.clone(),
                        platform: platform.clone(),
                        target,
                        fetched,
                        manifest: *manifest,
                        index,
                        indexes,
                        chosen,
                    });
                }
                Manifest::Index(list) => {
                    let Some(entry) = list.select(platform) else {
                        return Err(no_platform(target, platform, list.platforms()));
                    };
                    name = entry.digest.to_string();
                    chosen = entry.platform.clone().or(chosen);
                    indexes.push(fetched.clone());
                    index = index.or(Some((fetched.digest, *list, fetched.bytes)));
                }
            }
        }
        let media_type = format!("index of indexes more than {MAX_INDEX_DEPTH} deep");
        let target = self.target(repository, Object::Manifest(name));
        Err(ClientError::NotAnImage {
            target: Box::new(target),
            media_type,
        })
    }

    /// Checks that manifest, config and platform agree. `config` is used if it is what the manifest says; else the registry
    /// is asked for it.
    ///
    /// # Errors
    /// If it cannot be fetched, or they do not agree.
    pub async fn resolve_located(
        &self,
        located: LocatedImage,
        config: Option<Bytes>,
    ) -> Result<ResolvedImage, ClientError> {
        let LocatedImage {
            reference,
            platform,
            target,
            fetched,
            manifest,
            index,
            indexes,
            chosen,
        } = located;
        let repository = reference.repository();
        let at_hand = config.filter(|bytes| Digest::of(bytes) == manifest.config.digest);
        let config_bytes = match at_hand {
            Some(bytes) => bytes,
            None => self.blob(repository, &manifest.config, MAX_CONFIG_SIZE).await?,
        };
        let refuse = |reason: String| {
            let target = self.target(repository, Object::Blob(manifest.config.digest));
            ClientError::ImageConfig {
                target: Box::new(target),
                reason,
            }
        };
        let config = ImageConfig::parse(&config_bytes).map_err(|error| refuse(error.to_string()))?;
        check_layers(&manifest, &config).map_err(refuse)?;
        let own = config.platform();
        // An index vouches for its entries; a lone manifest is held to its config.
        if let Some(own) = own
            .as_ref()
            .filter(|own| chosen.is_none() && platform.rank(own).is_none())
        {
            return Err(no_platform(target, &platform, vec![own.to_string()]));
        }
        Ok(ResolvedImage {
            repository: repository.clone(),
            reference,
            indexes,
            index_digest: index.as_ref().map(|(digest, ..)| *digest),
            index_bytes: index.as_ref().map(|(_, _, bytes)| bytes.clone()),
            index: index.map(|(_, index, _)| index),
            manifest_digest: fetched.digest,
            manifest_media_type: media_type_of(&manifest, &fetched),
            manifest_bytes: fetched.bytes,
            manifest,
            config_bytes,
            config,
            platform: chosen.or(own).unwrap_or(platform),
        })
    }
}

/// Whether manifest and configuration list the same number of layers, all of known types; else why not.
fn check_layers(manifest: &ImageManifest, config: &ImageConfig) -> Result<(), String> {
    let (layers, diff_ids) = (manifest.layers.len(), config.rootfs.diff_ids.len());
    if layers != diff_ids {
        return Err(format!(
            "the manifest has {layers} layers and the config {diff_ids} diff IDs"
        ));
    }
    let mut layers = manifest.layers.iter();
    match layers.find(|layer| layer_encoding(&layer.media_type).is_none()) {
        None => Ok(()),
        Some(odd) => Err(format!(
            "layer {} has the unknown type {:?}",
            odd.digest, odd.media_type
        )),
    }
}

fn media_type_of(manifest: &ImageManifest, fetched: &FetchedManifest) -> String {
    let named = manifest.media_type.as_deref().or(fetched.media_type.as_deref());
    let known = named.filter(|text| ACCEPT_IMAGE.contains(text));
    known.unwrap_or(crate::media_type::OCI_MANIFEST).to_owned()
}

fn no_platform(target: Target, platform: &Platform, offered: Vec<String>) -> ClientError {
    ClientError::NoPlatform {
        target: Box::new(target),
        platform: platform.to_string(),
        offered,
    }
}
