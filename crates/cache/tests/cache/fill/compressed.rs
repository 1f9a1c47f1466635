//! Layers that are compressed: their spans are fetched with the windows that they are decoded with.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Disk, RealDisk};
use xebec_cache::fill::{Ask, Blob, BoxFuture, Fetched, Filler, Patience, Source, SourceError};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::SpanTable;
use xebec_index::indexer::{DataSink, IndexOptions, MIN_SPACING, index_layer};
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::TarBuilder;

use super::support::{PAGE, read, runtime};

/// A layer that is compressed, and the windows that its spans are decoded with.
struct Compressed {
    blob: Bytes,
    windows: Bytes,
    asked: Mutex<Vec<(Blob, Range<u64>)>>,
}

impl Source for Compressed {
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        let of = match ask.blob {
            Blob::Layer => &self.blob,
            Blob::Windows => &self.windows,
        };
        let bytes = of.slice(ask.range.start as usize..ask.range.end as usize);
        self.asked.lock().push((ask.blob, ask.range));
        Box::pin(async move {
            let sources = vec![("memory".to_owned(), bytes.len() as u64)];
            Ok(Fetched { bytes, sources })
        })
    }
}

struct Plain(Vec<u8>);

impl DataSink for Plain {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.resize(offset as usize, 0);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// A layer of some spans that are decoded with windows, its source and its data. So many bytes that nobody needs lie between two
/// windows.
fn compressed(directory: &Path, between: u64) -> (Arc<CachedLayer>, Arc<Compressed>, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(5);
    let mut tar = TarBuilder::new();
    let contents: Vec<u8> = (0..600_000).map(|_| random.u8(..16)).collect();
    tar.file("a", &contents);
    let blob = Compression::Gzip(6).encode(&tar.into_bytes()).unwrap();
    let options = IndexOptions {
        spacing: MIN_SPACING,
        ..IndexOptions::default()
    };
    let mut data = Plain(Vec::new());
    let indexed = index_layer(blob.as_slice(), &options, Some(&mut data)).unwrap();
    let mut table = SpanTable::decode(&indexed.index.encode()).unwrap();
    data.0.resize(table.data_size as usize, 0);
    let mut windows = Vec::new();
    for window in table.spans.iter_mut().filter_map(|span| span.window.as_mut()) {
        let bytes = &indexed.windows[window.offset as usize..][..window.length as usize];
        window.offset = windows.len() as u64;
        windows.extend_from_slice(bytes);
        windows.resize(windows.len() + between as usize, 0xff);
    }
    let key = LayerKey {
        layer: table.layer,
        index: Digest::of(b"index"),
    };
    let file = std::fs::File::create(directory.join("data")).unwrap();
    file.set_len(table.data_size).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let place = LayerPlace {
        disk: &disk,
        directory,
        key,
        table,
        boot: BootId([0; 16]),
    };
    let layer = Arc::new(CachedLayer::open(place, Arc::default()).unwrap());
    let source = Compressed {
        blob: blob.into(),
        windows: windows.into(),
        asked: Mutex::default(),
    };
    (layer, Arc::new(source), data.0)
}

#[test]
fn a_compressed_layer_is_fetched_with_the_windows_of_its_spans() {
    for between in [0, 100] {
        let directory = tempfile::tempdir().unwrap();
        let (layer, source, data) = compressed(directory.path(), between);
        let spans = layer.table().spans.clone();
        let windows = spans.iter().filter(|span| span.window.is_some()).count();
        assert!(windows >= 4, "{windows} of {}", spans.len());
        let filler = Filler::new(layer.clone(), source.clone(), Arc::default());
        runtime().block_on(async {
            // One from the midst, and then the others.
            let third = spans[2].data.clone();
            read(&filler, third.start + PAGE..third.start + PAGE + 1)
                .await
                .unwrap();
            let window = spans[2].window.clone().unwrap();
            let history = window.offset..window.offset + u64::from(window.length);
            let asked = std::mem::take(&mut *source.asked.lock());
            assert_eq!(
                asked,
                [(Blob::Layer, spans[2].source.clone()), (Blob::Windows, history)]
            );
            filler.complete(2, || Patience::Brief).await.unwrap();
        });
        assert!(layer.is_complete());
        let mut found = vec![0; data.len()];
        layer.read_at(&mut found, 0).unwrap();
        assert!(found == data);
        let asked = source.asked.lock().clone();
        let histories = asked.iter().filter(|(blob, _)| *blob == Blob::Windows);
        // Windows that lie apart are not asked for together, for what lies between them is not needed.
        let requests = if between == 0 { 2 } else { windows - 1 };
        assert_eq!(histories.count(), requests, "{asked:?}");
    }
}
