//! EROFS images against a reader of our own, the kernel, and erofs-utils.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::erofs::{Device, ErofsError, Options, write};
use xebec_format::image::{Child, FileExtent, ImageTree, Inode, InodeId, InodeKind};
use xebec_format::layer::{Codec, Entry, EntryKind, LayerIndex, Metadata, Xattr};
use xebec_format::merge::merge;
use xebec_format::path::LayerPath;

use crate::support::kernel::{Mounted, can_mount, save};
use crate::support::reader::Reader;
use crate::support::trees::{DEVICE_SIZE, DEVICES, devices, tree};
use crate::support::{View, assert_same, device_byte, view_of_tree};

fn options() -> Options {
    Options {
        uuid: *b"0123456789abcdef",
    }
}

/// Files that hold what [`device_byte`] says at the given ranges and nothing elsewhere.
fn device_files(directory: &Path, devices: &[Device], ranges: &[(u16, u64, u64)]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let path = directory.join(format!("device{number}"));
        let file = File::create(&path).unwrap();
        file.set_len(device.data_size).unwrap();
        for &(of, start, length) in ranges.iter().filter(|range| usize::from(range.0) == number) {
            let bytes: Vec<u8> = (start..start + length).map(|at| device_byte(of, at)).collect();
            file.write_all_at(&bytes, start).unwrap();
        }
        paths.push(path);
    }
    paths
}

/// Looks at a tree's image with our reader and, where possible, with the kernel and `fsck.erofs`.
fn check_everywhere(tree: &ImageTree, devices: &[Device], ranges: &[(u16, u64, u64)]) {
    let image = write(tree, devices, &options()).unwrap();
    let expected = view_of_tree(tree);
    assert_same(&expected, &Reader::new(&image).view(&expected));
    let scratch = tempfile::tempdir().unwrap();
    let path = save(scratch.path(), &image);
    let files = device_files(scratch.path(), devices, ranges);
    check_kernel(&expected, &path, &files);
    check_fsck(&path, &files);
}

fn check_kernel(expected: &View, image: &Path, devices: &[PathBuf]) {
    if can_mount() {
        assert_same(expected, &Mounted::new(image, devices).view(expected));
    }
}

fn check_fsck(image: &Path, devices: &[PathBuf]) {
    let mut command = Command::new("fsck.erofs");
    command.args(devices.iter().map(|path| format!("--device={}", path.display())));
    match command.arg(image).output() {
        Err(e) => println!("SKIPPED: no fsck.erofs ({e})"),
        Ok(output) => assert!(output.status.success(), "{output:?}"),
    }
}

proptest! {
    #[test]
    fn any_tree_reads_back(tree in tree()) {
        let image = write(&tree, &devices(), &options()).unwrap();
        prop_assert_eq!(&image, &write(&tree, &devices(), &options()).unwrap());
        let expected = view_of_tree(&tree);
        assert_same(&expected, &Reader::new(&image).view(&expected));
    }
}

#[test]
fn the_kernel_shows_any_tree() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..DEVICES).map(|n| (n, 0, DEVICE_SIZE)).collect();
    let files = device_files(scratch.path(), &devices(), &all);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 120,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&tree(), |tree| {
            let image = write(&tree, &devices(), &options()).unwrap();
            let path = save(scratch.path(), &image);
            check_kernel(&view_of_tree(&tree), &path, &files);
            check_fsck(&path, &files);
            Ok(())
        })
        .unwrap();
}

fn metadata(mode: u16) -> Metadata {
    Metadata {
        mode,
        mtime: 1_700_000_000,
        ..Metadata::default()
    }
}

fn inode(kind: InodeKind) -> Inode {
    Inode {
        metadata: metadata(0o644),
        links: 1,
        kind,
    }
}

/// A root directory with these entries.
fn flat(mut entries: Vec<(Vec<u8>, Inode)>) -> ImageTree {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let child = |(number, (name, _)): (usize, &(Vec<u8>, Inode))| Child {
        name: name.as_slice().into(),
        inode: InodeId(number as u32 + 1),
    };
    let children = entries.iter().enumerate().map(child).collect();
    let root = Inode {
        metadata: metadata(0o755),
        links: 2,
        kind: InodeKind::Directory { children },
    };
    let inodes = std::iter::once(root)
        .chain(entries.into_iter().map(|(_, inode)| inode))
        .collect();
    ImageTree {
        inodes,
        root: InodeId(0),
    }
}

fn file(size: u64, extents: Vec<FileExtent>) -> Inode {
    inode(InodeKind::File { size, extents })
}

fn extent(file_offset: u64, device: u16, data_offset: u64, length: u64) -> FileExtent {
    FileExtent {
        file_offset,
        device,
        data_offset,
        length,
    }
}

#[test]
fn an_empty_image_without_devices() {
    check_everywhere(&flat(Vec::new()), &[], &[]);
}

#[test]
fn directories_of_any_size() {
    for count in [1, 100, 127, 128, 300, 100_000] {
        let name = |n: usize| format!("{n:x}-{}", "n".repeat(n % 40)).into_bytes();
        let entries = (0..count).map(|n| (name(n), inode(InodeKind::Fifo))).collect();
        check_everywhere(&flat(entries), &[], &[]);
    }
}

