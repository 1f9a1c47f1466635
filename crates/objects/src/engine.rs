//! The engines behind one face.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use object_store::PutPayload;

use super::directory::{self, Directory, FileWriter};
use super::note::{Finished, Note};
use super::s3::{self, Bucket, PartWriter};
use crate::config::ObjectsConfig;

/// An object store.
#[derive(Clone)]
pub enum Objects {
    /// Files.
    Directory(Directory),
    /// A bucket.
    S3(Bucket),
}

/// The bytes of a blob, or a range of them, in pieces.
pub struct BlobReader(BoxStream<'static, io::Result<Bytes>>);

impl BlobReader {
    /// Of pieces that somebody else reads or makes.
    pub fn new(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(pieces.boxed())
    }

    /// Of a range of a file, which has these bytes and does not change.
    pub fn of_file(file: File, range: Range<u64>) -> Self {
        Self(directory::pieces_of(file, range))
    }
}

impl Stream for BlobReader {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl Objects {
    /// Opens it. Blocks.
    pub fn open(config: &ObjectsConfig, root: &Path) -> io::Result<Self> {
        match config {
            ObjectsConfig::Directory => Directory::open(&root.join("objects")).map(Self::Directory),
            ObjectsConfig::S3 { .. } => Bucket::open(config).map(Self::S3),
        }
    }

    /// The same of a place that need not be there: a directory is neither made nor looked for. `root` has the directory of objects.
    ///
    /// # Errors
    /// If there is no `root` for a directory, or a bucket cannot be named so.
    pub fn open_lazily(config: &ObjectsConfig, root: Option<&Path>) -> io::Result<Self> {
        match (config, root) {
            (ObjectsConfig::Directory, Some(root)) => {
                Ok(Self::Directory(Directory::unopened(&root.join("objects"))))
            }
            (ObjectsConfig::Directory, None) => Err(io::ErrorKind::InvalidInput.into()),
            (ObjectsConfig::S3 { .. }, _) => Bucket::open(config).map(Self::S3),
        }
    }

    /// Makes the directory of objects where it is missing; a bucket has to be there. The directory that it is in has to be there, too.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn make(&self) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.make().await,
            Self::S3(_) => Ok(()),
        }
    }

    /// How many bytes an object has; `None` if it is not there.
    pub async fn size(&self, key: &str) -> io::Result<Option<u64>> {
        match self {
            Self::Directory(directory) => directory.size(key).await,
            Self::S3(s3) => s3.size(key).await,
        }
    }

    /// Whether the object store says anything of an object; that it is not there is an answer, too.
    pub async fn answers(&self, key: &str) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.is_there().await,
            Self::S3(s3) => s3.size(key).await.map(drop),
        }
    }

    /// Reads a range of an object, which has these bytes.
    ///
    /// # Errors
    /// `NotFound` if the object is not there.
    pub async fn read(&self, key: &str, range: Range<u64>) -> io::Result<BlobReader> {
        Ok(BlobReader(match self {
            Self::Directory(directory) => directory.read(key, range).await?,
            Self::S3(s3) => s3.read(key, range).await?,
        }))
    }

    /// Removes an object, or what there is of an unfinished one. It need not be there.
    pub async fn delete(&self, key: &str, progress: Option<&[u8]>) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.delete(key).await,
            Self::S3(bucket) => s3::delete(bucket, key, progress).await,
        }
    }

    /// Whether an object may come to be there after it was deleted: the store may still be busy with a write whose sender has died.
    pub fn writes_late(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::S3(_) => true,
        }
    }

    /// How many bytes of an upload are here, of which its record says that they are `recorded`.
    pub async fn uploaded(&self, key: &str, recorded: u64) -> io::Result<u64> {
        match self {
            Self::Directory(directory) => Ok(directory.size(key).await?.unwrap_or(0)),
            Self::S3(_) => Ok(recorded),
        }
    }

    /// Makes an object of these bytes, which is durable then, under a key that nobody has written to.
    pub async fn put(&self, key: &str, pieces: Vec<Bytes>) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.put(key, pieces).await,
            Self::S3(bucket) => bucket.put(key, pieces.into_iter().collect::<PutPayload>()).await,
        }
    }

    /// An address at which anybody may read an object for a while, if the store can be read by others.
    pub async fn signed_address(&self, key: &str, lasting: Duration) -> io::Result<Option<String>> {
        match self {
            Self::Directory(_) => Ok(None),
            Self::S3(bucket) => bucket.signed_address(key, lasting).await.map(Some),
        }
    }

    /// The directory, if objects are files.
    pub fn directory(&self) -> Option<&Directory> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::S3(_) => None,
        }
    }

    /// Makes an object of a file, without copying it.
    ///
    /// # Errors
    /// `Unsupported` if objects are no files; `CrossesDevices` if the file is on another file system.
    pub async fn link(&self, key: &str, file: File) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.link(key, file).await,
            Self::S3(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// A writer of an upload that has just been recorded, if any other one would have to take it over.
    pub fn begin(&self, key: &str) -> Option<Writer> {
        match self {
            Self::Directory(_) => None,
            Self::S3(bucket) => Some(Writer::Parts(PartWriter::begin(bucket, key))),
        }
    }

    /// The note for the record of an upload. It has to be recorded before somebody else goes on with the upload, by [`Objects::resume`].
    ///
    /// # Errors
    /// If it is damaged.
    pub fn take_over(&self, key: &str, size: u64, progress: Option<&[u8]>) -> io::Result<Note> {
        match self {
            Self::Directory(_) => Ok(directory::note(key, size)),
            Self::S3(_) => s3::take_over(key, progress),
        }
    }

    /// Goes on with an object from what its record says; from the beginning if there is nothing yet.
    pub async fn resume(&self, key: &str, progress: Option<&[u8]>) -> io::Result<Writer> {
        Ok(match self {
            Self::Directory(directory) => Writer::File(directory.resume(key).await?),
            Self::S3(s3) => Writer::Parts(PartWriter::resume(s3, key, progress).await?),
        })
    }
}

