//! Whether an image may be shown a layer that this host has from another repository.
//!
//! Whoever makes an image lists in it what layers he likes. A pull would have to get them from the image's own repository, with
//! the login for that; so must a start, however much of a layer is here: else a private layer could be read by everybody who
//! knows its digest. What is here from that repository alone needs no question. Otherwise it must once have given bytes of
//! the layer, which is noted beside the index for as long as that is kept.
//!
//! A registry in which another repository is known to have the layer is asked for one byte: it has the blob, and says who may
//! read it. Any other registry may belong to whoever made the image, and say what he likes; it must give a piece of the
//! layer that is drawn by lot, which is compared with the index.

use std::fs;
use std::time::Duration;

use tracing::{info, warn};
use xebec_cache::store::LayerKey;
use xebec_format::layer::{Span, SpanTable};
use xebec_index::decode::decode_span;
use xebec_oci::{Client, Reference, Repository};

use super::Choice;
use crate::facts;
use crate::image::PreparedLayer;
use crate::origin::{self, Origin};
use crate::trust::RepositoryName;

/// How long a repository may take to show that it has a layer: as long as several requests of a start.
const ASKING: Duration = Duration::from_secs(10);
/// Largest piece that is asked for, if there are smaller ones; the spans of a layer have some hundred KiB.
const PIECE: u64 = 4 << 20;

impl Choice<'_> {
    /// Whether it is known here that the image's repository has the layer. Asks nobody.
    pub(super) fn has_access(&self, key: LayerKey) -> bool {
        let origins = origin::read(&self.images.store.directory().join(key.folder()));
        let own = self.found.reference.repository().to_string();
        if origins.iter().all(|origin| origin.repository == own) {
            return true;
        }
        match self.is_served_by(key, &self.repository) {
            Some(is_served) => is_served,
            // As earlier versions left it, which asked nobody.
            None => origins.iter().any(|origin| origin.repository == own),
        }
    }

    /// The same, but if it is not known the repository is asked, and what it shows is noted.
    ///
    /// # Errors
    /// Why the layer must not be used, in words.
    pub(super) async fn have_access(&self, layer: &PreparedLayer) -> Result<(), String> {
        let key = layer.key;
        if self.has_access(key) {
            return Ok(());
        }
        let own = self.found.reference.repository();
        let refused = |reason: &str| format!("it is here from another repository only, and {own} {reason}");
        if self.found.offline {
            return Err(refused("cannot be asked for it now"));
        }
        let origins = origin::read(&self.images.store.directory().join(key.folder()));
        let shown = self.shows(&self.client, own, layer, &origins).await;
        shown.map_err(|reason| refused(&format!("does not show that it has it: {reason}")))?;
        info!("{own} has layer {}, which is here from elsewhere", key.layer);
        self.note(key, &self.repository);
        // From now on nobody has it alone, so those who had are looked at, too.
        for origin in &origins {
            self.note_if_it_has(origin, layer).await;
        }
        Ok(())
    }

    async fn note_if_it_has(&self, origin: &Origin, layer: &PreparedLayer) {
        let Some(repository) = origin.parse_repository() else {
            return;
        };
        let name = RepositoryName::new(repository.registry(), repository.name());
        let (Ok(name), Ok(client)) = (name, self.images.clients.get(origin.docker_config.as_deref())) else {
            return;
        };
        if self.is_served_by(layer.key, &name) == Some(true) {
            return;
        }
        match self.shows(&client, &repository, layer, &[]).await {
            Ok(()) => self.note(layer.key, &name),
            Err(reason) => warn!(
                "{repository} does not show that it has layer {}: {reason}",
                layer.key.layer
            ),
        }
    }

    /// Whether a repository gives what only who has the layer can give.
    async fn shows(
        &self,
        client: &Client,
        repository: &Repository,
        layer: &PreparedLayer,
        origins: &[Origin],
    ) -> Result<(), String> {
        let is_of_same_registry = origins.iter().any(|origin| {
            let served = || {
                let reference = origin.repository.parse::<Reference>().ok()?;
                let other = reference.repository();
                let name = RepositoryName::new(other.registry(), other.name()).ok()?;
                Some(other.registry() == repository.registry() && self.is_served_by(layer.key, &name)?)
            };
            served().unwrap_or(false)
        });
        let client = client.hasty(ASKING);
        let ask = async |range| client.blob_range(repository, &layer.key.layer, range).await;
        let asked = async {
            if is_of_same_registry {
                let byte = ask(0..1).await;
                return byte.map(drop).map_err(|error| error.to_string());
            }
            let table = layer.index.span_table();
            let Some((span, window)) = self.drawn(&table, layer.key) else {
                // It holds no contents of files.
                let byte = ask(0..1).await;
                return byte.map(drop).map_err(|error| error.to_string());
            };
            let bytes = ask(span.source.clone())
                .await
                .map_err(|error| error.to_string())?;
            let decode = move || decode_span(table.codec, &span, &table.pieces, &bytes, window.as_deref());
            let decoded = tokio::task::spawn_blocking(decode).await;
            let decoded = decoded.map_err(|error| error.to_string())?;
            decoded.map(drop).map_err(|error| error.to_string())
        };
        let nothing = |_| format!("no answer within {} s", ASKING.as_secs());
        tokio::time::timeout(ASKING, asked).await.map_err(nothing)?
    }

    /// A piece of a layer, drawn by lot, and what is needed to decode it, of those for which that is at hand.
    fn drawn(&self, table: &SpanTable, key: LayerKey) -> Option<(Span, Option<Vec<u8>>)> {
        let windows = fs::read(self.images.store.directory().join(key.folder()).join("windows"));
        let windows = windows.unwrap_or_default();
        let window_of = |span: &Span| match &span.window {
            None => Some(None),
            Some(window) => {
                let start = usize::try_from(window.offset).ok()?;
                let end = start.checked_add(usize::try_from(window.length).ok()?)?;
                windows.get(start..end).map(|bytes| Some(bytes.to_vec()))
            }
        };
        let size = |span: &Span| span.source.end.saturating_sub(span.source.start);
        let smallest = table.spans.iter().map(size).min()?;
        let fit: Vec<&Span> = table
            .spans
            .iter()
            .filter(|span| size(span) <= PIECE.max(smallest) && window_of(span).is_some())
            .collect();
        let span = fit.get(fastrand::usize(..fit.len().max(1)))?;
        Some(((*span).clone(), window_of(span)?))
    }

    pub(super) fn note(&self, key: LayerKey, repository: &RepositoryName) {
        // Should it be lost, the repository is asked again.
        if let Err(failure) = facts::update(&self.images.store, key, |record| record.add_served(repository)) {
            warn!("{failure}");
        }
    }

    /// Whether a repository has shown that it has the layer; `None` if nobody has.
    fn is_served_by(&self, key: LayerKey, repository: &RepositoryName) -> Option<bool> {
        facts::load(&self.images.store, key).is_served_by(repository)
    }
}

#[cfg(test)]
mod tests;
