//! The bytes of a recording's zones that a host lacks for a service: indexes of layers, and segments with pages.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use xebec_format::digest::Digest;
use xebec_format::runtime_image::{BundledIndex, PageRun, RecordedLayer, Recording, Service, Zone, wanted};

use crate::start_answer::MAX_PIECES;
use crate::start_request::HeldLayer;

/// Most bytes of a zone in which all indexes of a start are. Hosts do not take more at once, and ask for the index artifact instead.
const MAX_INDEXES: u64 = 64 << 20;

/// What a host lacks of zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The zones with pieces, in the order in which they are needed.
    pub zones: Vec<ZonePieces>,
    /// The layers whose indexes are among the pieces.
    pub indexed: BTreeSet<Digest>,
}

/// Pieces of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePieces {
    /// The zone.
    pub zone: Zone,
    /// Offset and length of each, ascending. No two touch.
    pub pieces: Vec<(u64, u64)>,
}

/// What a host that holds these layers lacks of a service. It cannot use pages of a layer that it holds by another index than the
/// recording's; so it lacks none of these, and no index of that layer.
pub fn lacking(recording: &Recording, service: &Service, held: &BTreeMap<Digest, HeldLayer>) -> Lacking {
    let layers: Vec<Layer<'_>> = recording
        .layers
        .iter()
        .map(|layer| Layer::of(layer, held))
        .collect();
    let segments = wanted(recording, service, |run: &PageRun| {
        match layers.get(usize::from(run.layer)) {
            Some(Layer::Absent) => true,
            Some(Layer::Held(held)) => !held.pages.contain(&(run.first..run.end())),
            Some(Layer::Other) | None => false,
        }
    });
    let first = segments
        .first()
        .and_then(|number| recording.segments.get(*number));
    let indexes = of_one_zone(recording, &layers, first.map(|segment| segment.zone));
    // The zone of the indexes comes first: nothing can be done with pages before.
    let front = indexes.first().map(|index| index.zone);
    let place = |zone: u16| (Some(zone) != front, zone);
    let mut pieces: BTreeMap<(bool, u16), Vec<(u64, u64)>> = BTreeMap::new();
    if let Some(front) = front {
        pieces.insert(place(front), Vec::new());
    }
    for segment in segments
        .iter()
        .filter_map(|number| recording.segments.get(*number))
    {
        let pieces = pieces.entry(place(segment.zone)).or_default();
        pieces.push((segment.offset, segment.length.into()));
    }
    let (mut left, mut indexed) = (MAX_PIECES, BTreeSet::new());
    let zones = pieces.into_iter().filter_map(|((is_other, zone), pieces)| {
        let zone = *recording.zones.get(usize::from(zone))?;
        let here = if is_other { &[][..] } else { &indexes[..] };
        let pieces = within(left, here, pieces);
        left -= pieces.len();
        let sent = here.iter().filter(|index| is_in(&pieces, index));
        let layers = sent.filter_map(|index| recording.layers.get(usize::from(index.layer)));
        indexed.extend(layers.map(|layer| layer.layer));
        (!pieces.is_empty()).then_some(ZonePieces { zone, pieces })
    });
    Lacking {
        zones: zones.collect(),
        indexed,
    }
}

/// So many pieces of a zone at most. Indexes go before segments, of which a host can make nothing without them.
fn within(most: usize, indexes: &[BundledIndex], segments: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let indexes: Vec<(u64, u64)> = indexes.iter().map(|index| (index.offset, index.length)).collect();
    let all = joined([&indexes[..], &segments].concat());
    if all.len() <= most {
        return all;
    }
    let mut first = joined(indexes);
    first.truncate(most);
    let left = most - first.len();
    first.extend(segments.into_iter().take(left));
    joined(first)
}

fn is_in(pieces: &[(u64, u64)], index: &BundledIndex) -> bool {
    let after = pieces.partition_point(|(offset, _)| *offset <= index.offset);
    let piece = after.checked_sub(1).and_then(|place| pieces.get(place));
    piece.is_some_and(|(offset, length)| index.end() <= offset.saturating_add(*length))
}

/// A layer of a recording, on the host.
enum Layer<'a> {
    Absent,
    /// It is there by the recording's index.
    Held(&'a HeldLayer),
    /// It is there by another index.
    Other,
}

