//! Random recordings that keep every promise of their types.

use std::collections::{BTreeMap, HashSet};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    BundledIndex, PageRun, RecordedLayer, Recording, SeenRun, Segment, SegmentDigest, Service, ServiceKey,
    Zone,
};

const PAGE: u64 = 4096;

/// A page by the place of its layer and its number.
pub(crate) type Page = (u16, u64);

pub(crate) fn one(page: Page) -> PageRun {
    PageRun {
        layer: page.0,
        first: page.1,
        pages: 1,
    }
}

/// The pages of runs, in order.
pub(crate) fn pages<'r>(runs: impl IntoIterator<Item = &'r PageRun>) -> Vec<Page> {
    runs.into_iter()
        .flat_map(|run| (run.first..run.end()).map(|page| (run.layer, page)))
        .collect()
}

fn runs(pages: &[Page]) -> Vec<PageRun> {
    let mut runs = Vec::new();
    for &page in pages {
        one(page).push_onto(&mut runs);
    }
    runs
}

fn digest(kind: &str, number: usize) -> Digest {
    Digest::of(format!("{kind} {number}").as_bytes())
}

/// Of one kind or the other; in recordings of few segments all of the same.
fn segment_digest(number: usize, length: u32) -> SegmentDigest {
    let sha256 = digest("segment", number);
    match length % 3 {
        0 => SegmentDigest::Blake3(*sha256.as_bytes()),
        _ => SegmentDigest::Sha256(sha256),
    }
}

/// Runs somewhere in the layers: as fractions, since the layers are chosen at the same time.
fn picks(most: usize) -> impl Strategy<Value = Vec<(u16, u16, u64, bool)>> {
    vec(
        (any::<u16>(), any::<u16>(), 1u64..12, prop::bool::weighted(0.15)),
        0..most,
    )
}

#[derive(Clone, Debug)]
struct ServicePlan {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    probe: String,
    recorded: u64,
    runs: u8,
    /// From which of the held pages on, how many, seen how often.
    touched: Vec<(u16, usize, u8)>,
}

fn service() -> impl Strategy<Value = ServicePlan> {
    (
        vec("[a-z /ä-]{0,9}", 1..4),
        btree_map("[A-Z_]{1,5}", "[a-z=/]{0,9}", 0..3),
        "[ -~]{0,20}",
        any::<u64>(),
        1u8..,
        vec((any::<u16>(), 1usize..60, any::<u8>()), 0..12),
    )
        .prop_map(|(argv, env, probe, recorded, runs, touched)| ServicePlan {
            argv,
            env,
            probe,
            recorded,
            runs,
            touched,
        })
}

/// Distinct pages of the layers, in the order of `picks`, those of zeros apart.
fn spread(sizes: &[u64], picks: &[(u16, u16, u64, bool)]) -> (Vec<Page>, Vec<Page>) {
    let (mut full, mut zeros, mut known) = (Vec::new(), Vec::new(), HashSet::new());
    for &(layer, first, length, zero) in picks {
        let layer = layer % sizes.len() as u16;
        let size = sizes[usize::from(layer)];
        let first = u64::from(first) % size;
        for page in first..(first + length).min(size) {
            if known.insert((layer, page)) {
                if zero { &mut zeros } else { &mut full }.push((layer, page));
            }
        }
    }
    (full, zeros)
}

/// `full` in segments of these sizes, in zones with gaps.
fn segments(mut full: &[Page], shapes: &[(usize, u32, u64, bool)]) -> (Vec<Zone>, Vec<Segment>) {
    let (mut zones, mut segments) = (Vec::new(), Vec::new());
    let (mut zone, mut end) = (0, 0);
    for &(pages, length, gap, next_zone) in shapes.iter().cycle() {
        if full.is_empty() {
            break;
        }
        if next_zone && zone < 5 {
            zones.push(end + gap);
            (zone, end) = (zone + 1, 0);
        }
        let (held, rest) = full.split_at(pages.min(full.len()));
        segments.push(Segment {
            zone,
            offset: end + gap,
            length,
            digest: segment_digest(segments.len(), length),
            runs: runs(held),
        });
        end += gap + u64::from(length);
        full = rest;
    }
    zones.push(end);
    let zone = |(number, size)| Zone {
        digest: digest("zone", number),
        size,
    };
    (zones.into_iter().enumerate().map(zone).collect(), segments)
}

fn services(plans: Vec<ServicePlan>, held: &[Page]) -> Vec<Service> {
    let (mut services, mut keys) = (Vec::new(), HashSet::new());
    for plan in plans {
        let key = ServiceKey {
            argv: plan.argv,
            env: plan.env,
        };
        if !keys.insert(key.clone()) {
            continue;
        }
        let (mut touched, mut known) = (Vec::new(), HashSet::new());
        for (from, count, seen) in plan.touched {
            let from = usize::from(from) % held.len().max(1);
            for &page in held[from..].iter().take(count) {
                if known.insert(page) {
                    let run = one(page);
                    let seen = 1 + seen % plan.runs;
                    SeenRun { run, seen }.push_onto(&mut touched);
                }
            }
        }
        services.push(Service {
            key,
            probe: plan.probe,
            recorded: plan.recorded,
            runs: plan.runs,
            recorder: "xebec 0.1.0".to_owned(),
            touched,
        });
    }
    services
}

