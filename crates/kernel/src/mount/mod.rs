//! Mounts: private bind mounts, EROFS over files, overlayfs, and taking them down again.
//!
//! File systems are configured through `fsopen`/`fsconfig`, one parameter at a time: `mount(2)` takes all
//! options in one page, which an image of a hundred layers does not fit into. A file system is first mounted
//! detached ([`Detached`]): nobody else can see it, and it vanishes when the descriptor is dropped. Then it is
//! attached at a path.
//!
//! EROFS is mounted by system calls and never by `mount(8)`: that one would put a loop device in between, and
//! fanotify events would not fire.

pub mod automount;
mod erofs;
mod error;
mod info;
mod overlay;
mod read_ahead;
mod top;

pub use erofs::Erofs;
pub use error::MountError;
pub use info::{MAX_MOUNTINFO_BYTES, MountInfo, is_mounted, mounts, parse_mountinfo, refuse_mounts_below};
pub use overlay::Overlay;
pub use read_ahead::BackingDevice;
pub use rustix::mount::MountAttrFlags as Attributes;
pub use top::{Top, mount_id};

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

/// The longest string that `fsconfig(2)` takes: 256 bytes with the NUL (`strndup_user` in `fs/fsopen.c`).
const MAX_FSCONFIG_STRING: usize = 255;

/// How much of the kernel's own explanation is kept: messages are lines of a few dozen bytes.
const MAX_KERNEL_MESSAGE: usize = 1024;

/// A mount that is attached nowhere. Dropping it takes it down.
#[derive(Debug)]
pub struct Detached {
    fd: OwnedFd,
    origin: String,
    backing: Option<BackingDevice>,
}

impl Detached {
    /// Makes the mount visible at the directory or file `target`.
    ///
    /// The descriptor still refers to the mount, but dropping it no longer takes the mount down.
    ///
    /// # Errors
    /// [`MountError::Attach`].
    pub fn attach(&self, target: &Path) -> Result<(), MountError> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&self.fd, "", CWD, target, flags).map_err(|errno| MountError::Attach {
            origin: self.origin.clone(),
            target: target.to_owned(),
            source: errno.into(),
        })
    }

    /// A path to the mount's root, valid in this process while the value lives.
    pub fn path(&self) -> PathBuf {
        descriptor_path(self.fd.as_fd())
    }

    /// The backing device, which holds the mount's read-ahead; for EROFS, when it could be told.
    pub fn backing(&self) -> Option<&BackingDevice> {
        self.backing.as_ref()
    }
}

impl AsFd for Detached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds the directory `origin` to the directory `target` as a private mount: mounts below it stay here, and
/// mounts elsewhere do not appear in it. Mounts below `origin` are not taken along.
///
/// # Errors
/// [`MountError::Attach`].
pub fn bind_private(origin: &Path, target: &Path) -> Result<(), MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(target, flags, Mode::empty()).map_err(|errno| MountError::Attach {
        origin: origin.display().to_string(),
        target: target.to_owned(),
        source: errno.into(),
    })?;
    bind_private_on(
        origin,
        opened.as_fd(),
        target,
        Attributes::empty(),
        Attributes::empty(),
    )
}

