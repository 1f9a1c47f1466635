//! Nobody but their owner gets into the root and the run directory.
//!
//! They hold files that images keep for root, setuid programs of every image, logins, and the socket of the daemon. So both
//! directories have the mode 0700, and the files in them need no permissions of their own to be out of reach. Containers' files
//! keep the permissions that their images give them. Xebec closes its own files there all the same, by the mask that
//! [`add_closed_files`] sets: a process that has held the directory open since before it was closed gains nothing by that.
//!
//! Earlier versions made both directories for everybody to read. [`close`] mends that at the start of every command and of the
//! daemon, once: it then goes through the files that Xebec itself wrote. Each time after that it costs a look at the two
//! directories. A directory of somebody else is refused, and so is one that is open and not known to be Xebec's: it may be `/etc`.
//! So is one that somebody else could put another in the place of (`parent_directories`). Keys and certificates that the
//! configuration in a root directory names may lie beside it (`configured_files`).

mod configured_files;
mod error;
mod owned_files;
mod parent_directories;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, Stat, fstat, openat, statat};
use xebec_kernel::file::is_temporary;

pub use error::ClosedError;
use error::{OTHERS_WRITE, failed};
use owned_files::{check_mode, check_owner};

/// Permissions that nobody but the owner has.
const OTHERS: RawMode = 0o077;
/// The directory that a new file system has; a directory with nothing else counts as empty.
const MADE_WITH: &str = "lost+found";
/// The use of a directory of Xebec's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// State: it is kept.
    Root,
    /// Sockets and mounts: it is for as long as the host runs.
    Run,
}

impl Use {
    /// Names by which a directory is known, whatever else is in it: nobody else has them.
    fn marks(self) -> &'static [&'static str] {
        match self {
            Use::Root => &["images.lock", "registries.json", "logins.json", "installed.json"],
            Use::Run => &["keeper.lock", "guarded", "xebec.sock"],
        }
    }

    /// Names that may be there beside them, which others may have, too.
    fn names(self) -> &'static [&'static str] {
        match self {
            Use::Root => &[
                "layers",
                "images",
                "views",
                "runtime",
                "containers",
                "committed",
                "volumes",
                "snapshots",
                "departed",
                "history",
                "networks",
                "trust.toml",
                "registries.toml",
                "daemon.toml",
                "daemon.lock",
            ],
            Use::Run => &[
                "views",
                "runtime",
                "containers",
                "bundles",
                "recordings",
                "arriving",
                "networks",
                "netns",
                "daemon.lock",
                "daemon.log",
                "keeper.pid",
                "worker.pid",
                "snapshots.sock",
                "suspects.json",
                "tried-logins.json",
            ],
        }
    }

    fn other(self) -> Use {
        match self {
            Use::Root => Use::Run,
            Use::Run => Use::Root,
        }
    }

    fn named(self) -> &'static str {
        match self {
            Use::Root => "root",
            Use::Run => "run",
        }
    }
}

/// File systems of other hosts, by their magic numbers (`include/uapi/linux/magic.h`, and those of `fs/smb`, `fs/fuse`, `fs/9p`): they
/// raise no events before a page is read, know other owners, and may be written to by others.
const ELSEWHERE: [(i64, &str); 8] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
];
/// Files that a user writes into the root directory, beside the files that these name.
const SETTINGS: [&str; 3] = ["trust.toml", "registries.toml", "daemon.toml"];
/// Directories in which all is Xebec's own. The others hold containers' files, or the run directory's mounts.
const OWN: [&str; 6] = ["layers", "images", "views", "runtime", "history", "committed"];

/// From now on this process makes files and directories that only their owner may open, unless it says otherwise. Gives the mask
/// that was set before.
pub fn add_closed_files() -> u32 {
    rustix::process::umask(Mode::from_raw_mode(OTHERS)).as_raw_mode()
}

/// From now on this process makes files and directories with the usual permissions of a host, for all its users, unless it says
/// otherwise; the mask that it was started with does not count. Code that makes Xebec's own files closes them itself.
pub fn add_usual_files() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS_WRITE));
}

/// Makes a root or a run directory, closed to other users. One that is there is left as it is.
///
/// # Errors
/// When it cannot be made.
pub fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Refuses directories of which one is in the other, before anything is made.
///
/// # Errors
/// [`ClosedError::Nested`], or when the way there cannot be looked at.
pub fn check_apart(root: &Path, run: &Path) -> Result<(), ClosedError> {
    let [root, run] = [root, run].map(|path| real(path).map_err(failed("find", path)));
    let (root, run) = (root?, run?);
    match root.starts_with(&run) || run.starts_with(&root) {
        true => Err(ClosedError::Nested { root, run }),
        false => Ok(()),
    }
}

