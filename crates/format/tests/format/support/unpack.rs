//! Unpacks layers into a real directory, as simply as can be, with the kernel keeping the tree. Merging must agree with
//! it. Owners, times and attributes are kept beside the directory, by inode number, so that it needs no privileges.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use tempfile::TempDir;
use xebec_format::image::{ImageTree, InodeId, InodeKind};
use xebec_format::layer::{Entry, EntryKind, Extent, LayerIndex, Metadata};
use xebec_format::path::LayerPath;

/// Layers whose paths are of few names, so that they get in each other's way.
pub(crate) fn layers_of_small_names() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    // Files mostly have names of their own, so that not every layer fails for a parent that is a file.
    let path = |last: &'static [&'static str]| {
        let parents = vec(proptest::sample::select(&["a", "b", "l"][..]), 0..3);
        (parents, proptest::sample::select(last)).prop_map(|(parents, last)| {
            let names = [parents, vec![last]].concat();
            LayerPath::normalize(names.join("/").as_bytes()).unwrap()
        })
    };
    let targets = [
        "a",
        "b",
        "/a",
        "/b/a",
        "..",
        "../b",
        "../../a/.",
        "a/../b",
        "/",
        "a/b",
        "x",
    ];
    let target = proptest::sample::select(targets.to_vec());
    let file = || EntryKind::File {
        size: 1,
        extents: Vec::new(),
    };
    let entry = prop_oneof![
        5 => path(&["a", "b", "l"]).prop_map(|path| (path, EntryKind::Directory)),
        6 => path(&["x", "y", "x", "y", "x", "y", "a"]).prop_map(move |path| (path, file())),
        1 => path(&["x", "y", "a"]).prop_map(|path| (path, EntryKind::Fifo)),
        2 => (path(&["l", "x", "a"]), target)
            .prop_map(|(path, target)| (path, EntryKind::Symlink { target: target.into() })),
        1 => (path(&["x", "y", "l"]), path(&["x", "y"]))
            .prop_map(|(path, target)| (path, EntryKind::Hardlink { target })),
        2 => path(&["a", "b", "l", "x", "y"]).prop_map(|path| (path, EntryKind::Whiteout)),
        1 => path(&["a", "b", "l"]).prop_map(|path| (path, EntryKind::Opaque)),
    ];
    let entry = (entry, 1i64..1000).prop_map(|((path, kind), mtime)| {
        let bare = matches!(kind, EntryKind::Whiteout | EntryKind::Opaque);
        let metadata = if bare {
            Metadata::default()
        } else {
            Metadata {
                mode: 0o600,
                mtime,
                ..Metadata::default()
            }
        };
        Entry { path, metadata, kind }
    });
    vec(vec(entry, 0..12), 1..4).prop_map(|mut layers| {
        for entries in &mut layers {
            for (number, entry) in entries.iter_mut().enumerate() {
                if let EntryKind::File { extents, .. } = &mut entry.kind {
                    // The place in the data space tells whose contents a file has.
                    extents.push(Extent {
                        file_offset: 0,
                        data_offset: number as u64 * 4096,
                        length: 1,
                    });
                }
            }
        }
        layers
    })
}

/// A directory with an image in it.
pub(crate) struct Unpacked {
    directory: TempDir,
    /// Time and, for files, (layer, place) of each inode.
    inodes: HashMap<u64, (i64, Option<(u16, u64)>)>,
    /// Paths that this layer brought, and the directories above them.
    upper: BTreeSet<PathBuf>,
}

impl Unpacked {
    pub(crate) fn new(layers: &[LayerIndex]) -> io::Result<Self> {
        let mut unpacked = Self {
            directory: tempfile::tempdir()?,
            inodes: HashMap::new(),
            upper: BTreeSet::new(),
        };
        for (number, layer) in layers.iter().enumerate() {
            unpacked.upper.clear();
            for entry in &layer.entries {
                unpacked.entry(number as u16, entry)?;
            }
        }
        Ok(unpacked)
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn entry(&mut self, layer: u16, entry: &Entry) -> io::Result<()> {
        let path = Path::new(std::ffi::OsStr::from_bytes(entry.path.as_bytes()));
        if let EntryKind::Opaque = entry.kind {
            let directory = self.resolve(path, true)?;
            return self.remove_lower(&directory, true);
        }
        let parent = self.resolve(path.parent().unwrap(), true)?;
        let full = parent.join(path.file_name().unwrap());
        let there = fs::symlink_metadata(&full).ok();
        match &entry.kind {
            EntryKind::Whiteout => {
                return if there.is_some() {
                    self.remove_lower(&full, false)
                } else {
                    Ok(())
                };
            }
            EntryKind::Directory => {
                if there.is_none_or(|there| !there.is_dir()) {
                    remove(&full)?;
                    fs::create_dir(&full)?;
                }
            }
            kind => {
                remove(&full)?;
                self.make(&full, kind)?;
            }
        }
        let inode = fs::symlink_metadata(&full)?.ino();
        let place = match &entry.kind {
            EntryKind::File { extents, .. } => Some((layer, extents[0].data_offset)),
            EntryKind::Hardlink { .. } => self.inodes.get(&inode).and_then(|known| known.1),
            _ => None,
        };
        self.inodes.insert(inode, (entry.metadata.mtime, place));
        self.upper.extend(full.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn make(&mut self, full: &Path, kind: &EntryKind) -> io::Result<()> {
        match kind {
            EntryKind::File { .. } => fs::write(full, ""),
            EntryKind::Symlink { target } => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), full)
            }
            EntryKind::Hardlink { target } => {
                let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
                let parent = self.resolve(target.parent().unwrap(), false)?;
                fs::hard_link(parent.join(target.file_name().unwrap()), full)
            }
            EntryKind::Fifo => Ok(rustix::fs::mknodat(
                rustix::fs::CWD,
                full,
                rustix::fs::FileType::Fifo,
                Mode::RUSR,
                0,
            )?),
            other => panic!("{other:?}"),
        }
    }

