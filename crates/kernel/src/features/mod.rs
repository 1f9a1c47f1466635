//! What this kernel can do for lazy images, asked by trying it.
//!
//! A version number says little (distributions carry patches and leave things out), and a build option less.
//! So each feature is used once, in a small way, in the directory where it will be used: pre-content events
//! depend on the file system there, and so do overlayfs upper directories. Mounts are made detached, so none is
//! left behind even if the process is killed.

mod tiny_erofs;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;
use rustix::thread::CapabilitySet;

use crate::fanotify::{Events, Group};
use crate::mount::{Attributes, Erofs, MountError, Overlay};
use crate::process;

/// The first kernel with pre-content events.
pub const FIRST_KERNEL: (u32, u32) = (6, 14);

/// Each waiting reader holds a descriptor in the worker; with fewer than this, a busy host would make readers
/// queue.
const ENOUGH_OPEN_FILES: u64 = 8192;

/// An event comes within microseconds; a kernel that is silent for so long has let the read pass.
const EVENT_PATIENCE: Duration = Duration::from_secs(1);

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It works.
    Good,
    /// It works less well than it could.
    Poor,
    /// Lazy images cannot work without it.
    Missing,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it came out.
    pub outcome: Outcome,
    /// What was found.
    pub detail: String,
    /// What to do when it is not [`Outcome::Good`].
    pub advice: &'static str,
}

/// Runs all checks. `directory` exists and is on the file system that will hold the cache.
pub fn check_all(directory: &Path) -> Vec<Check> {
    vec![
        check("kernel", kernel_version(), "use Linux 6.14 or later"),
        check(
            "privilege",
            privilege(),
            "run as root, in the host's user namespace",
        ),
        check(
            "pre-content events",
            pre_content_events(directory),
            "put the root directory on ext4, xfs or btrfs; \
             the kernel needs CONFIG_FANOTIFY_ACCESS_PERMISSIONS",
        ),
        check(
            "EROFS over files",
            erofs_over_files(directory),
            "the kernel needs CONFIG_EROFS_FS and CONFIG_EROFS_FS_BACKED_BY_FILE",
        ),
        check(
            "overlayfs",
            overlayfs(directory),
            "the kernel needs CONFIG_OVERLAY_FS; \
             the root directory must be on a file system with extended attributes, not itself an overlay",
        ),
        check(
            "open files",
            open_files(),
            "raise the hard limit of open files (LimitNOFILE=) to 65536",
        ),
        check(
            "locked memory",
            locked_memory(),
            "raise the limit of locked memory (LimitMEMLOCK=infinity)",
        ),
        check(
            "linking",
            linking(),
            "use the statically linked executable of a release",
        ),
    ]
}

type Found = Result<(Outcome, String), String>;

fn check(name: &'static str, found: Found, advice: &'static str) -> Check {
    let (outcome, detail) = found.unwrap_or_else(|problem| (Outcome::Missing, problem));
    Check {
        name,
        outcome,
        detail,
        advice,
    }
}

fn kernel_version() -> Found {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // A vendor may have brought the feature to an older kernel: the other checks decide.
    let outcome = if version >= FIRST_KERNEL {
        Outcome::Good
    } else {
        Outcome::Poor
    };
    Ok((outcome, format!("Linux {release}")))
}

fn privilege() -> Found {
    if process::has_capability(CapabilitySet::SYS_ADMIN) {
        Ok((Outcome::Good, "CAP_SYS_ADMIN".to_owned()))
    } else {
        Err("CAP_SYS_ADMIN is missing".to_owned())
    }
}

/// A file is read through a guarded mount, and the event must name the byte that was asked for.
fn pre_content_events(directory: &Path) -> Found {
    const OFFSET: u64 = 8192;
    let scratch = Scratch::new(directory)?;
    let data = scratch.file("data", &[b'x'; 3 * 4096])?;
    let name = data.file_name().ok_or("no file name")?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(CWD, scratch.path(), flags).map_err(|errno| errno.to_string())?;
    let mount_path = PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&mount)
    ));
    let group = Group::new().map_err(|error| error.to_string())?;
    group.mark_mount(&mount_path).map_err(|error| error.to_string())?;
    let file = File::open(mount_path.join(name)).map_err(|error| error.to_string())?;
    let reader = std::thread::spawn(move || {
        let mut byte = [0];
        file.read_exact_at(&mut byte, OFFSET)
    });
    let seen = answer_one(&group);
    // If the event was not understood, this lets the reader go.
    drop(group);
    let read = reader.join().map_err(|_| "the reader panicked".to_owned())?;
    let (offset, count) = seen?;
    read.map_err(|error| error.to_string())?;
    if (offset..offset.saturating_add(count)).contains(&OFFSET) {
        Ok((
            Outcome::Good,
            format!("asked before bytes {offset}+{count} were read"),
        ))
    } else {
        Err(format!(
            "byte {OFFSET} was read, and the kernel asked about {offset}+{count}"
        ))
    }
}