#[test]
fn an_inode_that_ends_with_its_block() {
    let mut found = 0;
    for count in 40..64_usize {
        for length in 2..8 {
            let name = |n: usize| format!("{n:0length$}").into_bytes();
            let entries = (0..count).map(|n| (name(n), inode(InodeKind::Fifo))).collect();
            // An empty slot, the root, its entries with "." and "..", and each inode of 64 bytes.
            let entries_size: usize = (count + 2) * 12 + 3 + count * length;
            let end = (32 + 64 + entries_size).next_multiple_of(32) + count * 64;
            if end == 4096 {
                check_everywhere(&flat(entries), &[], &[]);
                found += 1;
            }
        }
    }
    assert!(found > 0, "no tree ends so");
}

#[test]
fn huge_and_sparse_files() {
    const SIZE: u64 = 3 << 40;
    let devices = [
        Device {
            tag: [b'a'; 64],
            data_size: SIZE,
        },
        Device {
            tag: [b'b'; 64],
            data_size: 1 << 30,
        },
    ];
    let ranges = [
        (0, 0, 8192),
        (0, SIZE - 8192, 8192),
        (1, 1 << 20, 8192),
        (1, (1 << 20) + (1 << 29), 4096),
    ];
    let entries = vec![
        (
            b"three-terabytes".to_vec(),
            file(SIZE, vec![extent(0, 0, 0, SIZE)]),
        ),
        (b"hole".to_vec(), file(1 << 50, Vec::new())),
        (
            b"sparse".to_vec(),
            file(
                1 << 40,
                vec![
                    extent(1 << 30, 1, 1 << 20, 1 << 20),
                    extent(1 << 35, 1, (1 << 20) + (1 << 29), 1 << 20),
                ],
            ),
        ),
        (
            b"tail".to_vec(),
            file(8000, vec![extent(4096, 0, SIZE - 8192, 3904)]),
        ),
    ];
    // The first and last pages of a run hold data; what `device_files` leaves out would read as zero.
    let ranges: Vec<_> = ranges
        .into_iter()
        .chain([
            (1, (1 << 20) + (1 << 20) - 4096, 8192),
            (1, (1 << 20) + (1 << 29) + (1 << 20) - 4096, 4096),
        ])
        .collect();
    check_everywhere(&flat(entries), &devices, &ranges);
}

