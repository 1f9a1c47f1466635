//! Decides where everything goes in the image, before anything is written.
//!
//! In this order: superblock and device table; shared extended attributes; the metadata area (inodes, each followed
//! by its attributes and its inline data or chunk indexes); blocks of directories and of long symbolic links. The
//! root comes first in the metadata area, because the superblock has only 16 bits for its number.

use super::chunks::{self, Chunks};
use super::disk::{
    BLOCK, CHUNK_INDEX_SIZE, DEVICE_SLOT_SIZE, DEVICE_TABLE_OFFSET, DataLayout, INODE_SIZE, SLOT,
    chunk_format, device_number,
};
use super::xattrs::Shared;
use super::{Device, ErofsError, MAX_DEVICES, MAX_IMAGE, directory};
use crate::image::{Child, ImageTree, Inode, InodeId, InodeKind};

/// Where an inode and its data are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Offset in the metadata area.
    pub(super) offset: u64,
    /// Length of its attributes behind it, in bytes.
    pub(super) xattr_size: u32,
    pub(super) layout: DataLayout,
    /// Length of its contents as `stat` shows it.
    pub(super) size: u64,
    /// The place of its data.
    pub(super) data: Data,
}

/// Where an inode's data is.
#[derive(Clone, Copy)]
pub(super) enum Data {
    /// It has none, or a device number in place of it.
    None(u32),
    /// Blocks from this one, counted from the start of the data area; an inline rest behind the inode.
    Blocks(u32),
    /// Chunks.
    Chunks(Chunks),
}

/// The layout of a whole image.
pub(super) struct Layout<'a> {
    pub(super) shared: Shared<'a>,
    /// First block of shared attributes, of the metadata area and of the data area, and the number of all blocks.
    pub(super) xattr_block: u32,
    pub(super) meta_block: u32,
    pub(super) data_block: u32,
    pub(super) blocks: u32,
    pub(super) places: Vec<Place>,
    /// The directory above each directory; unused for others.
    pub(super) parents: Vec<InodeId>,
}

impl<'a> Layout<'a> {
    pub(super) fn of(tree: &'a ImageTree, devices: &[Device]) -> Result<Self, ErofsError> {
        check_devices(devices)?;
        let parents = parents(tree)?;
        let shared = Shared::of(tree)?;
        let mut area = Area {
            next: SLOT,
            data_blocks: 0,
        };
        let mut places = Vec::with_capacity(tree.inodes.len());
        for (number, inode) in tree.inodes.iter().enumerate() {
            places.push(area.place(InodeId(number as u32), inode, devices, &shared)?);
        }
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK);
        let table = (DEVICE_TABLE_OFFSET + devices.len() * DEVICE_SLOT_SIZE) as u64;
        let xattr_block = blocks(table);
        let meta_block = xattr_block + blocks(shared.area.len() as u64);
        let data_block = meta_block + blocks(area.next);
        // The image does not end with an inode: `fsck.erofs` of erofs-utils 1.5 looks for attributes behind those that have none,
        // too, and takes the end of the file for damage.
        let total = data_block + area.data_blocks.max(u64::from(area.next.is_multiple_of(BLOCK)));
        if total * BLOCK > MAX_IMAGE {
            return Err(ErofsError::ImageTooLarge(total * BLOCK));
        }
        Ok(Self {
            shared,
            xattr_block: xattr_block as u32,
            meta_block: meta_block as u32,
            data_block: data_block as u32,
            blocks: total as u32,
            places,
            parents,
        })
    }

    /// The number that directory entries give for an inode. [`Layout::of`] has seen that it exists.
    pub(super) fn nid(&self, inode: InodeId) -> u64 {
        self.places
            .get(inode.index())
            .map_or(0, |place| place.offset / SLOT)
    }
}

fn check_devices(devices: &[Device]) -> Result<(), ErofsError> {
    if devices.len() > MAX_DEVICES {
        return Err(ErofsError::TooManyDevices(devices.len()));
    }
    for (number, device) in devices.iter().enumerate() {
        if device.blocks().is_none() {
            return Err(ErofsError::DeviceTooLarge {
                number,
                bytes: device.data_size,
            });
        }
    }
    Ok(())
}

/// Finds the directory above each directory, and checks names and numbers of the tree on the way.
fn parents(tree: &ImageTree) -> Result<Vec<InodeId>, ErofsError> {
    const NONE: InodeId = InodeId(u32::MAX);
    let wrong = |inode, problem| ErofsError::Tree { inode, problem };
    if tree.root != InodeId(0) {
        return Err(wrong(tree.root, "the root is not the first inode"));
    }
    if !matches!(
        tree.inodes.first().map(|root| &root.kind),
        Some(InodeKind::Directory { .. })
    ) {
        return Err(wrong(tree.root, "the root is not a directory"));
    }
    let mut parents = vec![NONE; tree.inodes.len()];
    parents[0] = tree.root;
    for (number, inode) in tree.inodes.iter().enumerate() {
        let id = InodeId(number as u32);
        let InodeKind::Directory { children } = &inode.kind else {
            continue;
        };
        check_names(children).map_err(|problem| wrong(id, problem))?;
        for child in children {
            let Some(found) = tree.inode(child.inode) else {
                return Err(wrong(id, "an entry names an inode that does not exist"));
            };
            if let InodeKind::Directory { .. } = found.kind {
                let parent = &mut parents[child.inode.index()];
                if *parent != NONE {
                    return Err(wrong(child.inode, "a directory is in two directories"));
                }
                *parent = id;
            }
        }
    }
    Ok(parents)
}

