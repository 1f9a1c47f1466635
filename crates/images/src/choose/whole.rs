//! The messages about layers that are read whole, because no index of them may be used.

use std::collections::HashSet;

use tracing::info;
use xebec_kernel::size::for_people as size;
use xebec_protocol::wire::Reply;

use super::choice::Choice;
use crate::images::Report;
use crate::lazy::is_small;

impl Choice<'_> {
    /// Tells once for each reason how many layers are read whole now, and how many bytes they have. Layers that take no time worth
    /// speaking of are not spoken of, unless larger ones are read for the same reason.
    pub(super) fn tell_whole(&self, missing: Vec<(usize, &str)>, report: &Report) {
        let mut reasons: Vec<&str> = missing.iter().map(|(_, reason)| *reason).collect();
        let mut seen = HashSet::new();
        reasons.retain(|reason| seen.insert(*reason));
        for reason in reasons {
            let of_reason = missing.iter().filter(|(_, other)| *other == reason);
            // An image may list a layer twice, which is read once.
            let mut digests = HashSet::new();
            let layers = of_reason.filter_map(|(number, _)| self.found.layers.get(*number));
            let layers: Vec<_> = layers.filter(|layer| digests.insert(layer.digest)).collect();
            let bytes: u64 = layers.iter().map(|layer| layer.size).sum();
            if layers.iter().all(|layer| is_small(layer.size)) {
                info!(
                    "{} small layers ({bytes} bytes) are read whole: {reason}",
                    layers.len()
                );
                continue;
            }
            let which = match (layers.as_slice(), self.found.layers.len()) {
                ([layer], all) => format!("1 of {all} layers ({}) is", layer.digest.short()),
                (several, all) => format!("{} of {all} layers are", several.len()),
            };
            let text = format!(
                "{which} read whole now ({}), so the image is not lazy: {reason}",
                size(bytes)
            );
            report(Reply::Notice { text });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use xebec_protocol::paths::Paths;
    use xebec_protocol::wire::{ImageRequest, PullPolicy};
    use xebec_testkit::compression::Compression;
    use xebec_testkit::image::ImageBuilder;
    use xebec_testkit::registry::FaultyRegistry;
    use xebec_testkit::tar::TarBuilder;

    use super::*;
    use crate::images::Images;

    /// A layer of so many bytes that cannot be made fewer.
    fn layer(bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let contents = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let mut tar = TarBuilder::new();
        tar.file("file", contents.take(bytes).collect::<Vec<u8>>());
        tar.into_bytes()
    }

    /// The notices that appear when an image with layers of these sizes is prepared that has no indexes.
    async fn said(sizes: &[usize]) -> Vec<String> {
        let notices = heard(sizes).await.into_iter();
        let notices = notices.filter_map(|reply| match reply {
            Reply::Notice { text } => Some(text),
            _ => None,
        });
        notices.collect()
    }

    /// The same, and how far it is.
    async fn heard(sizes: &[usize]) -> Vec<Reply> {
        let registry = FaultyRegistry::start().unwrap();
        let mut image = ImageBuilder::new();
        for (size, seed) in sizes.iter().zip(1..) {
            image = image.layer(&layer(*size, seed), Compression::Gzip(6)).unwrap();
        }
        let image = image.build();
        for blob in image.blobs() {
            registry.put_blob("app", blob.bytes.clone());
        }
        let manifest = &image.manifest;
        registry.put_manifest("app", "v1", &manifest.media_type, manifest.bytes.clone());
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let images = Images::open(&paths).unwrap();
        let request = ImageRequest {
            reference: format!("{}/app:v1", registry.host()),
            platform: None,
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = heard.clone();
        let report: Report = Arc::new(move |reply| told.lock().push(reply));
        let mut prepared = images.prepare(&request, false, &report).await.unwrap();
        prepared.written().await.unwrap();
        assert!(prepared.layers.iter().all(|layer| layer.read_whole));
        assert!(
            images.prepare(&request, true, &report).await.is_ok(),
            "they are here now"
        );
        drop(prepared);
        std::mem::take(&mut *heard.lock())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn how_far_a_layer_is_that_is_read_whole_is_told() {
        let told = heard(&[1_200_000]).await.into_iter();
        let told: Vec<(String, u64, Option<u64>)> = told
            .filter_map(|reply| match reply {
                Reply::Progress {
                    what, done, total, ..
                } => Some((what, done, total)),
                _ => None,
            })
            .collect();
        let layer: Vec<_> = told
            .iter()
            .filter(|(what, ..)| what.starts_with("layer 1/1 "))
            .collect();
        assert!(
            layer.len() > 2 && layer.is_sorted_by_key(|(_, done, _)| *done),
            "{told:?}"
        );
        let (_, done, total) = layer.last().unwrap();
        assert!(*done > 1_000_000 && Some(*done) == *total, "{told:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn layers_that_are_read_whole_are_told_once() {
        let said = said(&[1_200_000, 129, 1_300_000]).await;
        let [one] = said.as_slice() else {
            panic!("{said:?}");
        };
        assert!(
            one.starts_with("3 of 3 layers are read whole now (2.5 MB), so the image is not lazy: "),
            "{one}"
        );
        assert!(one.contains("`xebec index --push"), "{one}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn small_layers_are_not_spoken_of() {
        assert_eq!(said(&[129, 5000]).await, [""; 0]);
    }
}
