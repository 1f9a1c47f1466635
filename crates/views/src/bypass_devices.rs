//! Start-up pages: pages of a layer that are present when a view is built, or on their way, and that the view reaches by a *bypass
//! device*, a second device on the layer's data file that is not guarded. Reading them raises no event; an event costs about 45 µs
//! even where there is nothing to do, which doubles the start of a program that touches ten thousand pages.
//!
//! Reads of a bypass device raise no event, so a view may reach a page by one only if the page is present, and stays so while the
//! view is mounted: layers of mounted views lose no pages. Those that are on their way when a view is mounted come in *parts*,
//! in the order in which they are touched. Each part has devices of its own, opened through a mount of the cache that is the
//! view's own and guarded until all of the part is there ([`crate::views::Views::arrived`]). So a service that has
//! begun reads the first parts without events while the last are still coming. If some pages never come, the guard of
//! their part stays.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::image::{FileExtent, ImageTree};

use xebec_fill::page_set::{PageSet, common};

/// Pages in a part, but for the last: one costs a mount, a mark, and a device for each layer, some 0.4 ms, as ten events do.
const PART: u64 = 1024;
/// Parts, at most.
const MOST_PARTS: u64 = 8;

/// A mount of the blob cache that is a view's own, and guarded until a part of its start-up pages is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arriving {
    /// Where it is.
    pub mount: PathBuf,
    /// They are, so it is guarded no more.
    pub over: bool,
    /// These, until they are there. Not known to a worker that did not make the view.
    #[serde(skip)]
    pub pages: Option<Arc<PageSet>>,
}