fn check_names(children: &[Child]) -> Result<(), &'static str> {
    let mut last: &[u8] = b"";
    for child in children {
        let name = &*child.name;
        if name <= last {
            return Err("entries do not ascend by name");
        }
        if name.len() > crate::path::MAX_NAME || name.contains(&0) || name.contains(&b'/') {
            return Err("an entry has a bad name");
        }
        if name == b"." || name == b".." {
            return Err("\".\" and \"..\" are not entries of a tree");
        }
        last = name;
    }
    Ok(())
}

/// The metadata area and the data area while they are being filled.
struct Area {
    /// Where the next inode may start; slot 0 stays empty, for inode number 0 is none to many programs.
    next: u64,
    data_blocks: u64,
}

/// The layout and the room that an inode's data needs.
struct Need {
    layout: DataLayout,
    size: u64,
    /// Bytes right behind the inode that must not cross a block.
    inline: u64,
    data: Data,
}

impl Area {
    fn place(
        &mut self,
        id: InodeId,
        inode: &Inode,
        devices: &[Device],
        shared: &Shared<'_>,
    ) -> Result<Place, ErofsError> {
        let xattr_size = shared.inline_size(id, &inode.metadata.xattrs)?;
        let head = INODE_SIZE + u64::from(xattr_size);
        let need = self.need(id, inode, devices, head)?;
        // Inline data may not cross a block boundary; neither do inodes here, so that reading one reads one block.
        let together = match need.inline {
            0 => INODE_SIZE,
            inline => head + inline,
        };
        if self.next % BLOCK + together > BLOCK {
            self.next = self.next.next_multiple_of(BLOCK);
        }
        let offset = self.next;
        let end = match need.data {
            Data::Chunks(chunks) => {
                (offset + head).next_multiple_of(CHUNK_INDEX_SIZE) + chunks.count * CHUNK_INDEX_SIZE
            }
            _ => offset + head + need.inline,
        };
        self.next = end.next_multiple_of(SLOT);
        let bytes = self.next + self.data_blocks * BLOCK;
        if bytes > MAX_IMAGE {
            return Err(ErofsError::ImageTooLarge(bytes));
        }
        Ok(Place {
            offset,
            xattr_size,
            layout: need.layout,
            size: need.size,
            data: need.data,
        })
    }

    fn need(
        &mut self,
        id: InodeId,
        inode: &Inode,
        devices: &[Device],
        head: u64,
    ) -> Result<Need, ErofsError> {
        let none = |number| Need {
            layout: DataLayout::Plain,
            size: 0,
            inline: 0,
            data: Data::None(number),
        };
        Ok(match &inode.kind {
            InodeKind::Directory { children } => self.blocks(directory::size(children), head),
            InodeKind::Symlink { target } => self.blocks(target.len() as u64, head),
            InodeKind::File { size: 0, .. } | InodeKind::Fifo => none(0),
            InodeKind::File { size, extents } => {
                let chunks = chunks::plan(id, *size, extents, devices)?;
                Need {
                    layout: DataLayout::Chunks,
                    size: *size,
                    inline: 0,
                    data: Data::Chunks(chunks),
                }
            }
            &InodeKind::CharDevice { major, minor } | &InodeKind::BlockDevice { major, minor } => {
                if major >= 1 << 12 || minor >= 1 << 20 {
                    return Err(ErofsError::DeviceNumber {
                        inode: id,
                        major,
                        minor,
                    });
                }
                none(device_number(major, minor))
            }
        })
    }

    /// Contents in blocks; the rest that fills none goes behind the inode if there is room in a block for both.
    fn blocks(&mut self, size: u64, head: u64) -> Need {
        let rest = size % BLOCK;
        let inline = if head + rest <= BLOCK { rest } else { 0 };
        let first = self.data_blocks;
        self.data_blocks += (size - inline).div_ceil(BLOCK);
        Need {
            layout: if inline > 0 {
                DataLayout::Inline
            } else {
                DataLayout::Plain
            },
            size,
            inline,
            // Bounded by the limit on the image, which is checked before the number is used.
            data: Data::Blocks(first as u32),
        }
    }
}

impl Place {
    /// The field of the inode that says where its data is; `data_block` is the first block of the data area.
    pub(super) fn union(&self, data_block: u32) -> u32 {
        match self.data {
            Data::None(number) => number,
            Data::Blocks(first) => data_block + first,
            Data::Chunks(chunks) => chunk_format(chunks.bits),
        }
    }
}
