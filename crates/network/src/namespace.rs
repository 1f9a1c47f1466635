//! The network namespace of an attachment: mounted on a file in the run directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use xebec_kernel::mount::Top;
use xebec_kernel::network::{mount_namespace, new_namespace};

use crate::NetworkError;
use crate::places::make;

/// A new namespace, which is not mounted yet, and its inode.
pub(crate) fn new() -> Result<(File, u64), NetworkError> {
    let made = new_namespace().and_then(|namespace| {
        let inode = namespace.metadata()?.ino();
        Ok((namespace, inode))
    });
    made.map_err(|source| NetworkError::Namespace { source })
}

/// Mounts a namespace at a place where nothing is yet.
pub(crate) fn mount(namespace: &File, at: &Path) -> Result<(), NetworkError> {
    at.parent().map_or(Ok(()), make)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(at).map_err(NetworkError::file("create", at))?;
    Ok(mount_namespace(namespace, at)?)
}

/// Whether the namespace with that inode is mounted there.
pub(crate) fn is_mounted(at: &Path, inode: u64) -> bool {
    Top::at(at).is_ok_and(|top| top.is_some_and(|top| is_it(&top, inode)))
}

/// Unmounts the namespace with that inode, and removes its mount point. Another mount at that place stays, and is an error. A place that
/// is gone is none.
pub(crate) fn unmount(at: &Path, inode: u64) -> Result<(), NetworkError> {
    if let Some(top) = Top::at(at)? {
        if !is_it(&top, inode) {
            return Err(NetworkError::NotOurs {
                at: at.to_owned(),
                found: format!("{} {}", top.info().filesystem, top.info().root.display()),
            });
        }
        top.detach()?;
    }
    match fs::remove_file(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetworkError::file("remove", at)(error)),
        _ => Ok(()),
    }
}

/// The kernel shows the kind and the inode of a namespace as the root of its mount.
fn is_it(top: &Top, inode: u64) -> bool {
    let info = top.info();
    info.filesystem == "nsfs" && info.root == Path::new(&format!("net:[{inode}]"))
}
