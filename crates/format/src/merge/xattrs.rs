//! Which extended attributes of a layer a container sees.

use super::MergeError;
use crate::image::InodeKind;
use crate::layer::Xattr;
use crate::layer::limits::MAX_XATTR_NAME;

/// overlayfs keeps its own state in these, so one that comes from a layer could hide or redirect files.
const OVERLAY: &[u8] = b"trusted.overlay.";
/// overlayfs shows an attribute of this name to users as one of [`OVERLAY`] and does not act on it (Linux 6.7,
/// "Nesting overlayfs mounts" in `Documentation/filesystems/overlayfs.rst`).
const ESCAPED: &[u8] = b"trusted.overlay.overlay.";

/// The attributes as they are to be stored.
///
/// Kept are those that a file system of Linux would have taken: others would have been refused when unpacking, which
/// unpackers pass over. overlayfs's own are escaped.
pub(super) fn stored(xattrs: &[Xattr], kind: &InodeKind) -> Result<Vec<Xattr>, MergeError> {
    let mut kept = Vec::with_capacity(xattrs.len());
    for xattr in xattrs.iter().filter(|xattr| is_storable(&xattr.name, kind)) {
        let Some(rest) = xattr.name.strip_prefix(OVERLAY) else {
            kept.push(xattr.clone());
            continue;
        };
        let name = [ESCAPED, rest].concat();
        if name.len() > MAX_XATTR_NAME {
            let shown = String::from_utf8_lossy(&xattr.name).into_owned();
            return Err(MergeError::XattrNameTooLong(shown));
        }
        kept.push(Xattr {
            name,
            value: xattr.value.clone(),
        });
    }
    kept.sort();
    Ok(kept)
}

fn is_storable(name: &[u8], kind: &InodeKind) -> bool {
    let directory = matches!(kind, InodeKind::Directory { .. });
    let file = matches!(kind, InodeKind::File { .. });
    let symlink = matches!(kind, InodeKind::Symlink { .. });
    let in_namespace = |prefix: &[u8]| name.len() > prefix.len() && name.starts_with(prefix);
    match name {
        b"system.posix_acl_access" => !symlink,
        b"system.posix_acl_default" => directory,
        _ if in_namespace(b"user.") => file || directory,
        _ => in_namespace(b"trusted.") || in_namespace(b"security."),
    }
}
