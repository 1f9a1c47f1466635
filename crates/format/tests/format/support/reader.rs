//! A small EROFS reader, written from the format's documentation and sharing nothing with the writer.

use std::collections::BTreeMap;

use super::{Seen, View, join};

pub(crate) struct Reader<'a> {
    image: &'a [u8],
    meta: usize,
    xattrs: usize,
    root: u64,
    device_mask: u16,
    pub(crate) devices: Vec<(Vec<u8>, u32)>,
}

struct Inode {
    layout: u16,
    mode: u32,
    links: u32,
    size: u64,
    union: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    nanoseconds: u32,
    /// Where its extended attributes start, and where they end.
    behind: usize,
    end: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl<'a> Reader<'a> {
    pub(crate) fn new(image: &'a [u8]) -> Self {
        let sb = &image[1024..];
        assert_eq!(u32_at(sb, 0), 0xE0F5E1E2);
        assert_eq!(image.len() % 4096, 0);
        assert_eq!(
            u32_at(sb, 36) as usize * 4096,
            image.len(),
            "blocks of the superblock"
        );
        let count = u16_at(sb, 86);
        let table = usize::from(u16_at(sb, 88)) * 128;
        let device = |n: usize| {
            let slot = &image[table + n * 128..];
            (slot[..64].to_vec(), u32_at(slot, 64))
        };
        Self {
            image,
            meta: u32_at(sb, 40) as usize * 4096,
            xattrs: u32_at(sb, 44) as usize * 4096,
            root: u64::from(u16_at(sb, 14)),
            device_mask: (count + 1).next_power_of_two() - 1,
            devices: (0..usize::from(count)).map(device).collect(),
        }
    }

    fn inode(&self, nid: u64) -> Inode {
        let at = self.meta + nid as usize * 32;
        assert!(at % 4096 + 64 <= 4096, "inode {nid} crosses a block");
        let raw = &self.image[at..at + 64];
        let format = u16_at(raw, 0);
        assert_eq!(format & 1, 1, "inode {nid} is not extended");
        let xattrs = match u16_at(raw, 2) {
            0 => 0,
            n => 12 + (usize::from(n) - 1) * 4,
        };
        Inode {
            layout: format >> 1,
            mode: u32::from(u16_at(raw, 4)),
            size: u64_at(raw, 8),
            union: u32_at(raw, 16),
            uid: u32_at(raw, 24),
            gid: u32_at(raw, 28),
            mtime: u64_at(raw, 32) as i64,
            nanoseconds: u32_at(raw, 40),
            links: u32_at(raw, 44),
            behind: at + 64,
            end: at + 64 + xattrs,
        }
    }

    /// Contents that are in the image itself.
    fn contents(&self, inode: &Inode) -> Vec<u8> {
        let size = inode.size as usize;
        let whole = match inode.layout {
            0 => size,
            2 => size / 4096 * 4096,
            other => panic!("layout {other} of a directory or link"),
        };
        let blocks = inode.union as usize * 4096;
        let mut out = self.image[blocks..][..whole].to_vec();
        if size > whole {
            assert_eq!(
                inode.end / 4096,
                (inode.end + size - whole - 1) / 4096,
                "inline data crosses a block"
            );
            out.extend_from_slice(&self.image[inode.end..inode.end + size - whole]);
        }
        out
    }

    fn children(&self, inode: &Inode) -> Vec<(Vec<u8>, u64, u8)> {
        let mut found = Vec::new();
        for block in self.contents(inode).chunks(4096) {
            let count = usize::from(u16_at(block, 8)) / 12;
            assert!(count > 0);
            for n in 0..count {
                let entry = &block[n * 12..];
                let start = usize::from(u16_at(entry, 8));
                let end = match n + 1 < count {
                    true => usize::from(u16_at(entry, 20)),
                    false => block[start..]
                        .iter()
                        .position(|b| *b == 0)
                        .map_or(block.len(), |n| start + n),
                };
                found.push((block[start..end].to_vec(), u64_at(entry, 0), entry[10]));
            }
        }
        assert!(
            found.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "entries ascend"
        );
        found
    }

    fn xattr(&self, at: usize) -> (Vec<u8>, Vec<u8>, usize) {
        let entry = &self.image[at..];
        let (name, value) = (usize::from(entry[0]), usize::from(u16_at(entry, 2)));
        let prefix: &[u8] = match entry[1] {
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            other => panic!("prefix {other}"),
        };
        let value = entry[4 + name..4 + name + value].to_vec();
        let size = (4 + name + value.len()).next_multiple_of(4);
        ([prefix, &entry[4..4 + name]].concat(), value, size)
    }

    fn xattrs(&self, inode: &Inode) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut found = BTreeMap::new();
        if inode.behind == inode.end {
            return found;
        }
        let mut at = inode.behind + 12;
        for _ in 0..self.image[inode.behind + 4] {
            let (name, value, _) = self.xattr(self.xattrs + u32_at(self.image, at) as usize * 4);
            assert_eq!(found.insert(name, value), None);
            at += 4;
        }
        while at < inode.end {
            let (name, value, size) = self.xattr(at);
            assert_eq!(found.insert(name, value), None);
            at += size;
        }
        assert_eq!(at, inode.end);
        found
    }

