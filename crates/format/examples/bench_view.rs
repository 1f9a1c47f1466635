//! Times what stands between having an image's layer indexes and mounting it: decoding, merging, writing the EROFS
//! image. 100,000 files in 30 layers by default; `bench_view FILES LAYERS` for others. Prints the best of several runs,
//! in time on the processor (`/proc/self/schedstat`), so that a busy machine does not count, or else on the clock.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "an example has no readers of its documentation")]

use std::time::{Duration, Instant};

use xebec_format::digest::Digest;
use xebec_format::erofs::{Device, Options, write};
use xebec_format::layer::{Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Piece, Span};
use xebec_format::merge::merge;
use xebec_format::path::LayerPath;
use xebec_format::round_up_to_page;

const RUNS: usize = 7;
/// Plain bytes of a span.
const SPAN: u64 = 1 << 20;

/// Numbers that look random and are the same every time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A layer of files as packages bring them: directories of some dozens, sizes from bytes to megabytes.
fn layer(number: usize, files: usize) -> LayerIndex {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ (number as u64) << 20);
    let mut entries = Vec::new();
    let mut pieces = Vec::new();
    let (mut plain, mut data) = (0, 0);
    let mut add = |path: String, metadata: &Metadata, size: Option<u64>| {
        plain += 512;
        let kind = match size {
            None => EntryKind::Directory,
            Some(size) => {
                pieces.push(Piece {
                    plain_offset: plain,
                    data_offset: data,
                    length: size,
                });
                let extents = vec![Extent {
                    file_offset: 0,
                    data_offset: data,
                    length: size,
                }];
                plain += size.next_multiple_of(512);
                data = round_up_to_page(data + size).unwrap();
                EntryKind::File { size, extents }
            }
        };
        let path = LayerPath::normalize(path.as_bytes()).unwrap();
        entries.push(Entry {
            path,
            metadata: metadata.clone(),
            kind,
        });
    };
    let (mut directory, mut left) = (String::new(), 0);
    let mut metadata = Metadata::default();
    for file in 0..files {
        if left == 0 {
            left = 1 + numbers.next(60);
            let package = numbers.next(500);
            directory = format!(
                "usr/lib/python3/dist-packages/package{package:03}/part{}",
                numbers.next(9)
            );
            metadata.mtime = 1_700_000_000 + numbers.next(50_000_000) as i64;
            add(
                directory.clone(),
                &Metadata {
                    mode: 0o755,
                    ..metadata.clone()
                },
                None,
            );
        }
        left -= 1;
        let size = 1 + (numbers.next(1 << 10) * numbers.next(1 << 6));
        let name = format!("{directory}/module_{:x}_{file}.py", numbers.next(1 << 24));
        add(
            name,
            &Metadata {
                mode: 0o644,
                ..metadata.clone()
            },
            Some(size),
        );
    }
    LayerIndex {
        layer: Digest::of(&(number as u64).to_le_bytes()),
        layer_size: plain,
        diff_id: Some(Digest::of(b"plain")),
        codec: Codec::Tar,
        plain_size: plain,
        data_size: data,
        spans: spans(&pieces, plain),
        entries,
        pieces,
        windows: None,
        frame: None,
        contents: None,
    }
}

/// Spans of a fixed length in the plain stream.
fn spans(pieces: &[Piece], plain_size: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for start in (0..plain_size).step_by(SPAN as usize) {
        let end = plain_size.min(start + SPAN);
        let first = pieces.partition_point(|p| p.plain_offset + p.length <= start);
        let inside = &pieces[first..];
        let inside = &inside[..inside.partition_point(|p| p.plain_offset < end)];
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
            continue;
        };
        let data_start = first.data_offset + start.saturating_sub(first.plain_offset);
        let data_end = last.data_offset + last.length.min(end - last.plain_offset);
        spans.push(Span {
            source: start..end,
            bit_offset: 0,
            plain: start..end,
            data: data_start..data_end,
            window: None,
            digest: Digest::of(&start.to_le_bytes()),
        });
    }
    spans
}

/// Time that this thread has spent on a processor.
fn on_processor() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let (start, busy) = (Instant::now(), on_processor());
    let value = work();
    *total += match (busy, on_processor()) {
        (Some(before), Some(after)) => after - before,
        _ => start.elapsed(),
    };
    value
}

fn main() {
    let argument = |n: usize, default| std::env::args().nth(n).map_or(default, |a| a.parse().unwrap());
    let (files, layers) = (argument(1, 100_000), argument(2, 30));
    let indexes: Vec<LayerIndex> = (0..layers).map(|n| layer(n, files / layers)).collect();
    let mut encoding = Duration::ZERO;
    let encoded: Vec<Vec<u8>> = timed(&mut encoding, || indexes.iter().map(LayerIndex::encode).collect());
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    let digests: usize = indexes.iter().map(|index| index.spans.len() * 32).sum();
    let entries: usize = indexes.iter().map(|index| index.entries.len()).sum();
    println!(
        "{layers} layers, {entries} entries: {bytes} bytes of indexes, {:.1} per entry without span digests; \
         encoded in {encoding:.1?}",
        (bytes - digests) as f64 / entries as f64
    );

    let mut best = [Duration::MAX; 4];
    let mut size = 0;
    for _ in 0..RUNS {
        let mut times = [Duration::ZERO; 4];
        let decoded: Vec<LayerIndex> = timed(&mut times[0], || {
            encoded
                .iter()
                .map(|bytes| LayerIndex::decode(bytes).unwrap())
                .collect()
        });
        let borrowed: Vec<&LayerIndex> = decoded.iter().collect();
        let tree = timed(&mut times[1], || merge(&borrowed).unwrap());
        let devices: Vec<Device> = decoded
            .iter()
            .map(|index| Device::of_layer(&index.layer, index.data_size))
            .collect();
        let image = timed(&mut times[2], || {
            write(&tree, &devices, &Options::default()).unwrap()
        });
        size = image.len();
        times[3] = times[..3].iter().sum();
        for (best, time) in best.iter_mut().zip(times) {
            *best = time.min(*best);
        }
    }
    let [decode, merge, write, total] = best;
    println!(
        "decode {decode:.1?}  merge {merge:.1?}  write {write:.1?} ({size} bytes)  together {total:.1?}"
    );
}
