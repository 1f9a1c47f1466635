//! `xebec check`: compares what is cached with the digests of its spans.

use serde::Serialize;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::ImageRequest;

use crate::images::Images;
use crate::lookup::not_known;
use crate::record::ImageRecord;

/// One layer, checked.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// Whether anything of it is in the cache. Of a layer that was evicted whole, the numbers are not known and 0.
    pub cached: bool,
    /// Spans of the layer.
    pub spans: u64,
    /// Spans that are wholly present and have the right digest.
    pub verified_spans: u64,
    /// Spans that are wholly present and have another digest.
    pub wrong_spans: u64,
    /// Pages that are present.
    pub present_pages: u64,
    /// Pages of the data space.
    pub pages: u64,
}

impl CheckedLayer {
    /// A layer of which nothing is in the cache, its index neither.
    fn absent(key: LayerKey) -> Self {
        Self {
            layer: key.layer,
            index: key.index,
            cached: false,
            spans: 0,
            verified_spans: 0,
            wrong_spans: 0,
            present_pages: 0,
            pages: 0,
        }
    }
}

/// Checks everything that is present of an image that this host knows.
///
/// # Errors
/// When the image is not known, or the cache cannot be read.
pub fn check_image(images: &Images, request: &ImageRequest) -> Result<Vec<CheckedLayer>, Failure> {
    let record = known_image(images, request)?;
    record
        .layers
        .iter()
        .map(|layer| check_layer(images.store(), layer.key()))
        .collect()
}

fn check_layer(store: &Store, key: LayerKey) -> Result<CheckedLayer, Failure> {
    let cached = match store.look(key) {
        Ok(cached) => cached,
        // Evicted, perhaps only just now.
        Err(_) if !store.contains(key) => return Ok(CheckedLayer::absent(key)),
        Err(error) => return Err(error.into()),
    };
    let mut checked = CheckedLayer {
        cached: true,
        spans: cached.table().spans.len() as u64,
        present_pages: cached.presence().present(),
        pages: cached.presence().pages(),
        ..CheckedLayer::absent(key)
    };
    for span in &cached.table().spans {
        if !cached.missing_spans(span.data.clone()).is_empty() {
            continue;
        }
        let length = usize::try_from(span.data.end - span.data.start)
            .map_err(|error| Failure::host("read a span", error))?;
        let mut bytes = vec![0; length];
        cached
            .read_at(&mut bytes, span.data.start)
            .map_err(|error| Failure::host(format!("read the data of {key}"), error))?;
        match Digest::of(&bytes) == span.digest {
            true => checked.verified_spans += 1,
            false => checked.wrong_spans += 1,
        }
    }
    Ok(checked)
}

/// The record of an image by reference, or by its manifest's digest or the first digits of it.
///
/// # Errors
/// When there is none, or several manifests begin with these digits.
pub fn known_image(images: &Images, request: &ImageRequest) -> Result<ImageRecord, Failure> {
    let name = &request.reference;
    let known = images.records().named(name)?;
    known.ok_or_else(|| not_known(name, &format!(", and `xebec pull {name}` makes it known")))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use xebec_protocol::paths::Paths;
    use xebec_protocol::wire::PullPolicy;
    use xebec_trust::Root;

    use super::*;
    use crate::record::LayerRecord;

    /// As `xebec cache gc` leaves an image: it is known, and none of its layers is here.
    #[test]
    fn an_image_whose_layers_were_evicted_is_checked_as_absent() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let images = Images::open(&paths).unwrap();
        let layer = LayerRecord {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
            root: Root::Proven,
        };
        let name = "registry.example.com/app:1".to_owned();
        let record = ImageRecord {
            references: [name.clone()].into(),
            former: BTreeSet::new(),
            indexes: BTreeMap::new(),
            platforms: BTreeSet::new(),
            manifest_digest: Digest::of(b"manifest"),
            media_type: String::new(),
            manifest: String::new(),
            config: String::new(),
            layers: vec![layer],
            last_used: 1,
            pinned: false,
            kept_for: None,
            user: None,
        };
        images.records().put(record).unwrap();
        let request = ImageRequest {
            reference: name,
            platform: None,
            docker_config: None,
            pull: PullPolicy::Never,
            part: None,
            manifest: None,
        };
        let checked = check_image(&images, &request).unwrap();
        let found: Vec<_> = checked
            .iter()
            .map(|one| (one.layer, one.cached, one.spans))
            .collect();
        assert_eq!(found, [(layer.layer, false, 0)]);
    }
}
