//! The read-ahead of a mounted file system: how much more than the touched page one fault asks for.
//!
//! At the kernel's default of 128 KiB a cold page asks for up to 32 pages; at 0 every event is exactly the
//! page that was touched, which is what a recording wants. It is an attribute of the file system's backing
//! device information (bdi) in sysfs, shared by all mounts of one file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::MountError;

/// The device number that files at `path` report, for [`set_read_ahead_kib`].
///
/// # Errors
/// What `stat` said.
pub fn device_number(path: &Path) -> io::Result<u64> {
    Ok(rustix::fs::stat(path)?.st_dev)
}

/// Sets the read-ahead of the file system with device number `device`, in KiB.
///
/// # Errors
/// [`MountError::ReadAhead`]; the file system may have no bdi of its own.
pub fn set_read_ahead_kib(device: u64, kib: u32) -> Result<(), MountError> {
    let file = attribute(device).map_err(|source| error("set", device, source))?;
    fs::write(file, kib.to_string()).map_err(|source| error("set", device, source))
}

/// The read-ahead of the file system with device number `device`, in KiB.
///
/// # Errors
/// [`MountError::ReadAhead`].
pub fn read_ahead_kib(device: u64) -> Result<u32, MountError> {
    let read = || {
        let text = fs::read_to_string(attribute(device)?)?;
        text.trim()
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    };
    read().map_err(|source| error("read", device, source))
}

/// A block device's bdi is named `major:minor`; EROFS over files names its own `erofs-<minor>`
/// (`erofs_fc_fill_super`).
fn attribute(device: u64) -> io::Result<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let names = [format!("{major}:{minor}"), format!("erofs-{minor}")];
    names
        .iter()
        .map(|name| Path::new("/sys/class/bdi").join(name).join("read_ahead_kb"))
        .find(|file| file.exists())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn error(action: &'static str, device: u64, source: io::Error) -> MountError {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    MountError::ReadAhead {
        action,
        device,
        source,
    }
}