    /// The device (from 0) and offset that a byte of a file is at; `None` in a hole.
    fn map(&self, inode: &Inode, offset: u64) -> Option<(u16, u64)> {
        assert_eq!(inode.layout, 4);
        assert_eq!(inode.union & !0x1f, 0x20, "chunk indexes");
        let bits = 12 + (inode.union & 0x1f);
        let index = inode.end.next_multiple_of(8) + (offset >> bits) as usize * 8;
        let block = u32_at(self.image, index + 4);
        if block == u32::MAX {
            return None;
        }
        let device = u16_at(self.image, index + 2) & self.device_mask;
        let at = u64::from(block) * 4096 + (offset & ((1 << bits) - 1));
        assert!(at < u64::from(self.devices[usize::from(device) - 1].1) * 4096);
        Some((device - 1, at))
    }

    /// Everything the image shows, with files sampled where `samples` says.
    pub(crate) fn view(&self, expected: &View) -> View {
        let mut view = View::new();
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut nids = Vec::new();
        let mut todo = vec![(Vec::new(), self.root, self.root)];
        while let Some((path, nid, parent)) = todo.pop() {
            let inode = self.inode(nid);
            let mut seen = Seen {
                mode: inode.mode,
                uid: inode.uid,
                gid: inode.gid,
                mtime: inode.mtime,
                nanoseconds: inode.nanoseconds,
                links: u64::from(inode.links),
                xattrs: self.xattrs(&inode),
                ..Seen::default()
            };
            match inode.mode >> 12 {
                4 => {
                    for (name, child, kind) in self.children(&inode) {
                        let type_of = |nid| match self.inode(nid).mode >> 12 {
                            8 => 1,
                            4 => 2,
                            2 => 3,
                            6 => 4,
                            1 => 5,
                            10 => 7,
                            other => panic!("type {other}"),
                        };
                        assert_eq!(kind, type_of(child));
                        match &*name {
                            b"." => assert_eq!(child, nid),
                            b".." => assert_eq!(child, parent),
                            _ => todo.push((join(&path, &name), child, nid)),
                        }
                    }
                }
                8 => {
                    seen.size = Some(inode.size);
                    let offsets = expected.get(&path).map(|e| e.samples.clone()).unwrap_or_default();
                    for (offset, bytes) in offsets {
                        let byte = |at| self.map(&inode, at).map_or(0, |(d, o)| super::device_byte(d, o));
                        let found = (offset..offset + bytes.len() as u64).map(byte).collect();
                        seen.samples.push((offset, found));
                    }
                }
                10 => seen.target = Some(self.contents(&inode)),
                2 | 6 => {
                    let n = inode.union;
                    seen.device = Some(((n >> 8) & 0xfff, (n & 0xff) | ((n >> 12) & 0xf_ff00)));
                }
                _ => {}
            }
            let least = first.entry(nid).or_insert_with(|| path.clone());
            if path < *least {
                least.clone_from(&path);
            }
            nids.push((path.clone(), nid));
            view.insert(path, seen);
        }
        for (path, nid) in nids {
            view.get_mut(&path).unwrap().same_as = first[&nid].clone();
        }
        view
    }
}
