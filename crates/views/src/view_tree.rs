//! The tree of a mounted view, by which its files are found and named that have given pages of its layers.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::image::{ImageTree, InodeId, InodeKind};

use xebec_fill::page_set::{PageSet, common};

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

impl FilePart {
    /// The pages in the file.
    pub fn file_pages(&self) -> Range<u64> {
        self.file_page..self.file_page + (self.pages.end - self.pages.start)
    }
}

impl ViewTree {
    /// Where files have the pages, in the order of inodes.
    pub fn parts(&self, pages: &PageSet) -> Vec<FilePart> {
        let mut parts = Vec::new();
        // Most files have none of them, so no time is spent on those.
        let of_device: Vec<&[Range<u64>]> = self.devices.iter().map(|key| pages.runs(*key)).collect();
        for (number, inode) in (0u32..).zip(&self.tree.inodes) {
            let InodeKind::File { extents, .. } = &inode.kind else {
                continue;
            };
            for extent in extents {
                let device = usize::from(extent.device);
                let (Some(&key), Some(runs)) = (self.devices.get(device), of_device.get(device)) else {
                    continue;
                };
                if runs.is_empty() {
                    continue;
                }
                let first = extent.data_offset / PAGE_SIZE;
                let end = (extent.data_offset + extent.length).div_ceil(PAGE_SIZE);
                #[allow(clippy::single_range_in_vec_init, reason = "one run is what an extent is")]
                let here = common(&[first..end], runs);
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
}

/// Opens a file of a view. Neither a link nor another mount leads anywhere else.
pub fn open_below(root: &File, path: &[u8]) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?.into())
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "single runs are what this is about"
)]
pub(crate) mod tests {
    use xebec_format::digest::Digest;
    use xebec_format::image::{Child, FileExtent, Inode};

    use super::*;

    pub(crate) fn key(number: u8) -> LayerKey {
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
    pub(crate) fn view() -> ViewTree {
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

    pub(crate) fn set(key: LayerKey, runs: &[Range<u64>]) -> PageSet {
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
}
