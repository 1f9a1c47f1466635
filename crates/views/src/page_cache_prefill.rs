//! Start-up pages brought into the page cache of a view's own files before they are read.
//!
//! A page that has come is in the layer's data file. The first read of it through the view copies it into the page cache of the
//! view's file, a page at a time, since a view reads nothing ahead while its service starts. That is some 6 µs for each page,
//! and pages that are in the cache already are mapped 16 at a time. Most of a start runs on one processor, so another has the
//! time to do it beforehand: a start of 1,500 pages is 7 ms shorter.
//!
//! Prefilled pages can no longer be told from those that the service read, so a sample of the pages is **left out**
//! (`is_left_out`): by them it is estimated how much of a recording is read. Starts that learn, and recordings, are as they
//! were: their views are not prefilled.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use rustix::fs::{Advice, fadvise};
use tracing::debug;
use xebec_fill::page_set::{PageSet, common};
use xebec_format::PAGE_SIZE;

use crate::view_tree::{FilePart, ViewTree, open_below};
use crate::views::{PrefillNote, Prefilled, Views};

/// Recordings of fewer pages are not worth it, and a sample of them would say too little.
const FEWEST: u64 = 512;
/// More than that is left to the readers: 256 MiB may be more than the host has to spare.
const MOST: u64 = 1 << 16;
/// Pages that are left out, about, but fewer of small recordings. Of a recording of which 5 % are not read they tell 0 to
/// 10 % (two standard deviations).
const SAMPLE: u64 = 64;
/// At most one of so many is.
const ONE_OF: u64 = 16;
/// Pages that are asked for at a time. The kernel silently cuts a larger request short at the size that the file system's
/// device transfers at once (`force_page_cache_ra`, mm/readahead.c), which is 128 KiB.
const AT_ONCE: u64 = 32;

/// Whether a page is one that is not brought, so that it is seen whether it is read. Always the same ones, spread without a
/// pattern (by the finalizer of SplitMix64), since files are read in patterns.
fn is_left_out(page: u64, one_of: u64) -> bool {
    let mut mixed = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).is_multiple_of(one_of)
}

/// A view whose page cache is being filled.
pub struct Prefill {
    view: String,
    root: PathBuf,
    tree: ViewTree,
    note: PrefillNote,
    /// One of so many pages is left out.
    one_of: u64,
}

impl Prefill {
    /// Of the view of that name and tree, which was just mounted at `root`, with these start-up pages. `None` if it is not mounted, or
    /// if they are too few or too many.
    pub fn new(views: &Views, view: &str, root: &Path, tree: &ViewTree, free: &PageSet) -> Option<Self> {
        let count = free.count();
        let note = views.prefill_note(view)?;
        (FEWEST..=MOST).contains(&count).then(|| Self {
            view: view.to_owned(),
            root: root.to_owned(),
            tree: tree.clone(),
            note,
            one_of: ONE_OF.max(count / SAMPLE),
        })
    }

    /// Brings some of the start-up pages into the page cache, as long as somebody holds the view. Each must be there, and guarded no
    /// more. Blocks.
    pub fn bring(&self, views: &Views, pages: &PageSet) {
        let (parts, prefilled) = self.choose(pages);
        // Before: a query meanwhile must not take them for read.
        if views.note_prefilled(&self.view, &self.note, &prefilled) {
            let is_held = || views.is_held(&self.view, &self.note);
            bring(&self.tree, &self.root, &parts, &prefilled.brought, is_held);
        }
    }

    /// The pages of a set that the view reaches, and where, apart from the sample of them.
    fn choose(&self, pages: &PageSet) -> (Vec<FilePart>, Prefilled) {
        let parts = self.tree.parts(pages);
        let reached: PageSet = parts.iter().map(|part| (part.key, part.pages.clone())).collect();
        let pages = reached
            .layers()
            .flat_map(|(key, runs)| runs.iter().cloned().flatten().map(move |page| (key, page)));
        let sample = pages.filter(|(_, page)| is_left_out(*page, self.one_of));
        let left_out: PageSet = sample.map(|(key, page)| (key, page..page + 1)).collect();
        let brought = reached.without(&left_out);
        (parts, Prefilled { brought, left_out })
    }
}

