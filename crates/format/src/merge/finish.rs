//! Turns the nodes that are still reachable into an [`ImageTree`].

use super::{Merge, MergeError, Node, NodeId, NodeKind, ROOT, xattrs};
use crate::image::{Child, FileExtent, ImageTree, Inode, InodeId, InodeKind};
use crate::layer::{EntryKind, Metadata};

/// Linux gives every symbolic link these permissions, whatever the tar file says.
const SYMLINK_MODE: u16 = 0o777;

impl Merge<'_> {
    pub(super) fn finish(self) -> Result<ImageTree, MergeError> {
        let order = self.number();
        let mut inodes = Vec::with_capacity(order.nodes.len());
        for (&id, &links) in order.nodes.iter().zip(&order.links) {
            let node = self.node(id);
            let kind = inode_kind(node, &order.numbers);
            let metadata = metadata(&node.metadata, &kind)?;
            inodes.push(Inode {
                metadata,
                links,
                kind,
            });
        }
        Ok(ImageTree {
            inodes,
            root: InodeId(0),
        })
    }

    /// Numbers the reachable nodes: a directory's children stand together, subtrees follow each other.
    fn number(&self) -> Order {
        let mut order = Order {
            nodes: vec![ROOT],
            links: vec![2],
            numbers: vec![UNNUMBERED; self.nodes.len()],
        };
        order.numbers[0] = 0;
        let mut directories = vec![ROOT];
        while let Some(id) = directories.pop() {
            let Some(directory) = self.directory(id) else {
                continue;
            };
            let first_new = directories.len();
            for link in directory.children.values() {
                let is_directory = self.directory(link.node).is_some();
                order.name(link.node, is_directory);
                if is_directory {
                    order.add_link(id);
                    directories.push(link.node);
                }
            }
            // The first subdirectory next.
            directories[first_new..].reverse();
        }
        order
    }
}

const UNNUMBERED: u32 = u32::MAX;

/// Inode numbers under way.
struct Order {
    /// The node of each inode.
    nodes: Vec<NodeId>,
    /// The link count of each inode.
    links: Vec<u32>,
    /// The inode of each node.
    numbers: Vec<u32>,
}

impl Order {
    /// A name for `node` was found.
    fn name(&mut self, node: NodeId, is_directory: bool) {
        if self.numbers[node.0 as usize] == UNNUMBERED {
            self.numbers[node.0 as usize] = self.nodes.len() as u32;
            self.nodes.push(node);
            self.links.push(if is_directory { 2 } else { 1 });
        } else {
            self.add_link(node);
        }
    }

    fn add_link(&mut self, node: NodeId) {
        let number = self.numbers[node.0 as usize] as usize;
        self.links[number] += 1;
    }
}

fn inode_kind(node: &Node<'_>, numbers: &[u32]) -> InodeKind {
    let (kind, layer) = match &node.kind {
        NodeKind::Directory(directory) => {
            let child = |(name, link): (&&[u8], &super::Link)| Child {
                name: (*name).into(),
                inode: InodeId(numbers[link.node.0 as usize]),
            };
            return InodeKind::Directory {
                children: directory.children.iter().map(child).collect(),
            };
        }
        NodeKind::Other(kind, layer) => (*kind, *layer),
    };
    match kind {
        EntryKind::File { size, extents } => {
            let extent = |extent: &crate::layer::Extent| FileExtent {
                file_offset: extent.file_offset,
                device: layer,
                data_offset: extent.data_offset,
                length: extent.length,
            };
            InodeKind::File {
                size: *size,
                extents: extents.iter().map(extent).collect(),
            }
        }
        EntryKind::Symlink { target } => InodeKind::Symlink {
            target: target.clone(),
        },
        &EntryKind::CharDevice { major, minor } => InodeKind::CharDevice { major, minor },
        &EntryKind::BlockDevice { major, minor } => InodeKind::BlockDevice { major, minor },
        EntryKind::Fifo => InodeKind::Fifo,
        // `apply` makes no nodes of these.
        EntryKind::Directory | EntryKind::Hardlink { .. } | EntryKind::Whiteout | EntryKind::Opaque => {
            InodeKind::Directory { children: Vec::new() }
        }
    }
}

fn metadata(metadata: &Metadata, kind: &InodeKind) -> Result<Metadata, MergeError> {
    let mode = match kind {
        InodeKind::Symlink { .. } => SYMLINK_MODE,
        _ => metadata.mode,
    };
    let xattrs = xattrs::stored(&metadata.xattrs, kind)?;
    Ok(Metadata {
        mode,
        xattrs,
        ..*metadata
    })
}
