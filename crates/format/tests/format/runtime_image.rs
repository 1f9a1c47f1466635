//! The encoding of recordings: what goes in comes out, what comes from outside is checked.

use proptest::prelude::*;
use proptest::sample::Index;
use xebec_format::digest::Digest;
use xebec_format::layer::limits::MAX_DATA;
use xebec_format::runtime_image::limits::{
    MAX_PLAIN, MAX_RECORDING, MAX_RUNS, MAX_SEGMENT_PAGES, MAX_SERVICES, MAX_WORD,
};
use xebec_format::runtime_image::{
    BundledIndex, ColumnError, DecodeError, InvalidRecording, PageRun, RecordedLayer, Recording, SeenRun,
    Segment, SegmentDigest, Service, ServiceKey, Zone,
};

use crate::support::recordings::{recording, small, small_with_blake3, small_with_indexes};

/// Where the header ends, and its fields (`docs/formats/runtime-image.md`).
const HEADER: usize = 64;
const PLAIN_SIZE: usize = 16;
const STORED_SIZE: usize = 24;

proptest! {
    #[test]
    fn any_recording_comes_back(recording in recording()) {
        prop_assert_eq!(recording.check(), Ok(()));
        let bytes = recording.encode();
        prop_assert_eq!(&bytes, &recording.encode());
        prop_assert_eq!(Recording::decode(&bytes).unwrap(), recording);
    }

    /// A recording that is read back from damaged bytes keeps the promises, or decoding fails with an error; nothing panics.
    #[test]
    fn damaged_bytes_are_refused_or_sound(
        recording in recording(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
    ) {
        let mut bytes = recording.encode();
        apply(&mut bytes, &damage, cut);
        sound(&bytes)?;
    }

    /// The same with the damage inside the numbers, which compression would mostly shield.
    #[test]
    fn damaged_numbers_are_refused_or_sound(
        recording in recording(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
    ) {
        let bytes = recording.encode();
        let mut numbers = numbers(&bytes);
        apply(&mut numbers, &damage, cut);
        sound(&with_numbers(&bytes, &numbers))?;
    }
}

fn apply(bytes: &mut Vec<u8>, damage: &[(Index, u8)], cut: Option<Index>) {
    for (place, value) in damage {
        let place = place.index(bytes.len());
        bytes[place] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
}

fn sound(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(recording) = Recording::decode(bytes) {
        prop_assert_eq!(recording.check(), Ok(()));
        prop_assert_eq!(Recording::decode(&recording.encode()).unwrap(), recording);
    }
    Ok(())
}

fn field(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// The plain bytes of the numbers.
fn numbers(bytes: &[u8]) -> Vec<u8> {
    let stored = &bytes[HEADER..HEADER + field(bytes, STORED_SIZE)];
    zstd::bulk::decompress(stored, field(bytes, PLAIN_SIZE)).unwrap()
}

/// An encoded recording with other numbers.
fn with_numbers(bytes: &[u8], numbers: &[u8]) -> Vec<u8> {
    let stored = zstd::bulk::compress(numbers, 1).unwrap();
    let mut out = bytes[..HEADER].to_vec();
    out[PLAIN_SIZE..PLAIN_SIZE + 8].copy_from_slice(&(numbers.len() as u64).to_le_bytes());
    out[STORED_SIZE..STORED_SIZE + 8].copy_from_slice(&(stored.len() as u64).to_le_bytes());
    out.extend_from_slice(&stored);
    out.extend_from_slice(&bytes[HEADER + field(bytes, STORED_SIZE)..]);
    out
}

#[test]
fn version_1_is_read_for_ever() {
    let committed = include_bytes!("../data/recording-1.bin");
    assert_eq!(Recording::decode(committed).unwrap(), small());
    let committed = include_bytes!("../data/recording-1-indexes.bin");
    assert_eq!(Recording::decode(committed).unwrap(), small_with_indexes());
    let committed = include_bytes!("../data/recording-1-blake3.bin");
    assert_eq!(Recording::decode(committed).unwrap(), small_with_blake3());
}

#[test]
fn the_bytes_of_a_recording_do_not_change() {
    let committed = include_bytes!("../data/recording-1.bin");
    assert_eq!(Digest::of(&small().encode()), Digest::of(committed));
    let committed = include_bytes!("../data/recording-1-indexes.bin");
    assert_eq!(Digest::of(&small_with_indexes().encode()), Digest::of(committed));
    let committed = include_bytes!("../data/recording-1-blake3.bin");
    assert_eq!(Digest::of(&small_with_blake3().encode()), Digest::of(committed));
}

/// The errors about kinds of digests of segments.
#[test]
fn digests_of_segments_have_one_encoding() {
    let bytes = small_with_blake3().encode();
    let plain = numbers(&bytes);
    // A column of three bytes: its length, then SHA-256 once and BLAKE3 twice.
    let at = plain.windows(4).position(|four| four == [3, 0, 1, 1]).unwrap();
    let with = |kinds: [u8; 3]| {
        let mut plain = plain.clone();
        plain[at + 1..at + 4].copy_from_slice(&kinds);
        Recording::decode(&with_numbers(&bytes, &plain))
    };
    let digests = |recording: Recording| recording.segments.iter().map(|s| s.digest).collect::<Vec<_>>();
    let told = digests(with([1, 0, 1]).unwrap());
    assert!(matches!(
        told[..],
        [
            SegmentDigest::Blake3(_),
            SegmentDigest::Sha256(_),
            SegmentDigest::Blake3(_)
        ]
    ));
    let error = with([0, 0, 0]).unwrap_err().to_string();
    assert!(error.contains("all are SHA-256"), "{error}");
    let error = with([0, 2, 1]).unwrap_err().to_string();
    assert!(
        error.contains("kind of a segment's digest 2, which is not known"),
        "{error}"
    );
    // Without the feature there is one column too many.
    let mut unnamed = bytes.clone();
    unnamed[10] &= !2;
    assert!(Recording::decode(&unnamed).is_err());
}

#[test]
fn indexes_are_where_zones_are() {
    let carried = |change: fn(&mut BundledIndex)| {
        let mut recording = small_with_indexes();
        change(&mut recording.indexes[1]);
        recording.check()
    };
    let wrong = |problem| Err(InvalidRecording::Index { number: 1, problem });
    let outside = wrong("is in no listed zone, or reaches over the end of it");
    assert_eq!(carried(|index| index.length = 683), Ok(()));
    assert_eq!(carried(|index| index.length = 684), outside);
    assert_eq!(carried(|index| index.length = 0), outside);
    assert_eq!(carried(|index| index.zone = 2), outside);
    assert_eq!(carried(|index| index.offset = u64::MAX), outside);
    let unlisted = wrong("is of a layer that is not listed");
    assert_eq!(carried(|index| index.layer = 2), unlisted);
    assert_eq!(carried(|index| index.layer = 0), wrong("is twice in a zone"));
}

#[test]
fn services_are_found_by_all_of_their_key() {
    let recording = small();
    let mut key = recording.services[1].key.clone();
    assert_eq!(recording.service(&key).unwrap().probe, "exits");
    key.env.clear();
    assert_eq!(recording.service(&key), None);
}

/// As many pages, runs and segments as python3 with numpy and pandas has, at places that nothing predicts: what it has
/// in truth is smaller.
#[test]
fn a_recording_of_a_large_start_fits_into_a_manifest() {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let sizes = [30_000u64, 10_000, 45_000];
    let layers = sizes.map(|pages| RecordedLayer {
        layer: Digest::of(&pages.to_le_bytes()),
        index: Digest::of(&(pages + 1).to_le_bytes()),
        data_size: pages * 4096,
    });
    let mut known = std::collections::HashSet::new();
    let (mut zeros, mut touched) = (Vec::new(), Vec::new());
    let mut runs: Vec<PageRun> = Vec::new();
    while known.len() < 9918 {
        let layer = random(3) as u16;
        let first = random(sizes[usize::from(layer)] - 9);
        let zero = random(30) == 0;
        let seen = if random(50) == 0 { 2 } else { 3 };
        for page in first..first + 1 + random(7) {
            if known.len() < 9918 && known.insert((layer, page)) {
                let run = PageRun {
                    layer,
                    first: page,
                    pages: 1,
                };
                SeenRun { run, seen }.push_onto(&mut touched);
                run.push_onto(if zero { &mut zeros } else { &mut runs });
            }
        }
    }
    let (mut segments, mut offset): (Vec<Segment>, u64) = (Vec::new(), 0);
    for page in crate::support::recordings::pages(&runs).chunks(64) {
        let length = 40_000 + random(20_000) as u32;
        let mut runs = Vec::new();
        for &page in page {
            crate::support::recordings::one(page).push_onto(&mut runs);
        }
        segments.push(Segment {
            zone: 0,
            offset,
            length,
            digest: SegmentDigest::of(&offset.to_le_bytes()),
            runs,
        });
        offset += u64::from(length);
    }
    let recording = Recording {
        image: Digest::of(b"image"),
        layers: layers.to_vec(),
        services: vec![Service {
            touched,
            ..small().services[0].clone()
        }],
        zeros,
        zones: vec![Zone {
            digest: Digest::of(b"zone"),
            size: offset,
        }],
        segments,
        indexes: Vec::new(),
    };
    assert_eq!(recording.check(), Ok(()));
    let bytes = recording.encode();
    println!(
        "{} pages in {} runs and {} segments: {} bytes, {} of them digests",
        known.len(),
        runs.len(),
        recording.segments.len(),
        bytes.len(),
        32 * (recording.segments.len() + 8)
    );
    assert!(bytes.len() < 18_000, "{} bytes", bytes.len());
    assert_eq!(Recording::decode(&bytes).unwrap(), recording);
}

#[test]
fn sizes_that_lie_are_refused_by_name() {
    let bytes = small().encode();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        Recording::decode(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, b"GZIP"), DecodeError::Magic));
    assert!(matches!(with(8, &[2, 0]), DecodeError::Version(2)));
    assert!(matches!(with(10, &[0, 1]), DecodeError::Features(256)));
    assert!(matches!(with(12, &[9]), DecodeError::Unknown { value: 9, .. }));
    let is_limit = |error: DecodeError, is: u64| {
        assert!(
            matches!(error, DecodeError::Column(ColumnError::Limit { limit, .. }) if limit == is),
            "{error}"
        );
    };
    is_limit(with(PLAIN_SIZE, &(MAX_PLAIN + 1).to_le_bytes()), MAX_PLAIN);
    is_limit(with(STORED_SIZE, &u64::MAX.to_le_bytes()), MAX_RECORDING);
    for lie in [3, MAX_PLAIN] {
        let error = with(PLAIN_SIZE, &lie.to_le_bytes());
        assert!(matches!(error, DecodeError::Decompress(_)), "{error}");
    }
    let mut vast = small();
    vast.layers[0].data_size = MAX_DATA + 4096;
    is_limit(Recording::decode(&vast.encode()).unwrap_err(), MAX_DATA / 4096);
    let error = with(STORED_SIZE, &100_000u64.to_le_bytes());
    assert_eq!(error.to_string(), "the recording ends inside the numbers");
    let error = Recording::decode(&[&bytes[..], b"more"].concat()).unwrap_err();
    assert!(
        error.to_string().contains("left over after the digests"),
        "{error}"
    );
    let error = Recording::decode(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(error.to_string().contains("ends inside the digests"), "{error}");
    let error = Recording::decode(&bytes[..40]).unwrap_err();
    assert!(error.to_string().contains("ends inside the header"), "{error}");
    // A billion layers, segments, services in a few bytes.
    for place in [0, 2, 3, 4] {
        let mut numbers = vec![0; place];
        numbers.extend([0x80, 0x94, 0xeb, 0xdc, 0x03]);
        let error = Recording::decode(&with_numbers(&bytes, &numbers)).unwrap_err();
        assert!(
            matches!(
                error,
                DecodeError::Column(ColumnError::Limit {
                    value: 1_000_000_000,
                    ..
                })
            ),
            "{error}"
        );
    }
}

/// Few bytes that would become many runs: by listing them, and by services that each name all of them at once.
#[test]
fn more_runs_than_memory_should_hold_are_refused() {
    let scattered = |runs: u64| {
        (0..runs).map(|n| PageRun {
            layer: 0,
            first: 2 * n,
            pages: 1,
        })
    };
    let mut many = small();
    many.layers[0].data_size = MAX_RUNS * 3 * 4096;
    many.zeros.clear();
    many.services.truncate(1);
    many.services[0].touched.clear();
    let mut listed = many.clone();
    let all: Vec<PageRun> = scattered(MAX_RUNS + 1).collect();
    listed.zones[0].size = u32::MAX.into();
    listed.segments = all
        .chunks(256)
        .enumerate()
        .map(|(number, runs)| Segment {
            zone: 0,
            offset: number as u64,
            length: 1,
            digest: SegmentDigest::of(b""),
            runs: runs.to_vec(),
        })
        .collect();
    many.zeros = scattered(400_000).collect();
    many.segments.clear();
    let seen = 1;
    many.services[0].touched = many.zeros.iter().map(|&run| SeenRun { run, seen }).collect();
    assert_eq!(many.check(), Ok(()));
    for probe in ["b", "c"] {
        let mut service = many.services[0].clone();
        service.key.argv.push(probe.to_owned());
        many.services.push(service);
    }
    for (recording, what) in [(listed, "for runs of pages"), (many, "for runs of touched pages")] {
        let problem = recording.check().unwrap_err().to_string();
        assert!(problem.contains("too many runs"), "{problem}");
        let error = Recording::decode(&recording.encode()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn variables_have_one_order() {
    let mut recording = small();
    let env = &mut recording.services[0].key.env;
    *env = ["A", "B"].map(|name| (name.to_owned(), String::new())).into();
    let bytes = recording.encode();
    let numbers = numbers(&bytes);
    let at = numbers.windows(4).position(|four| four == b";ABp").unwrap();
    for names in [b"AA", b"BA"] {
        let mut numbers = numbers.clone();
        numbers[at + 1..at + 3].copy_from_slice(names);
        let error = Recording::decode(&with_numbers(&bytes, &numbers)).unwrap_err();
        assert!(error.to_string().contains("do not ascend"), "{error}");
    }
}

/// A way to break a recording, and what must be said of it.
type Break = (fn(&mut Recording), &'static str);

fn touch(recording: &mut Recording) -> &mut Vec<SeenRun> {
    &mut recording.services[0].touched
}

fn key(recording: &mut Recording) -> &mut ServiceKey {
    &mut recording.services[0].key
}

#[test]
fn every_broken_promise_is_named() {
    let cases: &[Break] = &[
        (
            |r| r.layers[1].layer = r.layers[0].layer,
            "layer 1 of the recording is there twice",
        ),
        (|r| r.layers[0].data_size += 1, "ends inside a page"),
        (|r| r.layers[0].data_size = 1 << 45, "too large"),
        (|r| r.layers[0].data_size = 500 * 4096, "outside the data space"),
        (|r| r.layers.truncate(1), "outside the data space"),
        (|r| r.zeros[1].pages = 11, "zeros outside"),
        (|r| r.zeros[1].pages = 0, "zeros outside"),
        (
            |r| {
                r.zeros.push(PageRun {
                    layer: 0,
                    first: u64::MAX,
                    pages: 1,
                })
            },
            "zeros outside",
        ),
        (
            |r| {
                r.zeros.insert(
                    1,
                    PageRun {
                        layer: 1,
                        first: 4,
                        pages: 1,
                    },
                )
            },
            "zeros that are not one run",
        ),
        (
            |r| r.zeros[1].first = 99,
            "a page twice in its segments and zeros",
        ),
        (
            |r| {
                r.zeros[1] = PageRun {
                    layer: 1,
                    first: 3,
                    pages: 2,
                }
            },
            "a page twice in its segments and zeros",
        ),
        (
            |r| r.zones[1].digest = r.zones[0].digest,
            "zone 1 of the recording is there twice",
        ),
        (|r| r.zones[0].size = u64::MAX, "larger than a file"),
        (|r| r.zones[0].size = 8998, "over the end of its zone"),
        (|r| r.zones.truncate(1), "a zone that is not listed"),
        (
            |r| r.segments[1].offset = 3999,
            "segment 1 of the recording overlaps",
        ),
        (|r| r.segments.swap(0, 1), "does not come after"),
        (|r| r.segments.swap(1, 2), "does not come after"),
        (|r| r.segments[0].length = 0, "no compressed bytes"),
        (|r| r.segments[0].length = 1 << 21, "more than a segment may"),
        (|r| r.segments[0].offset = u64::MAX, "over the end of its zone"),
        (|r| r.segments[1].runs.clear(), "has no pages"),
        (
            |r| r.segments[0].runs[1].pages = MAX_SEGMENT_PAGES as u32,
            "more than a segment may",
        ),
        (|r| r.segments[0].runs[0].pages = 0, "a run of no pages"),
        (
            |r| {
                r.segments[1].runs.push(PageRun {
                    layer: 0,
                    first: 112,
                    pages: 1,
                })
            },
            "neighbouring pages that are not one run",
        ),
        (
            |r| r.segments[1].runs[0].first = 107,
            "a page twice in its segments",
        ),
        (
            |r| r.services[1].key = r.services[0].key.clone(),
            "service 1 of the recording is there twice",
        ),
        (
            |r| r.services = vec![r.services[0].clone(); MAX_SERVICES as usize + 1],
            "too many services",
        ),
        (|r| key(r).argv.clear(), "no arguments"),
        (|r| key(r).argv = vec!["a".to_owned(); 5000], "too many arguments"),
        (|r| key(r).argv[0] = "a\0".to_owned(), "contains NUL"),
        (|r| key(r).argv[0] = "a".repeat(MAX_WORD + 1), "too long"),
        (|r| key(r).argv = vec!["a".repeat(MAX_WORD); 40], "bytes of texts"),
        (
            |r| drop(key(r).env.insert("A=".to_owned(), String::new())),
            "a bad name",
        ),
        (
            |r| drop(key(r).env.insert("A".to_owned(), "\0".to_owned())),
            "variable",
        ),
        (|r| r.services[0].probe = "a".repeat(5000), "probe"),
        (|r| r.services[0].runs = 0, "never run"),
        (|r| r.services[0].runs = 2, "more than there were"),
        (|r| touch(r)[0].seen = 0, "seen in no run"),
        (|r| touch(r)[0].run.layer = 7, "outside the data space"),
        (|r| touch(r)[0].run.first = 96, "in no segment"),
        (
            |r| {
                touch(r).push(SeenRun {
                    run: PageRun {
                        layer: 0,
                        first: 111,
                        pages: 1,
                    },
                    seen: 3,
                })
            },
            "a page twice",
        ),
        (|r| touch(r).swap(1, 3), "neighbouring pages"),
    ];
    assert_eq!(small().check(), Ok(()));
    for (number, (damage, message)) in cases.iter().enumerate() {
        let mut recording = small();
        damage(&mut recording);
        let error: InvalidRecording = recording.check().expect_err(&format!("case {number}: {message}"));
        assert!(
            error.to_string().contains(message),
            "case {number}: {error} does not say {message:?}"
        );
        // Some faults have no encoding, and the written bytes lack them. The broken recording never comes back.
        let read = Recording::decode(&recording.encode());
        assert!(
            read.is_err() || read.is_ok_and(|read| read != recording),
            "case {number}: {message}"
        );
    }
}
