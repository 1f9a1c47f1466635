//! Everything that a reader can learn of a directory tree, and how two trees differ.
//!
//! Reading goes from descriptor to descriptor, so that paths may be longer than a system call takes, and names
//! are bytes. Only what says nothing of an image is left out: inode numbers (but which names share one is
//! compared), sizes of directories, access and change times.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use xebec_format::digest::{Digest, Digester};

/// A path as bytes, without a leading slash; empty for the root.
pub(crate) type Name = Vec<u8>;

/// One file of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Type and permission bits, as in `st_mode`.
    pub(crate) mode: u32,
    /// Owner and group.
    pub(crate) owner: (u32, u32),
    /// Modification time: seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// Number of links.
    pub(crate) links: u64,
    /// Size in bytes; 0 for directories, whose size is the file system's affair.
    pub(crate) size: u64,
    /// Device number, of device nodes.
    pub(crate) device: (u32, u32),
    /// Target of a symbolic link.
    pub(crate) target: Option<Vec<u8>>,
    /// Digest of a regular file's contents.
    pub(crate) contents: Option<Digest>,
    /// Extended attributes, by name.
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name, in order, of the same inode.
    pub(crate) first_name: Name,
}

/// A tree, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The files.
    pub(crate) nodes: BTreeMap<Name, Node>,
    /// Bytes of regular files that were read.
    pub(crate) bytes: u64,
}

/// Reads a whole tree, contents included.
pub(crate) fn read(top: &Path) -> Result<Tree> {
    let mut reader = Reader {
        tree: Tree::default(),
        inodes: BTreeMap::new(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(top, flags, Mode::empty()).with_context(|| format!("opening {top:?}"))?;
    reader.directory(directory, Vec::new())?;
    reader.name_inodes();
    Ok(reader.tree)
}

struct Reader {
    tree: Tree,
    /// First name and contents of each inode seen with several links.
    inodes: BTreeMap<u64, (Name, Option<Digest>)>,
}

impl Reader {
    fn directory(&mut self, directory: OwnedFd, path: Name) -> Result<()> {
        let stat = fs::fstat(&directory)?;
        let mut node = node_of(&stat);
        node.xattrs = xattrs(&format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
        node.first_name.clone_from(&path);
        self.tree.nodes.insert(path.clone(), node);
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry.with_context(|| format!("listing {}", show(&path)))?;
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            let child = if path.is_empty() {
                name.to_bytes().to_vec()
            } else {
                [&path, b"/".as_slice(), name.to_bytes()].concat()
            };
            self.entry(&directory, name, child.clone())
                .with_context(|| show(&child))?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &CStr, path: Name) -> Result<()> {
        let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut node = node_of(&stat);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return self.directory(fs::openat(directory, name, flags, Mode::empty())?, path);
        }
        let mut place = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        place.extend(name.to_bytes());
        node.xattrs = xattrs(place.as_slice())?;
        if kind == FileType::Symlink {
            node.target = Some(fs::readlinkat(directory, name, Vec::new())?.into_bytes());
        }
        let inode = self.inodes.get_mut(&stat.st_ino);
        if let Some((first, contents)) = inode {
            // Names are compared in order below; directories are read in any order.
            if path < *first {
                first.clone_from(&path);
            }
            node.contents = *contents;
        } else {
            if kind == FileType::RegularFile {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(fs::openat(directory, name, flags, Mode::empty())?);
                node.contents = Some(self.digest(file)?);
            }
            if node.links > 1 {
                self.inodes.insert(stat.st_ino, (path.clone(), node.contents));
            }
        }
        // Holds the inode number until all names are known.
        node.first_name = if node.links > 1 {
            stat.st_ino.to_le_bytes().to_vec()
        } else {
            path.clone()
        };
        self.tree.nodes.insert(path, node);
        Ok(())
    }

    fn digest(&mut self, mut file: File) -> Result<Digest> {
        let mut digester = Digester::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return Ok(digester.finish());
            }
            digester.update(&buffer[..length]);
            self.tree.bytes += length as u64;
        }
    }

    fn name_inodes(&mut self) {
        for node in self.tree.nodes.values_mut() {
            let is_directory = FileType::from_raw_mode(node.mode) == FileType::Directory;
            if node.links > 1
                && !is_directory
                && let Ok(inode) = node.first_name.as_slice().try_into()
                && let Some((first, _)) = self.inodes.get(&u64::from_le_bytes(inode))
            {
                node.first_name.clone_from(first);
            }
        }
    }
}

