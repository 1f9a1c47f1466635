//! Merges the trees of an image's layers into the one tree that a container sees.
//!
//! Layers are replayed from the bottom, entry by entry, as containerd's `archive.Apply` (`pkg/archive/tar.go`)
//! would unpack them into a directory; `docs/decisions/0004-merge-semantics.md` lists what that means in detail, where
//! umoci does otherwise and what was chosen. Nothing is copied until the end: nodes of the tree under construction
//! borrow names and contents from the layers. Work and memory are bounded for hostile layers: a directory is cleared
//! at most once per layer, and following symbolic links has a budget.

mod finish;
mod resolve;
mod xattrs;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::digest::Digest;
use crate::image::ImageTree;
use crate::layer::{Entry, EntryKind, LayerIndex, Metadata, Xattr};
use crate::path::LayerPath;

/// Most layers of an image: EROFS numbers devices with 16 bits, 0 being the image itself.
pub const MAX_LAYERS: usize = u16::MAX as usize - 1;
/// Most nodes that may come into being while merging, replaced ones included: about 1 GB of memory with the inodes that they
/// become. An image with two million files in all its layers is large.
pub const MAX_NODES: usize = 4 << 20;
/// Most directories that no layer describes but that entries are in. One path can ask for thousands, and each takes some 600 bytes.
/// Archives that leave directories out at all have as many as the image has directories, a tenth of its files at most.
pub const MAX_IMPLIED: usize = 512 << 10;
/// Most names that may be looked up through symbolic links per layer. An image where each of a million entries
/// passes through four links of sixteen names stays below.
const MAX_WORK: u64 = 64 << 20;

/// Why layers do not make an image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MergeError {
    /// More than [`MAX_LAYERS`].
    #[error("the image has {0} layers, more than {MAX_LAYERS}")]
    TooManyLayers(usize),
    /// More than [`MAX_NODES`].
    #[error("the image's layers have more than {MAX_NODES} files and directories")]
    TooManyNodes,
    /// More than [`MAX_IMPLIED`].
    #[error("the image's layers have files in more than {MAX_IMPLIED} directories that they do not describe")]
    TooManyImplied,
    /// Following symbolic links took more steps than any honest image needs.
    #[error("the paths of layer {0} lead through too many symbolic links")]
    TooMuchWork(Digest),
    /// More than 255 symbolic links on one path.
    #[error("in layer {layer}, {path} leads through more than 255 symbolic links: they form a loop")]
    SymlinkLoop {
        /// The layer.
        layer: Digest,
        /// The entry whose path, or whose target's path, loops.
        path: LayerPath,
    },
    /// Something on the way to an entry is no directory.
    #[error("in layer {layer}, {path} is below {parent:?}, which is not a directory")]
    ParentNotDirectory {
        /// The layer.
        layer: Digest,
        /// The entry.
        path: LayerPath,
        /// The name that is not a directory's.
        parent: String,
    },
    /// A hard link's target does not exist.
    #[error(
        "in layer {layer}, {path} is a hard link to {target}, which does not exist there or in a layer below"
    )]
    HardlinkTargetMissing {
        /// The layer.
        layer: Digest,
        /// The link.
        path: LayerPath,
        /// Its target.
        target: LayerPath,
    },
    /// A hard link's target is a directory.
    #[error("in layer {layer}, {path} is a hard link to {target}, which is a directory")]
    HardlinkToDirectory {
        /// The layer.
        layer: Digest,
        /// The link.
        path: LayerPath,
        /// Its target.
        target: LayerPath,
    },
    /// An entry other than a directory is the root.
    #[error("layer {0} has an entry that would replace the root directory")]
    RootReplaced(Digest),
    /// An overlayfs attribute whose name becomes too long when it is escaped.
    #[error("the extended attribute {0:?} has too long a name to be kept from overlayfs")]
    XattrNameTooLong(String),
}

/// Merges layers, given from the bottom up, into one tree. Extents name a layer by its place in `layers`.
///
/// The layers must have passed [`LayerIndex::check`], as decoded ones have.
///
/// # Errors
/// See [`MergeError`].
pub fn merge(layers: &[&LayerIndex]) -> Result<ImageTree, MergeError> {
    if layers.len() > MAX_LAYERS {
        return Err(MergeError::TooManyLayers(layers.len()));
    }
    let entries: usize = layers.iter().map(|layer| layer.entries.len()).sum();
    let mut merge = Merge::new(entries);
    for (number, layer) in layers.iter().enumerate() {
        merge.layer = number as u16;
        merge.digest = layer.layer;
        merge.work_left = MAX_WORK;
        for entry in &layer.entries {
            merge.apply(entry)?;
        }
    }
    merge.finish()
}

/// The number of a node of the tree under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeId(u32);

const ROOT: NodeId = NodeId(0);

