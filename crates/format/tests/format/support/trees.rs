//! Random trees.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use xebec_format::erofs::Device;
use xebec_format::image::{Child, FileExtent, ImageTree, Inode, InodeId, InodeKind};
use xebec_format::layer::{Metadata, Xattr};

/// Size of each device of random trees.
pub(crate) const DEVICE_SIZE: u64 = 1 << 20;
pub(crate) const DEVICES: u16 = 3;

pub(crate) fn devices() -> Vec<Device> {
    (0..DEVICES)
        .map(|n| Device {
            tag: [b'a' + n as u8; 64],
            data_size: DEVICE_SIZE,
        })
        .collect()
}

/// One step of growing a tree: the place of a directory (modulo those there are), a name, and the inode to put there.
type Step = (usize, Vec<u8>, Metadata, Seed);

#[derive(Clone, Debug)]
enum Seed {
    Directory,
    /// A directory with that many files of long names, so that it has several blocks.
    Crowd(usize),
    File(u64, Vec<FileExtent>),
    Symlink(Vec<u8>),
    Device(bool, u32, u32),
    Fifo,
    /// A further name for one of the files there are.
    Link(usize),
}

/// Names that sort around `.` and `..`, long ones, and bytes that are not UTF-8.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'-'),
        Just(b'.'),
        Just(b'a'),
        Just(b'b'),
        Just(0xff),
        Just(b' '),
        Just(1)
    ];
    let usable = |name: &Vec<u8>| name != b"." && name != b"..";
    prop_oneof![
        8 => vec(byte, 1..6).prop_filter("dots", usable),
        1 => (0u8..5).prop_map(|n| vec![b'x' + (n & 1); 251 + usize::from(n)]),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let id = prop_oneof![Just(0), Just(1000), Just(65536), Just(u32::MAX - 1)];
    let seconds = prop_oneof![
        Just(0),
        Just(1_700_000_000),
        Just(-5_000_000_000),
        any::<i32>().prop_map(i64::from)
    ];
    let nanoseconds = prop_oneof![Just(0), 0u32..1_000_000_000];
    (0u16..0o10000, id.clone(), id, seconds, nanoseconds, xattrs()).prop_map(
        |(mode, uid, gid, mtime, mtime_nanoseconds, xattrs)| Metadata {
            mode,
            uid,
            gid,
            mtime,
            mtime_nanoseconds,
            xattrs,
        },
    )
}

/// Attributes that every inode may have, from a small set so that some are shared.
fn xattrs() -> impl Strategy<Value = Vec<Xattr>> {
    let name = prop_oneof![
        Just(b"security.of_a_name".to_vec()),
        Just(b"trusted.overlay.overlay.opaque".to_vec()),
        Just([b"trusted.".as_slice(), &[b'n'; 247]].concat()),
        vec(b'a'..=b'c', 1..4).prop_map(|n| [b"trusted.".as_slice(), &n].concat()),
    ];
    let value = prop_oneof![
        4 => vec(0u8..3, 0..6),
        1 => (0usize..5000).prop_map(|n| vec![7; n]),
    ];
    let set = btree_map(name, value, 0..4).prop_map(|set| {
        set.into_iter()
            .map(|(name, value)| Xattr { name, value })
            .collect()
    });
    prop_oneof![3 => Just(Vec::new()), 1 => set]
}

fn file() -> impl Strategy<Value = Seed> {
    let pages = DEVICE_SIZE / 4096;
    let runs = vec((0u64..4, 0..DEVICES, 0..pages - 8, 1u64..8), 1..6);
    let ordinary = (1u64..100_000, 0..DEVICES, 0..pages - 25).prop_map(|(size, device, page)| {
        let extent = FileExtent {
            file_offset: 0,
            device,
            data_offset: page * 4096,
            length: size,
        };
        Seed::File(size, vec![extent])
    });
    let sparse = (runs, 0u64..5, 1u64..4096).prop_map(|(runs, hole, tail)| {
        let mut at = 0;
        let mut extents = Vec::new();
        for (gap, device, page, length) in runs {
            at += gap * 4096;
            extents.push(FileExtent {
                file_offset: at,
                device,
                data_offset: page * 4096,
                length: length * 4096,
            });
            at += length * 4096;
        }
        if hole == 0 {
            // Ends inside the last extent's last page.
            let last = extents.last_mut().unwrap();
            last.length -= tail;
            return Seed::File(at - tail, extents);
        }
        Seed::File(at + hole * 4096 - tail, extents)
    });
    prop_oneof![
        4 => ordinary,
        2 => sparse,
        1 => Just(Seed::File(0, Vec::new())),
        1 => (1u64..1 << 40).prop_map(|size| Seed::File(size, Vec::new())),
    ]
}