/// The path without links, as far as it is there, and without steps back: behind the part that is there, `..` is taken literally.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for above in path.ancestors() {
        match above.canonicalize() {
            Ok(found) => {
                let Ok(rest) = path.strip_prefix(above) else {
                    return Ok(found);
                };
                return match rest.components().any(|part| part == Component::ParentDir) {
                    // It may lead back to a path that is there, through a link even.
                    true => real(&without_steps_back(&found, rest)),
                    false => Ok(found.join(rest)),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path)
}

/// Sees to it that a root or a run directory is there, is this user's and Xebec's, and is closed to others. Gives its path without
/// links.
///
/// # Errors
/// [`ClosedError`]; then nothing may be kept there.
pub fn close(path: &Path, of: Use) -> Result<PathBuf, ClosedError> {
    parent_directories::check(path)?;
    make(path).map_err(failed("make", path))?;
    // Somebody else may have made a missing directory meanwhile.
    parent_directories::check(path)?;
    let (path, directory, status, names) = examine(path, of)?;
    if status.st_mode & OTHERS == 0 {
        return Ok(path);
    }
    mend(&directory, &names, &status, &path)?;
    let mode = look(&directory, &path)?.st_mode;
    match mode & OTHERS {
        0 => Ok(path),
        _ => Err(ClosedError::Stays {
            path,
            mode: mode & 0o7777,
        }),
    }
}

/// Whether [`close`] would refuse a directory for its kind, its owner or its contents. Nothing is made or changed; one that is not
/// there is none of this.
///
/// # Errors
/// [`ClosedError`], as [`close`].
pub fn check(path: &Path, of: Use) -> Result<(), ClosedError> {
    if !path.exists() {
        return Ok(());
    }
    parent_directories::check(path)?;
    examine(path, of).map(|_| ())
}

/// Why another user could put another file in the place of this one: which directory on the way, and why. `None` if nobody could, and if
/// it cannot be seen.
pub fn replaceable(file: &Path) -> Option<String> {
    match parent_directories::check(file) {
        Err(ClosedError::Above { above, why, .. }) => Some(format!("{}, which {why}", above.display())),
        _ => None,
    }
}

/// Opens a directory and looks at it: its own name, itself, how it is, and the names in it.
fn examine(path: &Path, of: Use) -> Result<(PathBuf, OwnedFd, Stat, Vec<String>), ClosedError> {
    let path = path.canonicalize().map_err(failed("find", path))?;
    // The descriptor that is looked at is the one that is closed to others, even if its name leads elsewhere meanwhile.
    let directory = open_directory(CWD, &path).map_err(failed("open", &path))?;
    let status = look(&directory, &path)?;
    check_file_system(&directory, &path)?;
    check_owner(&status, &path)?;
    let names = names(&directory, &path)?;
    let is_open = status.st_mode & OTHERS != 0;
    let is_marked = names.iter().any(|name| of.marks().contains(&name.as_str()));
    let named = match of {
        Use::Root if is_open || !is_marked => configured_files::files(&directory, &path),
        _ => BTreeSet::new(),
    };
    check_names(&names, &named, &status, &path, of)?;
    if is_open {
        check_settings(&directory, &names, &path)?;
        named
            .iter()
            .try_for_each(|file| configured_files::check(&directory, &path, file))?;
    }
    Ok((path, directory, status, names))
}

fn without_steps_back(above: &Path, rest: &Path) -> PathBuf {
    let mut path = above.to_owned();
    for part in rest.components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}

fn check_file_system(directory: &OwnedFd, path: &Path) -> Result<(), ClosedError> {
    let status = rustix::fs::fstatfs(directory)
        .map_err(|error| failed("look at the file system of", path)(error.into()))?;
    match ELSEWHERE.iter().find(|(magic, _)| *magic == status.f_type) {
        None => Ok(()),
        Some((_, filesystem)) => Err(ClosedError::Elsewhere {
            path: path.to_owned(),
            filesystem,
        }),
    }
}

/// Checks the settings, which a user writes for Xebec to obey. In a directory that is open to others, a file that they may write to
/// is not obeyed: its contents may be theirs.
fn check_settings(directory: &OwnedFd, names: &[String], path: &Path) -> Result<(), ClosedError> {
    let is_setting = |name: &&String| SETTINGS.contains(&name.as_str());
    for name in names.iter().filter(is_setting) {
        let path = path.join(name);
        let status = statat(directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        let status = status.map_err(|error| failed("look at", &path)(error.into()))?;
        check_owner(&status, &path)?;
        let is_link = FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
        if !is_link {
            check_mode(status.st_mode, &path)?;
        }
    }
    Ok(())
}

/// Whether a directory is empty, or Xebec's and for this use.
fn check_names(
    names: &[String],
    named: &BTreeSet<PathBuf>,
    status: &Stat,
    path: &Path,
    of: Use,
) -> Result<(), ClosedError> {
    let is_one_of = |list: &'static [&'static str]| move |name: &&String| list.contains(&name.as_str());
    if names.iter().any(|name| is_one_of(of.marks())(&name)) {
        return Ok(());
    }
    if let Some(found) = names.iter().find(is_one_of(of.other().marks())) {
        return Err(ClosedError::Exchanged {
            path: path.to_owned(),
            is: of.other().named(),
            found: found.clone(),
            asked: of.named(),
        });
    }
    let named: Vec<&str> = named
        .iter()
        .filter_map(|file| configured_files::first_part(file))
        .collect();
    let is_known = |name: &String| {
        let is_own = name == MADE_WITH || is_temporary(name) || is_one_of(of.names())(&name);
        is_own || named.contains(&name.as_str())
    };
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(found) if status.st_mode & OTHERS == 0 => Err(ClosedError::Foreign {
            path: path.to_owned(),
            found: found.clone(),
        }),
        Some(found) => Err(ClosedError::Stranger {
            path: path.to_owned(),
            mode: status.st_mode & 0o7777,
            found: found.clone(),
        }),
    }
}

