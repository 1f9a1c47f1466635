//! Start-up pages brought into the page cache of a view's own files before they are read.
//!
//! A page that has come is in the layer's data file; the first read of it through the view copies it into the page cache of the
//! view's file, a page at a time, since a view reads nothing ahead while its service starts. That is some 6 µs for each page,
//! and what is in the cache already is mapped 16 pages at a time. Most of a start runs on one processor, so another has the
//! time to do it beforehand: a start of 1,500 pages is 7 ms shorter.
//!
//! What was put there can no longer be told from what the service read, so a sample of the pages is **left out**
//! ([`left_out`]): by them it is estimated how much of a recording is read. Starts that learn, and recordings, are as they
//! were: their views are not populated.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use tokio::sync::mpsc;
use tracing::debug;
use xebec_format::PAGE_SIZE;

use crate::page_set::PageSet;
use crate::worker::background::run_without_turn;
use crate::worker::requests::Requests;
use crate::worker::view_tree::{ViewTree, open_below};

/// Recordings of fewer pages are not worth it, and a sample of them would say too little.
const FEWEST: u64 = 512;
/// Pages that are left out, about. Of a recording of which 5 % are not read they tell 2 to 8 %.
const SAMPLE: u64 = 64;
/// At most one of so many is.
const ONE_OF: u64 = 16;
/// Pages that are asked for at a time. The kernel cuts what is more short, without a word, at what the file system's
/// device transfers at once (`force_page_cache_ra`, mm/readahead.c), which is 128 KiB.
const AT_ONCE: u64 = 32;

/// The pages of a set that are not to be brought, so that it is seen whether they are read. Always the same of the same set.
fn left_out(pages: &PageSet) -> PageSet {
    let one_of = ONE_OF.max(pages.count() / SAMPLE);
    // Neither neighbours nor multiples of a number: files are read in patterns.
    let is_left_out = |page: u64| (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(one_of);
    let mut sample = PageSet::default();
    for (key, runs) in pages.layers() {
        let left = runs.iter().cloned().flatten().filter(|page| is_left_out(*page));
        sample.insert(key, left.map(|page| page..page + 1).collect());
    }
    sample
}

/// A view that is being populated.
pub(super) struct Populating {
    view: String,
    root: PathBuf,
    tree: ViewTree,
    left_out: PageSet,
}

/// What was brought into the page cache of a view's files.
#[derive(Clone, Debug, Default)]
pub struct Populated {
    /// These pages, whether or not somebody reads them.
    pub brought: PageSet,
    /// The sample of them that was left out.
    pub left_out: PageSet,
}

impl Populated {
    /// That, too.
    pub(super) fn add(&mut self, more: &Self) {
        self.brought.add(&more.brought);
        self.left_out.add(&more.left_out);
    }
}

impl Populating {
    /// For a view that was just mounted at `root`, with these free pages; `None` if there are too few.
    pub(super) fn new(view: &str, root: &Path, tree: &ViewTree, free: &PageSet) -> Option<Self> {
        (free.count() >= FEWEST).then(|| Self {
            view: view.to_owned(),
            root: root.to_owned(),
            tree: tree.clone(),
            left_out: left_out(free),
        })
    }
}

impl Requests {
    /// Brings sets of free pages into the page cache of a view's files, one after the other as they are told. Each must be
    /// there, and guarded no more.
    pub(super) fn populate(self: &Arc<Self>, populating: Populating) -> mpsc::UnboundedSender<Arc<PageSet>> {
        let (tell, mut told) = mpsc::unbounded_channel::<Arc<PageSet>>();
        let (this, populating) = (self.clone(), Arc::new(populating));
        tokio::spawn(async move {
            while let Some(pages) = told.recv().await {
                let (this, populating) = (this.clone(), populating.clone());
                let brought = run_without_turn(move || {
                    let populated = Populated {
                        brought: pages.without(&populating.left_out),
                        left_out: pages.and(&populating.left_out),
                    };
                    // Before: who looks meanwhile must not take them for read.
                    if this.views.note_populated(&populating.view, &populated) {
                        let is_held = || this.views.is_held(&populating.view);
                        let pages = &populated.brought;
                        populating.tree.populate(&populating.root, pages, is_held);
                    }
                });
                if let Err(failure) = brought.await {
                    debug!("start-up pages are not brought into memory: {failure}");
                }
            }
        });
        tell
    }
}

impl ViewTree {
    /// Brings pages into the page cache of the files that have them, of the view that is mounted at `root`. Blocks, and
    /// longer where they must come from a disk, but no longer than they are `wanted`. What goes wrong is no failure: pages
    /// come when they are read.
    fn populate(&self, root: &Path, pages: &PageSet, wanted: impl Fn() -> bool) {
        let parts = self.parts(pages);
        let paths = self.paths(parts.iter().map(|part| part.inode));
        let Ok(root) = std::fs::File::open(root) else {
            return;
        };
        for parts in parts.chunk_by(|one, other| one.inode == other.inode) {
            let path = parts.first().and_then(|part| paths.get(&part.inode));
            let Some(Ok(file)) = path.map(|path| open_below(&root, path)) else {
                continue;
            };
            if !wanted() {
                return;
            }
            for part in parts {
                let mut left = part.file_pages();
                while !left.is_empty() {
                    let end = left.end.min(left.start + AT_ONCE);
                    let length = NonZeroU64::new((end - left.start) * PAGE_SIZE);
                    if let Err(error) = fadvise(&file, left.start * PAGE_SIZE, length, Advice::WillNeed) {
                        return debug!("bring start-up pages into memory: {error}");
                    }
                    left.start = end;
                }
            }
        }
    }
}
