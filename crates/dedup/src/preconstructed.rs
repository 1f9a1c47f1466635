//! Blobs that were restored whole before somebody asked for them, as files: they are sent as intact ones are.
//!
//! It is a cache: nothing in it is durable, and a process begins with an empty one. A file gets its name when its bytes have had the blob's digest.
//! If a disk gives others back, a client notices by the digest, as with an intact blob. Some reads are compared here, too: then the client gets an error instead
//! of the end, and the file goes, so that the next one has the blob restored.

use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use xebec_store::{Blob, BlobReader, Digest, Hasher};

use crate::policy::Policy;

/// See the module.
pub(crate) struct Preconstructed {
    directory: PathBuf,
    policy: Mutex<Policy<Digest>>,
    /// Whole reads so far.
    reads: AtomicU64,
}

/// One of so many whole reads is compared with the digest, the first one included. To compare each would take longer than sending it.
const COMPARED: u64 = 16;

impl Preconstructed {
    /// An empty one in a directory of its own, which it makes or empties, with files of so many bytes together.
    ///
    /// # Errors
    /// If the directory cannot be made, or has something that is not this cache's.
    pub(crate) fn open(directory: &Path, room: u64) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            // Nothing is removed that does not have a name of ours.
            let is_ours = name.to_str().is_some_and(|name| {
                [SUFFIX, UNFINISHED, LEAVING]
                    .iter()
                    .any(|ours| name.ends_with(ours))
            });
            if is_ours && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            policy: Mutex::new(Policy::new(room)),
            reads: AtomicU64::new(0),
        })
    }

    /// Whether a blob is not here, and may be.
    pub(crate) fn lacks(&self, blob: &Blob) -> bool {
        let policy = self.policy.lock();
        policy.takes(blob.size) && !policy.has(&blob.digest)
    }

    /// The same of a blob that will be asked for soon: one that is here stays longer then.
    pub(crate) fn expect(&self, blob: &Blob) -> bool {
        let mut policy = self.policy.lock();
        policy.takes(blob.size) && !policy.expect(&blob.digest)
    }

    /// Reads a blob, if it is here.
    pub(crate) fn read(self: &Arc<Self>, blob: &Blob, range: Range<u64>) -> Option<BlobReader> {
        if !self.policy.lock().use_one(&blob.digest) {
            return None;
        }
        let Ok(file) = fs::File::open(self.path(&blob.digest, SUFFIX)) else {
            self.forget(&blob.digest);
            return None;
        };
        let is_compared = range == (0..blob.size)
            && self
                .reads
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(COMPARED);
        let reading = Reading {
            files: self.clone(),
            digest: blob.digest.clone(),
            hasher: is_compared.then(|| Hasher::new(blob.digest.algorithm())),
            left: range.end - range.start,
            reader: BlobReader::of_file(file, range),
        };
        Some(BlobReader::new(stream::try_unfold(
            reading,
            |mut reading| async move { Ok(reading.next().await?.map(|piece| (piece, reading))) },
        )))
    }

    /// A file that cannot be used goes. This is done while nobody else changes what is here: another file may get the same name.
    fn forget(&self, digest: &Digest) {
        let mut policy = self.policy.lock();
        policy.remove(digest);
        match fs::remove_file(self.path(digest, SUFFIX)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%digest, "a restored blob stays on the disk: {error}");
            }
            _ => {}
        }
    }

    /// Begins a file for a blob.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn begin(&self, blob: &Blob) -> io::Result<Unfinished> {
        let path = self.path(&blob.digest, UNFINISHED);
        let file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Unfinished {
            file: Some(file),
            path,
            hasher: Hasher::new(blob.digest.algorithm()),
            size: 0,
        })
    }

    /// A file has all bytes: it is read from now on, and others go for it.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not the blob's.
    pub(crate) fn finish(&self, blob: &Blob, mut unfinished: Unfinished) -> io::Result<()> {
        let hasher = std::mem::replace(&mut unfinished.hasher, Hasher::new(blob.digest.algorithm()));
        if hasher.finish() != blob.digest || unfinished.size != blob.size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Held until the names are as the policy says: two that finish at once do not undo each other.
        let mut policy = self.policy.lock();
        fs::rename(&unfinished.path, self.path(&blob.digest, SUFFIX))?;
        unfinished.file = None;
        let gone = policy.insert(blob.digest.clone(), blob.size);
        for gone in &gone {
            if let Err(error) = fs::rename(self.path(gone, SUFFIX), self.path(gone, LEAVING)) {
                tracing::warn!(%gone, "a restored blob stays on the disk: {error}");
            }
        }
        drop(policy);
        // That takes long for large files, and nobody needs to wait for it.
        for gone in gone {
            if let Err(error) = fs::remove_file(self.path(&gone, LEAVING)) {
                tracing::warn!(%gone, "a restored blob stays on the disk: {error}");
            }
        }
        Ok(())
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.policy.lock().bytes()
    }

    fn path(&self, digest: &Digest, suffix: &str) -> PathBuf {
        let name = digest.to_string().replace(':', "-");
        self.directory.join(name + suffix)
    }
}

const SUFFIX: &str = ".blob";
const UNFINISHED: &str = ".new";
const LEAVING: &str = ".old";

/// A file that is being read.
struct Reading {
    files: Arc<Preconstructed>,
    digest: Digest,
    /// Of what was read, if it is compared.
    hasher: Option<Hasher>,
    /// Bytes that were not read yet.
    left: u64,
    reader: BlobReader,
}

impl Reading {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.checked().await;
        if let Err(error) = &piece {
            tracing::warn!(digest = %self.digest, "a restored blob cannot be read from its file, which goes: {error}");
            self.files.forget(&self.digest);
        }
        piece
    }

    /// The next piece. The last one comes only if all of them together are the blob.
    async fn checked(&mut self) -> io::Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = self.reader.try_next().await?.unwrap_or_default();
        if piece.is_empty() || piece.len() as u64 > self.left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= piece.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&piece);
        }
        if self.left == 0
            && let Some(hasher) = self.hasher.take()
            && hasher.finish() != self.digest
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(piece))
    }
}

/// A file that is being written. It goes if it is dropped.
pub(crate) struct Unfinished {
    file: Option<fs::File>,
    path: PathBuf,
    hasher: Hasher,
    size: u64,
}

impl Unfinished {
    /// Adds bytes. Blocks.
    pub(crate) fn write(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
