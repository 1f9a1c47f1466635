//! The features of this kernel that lazy images need, each tried once.
//!
//! A version number says little (distributions carry patches and leave things out), and a build option less.
//! So each feature is used once, in a small way, in the directory where it will be used: pre-content events
//! depend on the file system there, and so do overlayfs upper directories. Mounts are made detached, so none is
//! left behind even if the process is killed.

mod check;
mod privilege;
mod root_directory;
mod scratch;
mod tiny_erofs;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;
use rustix::thread::CapabilitySet;

use crate::fanotify::{Events, Group};
use crate::mount::{Attributes, Erofs, MountError, Overlay};
use crate::process;
pub use check::{Check, Outcome};
use check::{Found, Trouble, check};
use scratch::Scratch;

/// The first kernel with pre-content events.
pub const FIRST_KERNEL: (u32, u32) = (6, 14);

/// Each waiting reader holds a descriptor in the worker; with fewer than this, a busy host would make readers
/// queue.
const ENOUGH_OPEN_FILES: u64 = 8192;

/// An event comes within microseconds; a kernel that is silent for so long has let the read pass.
const EVENT_PATIENCE: Duration = Duration::from_secs(1);

const LITTLE_ROOM: &str =
    "free room there (`xebec cache gc --to SIZE`, `xebec rmi`), or put the root directory on a larger disk";

/// Runs all checks. `directory` is where the cache will be; without one, the checks in it are not tried.
pub fn check_all(directory: Option<&Path>) -> Vec<Check> {
    let privilege = check(
        "privilege",
        privilege::check(),
        "run as root (sudo), in the host's user namespace",
    );
    let root =
        directory.map(|directory| check("root directory", root_directory::check(directory), LITTLE_ROOM));
    let lacks = |check: &Check| check.outcome == Outcome::Missing;
    let reason = if lacks(&privilege) {
        Some("CAP_SYS_ADMIN on the host is missing")
    } else if root.as_ref().is_some_and(lacks) {
        Some("nothing can be written to the root directory")
    } else {
        None
    };
    let place = match (reason, directory) {
        (Some(reason), _) => Err(reason),
        (None, None) => Err("there is no usable root directory"),
        (None, Some(directory)) => Ok(directory),
    };
    let mut checks = vec![
        check("kernel", kernel_version(), "use Linux 6.14 or later"),
        privilege,
    ];
    checks.extend(root);
    checks.extend(check_features(place));
    checks.extend([
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
    ]);
    checks
}

/// A feature: its name, its trial in a directory, and the remedy if that fails.
type Feature = (&'static str, fn(&Path) -> Found, &'static str);

/// Tries the features that the kernel and the file system of a directory must have, unless there is a reason why nothing can be tried.
fn check_features(place: Result<&Path, &str>) -> Vec<Check> {
    let features: [Feature; 3] = [
        (
            "pre-content events",
            pre_content_events,
            "put the root directory on ext4, xfs or btrfs; \
             the kernel needs CONFIG_FANOTIFY_ACCESS_PERMISSIONS",
        ),
        (
            "EROFS over files",
            erofs_over_files,
            "the kernel needs CONFIG_EROFS_FS and CONFIG_EROFS_FS_BACKED_BY_FILE",
        ),
        (
            "overlayfs",
            overlayfs,
            "the kernel needs CONFIG_OVERLAY_FS; \
             the root directory must be on a file system with extended attributes, not itself an overlay",
        ),
    ];
    let tried = features.into_iter().map(|(name, try_it, advice)| match place {
        Ok(directory) => check(name, try_it(directory), advice),
        Err(reason) => Check {
            name,
            outcome: Outcome::NotTried,
            detail: reason.to_owned(),
            advice: "mend that first, then run `xebec doctor` again",
        },
    });
    tried.collect()
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

/// A file is read through a guarded mount, and the event must name the byte that was asked for.
fn pre_content_events(directory: &Path) -> Found {
    const OFFSET: u64 = 8192;
    let scratch = Scratch::new(directory).map_err(Trouble::of)?;
    let data = scratch.file("data", &[b'x'; 3 * 4096])?;
    let name = data.file_name().ok_or("no file name")?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(CWD, scratch.path(), flags).map_err(Trouble::of)?;
    let mount_path = PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&mount)
    ));
    let group = Group::new().map_err(Trouble::of)?;
    group.mark_mount(&mount_path).map_err(Trouble::of)?;
    let file = File::open(mount_path.join(name)).map_err(Trouble::of)?;
    let reader = std::thread::spawn(move || {
        let mut byte = [0];
        file.read_exact_at(&mut byte, OFFSET)
    });
    let seen = answer_one(&group);
    // If the event was not understood, this lets the reader go.
    drop(group);
    let read = reader.join().map_err(|_| "the reader panicked")?;
    let (offset, count) = seen?;
    read.map_err(Trouble::of)?;
    if (offset..offset.saturating_add(count)).contains(&OFFSET) {
        Ok((
            Outcome::Good,
            format!("asked before bytes {offset}+{count} were read"),
        ))
    } else {
        Err(format!("byte {OFFSET} was read, and the kernel asked about {offset}+{count}").into())
    }
}

fn answer_one(group: &Group) -> Result<(u64, u64), Trouble> {
    let mut buffer = [0; 4096];
    if !group.wait(EVENT_PATIENCE).map_err(Trouble::of)? {
        return Err("a file was read without an event".into());
    }
    let bytes = group.read(&mut buffer).map_err(Trouble::of)?;
    let event = Events::new(buffer.get(..bytes).unwrap_or_default())
        .next()
        .ok_or("no event")?;
    let event = event.map_err(Trouble::of)?;
    // SAFETY: this process has just read the event, and nobody else knows its descriptor.
    let _descriptor = unsafe { event.take_descriptor() };
    group.allow(event.number).map_err(Trouble::of)?;
    Ok((event.offset, event.count))
}

fn erofs_over_files(directory: &Path) -> Found {
    let scratch = Scratch::new(directory).map_err(Trouble::of)?;
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
        Err(error) => return Err(Trouble::of(error)),
    };
    let entries = std::fs::read_dir(mounted.path()).map_err(Trouble::of)?.count();
    match entries {
        0 => Ok((Outcome::Good, "mounted an image with a device".to_owned())),
        entries => Err(format!("an empty directory has {entries} entries").into()),
    }
}

fn overlayfs(directory: &Path) -> Found {
    let scratch = Scratch::new(directory).map_err(Trouble::of)?;
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(scratch.path().join(name)).map_err(Trouble::of)?;
    }
    let path = |name| scratch.path().join(name);
    let overlay = Overlay::new()
        .lower(path("lower"))
        .upper(path("upper"), path("work"));
    let mounted = overlay.mount(Attributes::empty()).map_err(Trouble::of)?;
    std::fs::write(mounted.path().join("file"), b"up").map_err(Trouble::of)?;
    match std::fs::read(path("upper").join("file")) {
        Ok(contents) if contents == b"up" => Ok((Outcome::Good, "wrote to an upper directory".to_owned())),
        _ => Err("what was written is not in the upper directory".into()),
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
    match process::own_linkage().map_err(Trouble::of)? {
        process::Linkage::Static => Ok((Outcome::Good, "statically linked".to_owned())),
        process::Linkage::Dynamic => Ok((
            Outcome::Poor,
            "dynamically linked: a daemon that loads a library from a lazy mount would wait for itself"
                .to_owned(),
        )),
    }
}