/// Brings those of the pages into the page cache that parts of files have, of the view that is mounted at `root`. Blocks, and
/// longer where they must come from a disk, but no longer than they are `wanted`. An error is no failure: pages come
/// when they are read.
fn bring(tree: &ViewTree, root: &Path, parts: &[FilePart], pages: &PageSet, wanted: impl Fn() -> bool) {
    for_each_file(tree, root, parts, |file, part| {
        for run in common(from_ref(&part.pages), pages.runs(part.key)) {
            let mut at = run.start;
            while at < run.end {
                if !wanted() {
                    return false;
                }
                let end = run.end.min(at + AT_ONCE);
                ask_for(file, part, at..end);
                at = end;
            }
        }
        true
    });
}

/// Takes the files that have pages out of the page cache, of the view that is mounted at `root`, so that they are read again
/// from the layer, except for mapped pages. Whole files, since the kernel keeps a folio that is larger than the range
/// (`find_lock_entries`, mm/filemap.c). Blocks.
pub fn forget(tree: &ViewTree, root: &Path, pages: &PageSet) {
    let parts = tree.parts(pages);
    for_each_file(tree, root, &parts, |file, part| {
        if let Err(error) = fadvise(file, 0, None, Advice::DontNeed) {
            debug!("cannot remove wrong pages of {} from memory: {error}", part.key);
        }
        true
    });
}

/// Goes through parts, which are in the order of their files, with the file that each is of, until it is told not to go on.
fn for_each_file(
    tree: &ViewTree,
    root: &Path,
    parts: &[FilePart],
    mut step: impl FnMut(&File, &FilePart) -> bool,
) {
    let paths = tree.paths(parts.iter().map(|part| part.inode));
    let Ok(root) = File::open(root) else { return };
    for parts in parts.chunk_by(|one, other| one.inode == other.inode) {
        let path = parts.first().and_then(|part| paths.get(&part.inode));
        let Some(Ok(file)) = path.map(|path| open_below(&root, path)) else {
            continue;
        };
        if !parts.iter().all(|part| step(&file, part)) {
            return;
        }
    }
}

/// Asks the kernel for pages of a part, which are counted in the layer.
fn ask_for(file: &File, part: &FilePart, pages: std::ops::Range<u64>) {
    let first = part.file_page + (pages.start - part.pages.start);
    let length = NonZeroU64::new((pages.end - pages.start) * PAGE_SIZE);
    if let Err(error) = fadvise(file, first * PAGE_SIZE, length, Advice::WillNeed) {
        debug!(
            "pages {pages:?} of {} are not brought into memory: {error}",
            part.key
        );
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "single runs are what this is about"
)]
mod tests {
    use super::*;
    use crate::view_tree::tests::{key, set, view};

    #[test]
    fn the_sample_is_as_large_as_is_said_and_has_no_pattern() {
        for one_of in [16, 17, 64, 1000] {
            let left: Vec<u64> = (0..200_000).filter(|page| is_left_out(*page, one_of)).collect();
            let expected = 200_000 / one_of;
            // Four standard deviations of as many tosses of a coin.
            let spread = 4 * expected.isqrt();
            assert!(
                (left.len() as u64).abs_diff(expected) < spread,
                "{one_of}: {}",
                left.len()
            );
            // In each place of what the kernel reads ahead, of a page table's block, and of a segment.
            for period in [16, 32, 64] {
                let mut places = vec![0_u64; period];
                left.iter().for_each(|page| places[*page as usize % period] += 1);
                let mean = left.len() as u64 / period as u64;
                let spread = 5 * (mean.isqrt() + 1);
                assert!(
                    places.iter().all(|count| count.abs_diff(mean) < spread),
                    "{one_of}: {places:?}"
                );
            }
        }
    }

    #[test]
    fn what_the_view_does_not_reach_is_not_said_to_be_brought() {
        let prefill = Prefill {
            view: String::new(),
            root: PathBuf::new(),
            tree: view(),
            note: PrefillNote::default(),
            one_of: 3,
        };
        // Of these pages the view has four of the first layer, and none of the second.
        let mut asked = set(key(1), &[0..40]);
        asked.add(&set(key(2), &[10..14]));
        let (parts, Prefilled { brought, left_out }) = prefill.choose(&asked);
        assert_eq!(parts.len(), 3);
        let mut reached = brought.clone();
        reached.add(&left_out);
        assert_eq!(reached, set(key(1), &[10..14]));
        assert!(brought.and(&left_out).is_empty() && !brought.is_empty() && !left_out.is_empty());
    }
}
