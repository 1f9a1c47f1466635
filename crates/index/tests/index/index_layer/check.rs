//! Checks an index against its layer, whatever made the layer.

use std::io;

use sha2::{Digest as _, Sha256};
use xebec_format::digest::Digest;
use xebec_format::layer::EntryKind;
use xebec_index::fuzzing::verify;
use xebec_index::indexer::{DataSink, IndexOptions, IndexedLayer, index_layer};

pub(super) fn options() -> IndexOptions {
    IndexOptions {
        spacing: 64 << 10,
        ..IndexOptions::default()
    }
}

/// Indexes `blob` and checks everything that can be checked without knowing the encoder.
pub(super) fn check(what: &str, blob: &[u8], tar: &[u8], options: &IndexOptions) -> IndexedLayer {
    let mut data = Data::default();
    let layer = index_layer(blob, options, Some(&mut data)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let index = &layer.index;
    assert_eq!(index.diff_id, Some(Digest::of(tar)), "{what}");
    assert_eq!(index.plain_size, tar.len() as u64, "{what}");
    verify(blob, &layer);
    check_sections(&layer);
    check_contents(&layer, &data.0);
    println!(
        "{what}: {} of {} bytes, {} spans, windows {}, frame {}",
        blob.len(),
        tar.len(),
        index.spans.len(),
        layer.windows.len(),
        layer.frame.len()
    );
    layer
}

fn check_sections(layer: &IndexedLayer) {
    let sections = [
        (&layer.index.windows, &layer.windows),
        (&layer.index.frame, &layer.frame),
        (&layer.index.contents, &layer.contents),
    ];
    for (section, bytes) in sections {
        match section {
            Some(section) => assert_eq!(
                (section.size, section.digest),
                (bytes.len() as u64, Digest::of(bytes))
            ),
            None => assert!(bytes.is_empty()),
        }
    }
}

/// Compares the content digests with the data that the sink was given.
fn check_contents(layer: &IndexedLayer, data: &[u8]) {
    let mut digests = layer.contents.chunks(32);
    for entry in &layer.index.entries {
        let EntryKind::File {
            size: size @ 1..,
            extents,
        } = &entry.kind
        else {
            continue;
        };
        let mut contents = vec![0; *size as usize];
        for extent in extents {
            let to = &mut contents[extent.file_offset as usize..][..extent.length as usize];
            let from = data.get(extent.data_offset as usize..).unwrap_or_default();
            let length = from.len().min(to.len());
            to[..length].copy_from_slice(&from[..length]);
        }
        assert_eq!(
            digests.next(),
            Some(&Sha256::digest(&contents)[..]),
            "{}",
            entry.path
        );
    }
    assert_eq!(digests.next(), None);
}

/// A data space in memory.
#[derive(Default)]
struct Data(Vec<u8>);

impl DataSink for Data {
    fn write(&mut self, data_offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(data_offset >= self.0.len() as u64, "data offsets must ascend");
        self.0.resize(data_offset as usize, 0);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
