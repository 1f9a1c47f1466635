//! Zones: pages that are laid out come back one by one, and a plan brings the missing pages and nothing else.

use std::collections::{BTreeSet, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    LaidOut, PageRun, RecordedLayer, Recording, SEGMENT_PAGES, SegmentDigest, SegmentError, ZoneRange,
    lay_out, open_segment, ranges, wanted,
};

use crate::support::recordings::{Page, pages, recording, small};

const PAGE: usize = 4096;

/// Contents of a page: zeros for one page in five, otherwise text that compresses or noise that does not.
fn contents((layer, page): Page) -> [u8; PAGE] {
    let mut state = (u64::from(layer) << 32 | page).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = [0; PAGE];
    if page % 5 == 0 {
        return bytes;
    }
    for byte in &mut bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = if page % 3 == 0 {
            state as u8
        } else {
            b'a' + (state % 3) as u8
        };
    }
    bytes
}

fn layers() -> Vec<RecordedLayer> {
    let layer = |name: &[u8]| RecordedLayer {
        layer: Digest::of(name),
        index: Digest::of(name),
        data_size: 400 * PAGE as u64,
    };
    vec![layer(b"a"), layer(b"b"), layer(b"c")]
}

fn laid_out(touched: &[PageRun]) -> (Vec<u8>, LaidOut) {
    let mut zone = Vec::new();
    let laid_out = lay_out(
        &layers(),
        0,
        b"",
        touched.iter().copied(),
        &mut zone,
        |layer, page, bytes| {
            *bytes = contents((layer, page));
            Ok(())
        },
    );
    (zone, laid_out.unwrap())
}

fn compressed<'z>(zone: &'z [u8], recording: &Recording, number: usize) -> &'z [u8] {
    let segment = &recording.segments[number];
    &zone[segment.offset as usize..segment.end() as usize]
}

fn recorded(laid_out: LaidOut) -> Recording {
    Recording {
        image: Digest::of(b"image"),
        layers: layers(),
        services: Vec::new(),
        zeros: laid_out.zeros,
        zones: vec![laid_out.zone],
        segments: laid_out.segments,
        indexes: Vec::new(),
    }
}

proptest! {
    // Each compresses megabytes.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_laid_out_comes_back(
        touched in vec((0u16..3, 0u64..390, 1u32..10), 0..80)
    ) {
        let touched: Vec<PageRun> = touched
            .into_iter()
            .map(|(layer, first, pages)| PageRun { layer, first, pages })
            .collect();
        let (zone, laid_out) = laid_out(&touched);
        prop_assert_eq!(laid_out.zone.size, zone.len() as u64);
        prop_assert_eq!(laid_out.zone.digest, Digest::of(&zone));
        let recording = recorded(laid_out);
        prop_assert_eq!(recording.check(), Ok(()));

        // Each page once, in the order of the first access.
        let mut known = HashSet::new();
        let all: Vec<Page> = pages(&touched).into_iter().filter(|page| known.insert(*page)).collect();
        let (zeros, full): (Vec<Page>, Vec<Page>) =
            all.into_iter().partition(|page| contents(*page) == [0; PAGE]);
        prop_assert_eq!(pages(&recording.zeros), zeros);
        prop_assert_eq!(pages(recording.segments.iter().flat_map(|s| &s.runs)), full);

        for (number, segment) in recording.segments.iter().enumerate() {
            if number + 1 < recording.segments.len() {
                prop_assert_eq!(segment.pages(), SEGMENT_PAGES as u64);
            }
            let plain = open_segment(segment, compressed(&zone, &recording, number)).unwrap();
            let expected: Vec<u8> = pages(&segment.runs).into_iter().flat_map(contents).collect();
            prop_assert!(plain == expected);
        }
    }
}

proptest! {
    #[test]
    fn what_is_missing_is_wanted(recording in recording(), missing in any::<u64>()) {
        let is_missing = |(layer, page): Page| {
            (missing >> ((page / 3 + u64::from(layer)) % 64)) & 1 == 1
        };
        for service in &recording.services {
            let touched: HashSet<Page> = pages(service.touched.iter().map(|touched| &touched.run))
                .into_iter()
                .collect();
            let model: Vec<usize> = recording
                .segments
                .iter()
                .enumerate()
                .filter(|(_, s)| pages(&s.runs).iter().any(|p| touched.contains(p) && is_missing(*p)))
                .map(|(number, _)| number)
                .collect();
            let found = wanted(&recording, service, |run| {
                let asked = pages([run]);
                assert!(asked.iter().all(|page| touched.contains(page)));
                asked.into_iter().any(is_missing)
            });
            prop_assert_eq!(found, model);
        }
    }

    /// The ranges bring each wanted segment in one piece and in order; between them nothing that could have been
    /// bridged is left out, and no gap that they read over is longer than the bridge.
    #[test]
    fn ranges_bridge_what_they_may(recording in recording(), chosen in any::<u64>(), bridge in 0u64..60_000) {
        let segments = &recording.segments;
        let chosen: Vec<usize> = (0..segments.len()).filter(|n| chosen >> (n % 64) & 1 == 1).collect();
        let ranges = ranges(segments, &chosen, bridge);
        let mut next = 0;
        for range in &ranges {
            prop_assert_eq!(range.wanted.start, next);
            next = range.wanted.end;
            let inside: Vec<_> = chosen[range.wanted.clone()].iter().map(|&n| &segments[n]).collect();
            prop_assert!(inside.iter().all(|segment| segment.zone == range.zone));
            prop_assert_eq!(range.bytes.start, inside[0].offset);
            prop_assert_eq!(range.bytes.end, inside[inside.len() - 1].end());
            prop_assert!(inside.windows(2).all(|two| two[1].offset - two[0].end() <= bridge));
        }
        prop_assert_eq!(next, chosen.len());
        let apart = |two: &[ZoneRange]| {
            two[0].zone != two[1].zone || two[1].bytes.start - two[0].bytes.end > bridge
        };
        prop_assert!(ranges.windows(2).all(apart));
    }
}

