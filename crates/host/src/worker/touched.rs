//! Which pages of a view were read, by what of its files is in the page cache; and the names of files that have pages.
//!
//! A view that was mounted for a start reads nothing ahead at first, and its file system is new, so what is in the page
//! cache of its files is what was read of them, events or not. Only files that have the pages in question are opened, and
//! none is read: looking costs some 0.3 µs for a run of pages that were all read, or of which none was.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::image::{ImageTree, InodeId, InodeKind};
use xebec_kernel::page_cache::cached;

use crate::page_set::{PageSet, common};

/// A view's tree, and which layer each of its devices is of.
#[derive(Clone, Debug)]
pub struct ViewTree {
    /// The tree, its contents as ranges of devices.
    pub tree: Arc<ImageTree>,
    /// The layers, by the number of the device.
    pub devices: Vec<LayerKey>,
}

/// Neighbouring pages of a layer that are neighbouring pages of a file, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub inode: InodeId,
    /// Number of the first page in the file.
    pub file_page: u64,
    /// The layer.
    pub key: LayerKey,
    /// The pages in its data space.
    pub pages: Range<u64>,
}

/// Which pages were read.
#[derive(Debug, Default)]
pub struct Touched {
    /// Those that were.
    pub pages: PageSet,
    /// Those that were asked about and could be looked for: the view has them in a file.
    pub looked_for: PageSet,
}

impl ViewTree {
    /// Where files have the pages, in the order of inodes.
    pub fn parts(&self, pages: &PageSet) -> Vec<FilePart> {
        let mut parts = Vec::new();
        for (number, inode) in (0u32..).zip(&self.tree.inodes) {
            let InodeKind::File { extents, .. } = &inode.kind else {
                continue;
            };
            for extent in extents {
                let Some(&key) = self.devices.get(usize::from(extent.device)) else {
                    continue;
                };
                let first = extent.data_offset / PAGE_SIZE;
                let end = (extent.data_offset + extent.length).div_ceil(PAGE_SIZE);
                #[allow(clippy::single_range_in_vec_init, reason = "one run is what an extent is")]
                let here = common(&[first..end], pages.runs(key));
                parts.extend(here.into_iter().map(|run| FilePart {
                    inode: InodeId(number),
                    file_page: extent.file_offset / PAGE_SIZE + (run.start - first),
                    key,
                    pages: run,
                }));
            }
        }
        parts
    }

    /// The paths of files, from the root, without a slash at the beginning; one of them for a file with several.
    pub fn paths(&self, wanted: impl IntoIterator<Item = InodeId>) -> HashMap<InodeId, Vec<u8>> {
        let mut names: Vec<Option<(InodeId, &[u8])>> = vec![None; self.tree.inodes.len()];
        for (number, inode) in (0u32..).zip(&self.tree.inodes) {
            let InodeKind::Directory { children } = &inode.kind else {
                continue;
            };
            for child in children {
                if let Some(name) = names.get_mut(child.inode.index()) {
                    *name = Some((InodeId(number), &child.name));
                }
            }
        }
        let path = |inode: InodeId| {
            let (mut at, mut parts) = (inode, Vec::new());
            // No deeper than there are inodes, whatever the tree is.
            for _ in 0..names.len() {
                let Some((parent, name)) = names.get(at.index()).copied().flatten() else {
                    break;
                };
                parts.push(name);
                at = parent;
            }
            parts.reverse();
            (inode, parts.join(&b'/'))
        };
        wanted.into_iter().map(path).collect()
    }

