//! Hostile layers that pass `check` either do not merge or merge into a tree that is sound (every inode reachable, link
//! counts right), the same each time; writing that as EROFS fails by a named limit or gives whole blocks.
#![no_main]

use std::collections::VecDeque;

use xebec_format::PAGE_SIZE;
use xebec_format::erofs::{self, Device, ErofsError};
use xebec_format::image::{ImageTree, InodeKind};
use xebec_format::layer::LayerIndex;
use xebec_format::merge::merge;
use xebec_fuzz::arbitrary_layer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let layers = arbitrary_layer::layers(bytes);
    let layers: Vec<&LayerIndex> = layers.iter().collect();
    let Ok(tree) = merge(&layers) else {
        return;
    };
    assert_eq!(merge(&layers).as_ref(), Ok(&tree), "merging is deterministic");
    check_tree(&tree);
    let devices: Vec<Device> = layers
        .iter()
        .map(|layer| Device::of_layer(&layer.layer, layer.data_size))
        .collect();
    match erofs::write(&tree, &devices, &erofs::Options::default()) {
        Ok(image) => assert!(image.len() as u64 % PAGE_SIZE == 0, "whole blocks"),
        Err(ErofsError::Tree { inode, problem }) => panic!("a merged tree is malformed: {inode:?} {problem}"),
        Err(ErofsError::Extent(inode)) => panic!("a merged tree has a bad extent at {inode:?}"),
        Err(_) => {}
    }
});

fn check_tree(tree: &ImageTree) {
    let mut names = vec![0u32; tree.inodes.len()];
    let mut subdirectories = vec![0u32; tree.inodes.len()];
    let mut queue = VecDeque::from([tree.root]);
    names[tree.root.index()] = 1;
    while let Some(id) = queue.pop_front() {
        let InodeKind::Directory { children } = &tree.inodes[id.index()].kind else {
            continue;
        };
        assert!(children.is_sorted_by(|a, b| a.name < b.name), "names ascend");
        for child in children {
            assert!(!child.name.is_empty() && !child.name.contains(&b'/'));
            let inode = &tree.inodes[child.inode.index()];
            names[child.inode.index()] += 1;
            if matches!(inode.kind, InodeKind::Directory { .. }) {
                subdirectories[id.index()] += 1;
            }
            if names[child.inode.index()] == 1 {
                queue.push_back(child.inode);
            }
        }
    }
    for (number, inode) in tree.inodes.iter().enumerate() {
        let expected = match inode.kind {
            InodeKind::Directory { .. } => {
                assert_eq!(names[number], 1, "a directory has one name");
                2 + subdirectories[number]
            }
            _ => names[number],
        };
        assert!(names[number] > 0, "inode {number} is not reachable");
        assert_eq!(inode.links, expected, "links of inode {number}");
    }
}
