//! The images that this host knows, for `xebec images`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use xebec_commit::Committed;
use xebec_format::digest::Digest;
use xebec_kernel::clock::parse_rfc3339;
use xebec_oci::Manifest;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::CachedLayerInfo;

use crate::images::Images;
use crate::inventory::cached_layers;
use crate::record::{ImageRecord, KeptFor, LayerRecord};

/// An image that this host knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnownImage {
    /// Its names, in full.
    pub references: BTreeSet<String>,
    /// The manifest's digest.
    pub manifest_digest: Digest,
    /// The manifest's media type.
    pub media_type: String,
    /// Size of all layer blobs in bytes, by the manifest.
    pub size: u64,
    /// How much of that is on this host: of each layer the share of its pages that are present. A layer that is not cached
    /// counts as absent.
    pub cached_size: u64,
    /// The layers by which it is used, bottom to top.
    pub layers: Vec<LayerRecord>,
    /// For which platforms it was asked for.
    pub platforms: BTreeSet<String>,
    /// When it was last prepared, in seconds since 1970.
    pub last_used: u64,
    /// Whether its layers stay, whatever the cache's limit is.
    pub pinned: bool,
    /// For whom it is kept; none where that was not noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<KeptFor>,
    /// Facts about an image that was committed on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<CommittedFacts>,
    /// The manifest.
    pub manifest: Value,
    /// The configuration.
    pub config: Value,
}

/// Facts about an image that was committed on this host, and is kept here until it is removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommittedFacts {
    /// How its base is named.
    pub base: String,
    /// When it was committed, as RFC 3339 has it.
    pub created: String,
    /// The name by which it was pushed last; `None` for an image that is only here.
    pub pushed: Option<String>,
}

impl KnownImage {
    /// Whether it was committed here, and not pushed.
    pub fn is_only_here(&self) -> bool {
        self.committed
            .as_ref()
            .is_some_and(|facts| facts.pushed.is_none())
    }
}

/// All images that this host knows, ordered by manifest.
///
/// # Errors
/// When the cache cannot be read.
pub fn known_images(images: &Images) -> Result<Vec<KnownImage>, Failure> {
    let cached = cached_layers(images)?;
    let records = images.records().list().into_iter();
    let mut all: Vec<KnownImage> = records.map(|record| known(record, &cached)).collect();
    let committed = images.committed();
    let listed = committed.list().unwrap_or_else(|error| {
        // The others are listed all the same.
        tracing::warn!("{error}");
        Vec::new()
    });
    for image in listed {
        let facts = CommittedFacts {
            base: image.base.clone(),
            created: image.created.clone(),
            pushed: image.pushed.clone(),
        };
        let at = match all
            .iter()
            .position(|known| known.manifest_digest == image.manifest)
        {
            Some(at) => at,
            None => match only_committed(images, &image) {
                Ok(known) => {
                    all.push(known);
                    all.len() - 1
                }
                // The others are listed all the same.
                Err(failure) => {
                    tracing::warn!("{failure}");
                    continue;
                }
            },
        };
        if let Some(known) = all.get_mut(at) {
            known.references.extend(image.reference);
            known.committed = Some(facts);
        }
    }
    all.sort_by_key(|image| image.manifest_digest);
    Ok(all)
}

/// An image that was committed here and has not been used since.
fn only_committed(images: &Images, image: &Committed) -> Result<KnownImage, Failure> {
    let found = images.found_committed(&images.committed(), image)?;
    let created = parse_rfc3339(&image.created);
    let record = ImageRecord {
        references: BTreeSet::new(),
        last_used: created.map_or(0, |(seconds, _)| seconds.unsigned_abs()),
        ..found.record(Vec::new(), KeptFor::Commands)
    };
    Ok(KnownImage {
        cached_size: image.layer.map_or(0, |(_, size)| size),
        ..known(record, &[])
    })
}

fn known(record: ImageRecord, cached: &[CachedLayerInfo]) -> KnownImage {
    let (size, cached_size) = sizes(&record, cached);
    KnownImage {
        references: record.references,
        manifest_digest: record.manifest_digest,
        media_type: record.media_type,
        size,
        cached_size,
        layers: record.layers,
        platforms: record.platforms,
        last_used: record.last_used,
        pinned: record.pinned,
        kept_for: record.kept_for,
        committed: None,
        manifest: json(record.manifest),
        config: json(record.config),
    }
}

