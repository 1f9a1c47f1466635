//! Segments of earlier recordings of an image that a new one goes on using, so that a registry keeps each page once
//! however many services read it.
//!
//! Nothing is taken from an earlier recording on trust: a segment is used again only if this host has all of its pages
//! and they have the segment's digest. And only if at least half of them are wanted, since a start fetches
//! segments whole.

use std::collections::{HashMap, HashSet};
use std::io;

use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::runtime_image::{PageRun, RecordedLayer, Recording, Segment, Service, Zone};

const PAGE: usize = PAGE_SIZE as usize;

/// A page, by the place of its layer in the new recording.
type Page = (u16, u64);

/// The zones and segments that are used again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reused {
    /// The zones; segments name them by their place here.
    pub zones: Vec<Zone>,
    /// The segments, ascending by zone and offset.
    pub segments: Vec<Segment>,
}

impl Reused {
    /// Chooses among the segments of `earlier` recordings. `layers` are those of the new recording and `touched` its
    /// pages. `read_page` fills in the bytes of a page, or says that it is not there.
    ///
    /// # Errors
    /// Those of `read_page`.
    pub(crate) fn choose(
        earlier: &[Recording],
        layers: &[RecordedLayer],
        touched: &HashSet<Page>,
        mut read_page: impl FnMut(Page, &mut [u8; PAGE]) -> io::Result<bool>,
    ) -> io::Result<Self> {
        let places: HashMap<LayerKey, u16> = (0u16..)
            .zip(layers)
            .map(|(number, layer)| (layer.into(), number))
            .collect();
        let mut reused = Self::default();
        let mut taken: HashSet<Page> = HashSet::new();
        for recording in earlier {
            for segment in &recording.segments {
                let Some(zone) = recording.zones.get(usize::from(segment.zone)) else {
                    continue;
                };
                let Some(runs) = renumbered(segment, recording, &places) else {
                    continue;
                };
                let pages: Vec<Page> = pages_of(&runs).collect();
                let wanted = pages.iter().filter(|page| touched.contains(page)).count();
                if wanted * 2 < pages.len()
                    || pages.iter().any(|page| taken.contains(page))
                    || !is_true(segment, &pages, &mut read_page)?
                {
                    continue;
                }
                taken.extend(pages);
                let segment = Segment {
                    zone: reused.number_of(zone),
                    runs,
                    ..segment.clone()
                };
                reused.segments.push(segment);
            }
        }
        reused
            .segments
            .sort_by_key(|segment| (segment.zone, segment.offset));
        Ok(reused)
    }

    /// The zones that pages of a service are in.
    pub(crate) fn zones_of(&self, service: &Service) -> HashSet<u16> {
        let runs: Vec<PageRun> = service.touched.iter().map(|seen| seen.run).collect();
        let touched: HashSet<Page> = pages_of(&runs).collect();
        let segments = self.segments.iter();
        let used = segments.filter(|segment| pages_of(&segment.runs).any(|page| touched.contains(&page)));
        used.map(|segment| segment.zone).collect()
    }

    /// The pages that are in its segments.
    pub(crate) fn pages(&self) -> HashSet<Page> {
        self.segments
            .iter()
            .flat_map(|segment| pages_of(&segment.runs))
            .collect()
    }

    /// Only those zones whose use leaves the pages of each service together: in one of them, or, as far as they are not
    /// zero, in none. Pages of one service in two zones would be two requests at each of its starts.
    ///
    /// # Errors
    /// Those of `read_page`.
    pub(crate) fn unless_spread(
        mut self,
        services: &[Service],
        mut read_page: impl FnMut(Page, &mut [u8; PAGE]) -> io::Result<bool>,
    ) -> io::Result<Self> {
        let mut bytes = [0; PAGE];
        loop {
            let segments = self.segments.iter();
            let zones: HashMap<Page, u16> = segments
                .flat_map(|segment| pages_of(&segment.runs).map(|page| (page, segment.zone)))
                .collect();
            let mut spread: HashSet<u16> = HashSet::new();
            for service in services {
                let runs: Vec<PageRun> = service.touched.iter().map(|seen| seen.run).collect();
                let mut used: HashSet<Option<u16>> = HashSet::new();
                for page in pages_of(&runs) {
                    let zone = zones.get(&page).copied();
                    // Zeros are in no zone at all.
                    let is_new = !used.contains(&zone);
                    if is_new && (zone.is_some() || !read_page(page, &mut bytes)? || bytes != [0; PAGE]) {
                        used.insert(zone);
                    }
                }
                if used.len() > 1 {
                    spread.extend(used.into_iter().flatten());
                }
            }
            if spread.is_empty() {
                return Ok(self);
            }
            self.remove_zones(&spread);
        }
    }

