//! On-disk structures, named and laid out as in `fs/erofs/erofs_fs.h` of Linux. All numbers are little-endian.

/// Size of a block in bytes, and its logarithm.
pub(super) const BLOCK: u64 = 4096;
pub(super) const BLOCK_BITS: u32 = 12;
/// Where the superblock is in block 0.
pub(super) const SUPERBLOCK_OFFSET: usize = 1024;
pub(super) const SUPERBLOCK_SIZE: usize = 128;
/// Inode numbers ("nid") count slots of this size from the start of the metadata area.
pub(super) const SLOT: u64 = 32;
pub(super) const INODE_SIZE: u64 = 64;
pub(super) const DEVICE_SLOT_SIZE: usize = 128;
/// The device table starts here, right after the superblock.
pub(super) const DEVICE_TABLE_OFFSET: usize = SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE;
pub(super) const DIRENT_SIZE: usize = 12;
pub(super) const CHUNK_INDEX_SIZE: u64 = 8;
/// The block address of a chunk that is a hole.
pub(super) const NULL_ADDRESS: u32 = u32::MAX;
pub(super) const XATTR_HEADER_SIZE: usize = 12;
pub(super) const XATTR_ENTRY_SIZE: usize = 4;

const MAGIC: u32 = 0xE0F5_E1E2;
const COMPAT_SB_CHKSUM: u32 = 1;
const COMPAT_MTIME: u32 = 2;
const INCOMPAT_CHUNKED_FILE: u32 = 4;
const INCOMPAT_DEVICE_TABLE: u32 = 8;
/// `i_format`, bit 0: the 64-byte inode.
const EXTENDED: u16 = 1;
/// Chunk format, bit 5: eight-byte indexes with device numbers.
const CHUNK_INDEXES: u16 = 0x20;

/// How an inode's data is found (`i_format`, bits 1 to 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataLayout {
    /// Blocks in a row.
    Plain = 0,
    /// Blocks in a row, the rest behind the inode.
    Inline = 2,
    /// Chunks, each with a device and an address.
    Chunks = 4,
}

/// Types of directory entries.
pub(super) mod file_type {
    pub(in crate::erofs) const REGULAR: u8 = 1;
    pub(in crate::erofs) const DIRECTORY: u8 = 2;
    pub(in crate::erofs) const CHAR_DEVICE: u8 = 3;
    pub(in crate::erofs) const BLOCK_DEVICE: u8 = 4;
    pub(in crate::erofs) const FIFO: u8 = 5;
    pub(in crate::erofs) const SYMLINK: u8 = 7;
}

/// The part of the superblock that varies.
pub(super) struct Superblock {
    pub(super) root_nid: u16,
    pub(super) inodes: u64,
    pub(super) blocks: u32,
    pub(super) meta_block: u32,
    pub(super) xattr_block: u32,
    pub(super) uuid: [u8; 16],
    pub(super) devices: u16,
}

impl Superblock {
    /// The superblock's bytes, with the checksum still 0.
    pub(super) fn bytes(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut out = [0; SUPERBLOCK_SIZE];
        let incompat = match self.devices {
            0 => INCOMPAT_CHUNKED_FILE,
            _ => INCOMPAT_CHUNKED_FILE | INCOMPAT_DEVICE_TABLE,
        };
        put(&mut out, 0, MAGIC.to_le_bytes());
        put(&mut out, 8, (COMPAT_SB_CHKSUM | COMPAT_MTIME).to_le_bytes());
        out[12] = BLOCK_BITS as u8;
        put(&mut out, 14, self.root_nid.to_le_bytes());
        put(&mut out, 16, self.inodes.to_le_bytes());
        put(&mut out, 36, self.blocks.to_le_bytes());
        put(&mut out, 40, self.meta_block.to_le_bytes());
        put(&mut out, 44, self.xattr_block.to_le_bytes());
        put(&mut out, 48, self.uuid);
        put(&mut out, 64, *b"xebec\0");
        put(&mut out, 80, incompat.to_le_bytes());
        put(&mut out, 86, self.devices.to_le_bytes());
        let slot = (DEVICE_TABLE_OFFSET / DEVICE_SLOT_SIZE) as u16;
        put(&mut out, 88, slot.to_le_bytes());
        out
    }
}

/// Where the checksum is in the superblock.
pub(super) const CHECKSUM_OFFSET: usize = SUPERBLOCK_OFFSET + 4;

/// A slot of the device table.
pub(super) fn device_slot(tag: &[u8; 64], blocks: u32) -> [u8; DEVICE_SLOT_SIZE] {
    let mut out = [0; DEVICE_SLOT_SIZE];
    put(&mut out, 0, *tag);
    put(&mut out, 64, blocks.to_le_bytes());
    out
}

/// An extended inode.
pub(super) struct Inode {
    pub(super) layout: DataLayout,
    /// Size of the inline xattrs in bytes (with their header), 0 for none.
    pub(super) xattr_size: u32,
    pub(super) mode: u16,
    pub(super) size: u64,
    /// Block address, device number or chunk format.
    pub(super) union: u32,
    pub(super) number: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    pub(super) mtime_nanoseconds: u32,
    pub(super) links: u32,
}

impl Inode {
    pub(super) fn bytes(&self) -> [u8; INODE_SIZE as usize] {
        let mut out = [0; INODE_SIZE as usize];
        let format = EXTENDED | (self.layout as u16) << 1;
        // The header counts as one, then one for each four bytes.
        let xattr_count = match self.xattr_size {
            0 => 0,
            size => (size - XATTR_HEADER_SIZE as u32) / 4 + 1,
        };
        put(&mut out, 0, format.to_le_bytes());
        put(&mut out, 2, (xattr_count as u16).to_le_bytes());
        put(&mut out, 4, self.mode.to_le_bytes());
        put(&mut out, 8, self.size.to_le_bytes());
        put(&mut out, 16, self.union.to_le_bytes());
        put(&mut out, 20, self.number.to_le_bytes());
        put(&mut out, 24, self.uid.to_le_bytes());
        put(&mut out, 28, self.gid.to_le_bytes());
        put(&mut out, 32, self.mtime.to_le_bytes());
        put(&mut out, 40, self.mtime_nanoseconds.to_le_bytes());
        put(&mut out, 44, self.links.to_le_bytes());
        out
    }
}

/// The chunk format of an inode: chunks of `1 << bits` bytes, with indexes.
pub(super) fn chunk_format(bits: u32) -> u32 {
    u32::from(CHUNK_INDEXES) | (bits - BLOCK_BITS)
}

/// A chunk's place: a device, counted from 1, and a block on it; or a hole.
pub(super) fn chunk_index(device: u16, block: u32) -> [u8; CHUNK_INDEX_SIZE as usize] {
    let mut out = [0; CHUNK_INDEX_SIZE as usize];
    put(&mut out, 2, device.to_le_bytes());
    put(&mut out, 4, block.to_le_bytes());
    out
}

/// A directory entry; its name is at `name_offset` in the same block.
pub(super) fn dirent(nid: u64, name_offset: u16, file_type: u8) -> [u8; DIRENT_SIZE] {
    let mut out = [0; DIRENT_SIZE];
    put(&mut out, 0, nid.to_le_bytes());
    put(&mut out, 8, name_offset.to_le_bytes());
    out[10] = file_type;
    out
}

/// A device number as Linux packs it into 32 bits (`new_encode_dev`).
pub(super) fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn put<const N: usize, const M: usize>(out: &mut [u8; N], at: usize, bytes: [u8; M]) {
    out[at..at + M].copy_from_slice(&bytes);
}
