//! The smallest EROFS image with a device: an empty root directory. One block, made by hand from
//! `fs/erofs/erofs_fs.h`; real images are written elsewhere.

const BLOCK: usize = 4096;
/// The superblock is 128 bytes at this fixed offset.
const SUPERBLOCK: usize = 1024;
/// The device table: one slot of 128 bytes.
const DEVICE_TABLE: usize = 2048;
/// The root inode; inodes are numbered in units of 32 bytes.
const ROOT_INODE: usize = 3072;

const MAGIC: u32 = 0xE0F5_E1E2;
/// `EROFS_FEATURE_INCOMPAT_DEVICE_TABLE`
const DEVICE_TABLE_FEATURE: u32 = 0x8;
const DIRECTORY: u16 = 0o040_755;

/// The bytes of the image.
pub(super) fn image() -> Vec<u8> {
    let mut image = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = image.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(SUPERBLOCK, &MAGIC.to_le_bytes());
    put(SUPERBLOCK + 12, &[BLOCK.ilog2() as u8]);
    put(SUPERBLOCK + 14, &((ROOT_INODE / 32) as u16).to_le_bytes());
    put(SUPERBLOCK + 16, &1u64.to_le_bytes()); // inos
    put(SUPERBLOCK + 36, &1u32.to_le_bytes()); // blocks
    put(SUPERBLOCK + 80, &DEVICE_TABLE_FEATURE.to_le_bytes());
    put(SUPERBLOCK + 86, &1u16.to_le_bytes()); // extra_devices
    put(SUPERBLOCK + 88, &((DEVICE_TABLE / 128) as u16).to_le_bytes());
    put(DEVICE_TABLE + 64, &1u32.to_le_bytes()); // blocks of the device
    // A compact inode with its data in whole blocks, of which it has none.
    put(ROOT_INODE + 4, &DIRECTORY.to_le_bytes());
    put(ROOT_INODE + 6, &2u16.to_le_bytes()); // links
    put(ROOT_INODE + 20, &1u32.to_le_bytes()); // inode number for stat
    image
}