/// A document as JSON. One that is damaged stays the text that it is.
fn json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// The size of an image's layers, and how much of it is cached.
fn sizes(record: &ImageRecord, cached: &[CachedLayerInfo]) -> (u64, u64) {
    let parsed = Manifest::parse(record.manifest.as_bytes(), Some(&record.media_type));
    let Ok(Manifest::Image(manifest)) = parsed else {
        return (0, 0);
    };
    let mut sum = (0_u64, 0_u64);
    for layer in &manifest.layers {
        let used = record.layers.iter().find(|used| used.layer == layer.digest);
        let here = used.and_then(|used| cached.iter().find(|cached| cached.key() == used.key()));
        let part = here.map_or(0, |here| part(layer.size, here));
        sum = (sum.0.saturating_add(layer.size), sum.1.saturating_add(part));
    }
    sum
}

/// How much of a layer is present. Nothing is absent of a layer without pages.
fn part(size: u64, layer: &CachedLayerInfo) -> u64 {
    if layer.present_pages >= layer.pages {
        return size;
    }
    let part = u128::from(size) * u128::from(layer.present_pages) / u128::from(layer.pages);
    u64::try_from(part).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test that cannot go on should stop")]

    use std::collections::BTreeMap;

    use xebec_trust::Root;

    use super::*;

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    /// An image of layers with these names and sizes.
    fn record(layers: &[(&str, u64)]) -> ImageRecord {
        let descriptors = layers.iter().map(|(name, size)| {
            serde_json::json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest(name), "size": size
            })
        });
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest("config"), "size": 2},
            "layers": descriptors.collect::<Vec<_>>(),
        });
        let manifest = manifest.to_string();
        ImageRecord {
            references: ["registry.example.com/app:1".to_owned()].into(),
            former: BTreeSet::new(),
            indexes: BTreeMap::new(),
            platforms: BTreeSet::new(),
            manifest_digest: Digest::of(manifest.as_bytes()),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            manifest,
            config: r#"{"os":"linux"}"#.to_owned(),
            layers: layers.iter().map(|(name, _)| layer(name)).collect(),
            last_used: 1,
            pinned: false,
            kept_for: None,
            user: None,
        }
    }

    fn layer(name: &str) -> LayerRecord {
        LayerRecord {
            layer: digest(name),
            index: digest("index"),
            root: Root::Proven,
        }
    }

    fn cached(name: &str, present_pages: u64, pages: u64) -> CachedLayerInfo {
        let key = layer(name).key();
        CachedLayerInfo {
            layer: key.layer,
            index: key.index,
            pages,
            present_pages,
            disk_bytes: 0,
            proven: false,
            last_used: 0,
            pinned_by: None,
            in_use_by: None,
        }
    }

    /// Only the layer that it shares with another image is here.
    #[test]
    fn a_layer_that_is_not_cached_counts_as_absent() {
        let record = record(&[("base", 250), ("own", 750)]);
        let share = |cached: &[CachedLayerInfo]| sizes(&record, cached);
        assert_eq!(share(&[]), (1000, 0));
        assert_eq!(share(&[cached("base", 8, 8)]), (1000, 250));
        assert_eq!(share(&[cached("base", 8, 8), cached("own", 1, 3)]), (1000, 500));
        assert_eq!(share(&[cached("base", 0, 0), cached("other", 9, 9)]), (1000, 250));
        let all = [cached("own", 3, 3), cached("base", 8, 8)];
        assert_eq!(share(&all), (1000, 1000));
        // By another index it is another layer.
        let mut other = cached("base", 8, 8);
        other.index = digest("another index");
        assert_eq!(share(&[other]), (1000, 0));
    }

    #[test]
    fn manifest_and_configuration_are_objects() {
        let known = serde_json::to_value(known(record(&[("base", 250)]), &[])).unwrap();
        assert_eq!(known["manifest"]["layers"][0]["size"], 250);
        assert_eq!(known["config"]["os"], "linux");
        assert_eq!((&known["size"], &known["cached_size"]), (&250.into(), &0.into()));
    }

    #[test]
    fn what_is_damaged_has_no_size() {
        let mut record = record(&[("base", 250)]);
        record.manifest = "{".to_owned();
        assert_eq!(sizes(&record, &[cached("base", 8, 8)]), (0, 0));
        assert_eq!(json("{".to_owned()), Value::String("{".to_owned()));
    }
}
