//! `xebec check`: compares what is cached with the digests of its spans.

use serde::Serialize;
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;

use crate::images::Images;
use crate::record::ImageRecord;

/// One layer, checked.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
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

/// Checks everything that is present of an image that this host knows.
///
/// # Errors
/// When the image is not known, or the cache cannot be read.
pub fn check_image(images: &Images, request: &ImageRequest) -> Result<Vec<CheckedLayer>, Failure> {
    let record = known_image(images, request)?;
    record
        .layers
        .iter()
        .map(|layer| {
            let key = layer.key();
            let cached = images.store().look(key)?;
            let mut checked = CheckedLayer {
                layer: key.layer,
                index: key.index,
                spans: cached.table().spans.len() as u64,
                verified_spans: 0,
                wrong_spans: 0,
                present_pages: cached.presence().present(),
                pages: cached.presence().pages(),
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
        })
        .collect()
}

/// The record of an image by reference, or by its manifest's digest or the first digits of it.
///
/// # Errors
/// When there is none, or several manifests begin with these digits.
pub fn known_image(images: &Images, request: &ImageRequest) -> Result<ImageRecord, Failure> {
    images.records().named(&request.reference)?.ok_or_else(|| {
        let message = format!(
            "{} is not known on this host; `xebec images` lists those that are, and `xebec pull {}` makes it known",
            request.reference, request.reference
        );
        Failure::new(FailureKind::NotFound, message)
    })
}