/// An inode under construction.
struct Node<'a> {
    metadata: Cow<'a, Metadata>,
    kind: NodeKind<'a>,
}

enum NodeKind<'a> {
    Directory(Directory<'a>),
    /// Anything else, as its entry says, and the layer that its contents are in.
    Other(&'a EntryKind, u16),
}

#[derive(Default)]
struct Directory<'a> {
    children: BTreeMap<&'a [u8], Link>,
    /// The layer whose whiteouts have already removed what lower layers brought.
    cleared_by: Option<u16>,
}

/// A name's node, and the layer that brought the name: whiteouts spare the names of their own layer.
#[derive(Clone, Copy)]
struct Link {
    node: NodeId,
    layer: u16,
}

/// A directory that no layer describes but that must be there: owned by root, mode 755, time 0.
static IMPLIED: Metadata = Metadata {
    mode: 0o755,
    uid: 0,
    gid: 0,
    mtime: 0,
    mtime_nanoseconds: 0,
    xattrs: Vec::new(),
};

/// The state of merging.
struct Merge<'a> {
    nodes: Vec<Node<'a>>,
    /// The layer that is being replayed, counted from the bottom.
    layer: u16,
    /// Its digest, for errors.
    digest: Digest,
    /// Steps that following symbolic links may still take in this layer.
    work_left: u64,
    /// Directories so far that no layer describes.
    implied: usize,
    /// The last parent that was resolved: entries of one directory mostly follow each other.
    last_parent: Option<(&'a [u8], NodeId)>,
}

impl<'a> Merge<'a> {
    /// Of so many entries, most of which make a node each.
    fn new(entries: usize) -> Self {
        let mut nodes = Vec::with_capacity(entries.min(MAX_NODES) + 1);
        nodes.push(Node {
            metadata: Cow::Borrowed(&IMPLIED),
            kind: NodeKind::Directory(Directory::default()),
        });
        Self {
            nodes,
            layer: 0,
            digest: Digest::from_bytes([0; 32]),
            work_left: 0,
            implied: 0,
            last_parent: None,
        }
    }

    fn apply(&mut self, entry: &'a Entry) -> Result<(), MergeError> {
        if let EntryKind::Opaque = entry.kind {
            let directory = self.resolve(entry, entry.path.as_bytes())?;
            self.clear(directory);
            return Ok(());
        }
        let Some((parent, name)) = split(entry.path.as_bytes()) else {
            return self.apply_root(entry);
        };
        let parent = self.resolve_parent(entry, parent)?;
        match &entry.kind {
            EntryKind::Whiteout => {
                self.white_out(parent, name);
                Ok(())
            }
            EntryKind::Directory => self.put_directory(entry, parent, name),
            EntryKind::Hardlink { target } => self.put_hardlink(entry, target, parent, name),
            other => {
                let kind = NodeKind::Other(other, self.layer);
                let node = self.add(Node {
                    metadata: Cow::Borrowed(&entry.metadata),
                    kind,
                })?;
                self.put(parent, name, node);
                Ok(())
            }
        }
    }

    fn apply_root(&mut self, entry: &'a Entry) -> Result<(), MergeError> {
        match (&entry.kind, self.nodes.first_mut()) {
            (EntryKind::Directory, Some(root)) => {
                root.metadata = Cow::Borrowed(&entry.metadata);
                Ok(())
            }
            _ => Err(MergeError::RootReplaced(self.digest)),
        }
    }

    fn put_directory(&mut self, entry: &'a Entry, parent: NodeId, name: &'a [u8]) -> Result<(), MergeError> {
        let there = self
            .child(parent, name)
            .filter(|link| self.directory(link.node).is_some());
        let node = match there {
            Some(link) => {
                self.node_mut(link.node).metadata = Cow::Borrowed(&entry.metadata);
                link.node
            }
            None => self.add(Node {
                metadata: Cow::Borrowed(&entry.metadata),
                kind: NodeKind::Directory(Directory::default()),
            })?,
        };
        self.put(parent, name, node);
        Ok(())
    }

    /// Removes the entry at the path first, as unpacking does; only then looks for the target.
    fn put_hardlink(
        &mut self,
        entry: &'a Entry,
        target: &'a LayerPath,
        parent: NodeId,
        name: &'a [u8],
    ) -> Result<(), MergeError> {
        self.remove(parent, name);
        let missing = || MergeError::HardlinkTargetMissing {
            layer: self.digest,
            path: entry.path.clone(),
            target: target.clone(),
        };
        let (target_parent, target_name) = split(target.as_bytes()).ok_or_else(missing)?;
        let missing = missing();
        let Some(directory) = self.resolve_existing(entry, target_parent)? else {
            return Err(missing);
        };
        let Some(link) = self.child(directory, target_name) else {
            return Err(missing);
        };
        if self.directory(link.node).is_some() {
            return Err(MergeError::HardlinkToDirectory {
                layer: self.digest,
                path: entry.path.clone(),
                target: target.clone(),
            });
        }
        self.apply_to_shared(link.node, &entry.metadata);
        self.put(parent, name, link.node);
        Ok(())
    }