    fn remove_zones(&mut self, removed: &HashSet<u16>) {
        let mut left = Vec::new();
        let mut numbers: HashMap<u16, u16> = HashMap::new();
        for (number, zone) in (0u16..).zip(std::mem::take(&mut self.zones)) {
            if !removed.contains(&number) {
                numbers.insert(number, left.len() as u16);
                left.push(zone);
            }
        }
        self.zones = left;
        self.segments
            .retain_mut(|segment| match numbers.get(&segment.zone) {
                Some(number) => {
                    segment.zone = *number;
                    true
                }
                None => false,
            });
    }

    fn number_of(&mut self, zone: &Zone) -> u16 {
        let place = self
            .zones
            .iter()
            .position(|known| known == zone)
            .unwrap_or_else(|| {
                self.zones.push(*zone);
                self.zones.len() - 1
            });
        place as u16
    }
}

fn pages_of(runs: &[PageRun]) -> impl Iterator<Item = Page> + '_ {
    runs.iter()
        .flat_map(|run| (run.first..run.end()).map(move |page| (run.layer, page)))
}

/// A segment's runs with the layers' places in the new recording; `None` if it has a layer that is not in that.
fn renumbered(
    segment: &Segment,
    recording: &Recording,
    places: &HashMap<LayerKey, u16>,
) -> Option<Vec<PageRun>> {
    let renumber = |run: &PageRun| {
        let layer = recording.layers.get(usize::from(run.layer))?;
        let layer = *places.get(&layer.into())?;
        Some(PageRun { layer, ..*run })
    };
    segment.runs.iter().map(renumber).collect()
}

