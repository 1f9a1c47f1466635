//! The files of an image, by path and by the digest of their contents.

use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::image::{FileExtent, ImageTree, InodeId, InodeKind};
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_format::merge::{MergeError, merge};

/// The digest of a file's contents, raw.
pub type Contents = [u8; 32];

/// A page: the place of its layer among the different layers of an image, lowest first, and its number in the layer's data space.
pub type Page = (u16, u64);

/// What is known of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Its index.
    pub index: &'a LayerIndex,
    /// The section of the index with the digests of contents; empty if there is none.
    pub contents: &'a [u8],
}

/// See the module.
#[derive(Debug)]
pub struct Files {
    tree: ImageTree,
    /// The number of each layer of the image among the different ones.
    numbers: Vec<u16>,
    /// For each layer the digest of each file, by where its first contents are. Ascends.
    digests: Vec<Vec<(u64, Contents)>>,
}

/// A run of pages of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The first page in the data space.
    pub first: Page,
    /// The same page in the file.
    pub in_file: u64,
    pub pages: u64,
    pub inode: InodeId,
}

impl Files {
    /// The files of an image of these layers, bottom to top. A layer may stand there more than once.
    ///
    /// # Errors
    /// See [`MergeError`].
    pub fn new(layers: &[Layer<'_>]) -> Result<Self, MergeError> {
        let indexes: Vec<&LayerIndex> = layers.iter().map(|layer| layer.index).collect();
        let tree = merge(&indexes)?;
        let mut different: Vec<Digest> = Vec::new();
        let numbers = indexes.iter().map(|index| {
            let known = different.iter().position(|known| *known == index.layer);
            known.unwrap_or_else(|| {
                different.push(index.layer);
                different.len() - 1
            }) as u16
        });
        Ok(Self {
            numbers: numbers.collect(),
            digests: layers.iter().map(digests).collect(),
            tree,
        })
    }

    /// The digest of an inode's contents, if it is a file with contents and its layer says the digest.
    pub(crate) fn contents(&self, id: InodeId) -> Option<Contents> {
        let first = self.extents(id).first()?;
        let digests = self.digests.get(usize::from(first.device))?;
        let place = digests
            .binary_search_by_key(&first.data_offset, |(offset, _)| *offset)
            .ok()?;
        digests.get(place).map(|(_, digest)| *digest)
    }

    pub(crate) fn extents(&self, id: InodeId) -> &[FileExtent] {
        match self.tree.inode(id).map(|inode| &inode.kind) {
            Some(InodeKind::File { extents, .. }) => extents,
            _ => &[],
        }
    }

    fn run(&self, inode: InodeId, extent: &FileExtent) -> Option<Run> {
        Some(Run {
            first: (
                *self.numbers.get(usize::from(extent.device))?,
                extent.data_offset / PAGE_SIZE,
            ),
            in_file: extent.file_offset / PAGE_SIZE,
            pages: extent.length.div_ceil(PAGE_SIZE),
            inode,
        })
    }

    /// All contents of all files, ascending by their first pages.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for number in 0..self.tree.inodes.len() {
            let id = InodeId(number as u32);
            runs.extend(self.extents(id).iter().filter_map(|extent| self.run(id, extent)));
        }
        runs.sort_unstable_by_key(|run| run.first);
        runs
    }

    /// Where a page of a file is; `None` behind its end and in its holes.
    pub(crate) fn page_of(&self, id: InodeId, in_file: u64) -> Option<Page> {
        let extents = self.extents(id);
        let after = extents.partition_point(|extent| extent.file_offset / PAGE_SIZE <= in_file);
        let run = self.run(id, extents.get(after.checked_sub(1)?)?)?;
        let within = in_file - run.in_file;
        (within < run.pages).then_some((run.first.0, run.first.1 + within))
    }

    /// The inode at a path without symbolic links on it, if there is one. The path is without a slash at its beginning.
    pub(crate) fn at(&self, path: &[u8]) -> Option<InodeId> {
        let mut id = self.tree.root;
        for name in path.split(|byte| *byte == b'/') {
            let InodeKind::Directory { children } = &self.tree.inode(id)?.kind else {
                return None;
            };
            let place = children.binary_search_by(|child| (*child.name).cmp(name)).ok()?;
            id = children.get(place)?.inode;
        }
        Some(id)
    }

    /// Tells `see` all names that are no directories', in the order of the tree, each with its path.
    pub(crate) fn walk(&self, mut see: impl FnMut(&[u8], InodeId)) {
        let mut path: Vec<u8> = Vec::new();
        // The directories on the path, the place of the next child of each, and how long the path to it is.
        let mut open = vec![(self.tree.root, 0, 0)];
        while let Some((directory, next, length)) = open.last_mut() {
            path.truncate(*length);
            let children = match self.tree.inode(*directory).map(|inode| &inode.kind) {
                Some(InodeKind::Directory { children }) => children.as_slice(),
                _ => &[],
            };
            let Some(child) = children.get(*next) else {
                open.pop();
                continue;
            };
            *next += 1;
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&child.name);
            match self.tree.inode(child.inode).map(|inode| &inode.kind) {
                Some(InodeKind::Directory { .. }) => open.push((child.inode, 0, path.len())),
                _ => see(&path, child.inode),
            }
        }
    }
}

/// The digests of a layer's files. One of zeros alone says that the indexer did not hash the file, which has too many holes.
fn digests(layer: &Layer<'_>) -> Vec<(u64, Contents)> {
    let files = layer.index.entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::File { size: 1.., extents } => Some(extents.first()),
        _ => None,
    });
    let (digests, _) = layer.contents.as_chunks::<32>();
    let both = files.zip(digests).filter(|(_, digest)| **digest != [0; 32]);
    let mut all: Vec<(u64, Contents)> = both
        .filter_map(|(extent, digest)| Some((extent?.data_offset, *digest)))
        .collect();
    all.sort_unstable();
    all
}