/// An object that is being written.
#[expect(
    clippy::large_enum_variant,
    reason = "a registry has one or the other, and few of them at once"
)]
pub enum Writer {
    /// A file.
    File(FileWriter),
    /// Parts of an object in S3.
    Parts(PartWriter),
}

impl Writer {
    /// The key that it writes under.
    pub fn key(&self) -> &str {
        match self {
            Self::File(writer) => writer.key(),
            Self::Parts(writer) => writer.key(),
        }
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        match self {
            Self::File(writer) => writer.size(),
            Self::Parts(writer) => writer.size(),
        }
    }

    /// How many bytes it holds in memory.
    pub fn in_memory(&self) -> usize {
        match self {
            Self::File(_) => 0,
            Self::Parts(writer) => writer.in_memory(),
        }
    }

    /// Adds bytes. After an error the writer is of no use; what is there can be resumed.
    pub async fn write(self, pieces: Vec<Bytes>) -> io::Result<Self> {
        Ok(match self {
            Self::File(writer) => Self::File(writer.write(pieces).await?),
            Self::Parts(writer) => Self::Parts(writer.write(pieces).await?),
        })
    }

    /// The note that has to be recorded before more is written.
    pub fn unrecorded(&mut self) -> Option<Note> {
        match self {
            Self::File(_) => None,
            Self::Parts(writer) => writer.unrecorded(),
        }
    }

    /// Waits for what is on its way to the store, before [`Writer::sync`] or, if nothing more will be written, [`Writer::complete`].
    /// [`Writer::unrecorded`] has to be asked after it.
    pub async fn settled(self, is_last: bool) -> io::Result<Self> {
        Ok(match self {
            Self::File(writer) => Self::File(writer),
            Self::Parts(writer) => Self::Parts(writer.settled(is_last).await?),
        })
    }

    /// Makes all bytes durable, of a writer that has settled and is recorded. The returned note must be recorded if it has progress and
    /// the bytes are to be found again.
    pub async fn sync(self) -> io::Result<(Self, Note)> {
        Ok(match self {
            Self::File(writer) => {
                let (writer, note) = writer.sync().await?;
                (Self::File(writer), note)
            }
            Self::Parts(writer) => {
                let (writer, note) = writer.sync().await?;
                (Self::Parts(writer), note)
            }
        })
    }

    /// The object is whole and durable when this has returned.
    pub async fn complete(self) -> io::Result<Finished> {
        match self {
            Self::File(writer) => writer.complete().await,
            Self::Parts(writer) => writer.complete().await,
        }
    }
}
