//! From header fields to an [`Entry`]: validated paths, owners and devices, and what whiteout names mean.

use xebec_format::layer::limits::MAX_SYMLINK;
use xebec_format::layer::{Entry, EntryKind, Metadata, Xattr};
use xebec_format::path::LayerPath;

use super::error::EntryProblem;
use super::header::{Header, kind};
use super::xattr::{Inode, collect_xattrs};

/// Largest device numbers of Linux (`include/linux/kdev_t.h`: 12 bits major, 20 bits minor).
const MAX_MAJOR: i64 = (1 << 12) - 1;
const MAX_MINOR: i64 = (1 << 20) - 1;

/// The meaning of a name that starts with `.wh.` (OCI image spec, "Whiteouts").
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// The path is removed from lower layers.
    Whiteout(LayerPath),
    /// Everything below the path is removed from lower layers.
    Opaque(LayerPath),
    /// Bookkeeping of aufs (`.wh..wh.plnk` and the like), which means nothing to anyone else.
    Aufs,
}

/// Tells whether `path` is a marker, and which. The type of such an entry does not matter.
pub(super) fn marker(path: &LayerPath) -> Result<Option<Marker>, EntryProblem> {
    let Some((directory, name)) = path.split_last() else {
        return Ok(None);
    };
    let Some(hidden) = name.strip_prefix(b".wh.") else {
        return Ok(None);
    };
    match hidden {
        b".wh..opq" => Ok(Some(Marker::Opaque(directory))),
        b"" | b"." | b".." => Err(EntryProblem::Whiteout),
        _ if hidden.starts_with(b".wh.") => Ok(Some(Marker::Aufs)),
        _ => {
            let removed = [directory.as_bytes(), b"/", hidden].concat();
            Ok(Some(Marker::Whiteout(LayerPath::normalize(&removed)?)))
        }
    }
}

/// The entry that a header announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// An entry without contents.
    Entry(LayerPath, Metadata, EntryKind),
    /// A regular file, whose place is not known yet.
    File(LayerPath, Metadata),
    /// Nothing: its contents belong to the frame.
    Nothing,
}

/// Makes an entry of a header to which PAX records and long names have been applied, and of its extended attributes
/// (names and values; at most `max_xattrs` bytes).
pub(crate) fn announce<'a>(
    header: &Header,
    xattrs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    max_xattrs: u64,
) -> Result<Announced, EntryProblem> {
    let path = LayerPath::normalize(&header.name)?;
    match marker(&path)? {
        Some(Marker::Whiteout(path)) => return Ok(marked(path, EntryKind::Whiteout)),
        Some(Marker::Opaque(path)) => return Ok(marked(path, EntryKind::Opaque)),
        Some(Marker::Aufs) => return Ok(Announced::Nothing),
        None => {}
    }
    // The root is a directory; an archive that says otherwise is overruled, as containerd does.
    if path.is_root() && header.kind != kind::DIRECTORY {
        return Ok(Announced::Nothing);
    }
    let (entry_kind, inode) = match header.kind {
        kind::FILE | kind::CONTIGUOUS | kind::SPARSE => {
            let metadata = metadata(header, collect_xattrs(xattrs, Inode::Ordinary, max_xattrs)?)?;
            return Ok(Announced::File(path, metadata));
        }
        kind::DIRECTORY => (EntryKind::Directory, Inode::Ordinary),
        kind::HARDLINK => (hardlink(header, &path)?, Inode::Ordinary),
        kind::SYMLINK => (symlink_of(header)?, Inode::Symlink),
        kind::CHAR => {
            let (major, minor) = device(header)?;
            (EntryKind::CharDevice { major, minor }, Inode::Special)
        }
        kind::BLOCK => {
            let (major, minor) = device(header)?;
            (EntryKind::BlockDevice { major, minor }, Inode::Special)
        }
        kind::FIFO => (EntryKind::Fifo, Inode::Special),
        unknown => return Err(EntryProblem::Type(unknown)),
    };
    let metadata = metadata(header, collect_xattrs(xattrs, inode, max_xattrs)?)?;
    Ok(Announced::Entry(path, metadata, entry_kind))
}

