//! Layers of every encoder at hand: each span decodes to the right bytes, frame and data give the tar back.

mod check;
mod encoders;
mod laziness;
mod refusals;

use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use xebec_format::layer::EntryKind;
use xebec_index::fuzzing::verify;
use xebec_index::indexer::{DataSink, IndexOptions, Laziness, index_layer};

use crate::support::{Numbers, filter, gzip, mixture, sample_tar, tar_of};
use check::{check, options};

#[test]
fn layers_without_contents_have_no_spans() {
    for tar in [tar_of([]), tar_of([("empty", &b""[..])])] {
        for blob in [tar.clone(), gzip(&tar, 6), zstd::bulk::compress(&tar, 3).unwrap()] {
            let layer = check("no contents", &blob, &tar, &options());
            assert!(
                layer.index.spans.is_empty() && layer.index.pieces.is_empty() && layer.windows.is_empty()
            );
            assert_eq!(layer.laziness, Laziness::Lazy);
        }
    }
}

#[test]
fn stretches_without_contents_are_in_no_span() {
    // Contents, then about 8 MB of headers of empty files, then contents.
    let names: Vec<String> = (0..16_000).map(|number| format!("empty-{number}")).collect();
    let middle = names.iter().map(|name| (name.as_str(), &b""[..]));
    let files = [("first", &b"one"[..])]
        .into_iter()
        .chain(middle)
        .chain([("last", &b"two"[..])]);
    let tar = tar_of(files);
    let blob = gzip(&tar, 6);
    let layer = check("gap", &blob, &tar, &options());
    let spans = &layer.index.spans;
    assert_eq!(spans.len(), 2);
    assert!(spans[1].plain.start - spans[0].plain.end > 4 << 20);
    assert_eq!(
        layer.windows.len(),
        spans
            .iter()
            .filter_map(|s| s.window.as_ref())
            .map(|w| w.length as usize)
            .sum::<usize>()
    );
}

/// Gives bytes in portions of strange sizes.
struct Portions<'a>(&'a [u8], Numbers);

impl Read for Portions<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.below(9) == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = (1 + self.1.below(3000)).min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

#[test]
fn the_same_bytes_however_it_is_read() {
    let tar = sample_tar(7, 2_000_000);
    let frames: Vec<u8> = tar
        .chunks(50_000)
        .flat_map(|part| zstd::bulk::compress(part, 1).unwrap())
        .collect();
    for blob in [gzip(&tar, 6), frames, tar.clone()] {
        let whole = index_layer(&blob[..], &options(), None).unwrap();
        for seed in 0..5 {
            let again = index_layer(Portions(&blob, Numbers::new(seed)), &options(), None).unwrap();
            assert!(again == whole, "seed {seed}");
            assert_eq!(again.index.encode(), whole.index.encode());
        }
    }
}

/// All held memory must be reported, whatever it is for: a layer may be made to have much of any of it.
#[test]
fn it_is_said_what_is_held() {
    #[derive(Default)]
    struct Said(u64);
    impl DataSink for Said {
        fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn hold(&mut self, bytes: u64) -> io::Result<()> {
            self.0 += bytes;
            Ok(())
        }
    }
    let mut numbers = Numbers::new(5);
    let noise: Vec<u8> = (0..3 << 20).map(|_| numbers.next() as u8).collect();
    // A frame, windows, contents.
    let mut trailing = tar_of([("a", &b"a"[..])]);
    trailing.extend(&noise);
    let windows = sample_tar(1, 20_000_000);
    let names: Vec<String> = (0..20_000).map(|number| format!("f{number}")).collect();
    let many = tar_of(names.iter().map(|name| (name.as_str(), &b"x"[..])));
    for tar in [trailing, windows, many] {
        let mut said = Said::default();
        let options = IndexOptions {
            spacing: 64 << 10,
            ..options()
        };
        let layer = index_layer(&gzip(&tar, 1)[..], &options, Some(&mut said)).unwrap();
        let held = layer.frame.len() + 2 * layer.windows.len() + layer.contents.len();
        // Windows that are on their way between threads are said later, or not if that is the end.
        assert!(said.0 >= held as u64 / 2, "{} bytes were said of {held}", said.0);
    }
}

#[test]
fn holes_are_hashed_up_to_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("sparse")).unwrap();
    file.set_len(30 << 20).unwrap();
    file.write_all_at(b"at the end", (30 << 20) - 10).unwrap();
    file.write_all_at(&mixture(1, 10_000), 7 << 20).unwrap();
    std::fs::write(directory.path().join("dense"), b"dense").unwrap();
    let path = directory.path().to_str().unwrap();
    for format in ["gnu", "pax"] {
        let format = format!("--format={format}");
        let arguments = [
            "-C",
            path,
            "-S",
            "--sort=name",
            &format,
            "-cf",
            "-",
            "sparse",
            "dense",
        ];
        let Some(tar) = filter("tar", &arguments, b"") else {
            return;
        };
        let blob = gzip(&tar, 6);
        let layer = check(&format!("sparse {format}"), &blob, &tar, &IndexOptions::default());
        let with_holes = &layer.index.entries[0].kind;
        assert!(matches!(with_holes, EntryKind::File { size: 31_457_280, extents } if !extents.is_empty()));
        assert!(
            layer.index.data_size < 1 << 20,
            "holes take {} bytes",
            layer.index.data_size
        );

        let few = IndexOptions {
            max_hashed_holes: 1 << 20,
            ..IndexOptions::default()
        };
        let layer = index_layer(&blob[..], &few, None).unwrap();
        assert_eq!(layer.contents[..32], [0; 32], "its holes were to be too many");
        assert_eq!(layer.contents[32..], Sha256::digest(b"dense")[..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_layers(seed: u64, size in 0..400_000usize, level in 0..10u32) {
        let tar = sample_tar(seed, size);
        let layer = index_layer(&gzip(&tar, level)[..], &options(), None).unwrap();
        verify(&gzip(&tar, level), &layer);
    }

    #[test]
    fn arbitrary_bytes(start in prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\0\0\0\0\0\0\x03", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"]), bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        xebec_index::fuzzing::index(&[start, &bytes].concat());
        xebec_index::fuzzing::decode(&bytes);
    }

    #[test]
    fn damaged_layers(seed: u64, changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5), kind in 0..3) {
        let tar = sample_tar(seed, 30_000);
        let mut blob = match kind {
            0 => gzip(&tar, 6),
            1 => tar.chunks(9000).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect(),
            _ => tar,
        };
        for (at, value) in changes {
            let at = at % blob.len();
            blob[at] = value;
        }
        xebec_index::fuzzing::index(&blob);
    }
}
