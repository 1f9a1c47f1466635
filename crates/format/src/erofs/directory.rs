//! Directory contents: blocks that each hold an array of entries and, behind it, their names.
//!
//! Entries ascend bytewise over the whole directory, `.` and `..` among the others, because the kernel searches by
//! halving (`fs/erofs/namei.c`), first for the block, then in it.

use super::disk::{BLOCK, DIRENT_SIZE, dirent, file_type};
use crate::image::Child;

/// The fields of a directory's entry besides its name.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) nid: u64,
    pub(super) file_type: u8,
}

/// A directory's entries with `.` and `..` where they belong.
fn entries(children: &[Child]) -> impl Iterator<Item = Name<'_>> {
    let after = |name: &[u8]| children.partition_point(|child| &*child.name < name);
    let (dot, dots) = (after(b"."), after(b".."));
    let named = |child| Name::Child(child);
    let (before, rest) = children.split_at(dot);
    let (between, behind) = rest.split_at(dots - dot);
    before
        .iter()
        .map(named)
        .chain([Name::Itself])
        .chain(between.iter().map(named))
        .chain([Name::Parent])
        .chain(behind.iter().map(named))
}

#[derive(Clone, Copy)]
enum Name<'a> {
    Itself,
    Parent,
    Child(&'a Child),
}

impl<'a> Name<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Name::Itself => b".",
            Name::Parent => b"..",
            Name::Child(child) => &child.name,
        }
    }
}

/// The size of a directory's contents in bytes: whole blocks, and what the last one holds.
pub(super) fn size(children: &[Child]) -> u64 {
    let (mut blocks, mut used) = (0, 0);
    for name in entries(children) {
        let needed = (DIRENT_SIZE + name.bytes().len()) as u64;
        if used + needed > BLOCK {
            blocks += 1;
            used = 0;
        }
        used += needed;
    }
    blocks * BLOCK + used
}

/// Writes a directory's contents: `out` is called with each block, the last one cut to its length.
pub(super) fn write(
    children: &[Child],
    itself: Target,
    parent: Target,
    target: impl Fn(&Child) -> Target,
    mut out: impl FnMut(&[u8]),
) {
    let mut pending: Vec<Name<'_>> = Vec::new();
    let mut block = Vec::with_capacity(BLOCK as usize);
    let mut used = 0;
    let mut flush = |pending: &mut Vec<Name<'_>>| {
        block.clear();
        let mut name_offset = pending.len() * DIRENT_SIZE;
        for &name in pending.iter() {
            let found = match name {
                Name::Itself => itself,
                Name::Parent => parent,
                Name::Child(child) => target(child),
            };
            block.extend_from_slice(&dirent(found.nid, name_offset as u16, found.file_type));
            name_offset += name.bytes().len();
        }
        for name in pending.drain(..) {
            block.extend_from_slice(name.bytes());
        }
        out(&block);
    };
    for name in entries(children) {
        let needed = DIRENT_SIZE + name.bytes().len();
        if used + needed > BLOCK as usize {
            flush(&mut pending);
            used = 0;
        }
        used += needed;
        pending.push(name);
    }
    flush(&mut pending);
}

/// The entry type of `.` and `..`.
pub(super) fn directory_target(nid: u64) -> Target {
    Target {
        nid,
        file_type: file_type::DIRECTORY,
    }
}