/// Bytes that an entry takes up in memory, about.
pub(crate) fn memory_of(entry: &Entry) -> u64 {
    let kind = match &entry.kind {
        EntryKind::File { extents, .. } => size_of_val(extents.as_slice()),
        EntryKind::Symlink { target } => target.len(),
        EntryKind::Hardlink { target } => target.as_bytes().len(),
        _ => 0,
    };
    let xattrs = entry.metadata.xattrs.iter();
    let xattrs: usize = xattrs
        .map(|xattr| size_of_val(xattr) + xattr.name.len() + xattr.value.len())
        .sum();
    (size_of::<Entry>() + entry.path.as_bytes().len() + kind + xattrs) as u64
}

fn marked(path: LayerPath, kind: EntryKind) -> Announced {
    Announced::Entry(path, Metadata::default(), kind)
}

fn metadata(header: &Header, xattrs: Vec<Xattr>) -> Result<Metadata, EntryProblem> {
    Ok(Metadata {
        mode: (header.mode & 0o7777) as u16,
        uid: owner("uid", header.uid)?,
        gid: owner("gid", header.gid)?,
        mtime: header.mtime,
        mtime_nanoseconds: header.mtime_nanoseconds,
        xattrs,
    })
}

/// Small negative owners (macOS's nobody is -2) become the numbers that the kernel makes of them.
fn owner(field: &'static str, id: i64) -> Result<u32, EntryProblem> {
    let negative = || i32::try_from(id).ok().map(i32::cast_unsigned);
    u32::try_from(id)
        .ok()
        .or_else(negative)
        .ok_or(EntryProblem::Owner(field, id))
}

fn device(header: &Header) -> Result<(u32, u32), EntryProblem> {
    let (major, minor) = (header.major, header.minor);
    if !(0..=MAX_MAJOR).contains(&major) || !(0..=MAX_MINOR).contains(&minor) {
        return Err(EntryProblem::Device(major, minor));
    }
    Ok((major as u32, minor as u32))
}

fn symlink_of(header: &Header) -> Result<EntryKind, EntryProblem> {
    let length = header.link.len();
    if length == 0 || length > MAX_SYMLINK {
        return Err(EntryProblem::SymlinkTarget(length));
    }
    let target = header.link.clone();
    Ok(EntryKind::Symlink { target })
}

fn hardlink(header: &Header, path: &LayerPath) -> Result<EntryKind, EntryProblem> {
    let target = LayerPath::normalize(&header.link).map_err(EntryProblem::LinkPath)?;
    if target.is_root() || target == *path {
        return Err(EntryProblem::LinkTarget);
    }
    Ok(EntryKind::Hardlink { target })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LayerPath {
        LayerPath::normalize(text.as_bytes()).unwrap()
    }

    #[test]
    fn markers() {
        let whiteout = |text| Ok(Some(Marker::Whiteout(path(text))));
        assert_eq!(marker(&path("a/.wh.b")), whiteout("a/b"));
        assert_eq!(marker(&path(".wh.b")), whiteout("b"));
        assert_eq!(marker(&path("a/.wh...b")), whiteout("a/..b"));
        assert_eq!(
            marker(&path("a/.wh..wh..opq")),
            Ok(Some(Marker::Opaque(path("a"))))
        );
        assert_eq!(
            marker(&path(".wh..wh..opq")),
            Ok(Some(Marker::Opaque(LayerPath::root())))
        );
        assert_eq!(marker(&path("a/.wh..wh.plnk")), Ok(Some(Marker::Aufs)));
        assert_eq!(marker(&path("a/.wh")), Ok(None));
        for name in [".wh.", ".wh..", "a/.wh..."] {
            assert_eq!(marker(&path(name)), Err(EntryProblem::Whiteout), "{name}");
        }
    }

    #[test]
    fn owners_fit_or_are_refused() {
        assert_eq!(owner("uid", 4_294_967_295), Ok(u32::MAX));
        assert_eq!(owner("uid", -2), Ok(4_294_967_294));
        assert!(owner("uid", 4_294_967_296).is_err());
        assert!(owner("uid", i64::MIN).is_err());
    }
}