    /// A hard link's own header is applied to the inode that it shares: owner, mode and time replace, extended
    /// attributes join those that are there (many tar writers leave them out of links).
    fn apply_to_shared(&mut self, node: NodeId, metadata: &'a Metadata) {
        let node = self.node_mut(node);
        if node.metadata.xattrs.is_empty() {
            node.metadata = Cow::Borrowed(metadata);
            return;
        }
        let mut xattrs: BTreeMap<&[u8], &Xattr> = BTreeMap::new();
        for xattr in node.metadata.xattrs.iter().chain(&metadata.xattrs) {
            xattrs.insert(&xattr.name, xattr);
        }
        let xattrs = xattrs.into_values().cloned().collect();
        node.metadata = Cow::Owned(Metadata {
            xattrs,
            ..metadata.clone()
        });
    }

    /// Removes a name as a whiteout does: entries of this layer stay, and so do the directories above them.
    fn white_out(&mut self, parent: NodeId, name: &'a [u8]) {
        let Some(link) = self.child(parent, name) else {
            return;
        };
        if self.directory(link.node).is_some() {
            self.clear(link.node);
        }
        let empty = self
            .directory(link.node)
            .is_none_or(|found| found.children.is_empty());
        if link.layer != self.layer && empty {
            self.remove(parent, name);
        }
    }

    /// Removes everything that lower layers brought into a directory, at any depth.
    fn clear(&mut self, directory: NodeId) {
        self.last_parent = None;
        let layer = self.layer;
        let mut order = vec![directory];
        let mut at = 0;
        // Parents come before their children in `order`, so that going backwards finds children cleared.
        while let Some(&next) = order.get(at) {
            at += 1;
            let Some(found) = self.directory(next).filter(|d| d.cleared_by != Some(layer)) else {
                continue;
            };
            order.extend(found.children.values().map(|link| link.node));
        }
        for &id in order.iter().rev() {
            let Some(found) = self.directory_mut(id) else {
                continue;
            };
            if found.cleared_by.replace(layer) == Some(layer) {
                continue;
            }
            let mut children = std::mem::take(&mut found.children);
            children.retain(|_, link| {
                let holds_something = || self.directory(link.node).is_some_and(|d| !d.children.is_empty());
                link.layer == layer || holds_something()
            });
            if let Some(found) = self.directory_mut(id) {
                found.children = children;
            }
        }
    }

    fn add(&mut self, node: Node<'a>) -> Result<NodeId, MergeError> {
        if self.nodes.len() >= MAX_NODES {
            return Err(MergeError::TooManyNodes);
        }
        self.nodes.push(node);
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Gives `name` to `node`; what had the name before is gone, with everything below it.
    fn put(&mut self, parent: NodeId, name: &'a [u8], node: NodeId) {
        let layer = self.layer;
        let Some(directory) = self.directory_mut(parent) else {
            return;
        };
        let before = directory.children.insert(name, Link { node, layer });
        if before.is_some_and(|link| link.node != node && self.may_be_on_a_path(link.node)) {
            self.last_parent = None;
        }
    }

    fn remove(&mut self, parent: NodeId, name: &[u8]) {
        let Some(directory) = self.directory_mut(parent) else {
            return;
        };
        if directory.children.remove(name).is_some() {
            self.last_parent = None;
        }
    }

    fn may_be_on_a_path(&self, node: NodeId) -> bool {
        matches!(
            self.node(node).kind,
            NodeKind::Directory(_) | NodeKind::Other(EntryKind::Symlink { .. }, _)
        )
    }

    fn child(&self, parent: NodeId, name: &[u8]) -> Option<Link> {
        self.directory(parent)?.children.get(name).copied()
    }

    // Node numbers are only made by `add`, and nodes are never taken away: indexing cannot fail.
    fn node(&self, id: NodeId) -> &Node<'a> {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<'a> {
        &mut self.nodes[id.0 as usize]
    }

    fn directory(&self, id: NodeId) -> Option<&Directory<'a>> {
        match &self.node(id).kind {
            NodeKind::Directory(directory) => Some(directory),
            NodeKind::Other(..) => None,
        }
    }

    fn directory_mut(&mut self, id: NodeId) -> Option<&mut Directory<'a>> {
        match &mut self.node_mut(id).kind {
            NodeKind::Directory(directory) => Some(directory),
            NodeKind::Other(..) => None,
        }
    }
}

/// A path's parent and last name; `None` for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => Some((&path[..slash], &path[slash + 1..])),
        None => Some((b"", path)),
    }
}
