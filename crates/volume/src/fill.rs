//! Fills an empty volume with what the image has in its place.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, syncfs};
use rustix::io::Errno;
use xebec_kernel::path::open_in_root;
use xebec_kernel::remove::remove_tree;

use super::copy::copy_tree;
use super::error::VolumeError;
use super::store::{DATA, make_closed};

/// Where files are until all are there.
const ASIDE: &str = "_new";

/// Copies what `view` has at `target` to the volume at `volume`, if that is empty. Its lock is held. `go_on`
/// fails if the copy is to end.
pub(super) fn fill(
    view: &Path,
    target: &Path,
    volume: &Path,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(), VolumeError> {
    let (data, aside) = (volume.join(DATA), volume.join(ASIDE));
    discard(&aside)?;
    let mut entries = fs::read_dir(&data).map_err(VolumeError::file("read", &data))?;
    if entries.next().is_some() {
        return Ok(());
    }
    let Some(from) = open_directory(view, target)? else {
        return Ok(());
    };
    make_closed(&aside)?;
    let copied = File::open(&aside)
        .and_then(|to| {
            copy_tree(from.as_fd(), to.as_fd(), go_on)?;
            // The files are on the disk before the name is: after a power cut there are all or none.
            Ok(syncfs(&to)?)
        })
        .and_then(|()| fs::rename(&aside, &data));
    copied.map_err(|source| {
        if let Err(error) = discard(&aside) {
            tracing::warn!(%error, "what was copied to a volume is left beside it; the next container removes it");
        }
        match source.kind() {
            io::ErrorKind::Interrupted => VolumeError::Interrupted,
            _ => VolumeError::file("copy the image's files to the volume at", &data)(source),
        }
    })
}

/// The directory that the image has at a path. `None` if it has nothing there.
fn open_directory(view: &Path, target: &Path) -> Result<Option<File>, VolumeError> {
    let failed = VolumeError::file::<io::Error>("find in the image", target);
    let found = match open_in_root(view, target) {
        Ok(found) => found,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            _ => return Err(failed(error)),
        },
    };
    let status = match fstat(&found) {
        Ok(status) => status,
        Err(error) => return Err(failed(error.into())),
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
        return Err(VolumeError::NotADirectory(target.to_owned()));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(&found, c".", flags, Mode::empty());
    opened
        .map(|opened| Some(opened.into()))
        .map_err(|error| failed(error.into()))
}

fn discard(aside: &Path) -> Result<(), VolumeError> {
    match remove_tree(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(VolumeError::file("remove", aside)(error))
        }
        _ => Ok(()),
    }
}