impl<'a> Layer<'a> {
    fn of(layer: &RecordedLayer, held: &'a BTreeMap<Digest, HeldLayer>) -> Self {
        match held.get(&layer.layer) {
            None => Self::Absent,
            Some(held) if held.index == layer.index => Self::Held(held),
            Some(_) => Self::Other,
        }
    }
}

/// Where one zone carries the indexes of layers that the host does not have, ascending: the zone that has most of them, of equals the one
/// that the first pages are in. A host asks for them in this way.
fn of_one_zone(recording: &Recording, layers: &[Layer<'_>], first: Option<u16>) -> Vec<BundledIndex> {
    let is_absent = |index: &&BundledIndex| {
        let layer = layers.get(usize::from(index.layer));
        matches!(layer, Some(Layer::Absent))
    };
    let mut of_zones: BTreeMap<u16, Vec<BundledIndex>> = BTreeMap::new();
    for index in recording.indexes.iter().filter(is_absent) {
        of_zones.entry(index.zone).or_default().push(*index);
    }
    let best = of_zones
        .into_iter()
        .max_by_key(|(zone, indexes)| (indexes.len(), Some(*zone) == first));
    let mut best = best.map(|(_, indexes)| indexes).unwrap_or_default();
    best.sort_by_key(|index| index.offset);
    let mut seen = HashSet::new();
    best.retain(|index| seen.insert(index.layer));
    let end = best.iter().map(BundledIndex::end).max();
    let begin = best.first().map(|index| index.offset);
    match end.zip(begin) {
        Some((end, begin)) if end - begin <= MAX_INDEXES => best,
        _ => Vec::new(),
    }
}

/// The same pieces, ascending; those that touch or overlap are one.
fn joined(mut pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pieces.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(pieces.len());
    for (offset, length) in pieces.into_iter().filter(|(_, length)| *length > 0) {
        match joined.last_mut() {
            Some((first, before)) if offset <= first.saturating_add(*before) => {
                let end = offset.saturating_add(length);
                *before = (*before).max(end - *first);
            }
            _ => joined.push((offset, length)),
        }
    }
    joined
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "pages that are held are a list of ranges, be it of one"
)]
mod tests {
    use std::ops::Range;

    use xebec_format::runtime_image::{SeenRun, Segment, SegmentDigest, ServiceKey};

    use super::*;
    use crate::runs::PageRuns;

    fn layer(number: u8) -> RecordedLayer {
        RecordedLayer {
            layer: Digest::of(&[number]),
            index: Digest::of(&[number, 1]),
            data_size: 100 * 4096,
        }
    }

    fn run(layer: u16, pages: Range<u64>) -> PageRun {
        PageRun {
            layer,
            first: pages.start,
            pages: (pages.end - pages.start) as u32,
        }
    }

    /// Layers 0 to 2. Zone 0 has the indexes of layers 0 and 1 and then pages 0..10 of each layer; zone 1 has the index of layer 0, and
    /// pages 10..20 of layer 0 in two segments with a gap between.
    fn recording() -> Recording {
        let zone = |number: u8| Zone {
            digest: Digest::of(&[number, 2]),
            size: 1000,
        };
        let segment = |zone, offset, pages| Segment {
            zone,
            offset,
            length: 10,
            digest: SegmentDigest::Sha256(Digest::of(b"")),
            runs: vec![pages],
        };
        let index = |layer, zone, offset| BundledIndex {
            layer,
            zone,
            offset,
            length: 20,
        };
        Recording {
            image: Digest::of(b"image"),
            layers: vec![layer(0), layer(1), layer(2)],
            services: Vec::new(),
            zeros: vec![run(2, 50..60)],
            zones: vec![zone(0), zone(1)],
            segments: vec![
                segment(0, 40, run(0, 0..10)),
                segment(0, 50, run(1, 0..10)),
                segment(0, 60, run(2, 0..10)),
                segment(1, 20, run(0, 10..15)),
                segment(1, 40, run(0, 15..20)),
            ],
            indexes: vec![index(1, 0, 20), index(0, 0, 0), index(0, 1, 0)],
        }
    }

    fn service(touched: &[PageRun]) -> Service {
        let touched = touched.iter().map(|run| SeenRun { run: *run, seen: 1 });
        Service {
            key: ServiceKey {
                argv: Vec::new(),
                env: BTreeMap::new(),
            },
            probe: String::new(),
            recorded: 0,
            runs: 1,
            recorder: String::new(),
            touched: touched.collect(),
        }
    }

