//! Layers that are damaged or too large, and sinks and readers that fail: each is refused, and the error says what and where.

use std::io::{self, Read};

use xebec_index::indexer::{DataSink, IndexError, IndexOptions, index_layer};

use super::check::{check, options};
use crate::support::{Numbers, gzip, sample_tar, tar_of};

#[test]
fn damaged_blobs_are_refused_or_differ_in_digest() {
    let tar = sample_tar(8, 200_000);
    let blob = gzip(&tar, 6);
    let mut numbers = Numbers::new(1);
    for _ in 0..300 {
        let mut damaged = blob.clone();
        let at = 10 + numbers.below(blob.len() - 10);
        damaged[at] ^= 1 << numbers.below(8);
        // CRC-32 finds every single flipped bit.
        assert!(
            index_layer(&damaged[..], &options(), None).is_err(),
            "bit flip at {at} was not found"
        );
        let cut = numbers.below(blob.len());
        assert!(
            index_layer(&blob[..cut], &options(), None).is_err(),
            "cut at {cut} was not found"
        );
    }
}

#[test]
fn errors_say_what_and_where() {
    let tar = sample_tar(9, 100_000);
    let blob = gzip(&tar, 6);
    let message =
        |blob: &[u8], options: &IndexOptions| index_layer(blob, options, None).unwrap_err().to_string();
    let cut = message(&blob[..blob.len() - 3], &options());
    assert!(
        cut.contains(&format!("cut off at byte {}", blob.len() - 3)),
        "{cut}"
    );
    let mut wrong = blob.clone();
    let end = wrong.len();
    wrong[end - 1] ^= 1;
    assert!(
        message(&wrong, &options()).contains("length is"),
        "{}",
        message(&wrong, &options())
    );
    wrong[end - 5] ^= 1;
    assert!(message(&wrong, &options()).contains("CRC-32 is"));
    wrong[3] = 0x80;
    assert!(message(&wrong, &options()).contains("reserved flags"));
    let small = IndexOptions {
        max_plain: 50_000,
        ..options()
    };
    assert!(message(&blob, &small).contains("more than 50000 bytes"));
    let bomb = gzip(&vec![0; 20 << 20], 9);
    assert!(
        message(
            &bomb,
            &IndexOptions {
                max_plain: 1 << 20,
                ..options()
            }
        )
        .contains("bomb")
    );
    assert!(message(b"#!/bin/sh\nthis is no layer\n", &options()).contains("tar"));
}

#[test]
fn a_frame_that_does_not_compress_is_bounded() {
    // Incompressible bytes behind the end of the archive belong to the frame.
    let mut tar = tar_of([("a", &b"a"[..])]);
    let mut numbers = Numbers::new(5);
    tar.extend((0..3 << 20).map(|_| numbers.next() as u8));
    let options = IndexOptions {
        max_frame: 1 << 20,
        ..options()
    };
    let error = index_layer(&tar[..], &options, None).unwrap_err();
    assert!(
        matches!(error, IndexError::FrameTooLarge { limit: 1_048_576 }),
        "{error}"
    );
    check(
        "trailing garbage in the tar",
        &gzip(&tar, 1),
        &tar,
        &IndexOptions::default(),
    );
}

struct Full(u64);

impl DataSink for Full {
    fn write(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        self.0 = self
            .0
            .checked_sub(bytes.len() as u64)
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            count => Ok(count),
        }
    }
}

#[test]
fn failing_sinks_and_readers_are_reported() {
    let tar = sample_tar(10, 20_000_000);
    let blob = gzip(&tar, 1);
    let error = index_layer(&blob[..], &options(), Some(&mut Full(1_000_000))).unwrap_err();
    assert!(
        matches!(&error, IndexError::Sink(e) if e.kind() == io::ErrorKind::StorageFull),
        "{error}"
    );
    for length in [0, 5, 100_000, blob.len() / 2] {
        let error = index_layer(Broken(&blob[..length]), &options(), None).unwrap_err();
        let reset =
            matches!(&error, IndexError::Read(error) if error.kind() == io::ErrorKind::ConnectionReset);
        assert!(reset, "{length}: {error}");
    }
}
