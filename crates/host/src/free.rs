//! Free pages: pages of a layer that are there when a view is built, or about to come, and that it reaches by a *free* device, which is
//! the layer's data file by its ordinary path. Reading them raises no event; an event costs about 45 µs even where
//! there is nothing to do, which doubles the start of a program that touches ten thousand pages.
//!
//! A free device is never asked about, so a page may be reached by one only if it is present, and stays so while the
//! view is mounted: layers of mounted views lose no pages. While some of them are on their way, all free devices are
//! opened through a mount of the cache that is the view's own and guarded; once all are there, the guard is taken off
//! ([`crate::worker::views::Views::arrived`]). If some never come, it stays.

use std::collections::BTreeMap;
use std::ops::Range;

use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::image::{FileExtent, ImageTree};

use crate::page_set::normal;

/// Which pages of which layers are free: runs of page numbers of the data space, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreePages(BTreeMap<LayerKey, Vec<Range<u64>>>);

impl FreePages {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds the pages of a layer, as runs in any order that may touch but not overlap.
    pub fn add(&mut self, key: LayerKey, runs: Vec<Range<u64>>) {
        let joined = normal(runs);
        if !joined.is_empty() {
            self.0.insert(key, joined);
        }
    }

    /// All layers that have some, with their runs.
    pub fn layers(&self) -> impl Iterator<Item = (LayerKey, &[Range<u64>])> {
        self.0.iter().map(|(key, runs)| (*key, runs.as_slice()))
    }

    /// Those of a layer.
    pub fn runs(&self, key: LayerKey) -> &[Range<u64>] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.values().flatten().map(|run| run.end - run.start).sum()
    }

    /// Makes the tree's files reach their free pages by devices of their own, which are appended to `devices` (each a
    /// layer and the size of its data space). Gives the number of the first of them.
    ///
    /// Complete layers need none: all of their pages are free already.
    pub fn redirect(
        &self,
        tree: &mut ImageTree,
        devices: &mut Vec<(LayerKey, u64)>,
        is_complete: impl Fn(LayerKey) -> bool,
    ) -> usize {
        let first = devices.len();
        let mut free_of: BTreeMap<u16, (u16, &[Range<u64>])> = BTreeMap::new();
        for (number, (key, size)) in devices.clone().into_iter().enumerate() {
            let Some(runs) = self.0.get(&key).filter(|_| !is_complete(key)) else {
                continue;
            };
            let (Ok(guarded), Ok(free)) = (u16::try_from(number), u16::try_from(devices.len())) else {
                break;
            };
            devices.push((key, size));
            free_of.insert(guarded, (free, runs));
        }
        tree.split_extents(|extent, parts| match free_of.get(&extent.device) {
            Some((free, runs)) => split(extent, *free, runs, parts),
            None => parts.push(extent),
        });
        first
    }
}

/// The parts of an extent, alternately by its own device and by the device `free`.
fn split(extent: FileExtent, free: u16, runs: &[Range<u64>], parts: &mut Vec<FileExtent>) {
    let end = extent.data_offset + extent.length;
    let mut at = extent.data_offset;
    let mut part = |from: u64, to: u64, device: u16| {
        if from < to {
            parts.push(FileExtent {
                file_offset: extent.file_offset + (from - extent.data_offset),
                device,
                data_offset: from,
                length: to - from,
            });
        }
    };
    let first = runs.partition_point(|run| run.end * PAGE_SIZE <= at);
    for run in runs.iter().skip(first) {
        let (start, stop) = ((run.start * PAGE_SIZE).max(at), (run.end * PAGE_SIZE).min(end));
        if start >= end {
            break;
        }
        part(at, start, extent.device);
        part(start, stop, free);
        at = stop;
    }
    part(at, end, extent.device);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let mut parts = Vec::new();
        #[allow(clippy::single_range_in_vec_init, reason = "one run is what this is about")]
        split(extent(0, 8192, 10000), 1, &[3..4], &mut parts);
        let free = FileExtent {
            device: 1,
            ..extent(4096, 12288, 4096)
        };
        assert_eq!(parts, [extent(0, 8192, 4096), free, extent(8192, 16384, 1808)]);
    }

    proptest! {
        /// Byte for byte: the same place in the layer, by the device that the page belongs to.
        #[test]
        fn every_byte_keeps_its_place(
            start in 0u64..20,
            length in 1u64..60_000,
            pages in prop::collection::btree_set(0u64..40, 0..30),
        ) {
            let key = LayerKey {
                layer: xebec_format::digest::Digest::of(b"l"),
                index: xebec_format::digest::Digest::of(b"i"),
            };
            let mut free = FreePages::none();
            free.add(key, pages.iter().map(|page| *page..page + 1).collect());
            let runs = free.0.get(&key).cloned().unwrap_or_default();
            prop_assert_eq!(free.count(), pages.len() as u64);
            let whole = extent(4096, start * PAGE_SIZE, length);
            let mut parts = Vec::new();
            split(whole, 1, &runs, &mut parts);
            let mut at = 0;
            for part in parts {
                prop_assert_eq!(part.file_offset, whole.file_offset + at);
                prop_assert_eq!(part.data_offset, whole.data_offset + at);
                for byte in [part.data_offset, part.data_offset + part.length - 1] {
                    let is_free = pages.contains(&(byte / PAGE_SIZE));
                    prop_assert_eq!(part.device, u16::from(is_free));
                }
                at += part.length;
            }
            prop_assert_eq!(at, length);
        }
    }
}
