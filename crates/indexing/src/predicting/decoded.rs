//! Pages of layers, decoded from their blobs and verified, in a file without a name.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::limits::{MAX_SPAN_SOURCE, MAX_WINDOW};
use xebec_format::layer::{Codec, Span, SpanTable};
use xebec_index::decode::{DecodeError, decode_span};
use xebec_prediction::files::Page;
use xebec_store::{Blob, RepositoryName, Store};

use super::layers::{Read, read_range};
use crate::layer::LayerError;
use crate::publish::here;

/// Bytes that are read, decoded and put in their places for one image. An index of this registry has spans of 1 MiB, so that the most
/// pages take less.
const MOST_WORK: u64 = 64 << 30;

/// See the module.
pub(super) struct Decoded {
    file: File,
    places: HashMap<Page, u64>,
    /// Pages that are wanted and cannot be decoded for one reader.
    pub(super) missing: BTreeSet<Page>,
}

impl Decoded {
    /// The bytes of a page.
    pub(super) fn read(&self, page: Page, bytes: &mut [u8]) -> io::Result<()> {
        let place = self
            .places
            .get(&page)
            .ok_or_else(|| io::Error::other("the page was not decoded"))?;
        self.file.read_exact_at(bytes, place * PAGE_SIZE)
    }
}

/// A file without a name on the disk of `directory`, which goes when nobody uses it any more.
pub(super) fn unnamed(directory: &Path) -> Result<File, LayerError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |directory: &Path| openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR);
    // Some network file systems have no files without a name.
    let file = open(directory).or_else(|_| open(&std::env::temp_dir()));
    file.map(File::from)
        .map_err(|error| LayerError::Now(format!("make a file for pages: {error}")))
}

/// Decodes pages of layers, each span once.
pub(super) async fn decode(
    store: &Store,
    repository: &RepositoryName,
    layers: &[Read],
    pages: BTreeSet<Page>,
) -> Result<Decoded, LayerError> {
    let file = unnamed(&store.config().root)?;
    // What no span gives is zero, up to the end of the last page.
    if let Some(last) = (pages.len() as u64 * PAGE_SIZE).checked_sub(1) {
        file.write_all_at(&[0], last).map_err(|error| full(&error))?;
    }
    let mut decoded = Decoded {
        file,
        places: pages.iter().copied().zip(0..).collect(),
        missing: BTreeSet::new(),
    };
    let mut work = MOST_WORK;
    for (number, layer) in (0u16..).zip(layers) {
        let own: Vec<u64> = pages
            .range((number, 0)..=(number, u64::MAX))
            .map(|(_, page)| *page)
            .collect();
        // The artifact will list the windows of all layers.
        let windows = match &layer.table.windows {
            Some(section) => Some(blob_of(store, repository, section.digest, "windows of an index").await?),
            None => None,
        };
        if own.is_empty() {
            continue;
        }
        let blob = blob_of(store, repository, layer.layer, "a layer").await?;
        for (span, pages) in spans(&layer.table, &own) {
            work = work
                .checked_sub(cost(layer.table.codec, span))
                .ok_or_else(|| LayerError::Never("its pages take too much work".to_owned()))?;
            match decode_one(store, layer, span, &blob, windows.as_ref()).await? {
                Some(data) => decoded.put(number, span, &data, pages)?,
                None => decoded.missing.extend(pages.iter().map(|page| (number, *page))),
            }
        }
    }
    Ok(decoded)
}

async fn blob_of(
    store: &Store,
    repository: &RepositoryName,
    digest: Digest,
    what: &str,
) -> Result<Blob, LayerError> {
    let found = store.peek_blob(repository, &here(digest)).await?;
    found.ok_or_else(|| LayerError::Here(format!("{repository} does not have {digest}, {what}")))
}

/// The spans that have bytes of `pages`, which ascend: each once, with those of the pages that it has bytes of. What lies between them
/// does not count: an index from outside says how much that is.
fn spans<'a>(table: &'a SpanTable, pages: &'a [u64]) -> impl Iterator<Item = (&'a Span, &'a [u64])> {
    let start = |page: u64| page.saturating_mul(PAGE_SIZE);
    let mut next = 0;
    let numbers = pages.iter().flat_map(move |page| {
        let numbers = table.spans_of(start(*page)..start(page.saturating_add(1)));
        let new = numbers.start.max(next)..numbers.end;
        next = next.max(numbers.end);
        new
    });
    numbers.filter_map(move |number| {
        let span = table.spans.get(number)?;
        let first = pages.partition_point(|page| start(page.saturating_add(1)) <= span.data.start);
        let after = pages.partition_point(|page| start(*page) < span.data.end);
        Some((span, pages.get(first..after)?))
    })
}

/// The work that a span takes at most, in bytes: those that are read for it, those that are decoded, and its range of the data space.
fn cost(codec: Codec, span: &Span) -> u64 {
    // What comes before it in a chunk is decoded, too.
    let plain = match codec.has_plain_stream() {
        true => span.plain.end.saturating_sub(span.plain.start),
        false => span.plain.end,
    };
    let window = span.window.as_ref().map_or(0, |window| u64::from(window.length));
    let others = [&span.source, &span.data].map(|range| range.end.saturating_sub(range.start));
    [plain, window, PAGE_SIZE]
        .into_iter()
        .chain(others)
        .fold(0, u64::saturating_add)
}

