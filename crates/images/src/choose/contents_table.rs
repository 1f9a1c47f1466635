//! A layer's own table of contents (eStargz, zstd:chunked), which its descriptor in the manifest vouches for.

use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_index::toc::{Blob, Supplied, TableOfContents};
use xebec_oci::Descriptor;
use xebec_trust::Binding;

use super::choice::Choice;
use crate::prepared_layer::PreparedLayer;

impl Choice<'_> {
    /// The index that a layer's own table of contents makes; `None` when it has none.
    pub(super) async fn read_table_of_contents(
        &self,
        number: usize,
        descriptor: &Descriptor,
    ) -> Result<Option<PreparedLayer>, String> {
        let repository = self.found.reference.repository();
        let blob = Blob {
            digest: descriptor.digest,
            size: descriptor.size,
        };
        let found =
            TableOfContents::detect(blob, &descriptor.annotations).map_err(|error| error.to_string())?;
        let Some(mut toc) = found else { return Ok(None) };
        let index = loop {
            let range = toc.wanted();
            let held = self.account.hold(range.end - range.start);
            let Some(mut held) = held else {
                return Err("it is too large".to_owned());
            };
            let fetched = self
                .client
                .blob_range(repository, &descriptor.digest, range)
                .await;
            let bytes = fetched.map_err(|error| error.to_string())?;
            let read = move || {
                let supplied = toc.supply_within(&bytes, &mut |more| held.grow(more));
                if let Ok(Supplied::Index(index)) = &supplied {
                    held.keep(index.weight());
                }
                supplied
            };
            let supplied = tokio::task::spawn_blocking(read).await;
            let supplied = supplied.map_err(|error| error.to_string())?;
            match supplied.map_err(|error| error.to_string())? {
                Supplied::More(more) => toc = more,
                Supplied::Index(index) => break *index,
            }
        };
        let encoded = index.encode();
        let key = LayerKey {
            layer: descriptor.digest,
            index: Digest::of(&encoded),
        };
        let binding = Binding::TableOfContents {
            manifest: self.found.manifest_digest,
        };
        let root = self.admit(key, encoded, |record| record.add_binding(binding));
        let root = root
            .await
            .map_err(|failure| failure.to_string())?
            .map_err(|refusal| refusal.to_string())?;
        debug!(layer = number, "used by its own table of contents");
        let layer = PreparedLayer::new(key, index, root, false, &self.account);
        Ok(Some(layer))
    }
}