/// The same on a directory that is open, which `target` names for people: nobody can put another in its place. The new
/// mount has the attributes `set`, and lacks those of `clear`, from before it can be seen on.
///
/// # Errors
/// [`MountError::Attach`].
pub fn bind_private_on(
    origin: &Path,
    directory: BorrowedFd<'_>,
    target: &Path,
    set: Attributes,
    clear: Attributes,
) -> Result<(), MountError> {
    let error = |errno: rustix::io::Errno| MountError::Attach {
        origin: origin.display().to_string(),
        target: target.to_owned(),
        source: errno.into(),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let fd = rustix::mount::open_tree(CWD, origin, flags).map_err(error)?;
    if !(set.is_empty() && clear.is_empty()) {
        change_attributes(fd.as_fd(), set, clear).map_err(error)?;
    }
    let detached = Detached {
        fd,
        origin: origin.display().to_string(),
        backing: None,
    };
    let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(&detached.fd, "", directory, "", onto).map_err(error)?;
    // Propagation can only be changed on an attached mount. Its copies in other mount namespaces do no harm here: the mount point's own
    // parent decides who else sees it, and nobody opens files through those copies.
    rustix::mount::mount_change(detached.path(), MountPropagationFlags::PRIVATE).map_err(|errno| {
        // By the descriptor: it is this mount.
        let _ = rustix::mount::unmount(detached.path(), UnmountFlags::DETACH);
        error(errno)
    })
}

/// `mount_setattr(2)`, of that one mount.
fn change_attributes(
    mount: BorrowedFd<'_>,
    set: Attributes,
    clear: Attributes,
) -> Result<(), rustix::io::Errno> {
    let attributes = libc::mount_attr {
        attr_set: u64::from(set.bits()),
        attr_clr: u64::from(clear.bits()),
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a string that ends with a NUL, and the attributes are of the size that is said; the kernel reads both
    // during the call only.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match code {
        0 => Ok(()),
        _ => {
            Err(rustix::io::Errno::from_io_error(&io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::INVAL))
        }
    }
}

/// A file system that is being configured. Remembers its kind and source, so that errors can name them.
struct Context {
    fd: OwnedFd,
    filesystem: &'static str,
    origin: String,
    /// Files that are named by their descriptors, which the kernel opens when it creates the file system.
    named: Vec<OwnedFd>,
}

impl Context {
    fn open(filesystem: &'static str, origin: String) -> Result<Context, MountError> {
        match rustix::mount::fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(fd) => Ok(Context {
                fd,
                filesystem,
                origin,
                named: Vec::new(),
            }),
            Err(errno) => Err(MountError::Create {
                filesystem,
                origin,
                step: "fsopen".to_owned(),
                source: errno.into(),
                message: String::new(),
            }),
        }
    }

    /// Sets a parameter to a path. A path that is too long for the kernel goes by way of a descriptor.
    fn set_path(&mut self, key: &str, path: &Path) -> Result<(), MountError> {
        let step = || format!("{key}={}", path.display());
        if path.as_os_str().as_bytes().len() <= MAX_FSCONFIG_STRING {
            return self.set_string(key, path, step);
        }
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())
            .map_err(|errno| self.error(step(), errno))?;
        // The link leads to the same file on the same mount, so a mark on that mount still counts.
        self.set_string(key, &descriptor_path(file.as_fd()), step)?;
        self.named.push(file);
        Ok(())
    }

    fn set_string(&self, key: &str, value: &Path, step: impl Fn() -> String) -> Result<(), MountError> {
        rustix::mount::fsconfig_set_string(&self.fd, key, value).map_err(|errno| self.error(step(), errno))
    }

    fn set_option(&self, key: &str, value: &str) -> Result<(), MountError> {
        self.set_string(key, Path::new(value), || format!("{key}={value}"))
    }

    fn set_flag(&self, key: &str) -> Result<(), MountError> {
        rustix::mount::fsconfig_set_flag(&self.fd, key).map_err(|errno| self.error(key.to_owned(), errno))
    }

    fn mount(self, attributes: Attributes) -> Result<Detached, MountError> {
        rustix::mount::fsconfig_create(&self.fd).map_err(|errno| self.error("create".to_owned(), errno))?;
        let fd = rustix::mount::fsmount(&self.fd, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
            .map_err(|errno| self.error("fsmount".to_owned(), errno))?;
        Ok(Detached {
            fd,
            origin: self.origin,
            backing: None,
        })
    }

    fn error(&self, step: String, errno: rustix::io::Errno) -> MountError {
        MountError::Create {
            filesystem: self.filesystem,
            origin: self.origin.clone(),
            step,
            source: errno.into(),
            message: self.kernel_message(),
        }
    }

    /// Reading a configuration descriptor gives the messages of the file system, one per `read(2)`.
    fn kernel_message(&self) -> String {
        let mut text = String::new();
        let mut line = [0u8; 256];
        while let Ok(bytes) = rustix::io::read(&self.fd, &mut line) {
            let line = line.get(..bytes).unwrap_or_default();
            if line.is_empty() || text.len() + line.len() > MAX_KERNEL_MESSAGE {
                break;
            }
            text.push_str("; ");
            text.push_str(String::from_utf8_lossy(line).trim_end());
        }
        text
    }
}

fn descriptor_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