    /// Where a path leads inside the root; with `make`, missing directories come into being.
    fn resolve(&mut self, path: &Path, make: bool) -> io::Result<PathBuf> {
        let mut at = self.root().to_path_buf();
        let mut rest: Vec<PathBuf> = vec![path.to_path_buf()];
        let mut links = 0;
        while let Some(next) = rest.pop() {
            let mut components = next.components();
            let Some(first) = components.next() else { continue };
            rest.push(components.as_path().to_path_buf());
            let name = match first {
                std::path::Component::RootDir => {
                    at = self.root().to_path_buf();
                    continue;
                }
                std::path::Component::ParentDir => {
                    if at != self.root() {
                        at.pop();
                    }
                    continue;
                }
                std::path::Component::Normal(name) => name,
                _ => continue,
            };
            match fs::read_link(at.join(name)) {
                Ok(target) => {
                    links += 1;
                    if links > 255 {
                        return Err(io::Error::other("loop"));
                    }
                    rest.push(target);
                }
                Err(_) => at.push(name),
            }
        }
        if fs::metadata(&at).is_err() && make {
            self.make_directories(&at)?;
        }
        if !fs::symlink_metadata(&at)?.is_dir() {
            return Err(io::Error::other("not a directory"));
        }
        self.assert_the_kernel_agrees(path, &at);
        Ok(at)
    }

    fn make_directories(&mut self, at: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = at
            .ancestors()
            .take_while(|p| fs::symlink_metadata(p).is_err())
            .collect();
        for path in missing.into_iter().rev() {
            fs::create_dir(path)?;
            self.inodes.insert(fs::symlink_metadata(path)?.ino(), (0, None));
        }
        self.upper.extend(at.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    /// The kernel resolves paths inside a root too, if all of it exists.
    fn assert_the_kernel_agrees(&self, path: &Path, found: &Path) {
        let root = fs::File::open(self.root()).unwrap();
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let opened = rustix::fs::openat2(&root, path, OFlags::PATH, Mode::empty(), ResolveFlags::IN_ROOT);
        if let Ok(opened) = opened {
            let number = rustix::fs::fstat(&opened).unwrap().st_ino;
            assert_eq!(number, fs::metadata(found).unwrap().ino(), "{}", path.display());
        }
    }

    /// Removes what this layer did not bring.
    fn remove_lower(&mut self, path: &Path, keep: bool) -> io::Result<()> {
        if !keep && !self.upper.contains(path) {
            return remove(path);
        }
        if fs::symlink_metadata(path)?.is_dir() {
            for child in fs::read_dir(path)? {
                self.remove_lower(&child?.path(), false)?;
            }
        }
        Ok(())
    }

    pub(crate) fn assert_shows(&self, tree: &ImageTree) {
        let mut expected = BTreeMap::new();
        self.list(self.root(), Path::new(""), &mut expected);
        let mut found = BTreeMap::new();
        let mut numbers = HashMap::new();
        list_tree(tree, tree.root, Path::new(""), &mut found, &mut numbers);
        assert_eq!(found, expected);
    }

    fn list(&self, full: &Path, path: &Path, out: &mut BTreeMap<PathBuf, String>) {
        let mut children: Vec<_> = fs::read_dir(full)
            .unwrap()
            .map(|c| c.unwrap().file_name())
            .collect();
        children.sort();
        for name in children {
            let (full, path) = (full.join(&name), path.join(&name));
            let stat = fs::symlink_metadata(&full).unwrap();
            let (mtime, place) = self.inodes[&stat.ino()];
            let kind = if stat.is_dir() {
                "directory".into()
            } else if stat.is_symlink() {
                format!(
                    "link to {:?}",
                    fs::read_link(&full).unwrap().into_os_string().into_vec()
                )
            } else if stat.is_file() {
                format!("file {place:?}")
            } else {
                "fifo".into()
            };
            // Some file systems count links of directories otherwise.
            let links = if stat.is_dir() { 0 } else { stat.nlink() };
            out.insert(path.clone(), format!("{kind} time {mtime} links {links}"));
            if stat.is_dir() {
                self.list(&full, &path, out);
            }
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

fn list_tree(
    tree: &ImageTree,
    directory: InodeId,
    path: &Path,
    out: &mut BTreeMap<PathBuf, String>,
    seen: &mut HashMap<InodeId, u32>,
) {
    let InodeKind::Directory { children } = &tree.inode(directory).unwrap().kind else {
        panic!()
    };
    for child in children {
        let inode = tree.inode(child.inode).unwrap();
        let path = path.join(std::ffi::OsStr::from_bytes(&child.name));
        *seen.entry(child.inode).or_default() += 1;
        let is_directory = matches!(inode.kind, InodeKind::Directory { .. });
        let kind = match &inode.kind {
            InodeKind::Directory { .. } => "directory".into(),
            InodeKind::Symlink { target } => format!("link to {target:?}"),
            InodeKind::File { extents, .. } => {
                format!("file {:?}", Some((extents[0].device, extents[0].data_offset)))
            }
            InodeKind::Fifo => "fifo".into(),
            other => panic!("{other:?}"),
        };
        let links = if is_directory { 0 } else { inode.links };
        out.insert(
            path.clone(),
            format!("{kind} time {} links {links}", inode.metadata.mtime),
        );
        if is_directory {
            list_tree(tree, child.inode, &path, out, seen);
        }
    }
}
