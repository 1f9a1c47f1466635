//! Objects as files: `<root>/objects/ab/abcdef…`.
//!
//! A file has its final name from its first byte on. Nobody looks for it before a record names it as a blob's, and that is written
//! after file and name are synced.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use xebec_kernel::file::sync_directory;
use xebec_kernel::owner::{create_new, make_directories};
use xebec_kernel::writeback;

use super::buffers::Buffers;
use super::note::{Finished, Note};
use crate::digest::{Algorithm, Hasher};

/// What files allow: all to their owner, and nothing to others.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
/// A process that deletes an object holds it shared. A process that copies all objects holds it alone.
const LOCK: &str = ".lock";
/// After so many bytes a reader lets others have its thread. Hundreds that read what is in memory, and whose clients take it as fast as
/// it comes, would keep a push waiting for minutes else.
const TURN: u64 = 128 << 10;
/// Of all directories.
static BUFFERS: LazyLock<Arc<Buffers>> = LazyLock::new(Arc::default);

/// A directory of objects: `<ab>/<key>`, a file each.
#[derive(Clone)]
pub struct Directory {
    top: PathBuf,
    /// Folders whose names this process knows to be durable. Keys begin with one of 256.
    folders: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Directory {
    /// Opens it, and makes it if it is missing. Blocks.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(top: &Path) -> io::Result<Self> {
        make_directory(top)?;
        Ok(Self {
            top: top.to_owned(),
            folders: Arc::default(),
        })
    }

    /// One that is neither made nor looked for yet.
    pub(super) fn unopened(top: &Path) -> Self {
        Self {
            top: top.to_owned(),
            folders: Arc::default(),
        }
    }

    /// Makes it in the directory that it is in, which has to be there.
    pub(super) async fn make(&self) -> io::Result<()> {
        let top = self.top.clone();
        blocking(move || {
            if !top.parent().is_some_and(Path::is_dir) {
                let text = format!("{} is in no directory; make or mount that first", top.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            make_directory(&top)
        })
        .await
    }

    /// Makes the folder of an object durable. One that is there already may have been made by a process that was killed before it
    /// could sync its name. Blocks.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        // An administrator who gives a disk up removes folders, and what is made again has keys that may begin as earlier ones.
        if self.folders.lock().contains(folder) && folder.is_dir() {
            return Ok(());
        }
        make_directory(folder)?;
        folder.parent().map_or(Ok(()), sync_directory)?;
        self.folders.lock().insert(folder.to_owned());
        Ok(())
    }

    /// Where an object's file is. Keys come from records; one that leads elsewhere is damaged.
    pub fn path(&self, key: &str) -> io::Result<PathBuf> {
        let is_below = |part| matches!(part, Component::Normal(_));
        match !key.is_empty() && Path::new(key).components().all(is_below) {
            true => Ok(self.top.join(key)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{key:?} is no key of an object"),
            )),
        }
    }

    /// An error if the directory itself is gone: what it lay on is not mounted any more.
    pub(super) async fn is_there(&self) -> io::Result<()> {
        let top = self.top.clone();
        blocking(move || fs::read_dir(top).map(drop)).await
    }