/// Takes `pages` apart into parts, in the order in which they are `touched`.
pub fn parts(touched: impl Iterator<Item = (LayerKey, Range<u64>)>, pages: &PageSet) -> Vec<PageSet> {
    let size = PART.max(pages.count().div_ceil(MOST_PARTS));
    let mut parts = vec![BTreeMap::<LayerKey, Vec<Range<u64>>>::new()];
    let mut room = size;
    let wanted = touched.flat_map(|(key, run)| {
        let runs = common(&[run], pages.runs(key));
        runs.into_iter().map(move |run| (key, run))
    });
    for (key, mut run) in wanted {
        while !run.is_empty() {
            if room == 0 {
                parts.push(BTreeMap::new());
                room = size;
            }
            let end = run.end.min(run.start.saturating_add(room));
            let part = parts.last_mut().map(|part| part.entry(key).or_default());
            part.into_iter().for_each(|runs| runs.push(run.start..end));
            room -= end - run.start;
            run.start = end;
        }
    }
    let parts = parts.into_iter().map(|part| {
        let mut set = PageSet::default();
        part.into_iter().for_each(|(key, runs)| set.insert(key, runs));
        set
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Makes the tree's files reach start-up pages, in parts that have no page in common, by devices of their own, which are
/// appended to `devices` (each a layer and the size of its data space). Gives for each of these which part it is of.
///
/// Complete layers need none: all of their pages are free already.
pub fn redirect(
    parts: &[PageSet],
    tree: &mut ImageTree,
    devices: &mut Vec<(LayerKey, u64)>,
    is_complete: impl Fn(LayerKey) -> bool,
) -> Vec<usize> {
    let mut part_of = Vec::new();
    let mut free_of: BTreeMap<u16, Vec<(Range<u64>, u16)>> = BTreeMap::new();
    for (number, (key, size)) in devices.clone().into_iter().enumerate() {
        let Ok(guarded) = u16::try_from(number) else { break };
        if is_complete(key) {
            continue;
        }
        let mut free: Vec<(Range<u64>, u16)> = Vec::new();
        for (part, pages) in parts.iter().enumerate() {
            let (runs, Ok(device)) = (pages.runs(key), u16::try_from(devices.len())) else {
                break;
            };
            if !runs.is_empty() {
                devices.push((key, size));
                part_of.push(part);
                free.extend(runs.iter().map(|run| (run.clone(), device)));
            }
        }
        free.sort_unstable_by_key(|(run, _)| run.start);
        if !free.is_empty() {
            free_of.insert(guarded, free);
        }
    }
    tree.split_extents(|extent, pieces| match free_of.get(&extent.device) {
        Some(runs) => split(extent, runs, pieces),
        None => pieces.push(extent),
    });
    part_of
}

/// The pieces of an extent: by its own device, and where there are start-up pages (ascending and apart) by theirs.
fn split(extent: FileExtent, free: &[(Range<u64>, u16)], pieces: &mut Vec<FileExtent>) {
    let end = extent.data_offset + extent.length;
    let mut at = extent.data_offset;
    let mut piece = |from: u64, to: u64, device: u16| {
        if from < to {
            pieces.push(FileExtent {
                file_offset: extent.file_offset + (from - extent.data_offset),
                device,
                data_offset: from,
                length: to - from,
            });
        }
    };
    let first = free.partition_point(|(run, _)| run.end * PAGE_SIZE <= at);
    for (run, device) in free.iter().skip(first) {
        let (start, stop) = ((run.start * PAGE_SIZE).max(at), (run.end * PAGE_SIZE).min(end));
        if start >= end {
            break;
        }
        piece(at, start, extent.device);
        piece(start, stop, *device);
        at = at.max(stop);
    }
    piece(at, end, extent.device);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xebec_format::digest::Digest;
    use xebec_format::image::{Inode, InodeId, InodeKind};
    use xebec_format::layer::Metadata;

    use super::*;

    fn extent(file_offset: u64, data_offset: u64, length: u64) -> FileExtent {
        FileExtent {
            file_offset,
            device: 0,
            data_offset,
            length,
        }
    }

    #[test]
    fn a_file_with_a_free_page_in_the_middle() {
        let mut pieces = Vec::new();
        split(extent(0, 8192, 10000), &[(3..4, 1)], &mut pieces);
        let free = FileExtent {
            device: 1,
            ..extent(4096, 12288, 4096)
        };
        assert_eq!(pieces, [extent(0, 8192, 4096), free, extent(8192, 16384, 1808)]);
    }

    fn key(number: u8) -> LayerKey {
        LayerKey {
            layer: Digest::of(&[number]),
            index: Digest::of(b"index"),
        }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one run is what this is about")]
    fn parts_are_in_the_order_of_touching_and_have_each_page_once() {
        let size = 1024;
        // One long run, one before it, and one of which only a half is asked for.
        let touched = [(key(1), 5000..7500), (key(0), 0..10), (key(1), 0..600)];
        let mut pages = PageSet::default();
        pages.insert(key(1), vec![0..300, 5000..7500]);
        pages.insert(key(0), vec![0..10]);
        let parts = parts(touched.into_iter(), &pages);
        let counts: Vec<u64> = parts.iter().map(PageSet::count).collect();
        assert_eq!(counts, [size, size, 7500 - 5000 - 2 * size + 10 + 300]);
        assert_eq!(parts[0].runs(key(1)), [5000..6024]);
        assert_eq!(parts[2].runs(key(1)), [0..300, 7048..7500]);
        let mut all = PageSet::default();
        for layer in [key(0), key(1)] {
            let runs = parts.iter().flat_map(|part| part.runs(layer).to_vec());
            all.insert(layer, runs.collect());
        }
        assert_eq!(all, pages);
        let none = super::parts(std::iter::empty(), &PageSet::default());
        assert!(none.is_empty());
    }

    #[test]
    fn many_pages_have_as_many_parts_as_few_do() {
        let touched = || (0..50_000u64).map(|page| (key(0), page * 2..page * 2 + 1));
        let mut pages = PageSet::default();
        pages.insert(key(0), touched().map(|(_, run)| run).collect());
        assert_eq!(parts(touched(), &pages).len() as u64, MOST_PARTS);
        // Nor do pages count that the view does not reach so.
        let others = touched().flat_map(|(layer, run)| [(layer, run), (key(1), 0..5000)]);
        assert_eq!(parts(others, &pages).len() as u64, MOST_PARTS);
    }

    fn tree_of(extents: Vec<FileExtent>) -> ImageTree {
        let metadata = Metadata {
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            mtime_nanoseconds: 0,
            xattrs: Vec::new(),
        };
        let kind = InodeKind::File {
            size: extents.iter().map(|extent| extent.length).sum(),
            extents,
        };
        ImageTree {
            inodes: vec![Inode {
                metadata,
                links: 1,
                kind,
            }],
            root: InodeId(0),
        }
    }

    proptest! {
        /// Byte for byte: the same place in the same layer, by a device of the part that the page belongs to.
        #[test]
        fn every_byte_keeps_its_place(
            start in 0u64..20,
            length in 1u64..60_000,
            pages in prop::collection::btree_map((0u8..3, 0u64..40), 0usize..4, 0..60),
            complete in 0u8..4,
        ) {
            let parts: Vec<PageSet> = (0..4).map(|part| {
                let mut set = PageSet::default();
                for layer in 0..3 {
                    let of_it = pages.iter().filter(|((of, _), number)| *of == layer && **number == part);
                    set.insert(key(layer), of_it.map(|((_, page), _)| *page..page + 1).collect());
                }
                set
            }).collect();
            // A file in each of three layers, one after the other in this one.
            let whole: Vec<FileExtent> = (0u16..3).map(|device| FileExtent {
                file_offset: u64::from(device) << 20,
                device,
                data_offset: start * PAGE_SIZE,
                length,
            }).collect();
            let mut tree = tree_of(whole.clone());
            let mut devices: Vec<_> = (0..3).map(|layer| (key(layer), 1 << 20)).collect();
            let part_of = redirect(&parts, &mut tree, &mut devices, |other| other == key(complete));
            prop_assert_eq!(devices.len(), 3 + part_of.len());
            let InodeKind::File { extents, .. } = &tree.inodes[0].kind else { unreachable!() };
            let mut pieces = extents.iter();
            for whole in whole {
                let mut at = 0;
                while at < length {
                    let piece = pieces.next().unwrap();
                    prop_assert_eq!(piece.file_offset, whole.file_offset + at);
                    prop_assert_eq!(piece.data_offset, whole.data_offset + at);
                    prop_assert_eq!(devices[usize::from(piece.device)].0, key(whole.device as u8));
                    for byte in [piece.data_offset, piece.data_offset + piece.length - 1] {
                        let part = pages.get(&(whole.device as u8, byte / PAGE_SIZE));
                        let part = part.filter(|_| whole.device != u16::from(complete));
                        let by = usize::from(piece.device).checked_sub(3).map(|free| &part_of[free]);
                        prop_assert_eq!(by, part);
                    }
                    at += piece.length;
                }
                prop_assert_eq!(at, length);
            }
            prop_assert!(pieces.next().is_none());
        }
    }
}
