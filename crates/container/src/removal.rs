//! Removes a container's bundle and layer, and unmounts its root before that.
//!
//! Only a container's own files and mounts are removed: a mount that is no root of a container stays, and so does everything
//! below it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use xebec_kernel::mount::automount::DOOR_SOURCE;
use xebec_kernel::mount::{MountInfo, Top, refuse_mounts_below};
use xebec_kernel::remove::remove_tree;
use xebec_volume::anonymous_of;

use crate::control_groups::{INTERVAL, ROUNDS};
use crate::layout::{CONTAINER, MERGED, REMOVE_MARKER, UPPER, WORK};
use crate::{Directories, RunError};

/// How long it may take to open a directory on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Unmounts a container's root, and removes its bundle.
pub(crate) fn remove_bundle(dirs: &Directories, id: &str) -> Result<(), RunError> {
    let path = dirs.bundles().join(id);
    unmount_root(&path)?;
    ignore_missing(&path, remove_all(&path))
}

/// Removes a container's layer if `all` is set, and otherwise only the scratch directory of overlayfs, which
/// nothing needs without the container.
pub(crate) fn remove_layer(path: &Path, all: bool) -> Result<(), RunError> {
    // Earlier versions had the bundle in this directory, and a container may be as old as that.
    unmount_root(path)?;
    if !all {
        return ignore_missing(path, remove_all(&path.join(WORK)));
    }
    if let Err(error) = check_that_it_can_go(path) {
        return ignore_missing(path, Err(error));
    }
    for name in [UPPER, WORK] {
        ignore_missing(path, remove_all(&path.join(name)))?;
    }
    // The files that say that there is a container, and that it is being removed, go last: a process that is killed in between leaves
    // what a cleanup finds.
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if ![CONTAINER, REMOVE_MARKER]
            .map(Some)
            .contains(&entry.file_name().to_str())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
    for name in [CONTAINER, REMOVE_MARKER] {
        ignore_missing(path, fs::remove_file(path.join(name)))?;
    }
    ignore_missing(path, remove_all(path))
}

/// Removes the leftovers of a container that has ended: all of them if nothing is kept, with the volumes that were
/// made for it and have no name, and otherwise only the scratch directory.
pub(crate) fn remove_unless_kept(dirs: &Directories, path: &Path, all: bool) -> Result<(), RunError> {
    let anonymous = if all { anonymous_of(path) } else { Vec::new() };
    remove_layer(path, all)?;
    remove_volumes(dirs, &anonymous);
    Ok(())
}

/// Removes anonymous volumes, except those that another container uses by their names.
pub(crate) fn remove_volumes(dirs: &Directories, names: &[String]) {
    let volumes = dirs.volumes();
    for name in names {
        if let Err(error) = volumes.remove(name) {
            tracing::debug!(%error, "an anonymous volume stays");
        }
    }
}

fn unmount_root(directory: &Path) -> Result<(), RunError> {
    let merged = directory.join(MERGED);
    check_that_it_opens(&merged)?;
    unmount_all(&merged)
}

fn ignore_missing(path: &Path, outcome: io::Result<()>) -> Result<(), RunError> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RunError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a directory. A runtime whose container was killed may still write its last log lines there.
fn remove_all(path: &Path) -> io::Result<()> {
    check_that_it_can_go(path)?;
    for _ in 0..ROUNDS {
        match remove_tree(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => std::thread::sleep(INTERVAL),
            removed => return removed,
        }
    }
    remove_tree(path)
}

/// Refuses a path that is no directory, and one below which something is mounted.
fn check_that_it_can_go(path: &Path) -> io::Result<()> {
    // A container has directories. A file or a link in the place of one is not Xebec's.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir()) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    refuse_mounts_below(path)
}

/// Fails if a container's root does not open in time. While one process waits at its automount for the root
/// that a killed supervisor will not mount, every other process that enters waits, too
/// ([`xebec_kernel::mount::automount`]).
fn check_that_it_opens(merged: &Path) -> Result<(), RunError> {
    let (sender, opened) = std::sync::mpsc::channel();
    // A thread that waits for ever ends with this process. It does not use `statx`, which would enter.
    let thread = std::thread::Builder::new().spawn({
        let merged = merged.to_owned();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        move || sender.send(rustix::fs::open(merged, flags, Mode::empty()).map(drop))
    });
    if thread.is_err() {
        // There are too many processes. That is rare, and must not hide the error that led here.
        return Ok(());
    }
    opened.recv_timeout(PATIENCE).map(drop).map_err(|_| {
        let waits = "a process waits there for a root that no supervisor will mount; end that process";
        RunError::file("enter", merged)(io::Error::new(io::ErrorKind::TimedOut, waits))
    })
}

/// Detaches the mounts at `target`, which the kernel unmounts once they are unused. A directory without a
/// mount is no error. A mount that is no root of a container is an error, and stays.
fn unmount_all(target: &Path) -> Result<(), RunError> {
    while let Some(top) = Top::at(target)? {
        let info = top.info();
        let id = target.parent().and_then(Path::file_name).unwrap_or_default();
        if !is_root_of(&id.to_string_lossy(), info) {
            let what = format!(
                "{} from {} is mounted there, which Xebec did not mount; unmount it first",
                info.filesystem,
                info.source.display()
            );
            return Err(RunError::file("clean up", target)(io::Error::other(what)));
        }
        top.detach()?;
    }
    Ok(())
}

/// Whether a mount is the overlay of a container, or the automount at which its runtime waits.
fn is_root_of(id: &str, info: &MountInfo) -> bool {
    let options = info.super_options.split_once("upperdir=");
    let upper = options.and_then(|(_, rest)| rest.split_once(",workdir="));
    match info.filesystem.as_str() {
        // `Overlay` passes a directory by its descriptor if its path is too long for a mount option.
        "overlay" => upper.is_some_and(|(upper, _)| {
            upper.ends_with(&format!("/{id}/upper")) || upper.starts_with("/proc/self/fd/")
        }),
        "autofs" => info.source == Path::new(DOOR_SOURCE),
        _ => false,
    }
}