fn node_of(stat: &fs::Stat) -> Node {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let has_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    let device = if has_device {
        (fs::major(stat.st_rdev), fs::minor(stat.st_rdev))
    } else {
        (0, 0)
    };
    Node {
        mode: stat.st_mode,
        owner: (stat.st_uid, stat.st_gid),
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        links: stat.st_nlink,
        size: if kind == FileType::Directory {
            0
        } else {
            stat.st_size as u64
        },
        device,
        target: None,
        contents: None,
        xattrs: BTreeMap::new(),
        first_name: Vec::new(),
    }
}

/// The extended attributes of a file (not of what it links to).
fn xattrs<P: rustix::path::Arg + Copy>(path: P) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The kernel's limits for a list of names and for a value (XATTR_LIST_MAX, XATTR_SIZE_MAX).
    let mut names = vec![0; 65536];
    let length = match path_is_descriptor(path)? {
        true => fs::listxattr(path, names.as_mut_slice())?,
        false => fs::llistxattr(path, names.as_mut_slice())?,
    };
    names.truncate(length);
    let mut found = BTreeMap::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65536];
        let length = match path_is_descriptor(path)? {
            true => fs::getxattr(path, name, value.as_mut_slice())?,
            false => fs::lgetxattr(path, name, value.as_mut_slice())?,
        };
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// A descriptor in /proc is itself a link, and has to be followed.
fn path_is_descriptor<P: rustix::path::Arg + Copy>(path: P) -> Result<bool> {
    let path = path.into_c_str()?;
    let last = path.to_bytes().strip_prefix(b"/proc/self/fd/");
    Ok(last.is_some_and(|rest| rest.iter().all(u8::is_ascii_digit)))
}

/// A difference between two trees.
pub(crate) struct Difference {
    /// Where.
    pub(crate) path: Name,
    /// The property that differs.
    pub(crate) field: &'static str,
    /// The values of the first and of the second.
    pub(crate) values: (String, String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {} / {}",
            show(&self.path),
            self.field,
            self.values.0,
            self.values.1
        )
    }
}

/// All differences between two trees, in order of path.
pub(crate) fn compare(one: &Tree, other: &Tree) -> Vec<Difference> {
    let mut found = Vec::new();
    for (path, node) in &one.nodes {
        match other.nodes.get(path) {
            Some(twin) => compare_nodes(path, node, twin, &mut found),
            None => found.push(missing(path, "there", "missing")),
        }
    }
    let only_other = other.nodes.keys().filter(|path| !one.nodes.contains_key(*path));
    found.extend(only_other.map(|path| missing(path, "missing", "there")));
    found
}

fn missing(path: &Name, one: &str, other: &str) -> Difference {
    Difference {
        path: path.clone(),
        field: "existence",
        values: (one.to_owned(), other.to_owned()),
    }
}

fn compare_nodes(path: &Name, one: &Node, other: &Node, found: &mut Vec<Difference>) {
    let mut field = |field, one: String, other: String| {
        if one != other {
            found.push(Difference {
                path: path.clone(),
                field,
                values: (one, other),
            });
        }
    };
    field("mode", format!("{:o}", one.mode), format!("{:o}", other.mode));
    field("owner", format!("{:?}", one.owner), format!("{:?}", other.owner));
    field(
        "mtime",
        format!("{:?}", one.modified),
        format!("{:?}", other.modified),
    );
    field("links", one.links.to_string(), other.links.to_string());
    field("size", one.size.to_string(), other.size.to_string());
    field(
        "device",
        format!("{:?}", one.device),
        format!("{:?}", other.device),
    );
    field(
        "target",
        format!("{:?}", one.target.as_deref().map(show)),
        format!("{:?}", other.target.as_deref().map(show)),
    );
    field(
        "contents",
        format!("{:?}", one.contents),
        format!("{:?}", other.contents),
    );
    field("xattrs", show_xattrs(&one.xattrs), show_xattrs(&other.xattrs));
    field("same inode as", show(&one.first_name), show(&other.first_name));
}

fn show_xattrs(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let parts: Vec<String> = xattrs
        .iter()
        .map(|(name, value)| format!("{}={}", show(name), show(value)))
        .collect();
    format!("[{}]", parts.join(", "))
}

/// Bytes for people.
pub(crate) fn show(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().escape_ascii().to_string()
}
