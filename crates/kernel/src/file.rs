//! Files that appear whole: written under a temporary name, synced, renamed, and the name synced too. The temporary name tells who
//! writes, so that the leftovers of a killed process can be told from a file that a living one is about to rename.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::is_alive;

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// For `map_err`: an error of `make`, which says what was being done to which file, and why that failed.
pub fn during<E: Into<io::Error>, F>(
    doing: &'static str,
    path: &Path,
    make: fn(&'static str, PathBuf, io::Error) -> F,
) -> impl FnOnce(E) -> F + use<E, F> {
    let path = path.to_owned();
    move |error| make(doing, path, error.into())
}

/// Replaces the file at `path` with `bytes`. A reader sees the old file or the new one, after a power cut too; when
/// this has returned, the new one.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, 0o666, true, |file| file.write_all(bytes))
}

/// The same for a file that only its owner may read, at any time.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn write_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, 0o600, true, |file| file.write_all(bytes))
}

/// The same for a file that may be lost or damaged when the host restarts without warning: nothing is synced.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn write_for_this_boot(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, 0o666, false, |file| file.write_all(bytes))
}

/// The same for such a file that only its owner may read.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn write_privately_for_this_boot(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, 0o600, false, |file| file.write_all(bytes))
}

/// The same as [`write_for_this_boot`] for a file that must not exist yet. Of several processes that create it, one succeeds.
///
/// # Errors
/// `AlreadyExists` if there is a file at `path`, which is left as it is. Other I/O errors.
pub fn create_for_this_boot(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = Temporary::write(path, 0o666, |file| file.write_all(bytes))?;
    temporary.link(path)
}

/// The same for a file of somebody else, which keeps its owner and its permissions; `mode` is for one that is new.
///
/// # Errors
/// I/O errors; the old file is then still there.
pub fn replace_atomically(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_atomically_by(path, mode, |file| file.write_all(bytes))
}

/// The same where `fill` writes the contents of the new file. No more of them is in memory at a time than `fill` holds.
///
/// # Errors
/// I/O errors, those of `fill` too; the old file is then still there.
pub fn replace_atomically_by(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let old = match fs::symlink_metadata(path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // It may hold secrets.
    write(path, 0o600, true, |file| {
        if let Some(old) = &old {
            std::os::unix::fs::fchown(&*file, Some(old.uid()), Some(old.gid()))?;
        }
        let mode = old.as_ref().map_or(mode, |old| old.mode() & 0o7777);
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        fill(file)
    })
}

/// `fill` writes the contents of the new file.
fn write(
    path: &Path,
    mode: u32,
    durably: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = Temporary::write(path, mode, fill)?;
    if !durably {
        return temporary.rename(path);
    }
    temporary.file.sync_data()?;
    temporary.rename(path)?;
    directory_of(path).map_or(Ok(()), sync_directory)
}

fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// A file under its temporary name; it goes with this if it is given no other.
struct Temporary {
    file: File,
    name: Option<PathBuf>,
}

impl Temporary {
    fn write(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<Self> {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = path.with_file_name(format!(".{name}.{}.{serial}", std::process::id()));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut temporary = Self {
            file: options.open(&name)?,
            name: Some(name),
        };
        fill(&mut temporary.file)?;
        Ok(temporary)
    }

    fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(name) = &self.name {
            fs::rename(name, path)?;
        }
        self.name = None;
        Ok(())
    }

    /// Gives the file its name, unless another file has that. The temporary name goes with this.
    fn link(self, path: &Path) -> io::Result<()> {
        match &self.name {
            Some(name) => fs::hard_link(name, path),
            None => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

/// Brings those of these files that are there to the disk, and the names in their directory if any is.
///
/// # Errors
/// I/O errors.
pub fn sync_files(directory: &Path, names: &[&str]) -> io::Result<()> {
    let mut are_any = false;
    for name in names {
        match File::open(directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?.sync_data()?,
        }
        are_any = true;
    }
    match are_any {
        true => sync_directory(directory),
        false => Ok(()),
    }
}

/// Brings the names in a directory to the disk.
///
/// # Errors
/// I/O errors.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Which file it is, whatever its name: no two files of a host have the same identity at one time (`stat(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Device number of its file system, `st_dev`.
    pub device: u64,
    /// Inode number, `st_ino`.
    pub inode: u64,
}

impl FileIdentity {
    /// That of the file which is open.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }

    /// That of the file to which a path leads, through links too.
    ///
    /// # Errors
    /// Those of `stat(2)`, `NotFound` among them.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::from(&metadata))
    }
}

impl From<&fs::Metadata> for FileIdentity {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl From<&rustix::fs::Stat> for FileIdentity {
    fn from(status: &rustix::fs::Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }
}

/// Whether two paths lead to one file or directory that is there.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| FileIdentity::at(path).ok();
    identity(one).is_some_and(|identified| Some(identified) == identity(other))
}

/// The bytes of a file that somebody else may have made large.
///
/// # Errors
/// `FileTooLarge` if it has more than `limit` bytes; they are not read then. I/O errors, `NotFound` among them.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes"),
        )),
        false => Ok(bytes),
    }
}

/// Removes the temporary files of processes that are gone, in `directory` and so many levels below it.
pub fn remove_abandoned(directory: &Path, levels: u32) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type();
        if levels > 0 && kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            remove_abandoned(&entry.path(), levels - 1);
        } else if kind.is_ok_and(|kind| kind.is_file())
            && entry
                .file_name()
                .to_str()
                .and_then(writer)
                .is_some_and(|pid| !is_alive(pid))
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that writes the temporary file of that name, `.NAME.PID.SERIAL`; `None` for any other file.
fn writer(name: &str) -> Option<u32> {
    let (rest, serial) = name.strip_prefix('.')?.rsplit_once('.')?;
    let (file, pid) = rest.rsplit_once('.')?;
    let is_ours = !file.is_empty() && serial.parse::<u64>().is_ok();
    pid.parse().ok().filter(|_| is_ours)
}

/// Whether a file has the name of one that is being written.
pub fn is_temporary(name: &str) -> bool {
    writer(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_by_one_process_only() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("record");
        create_for_this_boot(&path, b"first").unwrap();
        let refused = create_for_this_boot(&path, b"second").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(
            fs::read_dir(top.path()).unwrap().count(),
            1,
            "a temporary file stays"
        );
    }

    #[test]
    fn only_what_the_dead_were_writing_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("layer/index");
        fs::create_dir_all(below.join("deeper")).unwrap();
        // No process has a number that large (PID_MAX_LIMIT is 4 million).
        let dead = 4_000_000_000u32;
        let abandoned = [format!(".origins.json.{dead}.0"), format!(".index.{dead}.17")];
        let others = [
            format!(".origins.json.{}.0", std::process::id()),
            "origins.json".to_owned(),
            ".hidden".to_owned(),
            format!(".{dead}.0"),
            format!("index.{dead}.0"),
            format!(".index.{dead}.new"),
        ];
        for name in abandoned.iter().chain(&others) {
            fs::write(below.join(name), b"").unwrap();
        }
        fs::write(below.join("deeper").join(&abandoned[0]), b"").unwrap();
        remove_abandoned(top.path(), 2);
        let mut left: Vec<String> = fs::read_dir(&below)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut wanted: Vec<String> = others.into_iter().chain(["deeper".to_owned()]).collect();
        wanted.sort();
        assert_eq!(left, wanted);
        assert!(below.join("deeper").join(&abandoned[0]).exists());
    }
}
