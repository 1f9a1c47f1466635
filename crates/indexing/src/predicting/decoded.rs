//! Pages of layers, decoded from their blobs and verified, in a file without a name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use xebec_format::PAGE_SIZE;
use xebec_format::layer::Span;
use xebec_format::layer::limits::{MAX_SPAN_SOURCE, MAX_WINDOW};
use xebec_index::decode::{DecodeError, decode_span};
use xebec_prediction::files::Page;
use xebec_store::{Blob, RepositoryName, Store};

use super::layers::{Read, read_range};
use crate::layer::LayerError;
use crate::publish::here;

/// Bytes that are decoded for one image. An index of this registry has spans of 1 MiB, so that the most pages take less by far.
const MOST_WORK: u64 = 64 << 30;

/// See the module.
pub(super) struct Decoded {
    file: File,
    places: HashMap<Page, u64>,
    /// Pages that cannot be decoded for one reader.
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
        let spans = spans(layer, &own);
        if spans.is_empty() {
            continue;
        }
        let lacks = |what: &str| {
            LayerError::Here(format!(
                "{repository} does not have {what} of layer {}",
                layer.layer
            ))
        };
        let blob = store.peek_blob(repository, &here(layer.layer)).await?;
        let blob = blob.ok_or_else(|| lacks("the blob"))?;
        let windows = match &layer.table.windows {
            Some(section) => store.peek_blob(repository, &here(section.digest)).await?,
            None => None,
        };
        for (span, pages) in spans {
            let Some(span) = layer.table.spans.get(span) else {
                continue;
            };
            let spent = span
                .plain
                .end
                .saturating_sub(span.plain.start)
                .saturating_add(PAGE_SIZE);
            work = work
                .checked_sub(spent)
                .ok_or_else(|| LayerError::Never("its pages take too much work".to_owned()))?;
            match decode_one(store, layer, span, &blob, windows.as_ref()).await? {
                Some(data) => decoded.put(number, span, &data, pages)?,
                None => decoded.missing.extend(pages.map(|page| (number, page))),
            }
        }
    }
    Ok(decoded)
}

/// The spans of pages, which ascend, each with the pages that it has bytes of.
fn spans(layer: &Read, pages: &[u64]) -> BTreeMap<usize, Range<u64>> {
    let mut spans: BTreeMap<usize, Range<u64>> = BTreeMap::new();
    for page in pages {
        let from = page.saturating_mul(PAGE_SIZE);
        for span in layer.table.spans_of(from..from.saturating_add(PAGE_SIZE)) {
            let range = spans.entry(span).or_insert(*page..*page);
            range.end = page + 1;
        }
    }
    spans
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
    /// Writes those bytes of a span that are in wanted pages among `pages`.
    fn put(&self, layer: u16, span: &Span, data: &[u8], pages: Range<u64>) -> Result<(), LayerError> {
        for page in pages {
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