/// Closes a directory that is open, Xebec's own files in it first: should this process be killed, the next one finds the directory
/// open and goes on.
fn mend(directory: &OwnedFd, names: &[String], status: &Stat, path: &Path) -> Result<(), ClosedError> {
    for name in names {
        close_entry(directory.as_fd(), name, &path.join(name), |name| {
            OWN.contains(&name)
        })?;
    }
    set_mode(directory, 0o700).map_err(failed("close", path))?;
    tracing::warn!(
        "{} was open to other users (mode {:04o}); Xebec closed it",
        path.display(),
        status.st_mode & 0o7777
    );
    Ok(())
}

/// Closes one entry of a directory, and its contents if `enters` says so. Links are left alone, and so are mounts, which have
/// permissions of their own in a run directory.
fn close_entry(
    parent: BorrowedFd<'_>,
    name: &str,
    path: &Path,
    enters: impl Fn(&str) -> bool,
) -> Result<(), ClosedError> {
    let status = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        // It was temporary.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        status => status.map_err(|error| failed("look at", path)(error.into()))?,
    };
    check_owner(&status, path)?;
    let above = fstat(parent).map_err(|error| failed("look at", path)(error.into()))?;
    if status.st_dev != above.st_dev {
        return Ok(());
    }
    match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => close_directory(parent, name, path, enters(name)),
        FileType::RegularFile | FileType::Socket if status.st_mode & OTHERS != 0 => {
            close_file(parent, name, status.st_mode & 0o700).map_err(failed("close", path))
        }
        _ => Ok(()),
    }
}

fn close_directory(parent: BorrowedFd<'_>, name: &str, path: &Path, enters: bool) -> Result<(), ClosedError> {
    let directory = match open_directory(parent, Path::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory.map_err(failed("open", path))?,
    };
    set_mode(&directory, 0o700).map_err(failed("close", path))?;
    if !enters {
        return Ok(());
    }
    for name in names(&directory, path)? {
        close_entry(directory.as_fd(), &name, &path.join(&name), |_| true)?;
    }
    Ok(())
}

/// By a descriptor that opens nothing: an ordinary one would be noticed by the leases of a daemon that runs.
fn close_file(parent: BorrowedFd<'_>, name: &str, mode: RawMode) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        file => set_mode(&file?, mode),
    }
}

/// Sets the permissions of a descriptor's file; `fchmod(2)` refuses one that opens nothing.
fn set_mode(file: &OwnedFd, mode: RawMode) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn open_directory(at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

fn names(directory: &OwnedFd, path: &Path) -> Result<Vec<String>, ClosedError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            // Nothing of Xebec's has another kind of name.
            let name = String::from_utf8_lossy(entry?.file_name().to_bytes()).into_owned();
            if !matches!(name.as_str(), "." | "..") {
                names.push(name);
            }
        }
        Ok(names)
    };
    read().map_err(failed("list", path))
}

fn look(directory: &OwnedFd, path: &Path) -> Result<Stat, ClosedError> {
    fstat(directory).map_err(|error| failed("look at", path)(error.into()))
}

#[cfg(test)]
#[path = "closed/tests.rs"]
mod tests;
