//! What a reader can learn of a tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// By path: all that is compared, in words.
pub(crate) type Tree = BTreeMap<Vec<u8>, String>;

/// Reads a tree. Files with several names tell the first of them.
pub(crate) fn read(top: &Path) -> Tree {
    let (mut tree, mut inodes) = (Tree::new(), BTreeMap::new());
    visit(top, Vec::new(), &mut tree, &mut inodes);
    tree
}

fn visit(path: &Path, name: Vec<u8>, tree: &mut Tree, inodes: &mut BTreeMap<u64, Vec<u8>>) {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = found.file_type();
    let first = match kind.is_dir() {
        true => name.clone(),
        false => inodes.entry(found.ino()).or_insert_with(|| name.clone()).clone(),
    };
    let contents = match kind {
        kind if kind.is_file() => format!("{:?}", fs::read(path).unwrap()),
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        kind if kind.is_char_device() || kind.is_block_device() => format!("{}", found.rdev()),
        _ => String::new(),
    };
    let said = format!(
        "{:o} {}:{} {}.{:09} first {} {:?} {contents}",
        found.mode(),
        found.uid(),
        found.gid(),
        found.mtime(),
        found.mtime_nsec(),
        String::from_utf8_lossy(&first),
        xattrs(path),
    );
    tree.insert(name.clone(), said);
    if kind.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).collect();
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let below = [&name[..], b"/", entry.file_name().as_bytes()].concat();
            visit(&entry.path(), below, tree, inodes);
        }
    }
}

/// Those that a layer has. The others are a host's own.
fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..length].split(|&byte| byte == 0);
    let mut all: Vec<(String, Vec<u8>)> = names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| name.starts_with("user.") || name == "security.capability")
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value).unwrap();
            value.truncate(length);
            (name, value)
        })
        .collect();
    all.sort();
    all
}

/// The paths at which two trees differ, with what each says.
pub(crate) fn differences(one: &Tree, other: &Tree) -> Vec<String> {
    let paths: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    paths
        .into_iter()
        .filter(|path| one.get(*path) != other.get(*path))
        .map(|path| {
            let shown = String::from_utf8_lossy(path);
            format!("{shown:?}:\n  {:?}\n  {:?}", one.get(path), other.get(path))
        })
        .collect()
}
