//! Writes the image that a [`Layout`] describes into one zeroed buffer.

use super::crc32c::crc32c;
use super::directory::{self, Target, directory_target};
use super::disk::{
    self, BLOCK, CHECKSUM_OFFSET, CHUNK_INDEX_SIZE, DEVICE_SLOT_SIZE, DEVICE_TABLE_OFFSET, DataLayout,
    INODE_SIZE, SUPERBLOCK_OFFSET, Superblock, file_type,
};
use super::layout::{Data, Layout, Place};
use super::{Device, Options, chunks};
use crate::image::{Child, ImageTree, Inode, InodeId, InodeKind};

/// File types in `st_mode` (POSIX, `sys/stat.h` of Linux).
const S_IFIFO: u16 = 0o010_000;
const S_IFCHR: u16 = 0o020_000;
const S_IFDIR: u16 = 0o040_000;
const S_IFBLK: u16 = 0o060_000;
const S_IFREG: u16 = 0o100_000;
const S_IFLNK: u16 = 0o120_000;

pub(super) fn write(tree: &ImageTree, devices: &[Device], options: &Options, layout: &Layout<'_>) -> Vec<u8> {
    let mut writer = Writer {
        tree,
        layout,
        out: vec![0; layout.blocks as usize * BLOCK as usize],
    };
    for (number, (inode, place)) in tree.inodes.iter().zip(&layout.places).enumerate() {
        writer.inode(InodeId(number as u32), inode, place);
    }
    let shared = u64::from(layout.xattr_block) * BLOCK;
    writer.put(shared, &layout.shared.area);
    for (number, device) in devices.iter().enumerate() {
        let slot = disk::device_slot(&device.tag, device.blocks().unwrap_or(0));
        let at = DEVICE_TABLE_OFFSET + number * DEVICE_SLOT_SIZE;
        writer.put(at as u64, &slot);
    }
    writer.superblock(devices.len() as u16, options);
    writer.out
}

struct Writer<'a> {
    tree: &'a ImageTree,
    layout: &'a Layout<'a>,
    out: Vec<u8>,
}

impl Writer<'_> {
    /// Copies bytes to where the layout has made room for them.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.out[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn superblock(&mut self, devices: u16, options: &Options) {
        let layout = self.layout;
        let superblock = Superblock {
            root_nid: layout.nid(self.tree.root) as u16,
            inodes: self.tree.inodes.len() as u64,
            blocks: layout.blocks,
            meta_block: layout.meta_block,
            xattr_block: match layout.shared.area.is_empty() {
                true => 0,
                false => layout.xattr_block,
            },
            uuid: options.uuid,
            devices,
        };
        self.put(SUPERBLOCK_OFFSET as u64, &superblock.bytes());
        let checksum = crc32c(!0, &self.out[SUPERBLOCK_OFFSET..BLOCK as usize]);
        self.put(CHECKSUM_OFFSET as u64, &checksum.to_le_bytes());
    }

    fn inode(&mut self, id: InodeId, inode: &Inode, place: &Place) {
        let (mode, _) = mode_and_type(&inode.kind);
        let metadata = &inode.metadata;
        let record = disk::Inode {
            layout: place.layout,
            xattr_size: place.xattr_size,
            mode: mode | (metadata.mode & 0o7777),
            size: place.size,
            union: place.union(self.layout.data_block),
            number: id.0 + 1,
            uid: metadata.uid,
            gid: metadata.gid,
            mtime: metadata.mtime,
            mtime_nanoseconds: metadata.mtime_nanoseconds,
            links: inode.links,
        };
        let start = u64::from(self.layout.meta_block) * BLOCK + place.offset;
        self.put(start, &record.bytes());
        if place.xattr_size > 0 {
            let xattrs = self.layout.shared.inline(&metadata.xattrs);
            self.put(start + INODE_SIZE, &xattrs);
        }
        self.data(id, inode, place, start + INODE_SIZE + u64::from(place.xattr_size));
    }

    fn data(&mut self, id: InodeId, inode: &Inode, place: &Place, behind: u64) {
        match (&inode.kind, place.data) {
            (InodeKind::File { extents, .. }, Data::Chunks(planned)) => {
                let start = behind.next_multiple_of(CHUNK_INDEX_SIZE) as usize;
                let length = (planned.count * CHUNK_INDEX_SIZE) as usize;
                chunks::write(planned, extents, &mut self.out[start..start + length]);
            }
            (InodeKind::Symlink { target }, Data::Blocks(first)) => {
                let at = self.block_or_inline(place, first, 0, behind);
                self.put(at, target);
            }
            (InodeKind::Directory { children }, Data::Blocks(first)) => {
                self.directory(id, children, place, first, behind);
            }
            _ => {}
        }
    }

    fn directory(&mut self, id: InodeId, children: &[Child], place: &Place, first: u32, behind: u64) {
        let (tree, layout) = (self.tree, self.layout);
        let parent = layout.parents.get(id.index()).copied().unwrap_or(id);
        let target = |child: &Child| Target {
            nid: layout.nid(child.inode),
            file_type: tree
                .inode(child.inode)
                .map_or(0, |inode| mode_and_type(&inode.kind).1),
        };
        let mut number = 0;
        directory::write(
            children,
            directory_target(layout.nid(id)),
            directory_target(layout.nid(parent)),
            target,
            |block| {
                let at = self.block_or_inline(place, first, number, behind);
                self.put(at, block);
                number += 1;
            },
        );
    }

    /// Where block `number` of an inode's contents goes: the last one behind the inode if the layout says so.
    fn block_or_inline(&self, place: &Place, first: u32, number: u64, behind: u64) -> u64 {
        let is_last = number == place.size / BLOCK;
        if place.layout == DataLayout::Inline && is_last {
            return behind;
        }
        (u64::from(self.layout.data_block) + u64::from(first) + number) * BLOCK
    }
}

/// The type bits of `st_mode`, and the type in directory entries.
fn mode_and_type(kind: &InodeKind) -> (u16, u8) {
    match kind {
        InodeKind::Directory { .. } => (S_IFDIR, file_type::DIRECTORY),
        InodeKind::File { .. } => (S_IFREG, file_type::REGULAR),
        InodeKind::Symlink { .. } => (S_IFLNK, file_type::SYMLINK),
        InodeKind::CharDevice { .. } => (S_IFCHR, file_type::CHAR_DEVICE),
        InodeKind::BlockDevice { .. } => (S_IFBLK, file_type::BLOCK_DEVICE),
        InodeKind::Fifo => (S_IFIFO, file_type::FIFO),
    }
}