    fn held(number: u8, pages: Vec<Range<u64>>) -> (Digest, HeldLayer) {
        let index = layer(number).index;
        let pages = PageRuns::new(pages);
        (layer(number).layer, HeldLayer { index, pages })
    }

    fn pieces(touched: &[PageRun], held: &[(Digest, HeldLayer)]) -> (Vec<Vec<(u64, u64)>>, usize) {
        let held = held.iter().cloned().collect();
        let lacking = lacking(&recording(), &service(touched), &held);
        let zones = lacking.zones.into_iter().map(|zone| zone.pieces).collect();
        (zones, lacking.indexed.len())
    }

    #[test]
    fn a_host_that_holds_nothing_lacks_indexes_and_all_pages() {
        let all = [run(0, 0..20), run(1, 0..10), run(2, 0..10), run(2, 50..60)];
        let (zones, indexed) = pieces(&all, &[]);
        assert_eq!(zones, [vec![(0, 70)], vec![(20, 10), (40, 10)]]);
        assert_eq!(indexed, 2, "no zone has the third");
        let (zones, _) = pieces(&[run(1, 3..4)], &[]);
        assert_eq!(zones, [vec![(0, 40), (50, 10)]], "only what the service reads");
    }

    #[test]
    fn what_is_held_is_left_out() {
        let all = [run(0, 0..20), run(1, 0..10)];
        let (zones, indexed) = pieces(&all, &[held(1, vec![0..10])]);
        assert_eq!(zones, [vec![(0, 20), (40, 10)], vec![(20, 10), (40, 10)]]);
        assert_eq!(indexed, 1);
        let (zones, _) = pieces(&all, &[held(1, vec![0..9])]);
        assert!(
            zones[0].contains(&(40, 20)),
            "one of its pages is missing: {zones:?}"
        );
        let (zones, indexed) = pieces(&all, &[held(0, vec![0..15]), held(1, vec![0..10])]);
        assert_eq!((zones, indexed), (vec![vec![(40, 10)]], 0));
        let whole = [held(0, vec![0..100]), held(1, vec![0..100]), held(2, vec![])];
        assert_eq!(pieces(&all, &whole), (Vec::new(), 0));
    }

    #[test]
    fn a_layer_that_is_there_by_another_index_gets_nothing() {
        let (digest, mut other) = held(0, Vec::new());
        other.index = Digest::of(b"other");
        let (zones, indexed) = pieces(&[run(0, 0..20), run(1, 0..10)], &[(digest, other)]);
        assert_eq!((zones, indexed), (vec![vec![(20, 20), (50, 10)]], 1));
    }

    #[test]
    fn the_zone_of_the_indexes_comes_first() {
        let only = [held(1, vec![0..100]), held(2, Vec::new())];
        let lacking = lacking(
            &recording(),
            &service(&[run(0, 15..20), run(2, 0..10)]),
            &only.into_iter().collect(),
        );
        // Either zone has the index; the first page is in the first zone.
        let zones: Vec<_> = lacking.zones.iter().map(|zone| &zone.pieces[..]).collect();
        assert_eq!(zones, [&[(0, 20), (60, 10)][..], &[(40, 10)]]);
        let (zones, _) = pieces(&[run(0, 15..20)], &[held(1, vec![0..100])]);
        assert_eq!(zones, [vec![(0, 20), (40, 10)]], "now it is in the second");
    }

    #[test]
    fn indexes_are_sent_before_segments() {
        let index = |offset| BundledIndex {
            layer: 0,
            zone: 0,
            offset,
            length: 20,
        };
        let segments = vec![(0, 10), (20, 10), (300, 10)];
        let all = within(4, &[index(100), index(200)], segments.clone());
        assert_eq!(all, [(0, 10), (20, 10), (100, 20), (200, 20)]);
        let first = within(1, &[index(100), index(200)], segments.clone());
        assert_eq!(first, [(100, 20)]);
        assert!(is_in(&first, &index(100)) && !is_in(&first, &index(200)) && !is_in(&first, &index(90)));
        assert_eq!(within(5, &[index(100), index(120)], segments).len(), 4);
    }

    #[test]
    fn pieces_of_a_recording_that_says_a_thing_twice_do_not_overlap() {
        assert_eq!(
            joined(vec![(10, 5), (0, 0), (0, 12), (20, 1)]),
            [(0, 15), (20, 1)]
        );
        assert_eq!(joined(vec![(5, 1), (0, 100)]), [(0, 100)]);
    }
}
