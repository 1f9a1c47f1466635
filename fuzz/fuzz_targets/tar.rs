//! The tar parser hands on every byte of its input once, as frame or as contents; contents ascend in the data space;
//! entries, summary and errors do not depend on how the input was cut. The first byte of the input says whether
//! header checksums are corrected first.
#![no_main]

use xebec_format::layer::Entry;
use xebec_fuzz::seal_tar;
use xebec_index::tar::{TarError, TarLimits, TarParser, TarSink, TarSummary};

#[derive(Default)]
struct Collected {
    stream: Vec<u8>,
    contents: u64,
    data_end: u64,
    entries: Vec<Entry>,
}

impl TarSink for Collected {
    fn frame(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
    }

    fn content(&mut self, data_offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        assert!(data_offset >= self.data_end, "contents ascend");
        self.data_end = data_offset + bytes.len() as u64;
        self.contents += bytes.len() as u64;
        self.stream.extend_from_slice(bytes);
        Ok(())
    }

    fn entry(&mut self, entry: Entry) {
        self.entries.push(entry);
    }
}

fn parse(archive: &[u8], step: usize) -> (Collected, Result<TarSummary, TarError>) {
    let mut parser = TarParser::new(TarLimits::default());
    let mut sink = Collected::default();
    for slice in archive.chunks(step) {
        if let Err(error) = parser.push(slice, &mut sink) {
            return (sink, Err(error));
        }
    }
    let summary = parser.finish(&mut sink);
    (sink, summary)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((flags, archive)) = bytes.split_first() else {
        return;
    };
    let mut archive = archive.to_vec();
    if flags & 1 == 0 {
        seal_tar(&mut archive);
    }
    let (whole, summary) = parse(&archive, archive.len().max(1));
    let (parts, summary_of_parts) = parse(&archive, 1 + usize::from(flags >> 1));
    assert_eq!(whole.entries, parts.entries);
    assert!(archive.starts_with(&parts.stream));
    match (summary, summary_of_parts) {
        (Ok(summary), Ok(of_parts)) => {
            assert_eq!(summary, of_parts);
            assert_eq!(whole.stream, archive, "frame and contents are the input");
            assert_eq!(parts.stream, archive);
            assert_eq!(summary.plain_size, archive.len() as u64);
            assert_eq!(summary.content_size, whole.contents);
            assert_eq!(summary.entries, whole.entries.len() as u64);
            assert!(whole.data_end <= summary.data_size);
        }
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        (one, other) => panic!("{one:?} in one piece, {other:?} in parts"),
    }
});