#[test]
fn a_plan_of_a_small_recording() {
    let recording = small();
    let nginx = &recording.services[0];
    assert_eq!(wanted(&recording, nginx, |_| true), [0, 1]);
    assert_eq!(wanted(&recording, nginx, |run| run.first == 500), [0]);
    assert_eq!(wanted(&recording, nginx, |_| false), [0usize; 0]);
    assert_eq!(wanted(&recording, &recording.services[1], |_| true), [0, 2]);
    let bytes = |wanted: &[usize], bridge| -> Vec<_> {
        let ranges = ranges(&recording.segments, wanted, bridge);
        ranges
            .into_iter()
            .map(|range| (range.zone, range.bytes))
            .collect()
    };
    assert_eq!(bytes(&[0, 1, 2], 0), [(0, 0..8999), (1, 17..317)]);
    assert_eq!(bytes(&[], 0), []);
    assert_eq!(bytes(&[2, 9], 1 << 40), [(1, 17..317)]);
    // Near in number, but in another blob.
    let mut segments = recording.segments.clone();
    segments[2].offset = 9000;
    assert_eq!(ranges(&segments, &[1, 2], 10).len(), 2);
}

#[test]
fn segments_that_are_not_what_was_recorded_are_refused() {
    let run = |first, pages| PageRun {
        layer: 0,
        first,
        pages,
    };
    let (zone, laid_out) = laid_out(&[run(1, 4), run(11, 4)]);
    let recording = recorded(laid_out);
    let segment = &recording.segments[0];
    assert_eq!(segment.pages(), 8);
    let got = zone.len() - 1;
    assert!(matches!(
        open_segment(segment, &zone[..got]),
        Err(SegmentError::Length { got: found, .. }) if found == got
    ));
    let with = |plain: &[u8]| {
        let stored = zstd::bulk::compress(plain, 1).unwrap();
        let mut segment = segment.clone();
        segment.length = stored.len() as u32;
        open_segment(&segment, &stored).unwrap_err()
    };
    let plain = open_segment(segment, &zone).unwrap();
    for other in [&plain[..plain.len() - 1], &[&plain[..], b"x"].concat()] {
        let error = with(other);
        assert!(matches!(error, SegmentError::Decompress(_)), "{error}");
    }
    let mut other = plain;
    other[5000] ^= 1;
    let error = with(&other);
    assert!(matches!(error, SegmentError::Digest { expected, .. } if expected == segment.digest));
    // As recordings of before have it.
    let mut older = segment.clone();
    other[5000] ^= 1;
    older.digest = SegmentDigest::Sha256(Digest::of(&other));
    assert_eq!(open_segment(&older, &zone), Ok(other));
    older.digest = SegmentDigest::Sha256(Digest::of(b"other pages"));
    assert!(matches!(
        open_segment(&older, &zone),
        Err(SegmentError::Digest { .. })
    ));
}

#[test]
fn the_same_pages_give_the_same_zone() {
    let touched = [0u16, 1, 2].map(|layer| PageRun {
        layer,
        first: 7,
        pages: 90,
    });
    let (zone, laid_out) = laid_out(&touched);
    assert_eq!(laid_out, self::laid_out(&touched).1);
    assert_eq!(laid_out.segments.len(), 4);
    assert_eq!(Digest::of(&zone).short(), "60320b1b0b0e");
}

#[test]
fn pages_outside_of_their_layer_are_not_read() {
    let outside = [(3, 0, 1), (0, 400, 1), (0, 399, 2), (0, u64::MAX, 1)];
    for (layer, first, pages) in outside {
        let run = PageRun { layer, first, pages };
        let result = lay_out(&layers(), 0, b"", [run], &mut Vec::new(), |_, _, _| {
            panic!("read")
        });
        let text = result.unwrap_err().to_string();
        assert!(text.contains("are not in layer"), "{text}");
    }
    let mut read = BTreeSet::new();
    let fails = lay_out(
        &layers(),
        0,
        b"",
        [PageRun {
            layer: 1,
            first: 2,
            pages: 3,
        }],
        &mut Vec::new(),
        |_, page, _| {
            read.insert(page);
            if page == 3 {
                Err(std::io::Error::other("gone"))
            } else {
                Ok(())
            }
        },
    );
    assert_eq!(fails.unwrap_err().to_string(), "gone");
    assert_eq!(read, [2, 3].into());
}
