//! A layer whose bytes are known, and what must be true of any cache of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Access, Disk};
use xebec_cache::layer::{CachedLayer, Compared, LayerPlace};
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE as PAGE;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Span, SpanTable};

/// A data space and what is in it.
pub(crate) struct Truth {
    pub(crate) table: SpanTable,
    data: Vec<u8>,
}

impl Truth {
    /// Spans that end anywhere; after some of them the rest of the page is in no span. Some pages are zero.
    pub(crate) fn new(pages: u64, random: &mut Rng) -> Self {
        let size = pages * PAGE;
        let mut data: Vec<u8> = (0..size).map(|_| random.u8(1..)).collect();
        let mut spans = Vec::new();
        let mut start = 0;
        while start < size {
            let longest = (size - start).min(3 * PAGE);
            let mut end = start + random.u64(1..=longest);
            let mut next = end;
            match random.u8(..4) {
                0 => next = end.next_multiple_of(PAGE),
                1 => (end, next) = (end.next_multiple_of(PAGE), end.next_multiple_of(PAGE)),
                _ => {}
            }
            data[end as usize..next as usize].fill(0);
            let range = start..end;
            spans.push(Span {
                source: range.clone(),
                bit_offset: 0,
                plain: range.clone(),
                data: range,
                window: None,
                digest: Digest::of(b""),
            });
            start = next;
        }
        for page in data.chunks_mut(PAGE as usize) {
            if random.u8(..5) == 0 {
                page.fill(0);
            }
        }
        let table = SpanTable {
            layer: Digest::of(b"layer"),
            layer_size: size,
            codec: Codec::Tar,
            plain_size: size,
            data_size: size,
            spans,
            pieces: Vec::new(),
            windows: None,
        };
        Self { table, data }
    }

    pub(crate) fn pages(&self) -> u64 {
        self.table.data_size / PAGE
    }

    pub(crate) fn bytes(&self, range: Range<u64>) -> &[u8] {
        &self.data[range.start as usize..range.end as usize]
    }

    pub(crate) fn page(&self, page: u64) -> &[u8] {
        self.bytes(page * PAGE..(page + 1) * PAGE)
    }

    pub(crate) fn key(&self) -> LayerKey {
        LayerKey {
            layer: self.table.layer,
            index: Digest::of(b"index"),
        }
    }

    pub(crate) fn make_file(&self, disk: &dyn Disk, directory: &Path) {
        disk.create_directories(directory).unwrap();
        let data = disk.open(&directory.join("data"), Access::Create).unwrap();
        data.set_length(self.table.data_size).unwrap();
        data.sync_data().unwrap();
        disk.sync_directory(directory).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
    }

    pub(crate) fn open(&self, disk: &Arc<dyn Disk>, directory: &Path, boot: BootId) -> CachedLayer {
        let room = Arc::default();
        CachedLayer::open(
            LayerPlace {
                disk,
                directory,
                key: self.key(),
                table: self.table.clone(),
                boot,
            },
            room,
        )
        .unwrap()
    }

    pub(crate) fn write(&self, layer: &CachedLayer, span: usize) -> Compared {
        let bytes = self.bytes(self.table.spans[span].data.clone());
        layer.write_span(span, bytes).unwrap()
    }

    /// Writes all spans that have unverified pages, so that none is left.
    pub(crate) fn cross_check(&self, layer: &CachedLayer) {
        for span in layer.unverified_spans(0..self.table.data_size) {
            self.write(layer, span);
        }
        assert!(!layer.has_unverified());
    }

    fn gaps(&self) -> Vec<Range<u64>> {
        let ends = [0].into_iter().chain(self.table.spans.iter().map(|s| s.data.end));
        let starts = self.table.spans.iter().map(|s| s.data.start);
        let gaps = ends.zip(starts.chain([self.table.data_size]));
        gaps.map(|(end, start)| end..start).collect()
    }

    /// Everything that must be true of a layer at any moment at which nobody writes.
    pub(crate) fn assert_true(&self, layer: &CachedLayer) {
        let mut data = vec![0; self.data.len()];
        layer.read_at(&mut data, 0).unwrap();
        let found = |range: Range<u64>| &data[range.start as usize..range.end as usize];
        let unverified: BTreeSet<u64> = layer.unverified(0..self.pages()).into_iter().flatten().collect();
        let present = layer.presence().held(0..self.pages());
        for page in present.into_iter().flatten() {
            let bytes = found(page * PAGE..(page + 1) * PAGE);
            let is_true = unverified.contains(&page) || bytes == self.page(page);
            assert!(is_true, "page {page} is believed and wrong");
        }
        for (number, span) in self.table.spans.iter().enumerate() {
            let is_true =
                !layer.is_written(number) || found(span.data.clone()) == self.bytes(span.data.clone());
            assert!(is_true, "verified bytes of span {number} were written over");
        }
        for gap in self.gaps() {
            assert!(
                found(gap.clone()).iter().all(|b| *b == 0),
                "bytes of no span: {gap:?}"
            );
        }
    }
}
