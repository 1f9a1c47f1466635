//! Which pages of a view were read, by what of its files is in the page cache.
//!
//! A view that was mounted for a start reads nothing ahead at first, and its file system is new. So the page cache of its files has
//! the pages that were read of them, by events or not, and those that were put there (`prefill`). Only files that have
//! the pages in question are opened, and none is read: looking costs some 0.3 µs for a run of pages that were all read, or of
//! which none was.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use tracing::debug;
use xebec_fill::page_set::PageSet;
use xebec_format::PAGE_SIZE;
use xebec_format::image::InodeId;
use xebec_kernel::page_cache::cached;

use crate::view_tree::{ViewTree, open_below};

/// Which pages were read.
#[derive(Debug, Default)]
pub struct Touched {
    /// The pages that were read.
    pub pages: PageSet,
    /// The pages that were asked about and could be looked for: the view has them in a file.
    pub looked_for: PageSet,
}

impl Touched {
    /// The same facts about all pages but these.
    pub fn without(&self, pages: &PageSet) -> Self {
        Self {
            pages: self.pages.without(pages),
            looked_for: self.looked_for.without(pages),
        }
    }
}

impl ViewTree {
    /// Which of the pages were read through the view that is mounted at `root`. Blocks, for as long as opening the files
    /// that have them takes. `None` if they are more files than the limit.
    pub fn touched(&self, root: &Path, pages: &PageSet, limit: usize) -> Option<Touched> {
        let parts = self.parts(pages);
        let files = parts.chunk_by(|one, other| one.inode == other.inode).count();
        if files > limit {
            return None;
        }
        let paths = self.paths(parts.iter().map(|part| part.inode));
        let (mut read, mut looked_for) = (Vec::new(), Vec::new());
        let open = |inode: InodeId| {
            let path = paths.get(&inode)?;
            let file = std::fs::File::open(root).and_then(|root| open_below(&root, path));
            let failed = |error: &std::io::Error| debug!("{}: {error}", String::from_utf8_lossy(path));
            file.inspect_err(failed).ok()
        };
        let mut current: Option<(InodeId, Option<File>)> = None;
        for part in parts {
            if current.as_ref().is_none_or(|(inode, _)| *inode != part.inode) {
                current = Some((part.inode, open(part.inode)));
            }
            let Some((_, Some(file))) = &current else { continue };
            let mut seen = Vec::new();
            if look(file, part.file_pages(), &mut seen).is_err() {
                continue;
            }
            let in_layer = |page: u64| part.pages.start + (page - part.file_page);
            let seen = seen
                .into_iter()
                .map(|run: Range<u64>| (part.key, in_layer(run.start)..in_layer(run.end)));
            read.extend(seen);
            looked_for.push((part.key, part.pages));
        }
        Some(Touched {
            pages: read.into_iter().collect(),
            looked_for: looked_for.into_iter().collect(),
        })
    }
}

/// Adds those pages of a file's range that were read, in ascending runs: the range is halved until all or none were.
fn look(file: &File, pages: Range<u64>, seen: &mut Vec<Range<u64>>) -> std::io::Result<()> {
    let counted = cached(file, pages.start * PAGE_SIZE..pages.end * PAGE_SIZE)?;
    // Pages that were evicted since were read as well.
    let read = counted.pages + counted.evicted;
    let length = pages.end - pages.start;
    if read >= length {
        match seen.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => seen.push(pages),
        }
    } else if read > 0 {
        let middle = pages.start + length / 2;
        look(file, pages.start..middle, seen)?;
        look(file, middle..pages.end, seen)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "single runs are what this is about"
)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::view_tree::tests::{key, set, view};

    #[test]
    fn what_was_read_is_told_from_what_was_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        let file = File::create(dir.path().join("dir/file")).unwrap();
        file.set_len(4 * PAGE_SIZE).unwrap();
        // A write puts a page into the cache as a read does, and makes no others come.
        file.write_all_at(&[1; 4096], 2 * PAGE_SIZE).unwrap();
        let wanted = set(key(1), &[0..99]);
        let touched = view().touched(dir.path(), &wanted, 1).unwrap();
        assert_eq!(touched.looked_for, set(key(1), &[10..14]));
        assert_eq!(touched.pages, set(key(1), &[12..13]));
        let touched = view().touched(&dir.path().join("dir"), &wanted, 1).unwrap();
        assert!(touched.looked_for.is_empty(), "there is no such file");
        assert!(view().touched(dir.path(), &wanted, 0).is_none());
    }
}
