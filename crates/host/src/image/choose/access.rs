//! Whether an image may be shown a layer that is here.
//!
//! Whoever makes an image lists in it what layers he likes. A pull would have to get them from the image's own repository, with
//! the login for that; so must a start, however much of a layer is here: else a private layer could be read by everybody who
//! knows its digest. So `roots.json` has the repositories whose images may be shown the layer. Among them is the one that brought
//! its index when nothing of it was here, at no request, and those from which it was read whole. Any other must show once that it
//! has the layer, which counts for as long as the layer is kept, also while no registry can be asked.
//!
//! A registry in which another repository is known to have the layer is asked for one byte: it has the blob, and says who may
//! read it. Any other registry may belong to whoever made the image, and say what he likes. It must give pieces of the layer,
//! which are compared with the index. They are drawn by lot, once for all who ask: who knows a part of the layer, as of a program
//! that is public but for its key, cannot try until it is that part's turn.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use tracing::info;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Span, SpanTable, Window};
use xebec_index::decode::decode_span;

use super::Choice;
use crate::facts;
use crate::image::PreparedLayer;

/// How long a repository may take to show that it has a layer: as long as several requests of a start.
const ASKING: Duration = Duration::from_secs(10);
/// Layers up to this size are asked for whole, and compared with their digest: as much as a few pieces have.
const SMALL: u64 = 1 << 20;
/// Pieces that are asked for of others, at the same time. Who has nine tenths of a layer has all of them in two of three cases, who
/// has half of it in one of sixteen.
const PIECES: usize = 4;
/// Layers of an image that are asked for at the same time, so that what is in memory of them stays below 64 MiB.
pub(super) const SHOWING: usize = 4;
/// Largest piece that is asked for; spans have some hundred KiB.
const LARGEST: u64 = 4 << 20;

impl Choice<'_> {
    /// Whether it is known here that the image may be shown the layer. Asks nobody.
    pub(super) fn has_access(&self, key: LayerKey) -> bool {
        facts::is_open_to(&self.images.store, key, &self.repository)
    }

    /// The same, but if it is not known the repository is asked, and what it shows is noted.
    ///
    /// # Errors
    /// Why the layer must not be used, in words.
    pub(super) async fn have_access(&self, layer: &PreparedLayer) -> Result<(), String> {
        let (key, own) = (layer.key, &self.repository);
        if self.has_access(key) {
            return Ok(());
        }
        let refused = |reason: &str| format!("it is here from another repository only, and {own} {reason}");
        if self.found.offline {
            return Err(refused("cannot be asked for it now"));
        }
        let turn = self.showing.acquire().await;
        let shown = tokio::time::timeout(ASKING, self.shows(layer)).await;
        drop(turn);
        let nothing = |_| Err(format!("no answer within {} s", ASKING.as_secs()));
        let shown = shown.unwrap_or_else(nothing);
        shown.map_err(|reason| refused(&format!("does not show that it has it: {reason}")))?;
        info!("{own} has layer {}, which is here from elsewhere", key.layer);
        let store = &self.images.store;
        let noted = facts::update(store, key, |record| facts::open(store, key, record, own));
        noted.map(drop).map_err(|failure| failure.to_string())
    }

    /// Whether the image's repository gives what only who has the layer can give.
    async fn shows(&self, layer: &PreparedLayer) -> Result<(), String> {
        let key = layer.key;
        let registry = self.repository.as_str().split('/').next().unwrap_or_default();
        if facts::is_open_at(&self.images.store, key, registry) {
            return self.ask(&key.layer, 0..1).await.map(drop);
        }
        let table = Arc::new(layer.index.span_table());
        if table.layer_size <= SMALL {
            let blob = self.ask(&key.layer, 0..table.layer_size).await?;
            let is_it = Digest::of(&blob) == key.layer;
            return is_it
                .then_some(())
                .ok_or_else(|| "it gives another one".to_owned());
        }
        let lot = facts::update(&self.images.store, key, |record| _ = record.lot());
        let lot = lot.map_err(|failure| failure.to_string())?.lot();
        let drawn = drawn(&table, lot);
        if drawn.is_empty() {
            return Err("it has no piece that could be compared".to_owned());
        }
        let compared = drawn.into_iter().map(|span| self.compare(layer, &table, span));
        try_join_all(compared).await.map(drop)
    }

    /// Gets a piece of a layer from the image's repository, and compares it with the index.
    async fn compare(&self, layer: &PreparedLayer, table: &Arc<SpanTable>, span: Span) -> Result<(), String> {
        let bytes = self.ask(&layer.key.layer, span.source.clone()).await?;
        let window = match &span.window {
            Some(window) => Some(self.window(layer, window).await?),
            None => None,
        };
        let table = table.clone();
        let decode =
            move || decode_span(table.codec, &span, &table.pieces, &bytes, window.as_deref()).map(drop);
        let decoded = tokio::task::spawn_blocking(decode).await;
        let decoded = decoded.map_err(|error| error.to_string())?;
        decoded.map_err(|error| error.to_string())
    }

    /// What decoding a piece needs of what is before it, from here or else from the image's repository. Whoever gives something
    /// wrong gains nothing: what comes of it is compared.
    async fn window(&self, layer: &PreparedLayer, window: &Window) -> Result<Bytes, String> {
        let here = self.images.store.folder(layer.key).join("windows");
        let kept = || {
            let mut bytes = vec![0; usize::try_from(window.length).ok()?];
            let file = File::open(here).ok()?;
            file.read_exact_at(&mut bytes, window.offset).ok()?;
            (Digest::of(&bytes) == window.digest).then(|| bytes.into())
        };
        if let Some(bytes) = kept() {
            return Ok(bytes);
        }
        let section = layer.index.windows.as_ref().ok_or("it lacks windows")?;
        let end = window.offset.saturating_add(u64::from(window.length));
        self.ask(&section.digest, window.offset..end).await
    }

    async fn ask(&self, blob: &Digest, range: Range<u64>) -> Result<Bytes, String> {
        let (client, repository) = (self.client.hasty(ASKING), self.found.reference.repository());
        let bytes = client.blob_range(repository, blob, range).await;
        bytes.map_err(|error| error.to_string())
    }
}

/// The pieces of a layer that a lot says.
fn drawn(table: &SpanTable, lot: u64) -> Vec<Span> {
    let size = |span: &Span| span.source.end.saturating_sub(span.source.start);
    let fit: Vec<&Span> = table.spans.iter().filter(|span| size(span) <= LARGEST).collect();
    let mut lots = fastrand::Rng::with_seed(lot);
    let numbers = lots.choose_multiple(0..fit.len(), PIECES);
    let spans = numbers.into_iter().filter_map(|number| fit.get(number));
    spans.map(|span| (*span).clone()).collect()
}

#[cfg(test)]
mod tests;
