//! An image is prepared: all of its layers have an admitted index.

use std::sync::Arc;
use std::time::Instant;

use xebec_artifact::artifact::{BlobRef, CONTENTS_TYPE};
use xebec_format::digest::Digest;
use xebec_kernel::file::write_for_this_boot;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::ImageRequest;

use crate::background_write::BackgroundWrite;
use crate::choose::Choice;
use crate::found_image::FoundImage;
use crate::images::{Images, Report};
use crate::prepared_layer::PreparedLayer;
use crate::referrers::Referrers;

/// An image whose layers all have an admitted index.
pub struct PreparedImage {
    /// The image.
    pub found: FoundImage,
    /// Its layers, bottom to top.
    pub layers: Vec<PreparedLayer>,
    /// How long resolving took, how long finding the recording and beginning to fetch it, and how long finding (or
    /// making) the indexes.
    pub stages_ms: Vec<(&'static str, f64)>,
    /// Its record is being written.
    keeping: BackgroundWrite,
}

impl PreparedImage {
    /// The image, its layers, and the record that [`Choice::prepare`] is writing.
    pub fn new(
        found: FoundImage,
        layers: Vec<PreparedLayer>,
        keeping: BackgroundWrite,
        stages_ms: Vec<(&'static str, f64)>,
    ) -> Self {
        Self {
            found,
            layers,
            stages_ms,
            keeping,
        }
    }

    /// Waits until its record is written, by which it is found again without its registry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn written(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.keeping).end().await
    }
}

/// Largest section of content digests that is fetched: two million files.
const MAX_CONTENTS: u64 = 64 << 20;

/// How long content digests may take: what they save must be worth it.
const CONTENTS_TIME: std::time::Duration = std::time::Duration::from_secs(3);

impl Images {
    /// Resolves an image and finds an admitted index for each of its layers.
    ///
    /// # Errors
    /// When it cannot be resolved, when an index is refused, and with `require_lazy` when a layer has none.
    pub async fn prepare(
        &self,
        request: &ImageRequest,
        require_lazy: bool,
        report: &Report,
    ) -> Result<PreparedImage, Failure> {
        let start = Instant::now();
        let found = self.resolve(request, report).await?;
        let resolved = Instant::now();
        let client = self.clients.get(request.docker_config.as_deref())?;
        let referrers = Referrers::by_type(client, found.reference.repository(), found.manifest_digest);
        let choice = Choice::new(self, request, &found, &referrers)?;
        let (layers, keeping) = choice.prepare(require_lazy, report).await?;
        let stages_ms = vec![
            ("resolve", (resolved - start).as_secs_f64() * 1e3),
            ("find", 0.0),
            ("index", resolved.elapsed().as_secs_f64() * 1e3),
        ];
        Ok(PreparedImage::new(found, layers, keeping, stages_ms))
    }

    /// Gets a layer's content digests, from the cache or the image's repository. They are only of use for sharing
    /// files, so what goes wrong here is no failure.
    pub async fn fetch_contents(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        layer: &mut PreparedLayer,
    ) {
        let Some(section) = layer.index.contents.clone() else {
            return;
        };
        let path = self.store.directory().join(layer.key.folder()).join("contents");
        if let Ok(bytes) = std::fs::read(&path)
            && Digest::of(&bytes) == section.digest
        {
            layer.contents = Arc::new(bytes);
            return;
        }
        if found.offline {
            return;
        }
        let Ok(client) = self.clients.get(request.docker_config.as_deref()) else {
            return;
        };
        let client = client.hasty(CONTENTS_TIME);
        let descriptor = BlobRef {
            digest: section.digest,
            size: section.size,
        }
        .descriptor(CONTENTS_TYPE);
        if let Ok(bytes) = client
            .blob(found.reference.repository(), &descriptor, MAX_CONTENTS)
            .await
        {
            let _ = write_for_this_boot(&path, &bytes);
            layer.contents = Arc::new(bytes.to_vec());
        }
    }
}
