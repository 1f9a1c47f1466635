//! What root makes in the directory of another user belongs to that user.
//!
//! A registry often runs as a user of its own, and an administrator runs `doctor`, `gc` or `scrub` as root. A folder, an object or a lock that root made
//! there and kept would be one that the registry can neither read nor write.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, fchown, openat};
use rustix::process::geteuid;
use rustix::thread::CapabilitySet;
use xebec_kernel::process::has_capability;

/// Gives what this process has just made in a directory the owner of that directory, if this process is root's. What was there already has an owner:
/// never call this for it. Where the file system keeps no owners, or root may not change them, it stays as it is.
pub(super) fn hand_over(made: &File, directory: &Path) {
    // Without the right to pass by permissions, root itself could not use it any more.
    if !geteuid().is_root() || !has_capability(CapabilitySet::DAC_OVERRIDE) {
        return;
    }
    let (Ok(of_made), Ok(of_directory)) = (made.metadata(), directory.metadata()) else {
        return;
    };
    let owner = |metadata: &Metadata| (metadata.uid(), metadata.gid());
    if owner(&of_made) != owner(&of_directory) {
        let (user, group) = owner(&of_directory);
        let _ = fchown(
            made.as_fd(),
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(group)),
        );
    }
}

/// The same of a directory. A link in its place is somebody else's, and is left alone.
pub(super) fn hand_over_directory(made: &Path) -> io::Result<()> {
    let Some(directory) = made.parent() else {
        return Ok(());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, made, flags, Mode::empty())?;
    hand_over(&File::from(opened), directory);
    Ok(())
}
