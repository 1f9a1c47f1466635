//! Whether an image may be shown a layer that is here.
//!
//! The author of an image can list any layers in it. A pull would have to get them from the image's own repository, with the
//! login for that. A start must do the same, however much of a layer is here: otherwise every user with the digest of a private
//! layer could read it. So `roots.json` has the repositories whose images may be shown the layer. Among them is the one that brought
//! its index when nothing of it was here, at no request, and those from which it was read whole. Any other must show once that it
//! has the layer, which counts for as long as the layer is kept, also while no registry can be asked.
//!
//! A registry in which another repository is known to have the layer is asked for one byte: it has the blob, and decides which users
//! may read it. Any other registry may belong to the author of the image, and lie. It must give pieces of the layer,
//! which are compared with the index. They are drawn by lot, once for all repositories: a user with a part of the layer, as of
//! a program that is public but for its key, cannot try until that part is drawn. Large pieces are as likely as all the small ones that
//! are as large together. Pieces that cannot be asked for are drawn, too, and then nothing is shown: nobody would have to know
//! pieces that are left out.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tracing::info;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Span, SpanTable, Window};
use xebec_index::decode::{PART_SOURCE, decode_span};
use xebec_index::indexer::MAX_LAZY_PLAIN;

use super::choice::{Choice, SHOWING};
use crate::facts;
use crate::prepared_layer::PreparedLayer;

/// How long a repository may take to show that it has a layer: as long as several requests of a start.
const ASKING: Duration = Duration::from_secs(10);
/// Layers up to this size are asked for whole, and compared with their digest: as much as a few pieces have.
const SMALL: u64 = 1 << 20;
/// Pieces that another repository is asked for, at the same time. A repository with nine tenths of a layer has all of them in two
/// of three cases, one with half of it in one of sixteen.
const PIECES: usize = 4;
/// How often it is drawn at most, so that as many different ones are found. In a layer of few pieces the large ones come again and
/// again; then those few are enough.
const DRAWS: usize = 64;
/// Pieces up to this size are asked for at the same time; spans have some hundred KiB. Of an image's larger ones one is held at a
/// time.
const LARGE: u64 = 2 << 20;
/// Largest piece that is asked for, and decoded: the largest span of a lazy layer ([`MAX_LAZY_PLAIN`]), and the room that the pages
/// of small files take besides.
const LARGEST: u64 = 4 * MAX_LAZY_PLAIN;

impl Choice<'_> {
    /// Whether it is known here that the image may be shown the layer. Asks nobody.
    pub(super) fn has_access(&self, key: LayerKey) -> bool {
        facts::is_open_to(&self.images.store, key, &self.repository)
    }

    /// The same, but if it is not known the repository is asked, and its answer is noted.
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
        let shown = self.shows(layer).await;
        shown.map_err(|reason| refused(&format!("does not show that it has it: {reason}")))?;
        info!("{own} has layer {}, which is here from elsewhere", key.layer);
        let store = &self.images.store;
        let noted = facts::update(store, key, |record| facts::open(store, key, record, own));
        noted.map(drop).map_err(|failure| failure.to_string())
    }

    /// Whether the image's repository gives bytes that only a repository with the layer can give.
    async fn shows(&self, layer: &PreparedLayer) -> Result<(), String> {
        let key = layer.key;
        let registry = self.repository.as_str().split('/').next().unwrap_or_default();
        if facts::is_open_at(&self.images.store, key, registry) {
            return self.in_turn(1, self.ask(&key.layer, 0..1)).await.map(drop);
        }
        let table = Arc::new(layer.index.span_table());
        if table.layer_size <= SMALL {
            let whole = self.ask(&key.layer, 0..table.layer_size);
            let blob = self.in_turn(1, whole).await?;
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
        if drawn.iter().any(|span| size(span) > LARGEST) {
            return Err("it has pieces that are too large to be compared".to_owned());
        }
        let is_large = drawn.iter().any(|span| size(span) > LARGE);
        let (layers, pieces) = if is_large { (SHOWING, 1) } else { (1, PIECES) };
        let compared = drawn.into_iter().map(|span| self.compare(layer, &table, span));
        let compared = stream::iter(compared).buffer_unordered(pieces);
        let compared = compared.try_for_each(|()| std::future::ready(Ok(())));
        self.in_turn(layers, compared).await
    }

    /// Asks when it is this layer's turn, which is as many layers' as it takes.
    async fn in_turn<T>(
        &self,
        layers: u32,
        asking: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let _turn = self.showing.acquire_many(layers).await;
        let nothing = |_| Err(format!("no answer within {} s", ASKING.as_secs()));
        tokio::time::timeout(ASKING, asking).await.unwrap_or_else(nothing)
    }

    /// Gets a piece of a layer from the image's repository, and compares it with the index.
    async fn compare(&self, layer: &PreparedLayer, table: &Arc<SpanTable>, span: Span) -> Result<(), String> {
        // The fetched bytes and the decoded ones count; the author of the index may want this host to hold much.
        let held = self
            .account
            .hold(length(&span.source).saturating_add(size(&span)));
        let _held = held.ok_or("there is no memory for its pieces")?;
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

    /// The window that decoding a piece needs, from here or else from the image's repository. A repository that gives
    /// wrong bytes gains nothing: the decoded piece is compared.
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

/// The pieces of a layer that a lot draws, each as likely as it is large in the registry: small pieces are easily known.
fn drawn(table: &SpanTable, lot: u64) -> Vec<Span> {
    let mut end = 0_u64;
    let add = |span: &Span| {
        end = end.saturating_add(weight(span));
        end
    };
    let ends: Vec<u64> = table.spans.iter().map(add).collect();
    let mut lots = fastrand::Rng::with_seed(lot);
    let mut numbers = BTreeSet::new();
    for _ in 0..DRAWS {
        if end == 0 || numbers.len() >= PIECES {
            break;
        }
        let at = lots.u64(0..end);
        numbers.insert(ends.partition_point(|end| *end <= at));
    }
    let spans = numbers.into_iter().filter_map(|number| table.spans.get(number));
    spans.cloned().collect()
}

/// The size by which a piece is drawn: its bytes in the registry. A part of a frame that is too large to be decoded does not tell
/// them, and has its [`size`].
fn weight(span: &Span) -> u64 {
    match length(&span.source) {
        PART_SOURCE => size(span),
        source => source,
    }
}

/// The size of a piece: the largest of its fetched bytes, its decoded bytes and its bytes in the data space.
fn size(span: &Span) -> u64 {
    let ranges = [&span.source, &span.plain, &span.data];
    ranges.map(length).into_iter().max().unwrap_or_default()
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests;