    pub(super) async fn size(&self, key: &str) -> io::Result<Option<u64>> {
        let (path, top) = (self.path(key)?, self.top.clone());
        blocking(move || match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) => match of_one(&top, error) {
                error if error.kind() == io::ErrorKind::NotFound => Ok(None),
                error => Err(error),
            },
        })
        .await
    }

    pub(super) async fn read(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> io::Result<BoxStream<'static, io::Result<Bytes>>> {
        let (path, top) = (self.path(key)?, self.top.clone());
        let opened = blocking(move || open_object(&path).map_err(|error| of_one(&top, error)));
        Ok(pieces_of(opened.await?, range))
    }

    pub(super) async fn delete(&self, key: &str) -> io::Result<()> {
        let path = self.path(key)?;
        let lock = self.top.join(LOCK);
        blocking(move || {
            let lock = open_lock(&lock)?;
            match lock.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::Error::other("a backup is under way")),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Nothing is deleted, by any process, before the returned file is closed. Blocks.
    pub fn keep_all(&self) -> io::Result<File> {
        let lock = open_lock(&self.top.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Gives an object the bytes of a file that is there already, by one more name of it. The file is durable then, even if another one
    /// has its old name by now.
    pub(super) async fn link(&self, key: &str, file: File) -> io::Result<()> {
        let (path, directory) = (self.path(key)?, self.clone());
        blocking(move || {
            directory.make_folder(&path)?;
            let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, opened, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
            file.sync_all()?;
            path.parent().map_or(Ok(()), sync_directory)
        })
        .await
    }

    /// Makes a file of these bytes, which is durable then, name included. A failure may leave a part of it.
    pub(super) async fn put(&self, key: &str, pieces: Vec<Bytes>) -> io::Result<()> {
        let (path, directory) = (self.path(key)?, self.clone());
        blocking(move || {
            directory.make_folder(&path)?;
            let mut file = create_new(&path, OFlags::WRONLY, OWN)?;
            let written = pieces
                .iter()
                .try_for_each(|piece| file.write_all(piece))
                .and_then(|()| file.sync_data());
            if let Err(error) = written {
                // On a full disk, the records that note the failure need the room that it has taken.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
            path.parent().map_or(Ok(()), sync_directory)
        })
        .await
    }

    pub(super) async fn resume(&self, key: &str) -> io::Result<FileWriter> {
        let (path, key, directory) = (self.path(key)?, key.to_owned(), self.clone());
        blocking(move || {
            directory.make_folder(&path)?;
            FileWriter::open(key, &path)
        })
        .await
    }
}

/// A range of a file, which has these bytes, in pieces.
pub(super) fn pieces_of(file: File, range: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
    let file = Arc::new(file);
    let pieces = stream::try_unfold((range, 0), move |(range, in_turn)| {
        let (file, buffers) = (Arc::clone(&file), Arc::clone(&BUFFERS));
        async move {
            if range.is_empty() {
                return Ok(None);
            }
            let in_turn = match in_turn < TURN {
                true => in_turn,
                false => {
                    tokio::task::yield_now().await;
                    0
                }
            };
            // Handing a piece from thread to thread takes longer than copying it from the kernel's cache.
            let piece = match buffers.read_cached(&file, &range) {
                Some(piece) => piece,
                None => {
                    let range = range.clone();
                    blocking(move || buffers.read(&file, &range)).await?
                }
            };
            let (length, end) = (piece.len() as u64, range.end);
            Ok(Some((piece, (range.start + length..end, in_turn + length))))
        }
    });
    pieces.boxed()
}

/// An error about one object. Where no object is there, as while a disk is not mounted, none is missing.
fn of_one(top: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound if !top.is_dir() => {
            io::Error::other(format!("the directory {} is not there", top.display()))
        }
        _ => error,
    }
}

/// Opens an object to read it. A link in its place leads elsewhere: somebody else has made it, and it is not followed.
fn open_object(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(no_link()).open(path)
}

fn open_lock(path: &Path) -> io::Result<File> {
    open_or_make(OFlags::WRONLY, path)
}

/// Opens a file, and makes it if it is missing. A link in its place is somebody else's, and is not followed.
fn open_or_make(access: OFlags, path: &Path) -> io::Result<File> {
    match create_new(path, access, OWN) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(openat(CWD, path, flags, Mode::empty())?.into())
        }
        made => made,
    }
}

fn no_link() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

/// Makes a directory that is durable then, and those that it is in. What root makes belongs to the owner of the directory that it is in.
pub fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_directories(path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// The note for the record of an upload whose file says how far the upload is.
pub(super) fn note(key: &str, size: u64) -> Note {
    Note {
        object: key.to_owned(),
        size,
        progress: None,
        released: Vec::new(),
    }
}

/// So many bytes are sent to the disk while more come, so that the sync at the end waits for the last of them only.
const EARLY: u64 = 8 << 20;

/// A file that is being written, at its end.
pub struct FileWriter {
    key: String,
    file: File,
    path: PathBuf,
    size: u64,
    hasher: Hasher,
    /// The size when the disk was last told to begin.
    begun: u64,
    /// The size when all of it was on the disk, under its name; nothing before the first time.
    synced: Option<u64>,
}

impl FileWriter {
    /// Opens the file and hashes an earlier writer's bytes again: a killed process wrote no state of its hash.
    fn open(key: String, path: &Path) -> io::Result<Self> {
        let file = open_or_make(OFlags::RDWR, path)?;
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let size = hasher.read(&file)?;
        Ok(Self {
            key,
            file,
            path: path.to_owned(),
            size,
            hasher,
            begun: size,
            synced: None,
        })
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) async fn write(mut self, pieces: Vec<Bytes>) -> io::Result<Self> {
        blocking(move || {
            for piece in pieces {
                self.file.write_all(&piece)?;
                self.hasher.update(&piece);
                self.size += piece.len() as u64;
            }
            if self.size - self.begun >= EARLY {
                // The sync at the end tells of a disk that fails.
                let _ = writeback::begin(&self.file);
                self.begun = self.size;
            }
            Ok(self)
        })
        .await
    }

    /// Makes what was written durable, if something came since the last time.
    ///
    /// When the disk fails, bytes that it did not take are cut off: the kernel keeps them in memory as if they were clean, so that to hash
    /// and sync them once more would succeed, and a power cut would lose them (`fsync(2)`, errors).
    pub(super) async fn sync(mut self) -> io::Result<(Self, Note)> {
        let synced = match self.synced {
            Some(size) if size == self.size => self,
            before => {
                let synced = blocking(move || {
                    let of_file = self.file.sync_data();
                    let of_folder = || self.path.parent().map_or(Ok(()), sync_directory);
                    if let Err(error) = of_file.and_then(|()| of_folder()) {
                        self.file.set_len(before.unwrap_or(0))?;
                        return Err(error);
                    }
                    self.synced = Some(self.size);
                    Ok(self)
                });
                synced.await?
            }
        };
        let note = note(&synced.key, synced.size);
        Ok((synced, note))
    }

    pub(super) async fn complete(self) -> io::Result<Finished> {
        let (synced, _) = self.sync().await?;
        Ok(Finished {
            object: synced.key,
            size: synced.size,
            hasher: synced.hasher,
            released: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_the_directory() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(top.path()).unwrap();
        for key in ["", "/etc/passwd", "../x", "a/../../x", ".", "a/./../.."] {
            assert!(directory.path(key).is_err(), "{key}");
        }
        assert_eq!(directory.path("ab/cd").unwrap(), top.path().join("ab/cd"));
    }

    #[tokio::test]
    async fn a_link_in_place_of_an_object_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(top.path()).unwrap();
        std::fs::write(top.path().join("secret"), "of somebody else").unwrap();
        std::fs::create_dir(top.path().join("ab")).unwrap();
        std::os::unix::fs::symlink(top.path().join("secret"), top.path().join("ab/x")).unwrap();
        assert!(directory.read("ab/x", 0..6).await.is_err());
    }

    #[tokio::test]
    async fn a_folder_that_was_removed_is_made_again() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(&top.path().join("objects")).unwrap();
        for key in ["ab/1", "ab/2"] {
            directory.put(key, vec![Bytes::from_static(b"x")]).await.unwrap();
            fs::remove_dir_all(top.path().join("objects")).unwrap();
        }
    }

    /// An administrator looks at a registry as root, and the registry runs as a user of its own.
    #[tokio::test]
    async fn what_root_makes_belongs_to_the_owner_of_the_directory() {
        use std::os::unix::fs::{MetadataExt as _, chown, symlink};
        if !rustix::process::geteuid().is_root() {
            let said = "SKIPPED: what root makes belongs to the owner of the directory: these tests are not run as root";
            let _ = writeln!(io::stderr(), "{said}");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let place = top.path().join("place");
        fs::create_dir(&place).unwrap();
        chown(&place, Some(65534), Some(65533)).unwrap();
        let directory = Directory::unopened(&place.join("objects"));
        directory.make().await.unwrap();
        directory
            .put("ab/put", vec![Bytes::from_static(b"x")])
            .await
            .unwrap();
        directory
            .resume("cd/written")
            .await
            .unwrap()
            .complete()
            .await
            .unwrap();
        directory.delete("ab/absent").await.unwrap();
        for name in ["", "ab", "ab/put", "cd", "cd/written", ".lock"] {
            let found = fs::metadata(place.join("objects").join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (65534, 65533), "{name}");
        }
        // What that user has put there for root to find gets no other owner, and is not written to.
        let secret = top.path().join("secret");
        fs::write(&secret, b"of root").unwrap();
        fs::remove_file(place.join("objects/.lock")).unwrap();
        symlink(&secret, place.join("objects/.lock")).unwrap();
        symlink(&secret, place.join("objects/ab/link")).unwrap();
        assert!(directory.delete("ab/put").await.is_err());
        assert!(directory.resume("ab/link").await.is_err());
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
        assert_eq!(fs::read(&secret).unwrap(), b"of root");
    }

    #[tokio::test]
    async fn a_writer_goes_on_where_another_was_killed() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(top.path()).unwrap();
        let first = directory.resume("ab/x").await.unwrap();
        let written = first
            .write(vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")])
            .await;
        drop(written);
        let second = directory.resume("ab/x").await.unwrap();
        assert_eq!(second.size(), 7);
        let second = second.write(vec![Bytes::from_static(b" three")]).await.unwrap();
        let finished = second.complete().await.unwrap();
        let wanted = crate::digest::Digest::of(Algorithm::Sha256, b"one two three");
        assert_eq!((finished.size, finished.hasher.finish()), (13, wanted));
        let pieces: Vec<Bytes> = directory
            .read("ab/x", 4..13)
            .await
            .unwrap()
            .map(Result::unwrap)
            .collect()
            .await;
        assert_eq!(pieces.concat(), b"two three");
        directory.delete("ab/x").await.unwrap();
        directory.delete("ab/x").await.unwrap();
        assert_eq!(directory.size("ab/x").await.unwrap(), None);
    }

    /// A folder that is gone stands for a disk that fails: the file is there, and cannot be made durable.
    #[tokio::test]
    async fn bytes_that_the_disk_did_not_take_are_not_there_for_the_next_writer() {
        let top = tempfile::tempdir().unwrap();
        let (directory, key) = (
            Directory::open(top.path()).unwrap(),
            crate::note::new_key().unwrap(),
        );
        let path = directory.path(&key).unwrap();
        let (folder, elsewhere) = (path.parent().unwrap(), top.path().join("elsewhere"));
        let writer = directory.resume(&key).await.unwrap();
        let writer = writer.write(vec![Bytes::from_static(b"kept")]).await.unwrap();
        let (writer, note) = writer.sync().await.unwrap();
        assert_eq!(note.size, 4);
        let writer = writer.write(vec![Bytes::from_static(b" lost")]).await.unwrap();
        fs::rename(folder, &elsewhere).unwrap();
        assert!(writer.sync().await.is_err());
        fs::rename(&elsewhere, folder).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert_eq!(directory.resume(&key).await.unwrap().size(), 4);
        // A writer that knows of nothing that was durable leaves nothing.
        let writer = directory.resume(&key).await.unwrap();
        fs::rename(folder, &elsewhere).unwrap();
        assert!(writer.sync().await.is_err());
        fs::rename(&elsewhere, folder).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[tokio::test]
    async fn without_the_directory_no_object_is_said_to_be_missing() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(&top.path().join("objects")).unwrap();
        assert_eq!(directory.size("ab/x").await.unwrap(), None);
        fs::remove_dir(top.path().join("objects")).unwrap();
        assert_eq!(
            directory.size("ab/x").await.unwrap_err().kind(),
            io::ErrorKind::Other
        );
        let read = directory.read("ab/x", 0..1).await.err().unwrap();
        assert_eq!(read.kind(), io::ErrorKind::Other);
    }

    #[tokio::test]
    async fn a_file_that_is_shorter_than_its_record_is_an_error() {
        let top = tempfile::tempdir().unwrap();
        let directory = Directory::open(top.path()).unwrap();
        fs::write(top.path().join("x"), b"short").unwrap();
        // The bytes that are there may come first, from memory.
        let reader = directory.read("x", 0..10).await.unwrap();
        let mut pieces: Vec<io::Result<Bytes>> = reader.collect().await;
        let error = pieces.pop().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let before: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
        assert!(b"short".starts_with(&before), "{before:?}");
    }
}