fn seed() -> impl Strategy<Value = Seed> {
    prop_oneof![
        4 => Just(Seed::Directory),
        1 => (1usize..100).prop_map(Seed::Crowd),
        8 => file(),
        2 => (1usize..4096).prop_map(|n| Seed::Symlink(vec![b't'; n])),
        1 => vec(b'a'..=b'c', 1..20).prop_map(Seed::Symlink),
        1 => (any::<bool>(), 0u32..4096, 0u32..1 << 20).prop_map(|(b, x, y)| Seed::Device(b, x, y)),
        1 => Just(Seed::Fifo),
        2 => (0usize..1000).prop_map(Seed::Link),
    ]
}

/// Any tree that the writer takes.
pub(crate) fn tree() -> impl Strategy<Value = ImageTree> {
    (metadata(), vec((0usize..1000, name(), metadata(), seed()), 0..60))
        .prop_map(|(root, steps)| grow(root, steps))
}

fn directory(metadata: Metadata) -> Inode {
    Inode {
        metadata,
        links: 2,
        kind: InodeKind::Directory { children: Vec::new() },
    }
}

fn grow(root: Metadata, steps: Vec<Step>) -> ImageTree {
    let mut inodes = vec![directory(root)];
    for (place, name, metadata, seed) in steps {
        let directories: Vec<usize> = (0..inodes.len())
            .filter(|n| matches!(inodes[*n].kind, InodeKind::Directory { .. }))
            .collect();
        let parent = directories[place % directories.len()];
        let new = InodeId(inodes.len() as u32);
        let crowd = if let Seed::Crowd(count) = seed { count } else { 0 };
        let inode = match seed {
            Seed::Link(which) => {
                let files: Vec<usize> = (0..inodes.len()).filter(|n| !directories.contains(n)).collect();
                if files.is_empty() {
                    continue;
                }
                let target = files[which % files.len()];
                if add(&mut inodes, parent, &name, InodeId(target as u32)) {
                    inodes[target].links += 1;
                }
                continue;
            }
            Seed::Directory | Seed::Crowd(_) => directory(metadata),
            Seed::File(size, extents) => other(metadata, InodeKind::File { size, extents }),
            Seed::Symlink(target) => other(
                Metadata {
                    mode: 0o777,
                    ..metadata
                },
                InodeKind::Symlink { target },
            ),
            Seed::Device(false, major, minor) => other(metadata, InodeKind::CharDevice { major, minor }),
            Seed::Device(true, major, minor) => other(metadata, InodeKind::BlockDevice { major, minor }),
            Seed::Fifo => other(metadata, InodeKind::Fifo),
        };
        if !add(&mut inodes, parent, &name, new) {
            continue;
        }
        let is_directory = matches!(inode.kind, InodeKind::Directory { .. });
        inodes.push(inode);
        if is_directory {
            inodes[parent].links += 1;
        }
        for n in 0..crowd {
            let id = InodeId(inodes.len() as u32);
            let name = format!("{n:0200}");
            inodes.push(other(Metadata::default(), InodeKind::Fifo));
            add(&mut inodes, new.index(), name.as_bytes(), id);
        }
    }
    ImageTree {
        inodes,
        root: InodeId(0),
    }
}

fn other(metadata: Metadata, kind: InodeKind) -> Inode {
    Inode {
        metadata,
        links: 1,
        kind,
    }
}

/// Adds a name to a directory unless it is taken.
fn add(inodes: &mut [Inode], parent: usize, name: &[u8], inode: InodeId) -> bool {
    let InodeKind::Directory { children } = &mut inodes[parent].kind else {
        return false;
    };
    match children.binary_search_by(|child| (*child.name).cmp(name)) {
        Ok(_) => false,
        Err(at) => {
            children.insert(
                at,
                Child {
                    name: name.into(),
                    inode,
                },
            );
            true
        }
    }
}