fn answer_one(group: &Group) -> Result<(u64, u64), String> {
    let mut buffer = [0; 4096];
    if !group.wait(EVENT_PATIENCE).map_err(|error| error.to_string())? {
        return Err("a file was read without an event".to_owned());
    }
    let bytes = group.read(&mut buffer).map_err(|error| error.to_string())?;
    let event = Events::new(buffer.get(..bytes).unwrap_or_default())
        .next()
        .ok_or("no event")?;
    let event = event.map_err(|error| error.to_string())?;
    // SAFETY: this process has just read the event, and nobody else knows its descriptor.
    let _descriptor = unsafe { event.take_descriptor() };
    group.allow(event.number).map_err(|error| error.to_string())?;
    Ok((event.offset, event.count))
}

fn erofs_over_files(directory: &Path) -> Found {
    let scratch = Scratch::new(directory)?;
    let metadata = scratch.file("metadata", &tiny_erofs::image())?;
    let device = scratch.file("device", &[0; 4096])?;
    let erofs = Erofs::new(metadata).device(device).read_ahead_kib(0);
    let mounted = match erofs.mount(Attributes::empty()) {
        Ok(mounted) => mounted,
        Err(MountError::ReadAhead { source, .. }) => {
            return Ok((
                Outcome::Poor,
                format!("mounted, but its read-ahead cannot be set: {source}"),
            ));
        }
        Err(error) => return Err(error.to_string()),
    };
    let entries = std::fs::read_dir(mounted.path())
        .map_err(|error| error.to_string())?
        .count();
    match entries {
        0 => Ok((Outcome::Good, "mounted an image with a device".to_owned())),
        entries => Err(format!("an empty directory has {entries} entries")),
    }
}

fn overlayfs(directory: &Path) -> Found {
    let scratch = Scratch::new(directory)?;
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(scratch.path().join(name)).map_err(|error| error.to_string())?;
    }
    let path = |name| scratch.path().join(name);
    let overlay = Overlay::new()
        .lower(path("lower"))
        .upper(path("upper"), path("work"));
    let mounted = overlay
        .mount(Attributes::empty())
        .map_err(|error| error.to_string())?;
    std::fs::write(mounted.path().join("file"), b"up").map_err(|error| error.to_string())?;
    match std::fs::read(path("upper").join("file")) {
        Ok(contents) if contents == b"up" => Ok((Outcome::Good, "wrote to an upper directory".to_owned())),
        _ => Err("what was written is not in the upper directory".to_owned()),
    }
}

fn open_files() -> Found {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .maximum
        .unwrap_or(u64::MAX);
    let outcome = if hard >= ENOUGH_OPEN_FILES {
        Outcome::Good
    } else {
        Outcome::Poor
    };
    Ok((outcome, format!("{hard} may be open")))
}

fn locked_memory() -> Found {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    if limit.is_none() || process::has_capability(CapabilitySet::IPC_LOCK) {
        Ok((Outcome::Good, "not limited".to_owned()))
    } else {
        Ok((Outcome::Poor, format!("limited to {} bytes", limit.unwrap_or(0))))
    }
}

fn linking() -> Found {
    match process::own_linkage().map_err(|error| error.to_string())? {
        process::Linkage::Static => Ok((Outcome::Good, "statically linked".to_owned())),
        process::Linkage::Dynamic => Ok((
            Outcome::Poor,
            "dynamically linked: a daemon that loads a library from a lazy mount would wait for itself"
                .to_owned(),
        )),
    }
}

/// A directory that is removed on drop.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(directory: &Path) -> Result<Scratch, String> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..100 {
            let path = directory.join(format!(".check-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(error) => last = error,
            }
        }
        Err(format!(
            "cannot make a directory in {}: {last}",
            directory.display()
        ))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str, contents: &[u8]) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        std::fs::write(&path, contents).map_err(|error| format!("write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = crate::remove::remove_tree(&self.path);
    }
}