#[test]
fn links_xattrs_and_special_files() {
    let xattr = |name: &str, value: Vec<u8>| Xattr {
        name: name.as_bytes().to_vec(),
        value,
    };
    let mut entries = vec![
        (
            b"long".to_vec(),
            inode(InodeKind::Symlink {
                target: vec![b'l'; 4095],
            }),
        ),
        (
            b"short".to_vec(),
            inode(InodeKind::Symlink {
                target: b"long".to_vec(),
            }),
        ),
        (
            b"null".to_vec(),
            inode(InodeKind::CharDevice { major: 1, minor: 3 }),
        ),
        (
            b"most".to_vec(),
            inode(InodeKind::BlockDevice {
                major: 4095,
                minor: 1_048_575,
            }),
        ),
    ];
    for (_, inode) in &mut entries[..2] {
        inode.metadata.mode = 0o777;
    }
    let acl = [
        2u32.to_le_bytes().as_slice(),
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 4, 0, 255, 255, 255, 255],
    ]
    .concat();
    for n in 0..20 {
        let mut with = file(0, Vec::new());
        with.metadata.xattrs = vec![
            xattr(
                "security.capability",
                vec![1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
            xattr("system.posix_acl_access", acl.clone()),
            xattr("user.mine", format!("{n}").into_bytes()),
            xattr("user.ours", b"all the same".to_vec()),
        ];
        with.metadata.mode = 0o644;
        entries.push((format!("with{n}").into_bytes(), with));
    }
    let mut large = file(0, Vec::new());
    large.metadata.xattrs = (0..300)
        .map(|n| xattr(&format!("user.{n:03}"), vec![n as u8; 600]))
        .collect();
    let mut twin = large.clone();
    twin.metadata.xattrs.push(xattr("user.z", vec![9; 65535]));
    entries.push((b"large".to_vec(), large));
    entries.push((b"twin".to_vec(), twin));
    check_everywhere(&flat(entries), &[], &[]);
}

#[test]
fn five_hundred_devices() {
    let devices = vec![
        Device {
            tag: [b'd'; 64],
            data_size: 4096
        };
        500
    ];
    let entries = (0..500u16)
        .map(|n| (format!("{n}").into_bytes(), file(100, vec![extent(0, n, 0, 100)])))
        .collect();
    let ranges: Vec<_> = (0..500).map(|n| (n, 0, 4096)).collect();
    check_everywhere(&flat(entries), &devices, &ranges);
}

/// The attribute by which overlayfs would hide what is below a directory is seen but not acted on when it comes from
/// a layer.
#[test]
fn attributes_of_layers_do_not_steer_overlayfs() {
    if !can_mount() {
        return;
    }
    let entry = |name: &str, xattrs| Entry {
        path: LayerPath::normalize(name.as_bytes()).unwrap(),
        metadata: Metadata {
            xattrs,
            ..metadata(0o755)
        },
        kind: EntryKind::Directory,
    };
    let opaque = Xattr {
        name: b"trusted.overlay.opaque".to_vec(),
        value: b"y".to_vec(),
    };
    let layer = LayerIndex {
        layer: Digest::of(b"layer"),
        layer_size: 0,
        diff_id: None,
        codec: Codec::Tar,
        plain_size: 0,
        data_size: 0,
        entries: vec![entry("d", vec![opaque])],
        pieces: Vec::new(),
        spans: Vec::new(),
        windows: None,
        frame: None,
        contents: None,
    };
    let scratch = tempfile::tempdir().unwrap();
    let below = scratch.path().join("below");
    std::fs::create_dir_all(below.join("d/file")).unwrap();
    let mut tree = merge(&[&layer]).unwrap();
    let Some(listed) = overlay_over(&tree, scratch.path(), &below) else {
        return;
    };
    assert_eq!(listed, (vec!["file".into()], b"y".to_vec()));
    // Without the escape it would have been hidden: the check can fail.
    tree.inodes[1].metadata.xattrs[0].name = b"trusted.overlay.opaque".to_vec();
    let (hidden, _) = overlay_over(&tree, scratch.path(), &below).unwrap();
    assert_eq!(hidden, Vec::<std::ffi::OsString>::new());
}

/// The names in directory `d` of an image over another directory, and its `opaque` attribute, as overlayfs shows them.
fn overlay_over(
    tree: &ImageTree,
    scratch: &Path,
    below: &Path,
) -> Option<(Vec<std::ffi::OsString>, Vec<u8>)> {
    let image = save(scratch, &write(tree, &[], &options()).unwrap());
    let mounted = Mounted::new(&image, &[]);
    let overlay = match Mounted::overlay(&[&mounted.path(), below]) {
        Ok(overlay) => overlay,
        Err(e) => {
            println!("SKIPPED: overlayfs does not mount here ({e})");
            return None;
        }
    };
    let directory = overlay.path().join("d");
    let listed = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let mut value = vec![0; 10];
    let length = rustix::fs::lgetxattr(&directory, c"trusted.overlay.opaque", &mut value[..]).unwrap_or(0);
    value.truncate(length);
    Some((listed, value))
}

#[test]
fn what_the_format_cannot_hold_is_refused_by_name() {
    let refused = |inode: Inode| write(&flat(vec![(b"x".to_vec(), inode)]), &[], &options()).unwrap_err();
    let with = |name: &str, length| {
        let mut inode = file(0, Vec::new());
        inode.metadata.xattrs = vec![Xattr {
            name: name.as_bytes().to_vec(),
            value: vec![0; length],
        }];
        inode
    };
    assert!(matches!(refused(with("user.x", 65536)), ErofsError::Xattr { .. }));
    let named = |length| with(&format!("user.{}", "n".repeat(length)), 1);
    assert!(write(&flat(vec![(b"x".to_vec(), named(255))]), &[], &options()).is_ok());
    assert!(matches!(refused(named(256)), ErofsError::Xattr { .. }));
    assert!(matches!(
        refused(with("system.nfs4_acl", 1)),
        ErofsError::Xattr { .. }
    ));
    assert!(matches!(refused(with("user.", 1)), ErofsError::Xattr { .. }));
    let device = inode(InodeKind::CharDevice {
        major: 4096,
        minor: 0,
    });
    assert!(matches!(
        refused(device),
        ErofsError::DeviceNumber { major: 4096, .. }
    ));
    let outside = file(1, vec![extent(0, 0, 0, 1)]);
    assert_eq!(refused(outside), ErofsError::Extent(InodeId(1)));
    let mut twice = flat(vec![
        (b"x".to_vec(), inode(InodeKind::Fifo)),
        (b"y".to_vec(), inode(InodeKind::Fifo)),
    ]);
    if let InodeKind::Directory { children } = &mut twice.inodes[0].kind {
        children.reverse();
    }
    assert!(matches!(
        write(&twice, &[], &options()),
        Err(ErofsError::Tree { .. })
    ));
}

#[test]
fn the_bytes_of_an_image_do_not_change() {
    let mut named = file(5000, vec![extent(0, 1, 4096, 5000)]);
    named.metadata.xattrs = vec![Xattr {
        name: b"user.a".to_vec(),
        value: b"b".to_vec(),
    }];
    let tree = flat(vec![
        (b"file".to_vec(), named),
        (
            b"link".to_vec(),
            inode(InodeKind::Symlink {
                target: b"file".to_vec(),
            }),
        ),
    ]);
    let layer = Digest::of(b"layer");
    let devices = [Device::of_layer(&layer, 8192), Device::of_layer(&layer, 16384)];
    let image = write(&tree, &devices, &options()).unwrap();
    let digest = Digest::of(&image);
    assert_eq!(
        digest.hex(),
        "fe78ef0d82ca4e26c81820e2d20e788a6bd4942f8d8dcba90d4b31e713490020"
    );
}
