//! Mounts an image with the kernel, detached from any directory: closing the descriptor unmounts it, so that nothing
//! is left behind however a test ends.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen,
};

use super::{Seen, View, join};

/// A mounted image.
pub(crate) struct Mounted(OwnedFd);

/// Whether images can be mounted here; says why not.
pub(crate) fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounting needs root");
        return false;
    }
    if let Err(e) = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC) {
        println!("SKIPPED: this kernel has no EROFS ({e})");
        return false;
    }
    true
}

/// Writes an image to a file.
pub(crate) fn save(directory: &Path, image: &[u8]) -> PathBuf {
    let path = directory.join("image.erofs");
    File::create(&path).unwrap().write_all(image).unwrap();
    path
}

impl Mounted {
    pub(crate) fn new(image: &Path, devices: &[PathBuf]) -> Self {
        let context = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        fsconfig_set_string(&context, "source", image.as_os_str().as_bytes()).unwrap();
        for device in devices {
            fsconfig_set_string(&context, "device", device.as_os_str().as_bytes()).unwrap();
        }
        fsconfig_set_flag(&context, "ro").unwrap();
        fsconfig_create(&context).unwrap();
        Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap())
    }

    /// An overlay of lower directories, the uppermost first.
    pub(crate) fn overlay(lower: &[&Path]) -> rustix::io::Result<Self> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for directory in lower {
            fsconfig_set_string(&context, "lowerdir+", directory.as_os_str().as_bytes())?;
        }
        fsconfig_create(&context)?;
        Ok(Self(fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )?))
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/.", self.0.as_raw_fd()))
    }

    /// Everything the mount shows, with files sampled where `expected` says.
    pub(crate) fn view(&self, expected: &View) -> View {
        let mut view = View::new();
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut numbers = Vec::new();
        let mut todo = vec![Vec::new()];
        while let Some(path) = todo.pop() {
            let full = self.path().join(std::ffi::OsString::from_vec(path.clone()));
            let (seen, number) = look(&full, expected.get(&path));
            if seen.mode >> 12 == 4 {
                for entry in std::fs::read_dir(&full).unwrap() {
                    let entry = entry.unwrap();
                    // The type in a listing must agree with the inode.
                    let listed = entry.file_type().unwrap();
                    let real = std::fs::symlink_metadata(entry.path()).unwrap().file_type();
                    assert_eq!(listed, real);
                    todo.push(join(&path, entry.file_name().as_bytes()));
                }
            }
            let least = first.entry(number).or_insert_with(|| path.clone());
            if path < *least {
                least.clone_from(&path);
            }
            numbers.push((path.clone(), number));
            view.insert(path, seen);
        }
        for (path, number) in numbers {
            view.get_mut(&path).unwrap().same_as = first[&number].clone();
        }
        view
    }
}

fn look(full: &Path, expected: Option<&Seen>) -> (Seen, u64) {
    let stat = std::fs::symlink_metadata(full).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
    let mut seen = Seen {
        mode: stat.mode(),
        uid: stat.uid(),
        gid: stat.gid(),
        mtime: stat.mtime(),
        nanoseconds: stat.mtime_nsec() as u32,
        links: stat.nlink(),
        xattrs: xattrs(full),
        ..Seen::default()
    };
    match stat.mode() >> 12 {
        8 => {
            seen.size = Some(stat.size());
            let file = File::open(full).unwrap();
            for (offset, bytes) in expected.map(|e| e.samples.clone()).unwrap_or_default() {
                let mut found = vec![0; bytes.len()];
                file.read_exact_at(&mut found, offset).unwrap();
                seen.samples.push((offset, found));
            }
        }
        10 => {
            seen.target = Some(std::fs::read_link(full).unwrap().into_os_string().into_vec());
        }
        2 | 6 => {
            let device = stat.rdev();
            seen.device = Some((rustix::fs::major(device), rustix::fs::minor(device)));
        }
        _ => {}
    }
    (seen, stat.ino())
}

fn xattrs(full: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65536];
    let length = rustix::fs::llistxattr(full, &mut list[..]).unwrap();
    let mut value = vec![0; 65536];
    list[..length]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let c_name = CString::new(name).unwrap();
            let length = rustix::fs::lgetxattr(full, &c_name, &mut value[..]).unwrap();
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}