    /// Which of the pages were read through the view that is mounted at `root`. Blocks, for as long as opening the files
    /// that have them takes. `None` if they are more files than the limit.
    pub fn touched(&self, root: &Path, pages: &PageSet, limit: usize) -> Option<Touched> {
        let parts = self.parts(pages);
        let files = parts.chunk_by(|one, other| one.inode == other.inode).count();
        if files > limit {
            return None;
        }
        let paths = self.paths(parts.iter().map(|part| part.inode));
        let (mut read, mut looked_for) = (Runs::default(), Runs::default());
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
            let file_pages = part.file_page..part.file_page + (part.pages.end - part.pages.start);
            if look(file, file_pages, &mut seen).is_err() {
                continue;
            }
            let in_layer = |page: u64| part.pages.start + (page - part.file_page);
            let seen = seen
                .into_iter()
                .map(|run: Range<u64>| in_layer(run.start)..in_layer(run.end));
            read.0.entry(part.key).or_default().extend(seen);
            looked_for.0.entry(part.key).or_default().push(part.pages);
        }
        Some(Touched {
            pages: read.into(),
            looked_for: looked_for.into(),
        })
    }
}

#[derive(Default)]
struct Runs(HashMap<LayerKey, Vec<Range<u64>>>);

impl From<Runs> for PageSet {
    fn from(runs: Runs) -> Self {
        let mut set = PageSet::default();
        runs.0.into_iter().for_each(|(key, runs)| set.insert(key, runs));
        set
    }
}

/// Opens a file of a view. Neither a link nor another mount leads anywhere else.
fn open_below(root: &File, path: &[u8]) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?.into())
}

/// Adds those pages of a file's range that were read, in ascending runs: the range is halved until all or none were.
fn look(file: &File, pages: Range<u64>, seen: &mut Vec<Range<u64>>) -> std::io::Result<()> {
    let counted = cached(file, pages.start * PAGE_SIZE..pages.end * PAGE_SIZE)?;
    // Those that had to go since were read as well.
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

    use xebec_format::digest::Digest;
    use xebec_format::image::{Child, FileExtent, Inode};

    use super::*;

    fn key(number: u8) -> LayerKey {
        LayerKey {
            layer: Digest::from_bytes([number; 32]),
            index: Digest::from_bytes([9; 32]),
        }
    }

    fn inode(kind: InodeKind) -> Inode {
        Inode {
            metadata: xebec_format::layer::Metadata::default(),
            links: 1,
            kind,
        }
    }

    fn child(name: &str, inode: u32) -> Child {
        Child {
            name: name.as_bytes().into(),
            inode: InodeId(inode),
        }
    }

    /// `/dir/file`: four pages of layer 1 from its page 10 on, of which the second is reached by another device.
    fn view() -> ViewTree {
        let extent = |file_page: u64, device, pages: u64| FileExtent {
            file_offset: file_page * PAGE_SIZE,
            device,
            data_offset: (10 + file_page) * PAGE_SIZE,
            length: pages * PAGE_SIZE,
        };
        let directory = |children| inode(InodeKind::Directory { children });
        let file = inode(InodeKind::File {
            size: 4 * PAGE_SIZE,
            extents: vec![extent(0, 0, 1), extent(1, 2, 1), extent(2, 0, 2)],
        });
        ViewTree {
            tree: Arc::new(ImageTree {
                inodes: vec![
                    directory(vec![child("dir", 1)]),
                    directory(vec![child("file", 2)]),
                    file,
                ],
                root: InodeId(0),
            }),
            devices: vec![key(1), key(2), key(1)],
        }
    }

    fn set(key: LayerKey, runs: &[Range<u64>]) -> PageSet {
        let mut set = PageSet::default();
        set.insert(key, runs.to_vec());
        set
    }

    #[test]
    fn pages_are_found_in_files_by_whatever_device() {
        let view = view();
        let parts = view.parts(&set(key(1), &[0..12, 13..40]));
        let told: Vec<_> = parts
            .iter()
            .map(|part| (part.inode.0, part.file_page, part.pages.clone()))
            .collect();
        assert_eq!(told, [(2, 0, 10..11), (2, 1, 11..12), (2, 3, 13..14)]);
        assert_eq!(view.parts(&set(key(2), &[10..14])), []);
        assert_eq!(view.paths([InodeId(2)])[&InodeId(2)], b"dir/file");
    }

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