/// Any valid recording.
pub(crate) fn recording() -> impl Strategy<Value = Recording> {
    (
        vec(1u64..500, 1..4),
        picks(60),
        vec(
            (1usize..256, 1u32..100_000, 0u64..5000, prop::bool::weighted(0.2)),
            1..8,
        ),
        vec(service(), 0..4),
        any::<u64>(),
    )
        .prop_map(|(sizes, picks, shapes, plans, order)| {
            let (full, zeros) = spread(&sizes, &picks);
            let (zones, segments) = segments(&full, &shapes);
            // As they are held, but turned, with a stretch of zeros at the seam and one in between.
            let mut held = [&full[..], &zeros[..]].concat();
            let by = (order % held.len().max(1) as u64) as usize;
            held.rotate_left(by);
            let layer = |(number, pages): (usize, u64)| RecordedLayer {
                layer: digest("layer", number),
                index: digest("index", number),
                data_size: pages * PAGE,
            };
            Recording {
                image: Digest::of(b"image"),
                indexes: indexes(&zones, sizes.len()),
                layers: sizes.into_iter().enumerate().map(layer).collect(),
                services: services(plans, &held),
                zeros: runs(&zeros),
                zones,
                segments,
            }
        })
}

/// Every other layer's index is somewhere in a zone, if there is a zone with room for it.
fn indexes(zones: &[Zone], layers: usize) -> Vec<BundledIndex> {
    let index = |number: usize| {
        let zone = number % zones.len().max(1);
        let length = 1 + number as u64 * 5;
        Some(BundledIndex {
            layer: number as u16,
            zone: zone as u16,
            offset: zones.get(zone)?.size.checked_sub(length)? / 2,
            length,
        })
    };
    (0..layers).step_by(2).filter_map(index).collect()
}

/// A small one that carries its indexes; the committed file `recording-1-indexes.bin` holds it.
pub(crate) fn small_with_indexes() -> Recording {
    let places = [(0, 1, 317, 4000), (1, 1, 4317, 83), (1, 0, 8999, 1)];
    let index = |(layer, zone, offset, length)| BundledIndex {
        layer,
        zone,
        offset,
        length,
    };
    Recording {
        indexes: places.map(index).to_vec(),
        ..small()
    }
}

/// A small one two of whose digests of segments are BLAKE3; the committed file `recording-1-blake3.bin` holds it.
pub(crate) fn small_with_blake3() -> Recording {
    let mut recording = small_with_indexes();
    for segment in recording.segments.iter_mut().skip(1) {
        segment.digest = SegmentDigest::of(&segment.offset.to_le_bytes());
    }
    recording
}

/// A small one, with something of everything; the committed file holds it.
pub(crate) fn small() -> Recording {
    let run = |layer, first, pages| PageRun { layer, first, pages };
    let layer = |name: &str, pages| RecordedLayer {
        layer: Digest::of(name.as_bytes()),
        index: Digest::of(format!("index of {name}").as_bytes()),
        data_size: pages * PAGE,
    };
    let zone = |name: &str, size| Zone {
        digest: Digest::of(name.as_bytes()),
        size,
    };
    let segment = |zone, offset, length, runs: &[PageRun]| Segment {
        zone,
        offset,
        length,
        digest: SegmentDigest::Sha256(Digest::of(format!("{zone} {offset}").as_bytes())),
        runs: runs.to_vec(),
    };
    let service = |argv: &[&str], probe: &str, runs, touched: &[(PageRun, u8)]| Service {
        key: ServiceKey {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            env: [("LANG".to_owned(), "C.UTF-8".to_owned())].into(),
        },
        probe: probe.to_owned(),
        recorded: 1_800_000_000,
        runs,
        recorder: "xebec 0.1.0".to_owned(),
        touched: touched.iter().map(|&(run, seen)| SeenRun { run, seen }).collect(),
    };
    Recording {
        image: Digest::of(b"image"),
        layers: vec![layer("lower", 1000), layer("upper", 20)],
        services: vec![
            service(
                &["nginx", "-g", "daemon off;"],
                "port 80 answers",
                3,
                &[
                    (run(0, 100, 8), 3),
                    (run(1, 3, 1), 3),
                    (run(0, 500, 2), 2),
                    (run(0, 108, 4), 3),
                ],
            ),
            service(
                &["nginx", "-t"],
                "exits",
                1,
                &[(run(0, 104, 4), 1), (run(1, 2, 2), 1)],
            ),
        ],
        zeros: vec![run(1, 3, 1), run(0, 990, 10)],
        zones: vec![zone("first", 9000), zone("second", 5000)],
        segments: vec![
            segment(0, 0, 4000, &[run(0, 100, 8), run(0, 500, 2)]),
            segment(0, 4000, 4999, &[run(0, 108, 4)]),
            segment(1, 17, 300, &[run(1, 2, 1)]),
        ],
        indexes: Vec::new(),
    }
}