/// Whether the pages are all here, and are what the segment has.
fn is_true(
    segment: &Segment,
    pages: &[Page],
    read_page: &mut impl FnMut(Page, &mut [u8; PAGE]) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut plain = Vec::with_capacity(pages.len() * PAGE);
    let mut bytes = [0; PAGE];
    for page in pages {
        if !read_page(*page, &mut bytes)? {
            return Ok(false);
        }
        plain.extend_from_slice(&bytes);
    }
    Ok(segment.digest.like(&plain) == segment.digest)
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;
    use xebec_format::runtime_image::{SegmentDigest, lay_out};

    use super::*;

    const LAYERS: [&[u8]; 2] = [b"lower", b"upper"];

    fn layer(name: &[u8]) -> RecordedLayer {
        RecordedLayer {
            layer: Digest::of(name),
            index: Digest::of(b"index"),
            data_size: 1 << 30,
        }
    }

    /// Every page has contents of its own.
    fn read(layer: &RecordedLayer, page: u64, bytes: &mut [u8; PAGE]) {
        bytes.fill(1 + layer.layer.as_bytes()[0] % 100);
        bytes[..8].copy_from_slice(&page.to_le_bytes());
    }

    fn recording(layers: Vec<RecordedLayer>, pages: &[PageRun]) -> Recording {
        let read_page = |number: u16, page, bytes: &mut [u8; PAGE]| {
            read(&layers[usize::from(number)], page, bytes);
            Ok(())
        };
        let out = lay_out(&layers, 0, b"", pages.iter().copied(), &mut Vec::new(), read_page).unwrap();
        Recording {
            image: Digest::of(b"image"),
            layers,
            services: Vec::new(),
            zeros: out.zeros,
            zones: vec![out.zone],
            segments: out.segments,
            indexes: Vec::new(),
        }
    }

    fn run(layer: u16, first: u64, pages: u32) -> PageRun {
        PageRun { layer, first, pages }
    }

    #[test]
    fn segments_that_are_mostly_wanted_and_true() {
        // The earlier recording has the layers the other way round; four segments of 64 pages.
        let upside_down = vec![layer(LAYERS[1]), layer(LAYERS[0])];
        let earlier = recording(
            upside_down,
            &[run(0, 0, 64), run(1, 0, 64), run(1, 100, 64), run(1, 200, 64)],
        );
        let layers = LAYERS.map(layer);
        // All of the first, half of the second, less than half of the third, all of the fourth.
        let touched: HashSet<Page> =
            pages_of(&[run(1, 0, 64), run(0, 0, 32), run(0, 100, 31), run(0, 200, 64)]).collect();
        let reused = Reused::choose(
            &[earlier.clone(), earlier.clone()],
            &layers,
            &touched,
            |(number, page), bytes| {
                read(&layers[usize::from(number)], page, bytes);
                // One page of the fourth is not what it was.
                bytes[100] ^= u8::from(page == 210);
                Ok(true)
            },
        );
        let reused = reused.unwrap();
        assert_eq!(reused.zones, earlier.zones, "each zone once");
        let runs: Vec<_> = reused
            .segments
            .iter()
            .map(|segment| segment.runs.clone())
            .collect();
        assert_eq!(runs, [vec![run(1, 0, 64)], vec![run(0, 0, 64)]]);
        assert_eq!(reused.pages().len(), 128);
        let absent = Reused::choose(&[earlier], &layers, &touched, |_, _| Ok(false)).unwrap();
        assert_eq!(absent, Reused::default());
    }

    #[test]
    fn digests_of_before_are_compared_and_kept() {
        let mut earlier = recording(LAYERS.map(layer).to_vec(), &[run(0, 0, 64), run(0, 100, 64)]);
        for (number, segment) in earlier.segments.iter_mut().enumerate() {
            let mut plain = vec![0; 64 * PAGE];
            let pages = plain.chunks_exact_mut(PAGE).zip(pages_of(&segment.runs));
            pages.for_each(|(bytes, (_, page))| read(&layer(LAYERS[0]), page, bytes.try_into().unwrap()));
            // The second is that of other pages.
            plain[0] ^= number as u8;
            segment.digest = SegmentDigest::Sha256(Digest::of(&plain));
        }
        let layers = LAYERS.map(layer);
        let touched: HashSet<Page> = pages_of(&[run(0, 0, 64), run(0, 100, 64)]).collect();
        let reused = Reused::choose(
            std::slice::from_ref(&earlier),
            &layers,
            &touched,
            |(number, page), bytes| {
                read(&layers[usize::from(number)], page, bytes);
                Ok(true)
            },
        );
        assert_eq!(reused.unwrap().segments, earlier.segments[..1]);
    }

    #[test]
    fn a_service_is_never_spread_over_zones() {
        let layers = LAYERS.map(layer);
        let names = [b"one", b"two", b"six"];
        let segment = |zone: u16, first: u64| Segment {
            zone,
            offset: 0,
            length: 9,
            digest: SegmentDigest::of(&first.to_le_bytes()),
            runs: vec![run(0, first, 64)],
        };
        let all = || Reused {
            zones: names
                .map(|name| Zone {
                    digest: Digest::of(name),
                    size: 9,
                })
                .to_vec(),
            segments: vec![segment(0, 0), segment(1, 100), segment(2, 200)],
        };
        let service = |runs: &[PageRun]| Service {
            key: xebec_format::runtime_image::ServiceKey {
                argv: vec!["x".to_owned()],
                env: Default::default(),
            },
            probe: String::new(),
            recorded: 0,
            runs: 1,
            recorder: String::new(),
            touched: runs
                .iter()
                .map(|run| xebec_format::runtime_image::SeenRun { run: *run, seen: 1 })
                .collect(),
        };
        let left = |services: &[&[PageRun]]| {
            let services: Vec<Service> = services.iter().map(|runs| service(runs)).collect();
            let kept = all().unless_spread(&services, |(number, page), bytes| {
                read(&layers[usize::from(number)], page, bytes);
                if page >= 1000 {
                    bytes.fill(0);
                }
                Ok(true)
            });
            let kept = kept.unwrap();
            let zones = kept
                .segments
                .iter()
                .map(|segment| &kept.zones[usize::from(segment.zone)]);
            let names = zones.map(|zone| names.iter().position(|name| Digest::of(*name) == zone.digest));
            let found: Vec<usize> = names.map(Option::unwrap).collect();
            assert_eq!(found.len(), kept.zones.len());
            found
        };
        assert_eq!(
            left(&[&[run(0, 0, 64)], &[run(0, 100, 9)], &[run(0, 210, 9)]]),
            [0, 1, 2]
        );
        assert_eq!(
            left(&[&[run(0, 0, 64), run(0, 1000, 9)]]),
            [0, 1, 2],
            "zeros are nowhere"
        );
        assert_eq!(left(&[&[run(0, 0, 64), run(0, 100, 1)]]), [2], "in two zones");
        assert_eq!(
            left(&[&[run(0, 100, 9), run(0, 99, 1)]]),
            [0, 2],
            "in one and in none"
        );
        // The first is spread over two zones; without these the second is.
        let chain: [&[PageRun]; 2] = [&[run(0, 150, 1), run(0, 200, 1)], &[run(0, 0, 1), run(0, 150, 2)]];
        assert!(left(&chain).is_empty());
    }
}