/// The bytes of a span; `None` of one that cannot be decoded by itself.
async fn decode_one(
    store: &Store,
    layer: &Read,
    span: &Span,
    blob: &Blob,
    windows: Option<&Blob>,
) -> Result<Option<Vec<u8>>, LayerError> {
    let never =
        |problem: &dyn std::fmt::Display| LayerError::Never(format!("layer {}: {problem}", layer.layer));
    if span.source.end.saturating_sub(span.source.start) > MAX_SPAN_SOURCE {
        return Err(never(&"a span is too large"));
    }
    let window = match (&span.window, windows) {
        (Some(window), Some(blob)) if u64::from(window.length) <= MAX_WINDOW => {
            let range = window.offset..window.offset.saturating_add(u64::from(window.length));
            Some(read_range(store, blob, range).await?)
        }
        _ => None,
    };
    let source = read_range(store, blob, span.source.clone()).await?;
    let table = &layer.table;
    match decode_span(table.codec, span, &table.pieces, &source, window.as_deref()) {
        Ok(data) => Ok(Some(data)),
        Err(DecodeError::NotLazy) => Ok(None),
        Err(error) => Err(never(&error)),
    }
}

impl Decoded {
    /// Writes those bytes of a span that are in `pages`.
    fn put(&self, layer: u16, span: &Span, data: &[u8], pages: &[u64]) -> Result<(), LayerError> {
        for page in pages.iter().copied() {
            let Some(place) = self.places.get(&(layer, page)) else {
                continue;
            };
            let (first, end) = (page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            let (from, to) = (first.max(span.data.start), end.min(span.data.end));
            let within = (from - span.data.start) as usize..to.saturating_sub(span.data.start) as usize;
            if let Some(bytes) = data.get(within) {
                let at = place * PAGE_SIZE + (from - first);
                self.file.write_all_at(bytes, at).map_err(|error| full(&error))?;
            }
        }
        Ok(())
    }
}

fn full(error: &io::Error) -> LayerError {
    LayerError::Now(format!("keep decoded pages: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans of a layer, by their ranges of the data space. Each has two plain bytes and one source byte: a part of a frame that cannot be
    /// decoded by itself.
    fn table(data: &[std::ops::Range<u64>]) -> SpanTable {
        let spans = data.iter().zip(0..).map(|(data, number)| Span {
            source: number..number + 1,
            bit_offset: 0,
            plain: 2 * number..2 * number + 2,
            data: data.clone(),
            window: None,
            digest: Digest::of(b"part"),
        });
        SpanTable {
            codec: Codec::Zstd,
            layer: Digest::of(b"layer"),
            layer_size: 1 << 20,
            plain_size: 1 << 20,
            data_size: 1 << 42,
            pieces: Vec::new(),
            spans: spans.collect(),
            windows: None,
        }
    }

    #[test]
    fn a_span_is_of_wanted_pages_however_far_apart_they_are() {
        const GAP: u64 = 256 << 20;
        let parts: Vec<_> = (0..64).map(|number| number * GAP..(number + 1) * GAP).collect();
        let table = table(&parts);
        let ends = |number: u64| [number * GAP / PAGE_SIZE, (number + 1) * GAP / PAGE_SIZE - 1];
        let wanted: Vec<u64> = (0..64).flat_map(ends).collect();
        let found: Vec<Vec<u64>> = spans(&table, &wanted).map(|(_, pages)| pages.to_vec()).collect();
        let expected: Vec<Vec<u64>> = (0..64).map(|number| ends(number).to_vec()).collect();
        assert_eq!(found, expected);
        // A range counts, not only the bytes in it.
        let most = MOST_WORK / cost(table.codec, &table.spans[0]);
        assert!(most < 256, "{most} of them are let through");
    }

    #[test]
    fn pages_have_all_their_spans_and_each_span_comes_once() {
        let page = |number: u64| number * PAGE_SIZE;
        let table = table(&[
            0..10,
            10..page(2) + 1,
            page(2) + 1..page(2) + 9,
            page(7)..page(8),
            page(9)..page(9) + 1,
        ]);
        let found = |wanted: &[u64]| -> Vec<(u64, Vec<u64>)> {
            spans(&table, wanted)
                .map(|(span, pages)| (span.data.start, pages.to_vec()))
                .collect()
        };
        assert_eq!(
            found(&[0, 1, 2, 9]),
            [
                (0, vec![0]),
                (10, vec![0, 1, 2]),
                (page(2) + 1, vec![2]),
                (page(9), vec![9])
            ]
        );
        assert_eq!(found(&[3, 6, 8, 10]), []);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn bytes_before_a_span_in_its_chunk_are_work() {
        let mut span = table(&[0..4096, 4096..8192]).spans.remove(0);
        span.plain = 60 << 20..(60 << 20) + 1;
        assert!(cost(Codec::Zstd, &span) < 1 << 20);
        assert!(cost(Codec::ZstdChunked, &span) > 60 << 20);
    }
}
