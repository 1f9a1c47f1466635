//! A blob that is coming in: a file without a name, which grows, and its readers, each of which is sent what has come so far.
//!
//! The last byte is kept back until the digest was compared, so that no reader can take wrong bytes for a whole blob.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::sync::watch;

use crate::error::UpstreamError;

/// The bytes that a reader is sent at once.
const PIECE: u64 = 128 << 10;

/// How far a blob is.
#[derive(Clone, Debug)]
enum Progress {
    /// So many bytes are here.
    Coming(u64),
    /// All of it, and it is what its digest says.
    Whole,
    /// The rest cannot be fetched.
    Failed(UpstreamError),
}

/// See the module.
pub(super) struct Spool {
    file: File,
    size: u64,
    progress: watch::Sender<Progress>,
}

impl Spool {
    /// An empty one for a blob of `size` bytes, on the disk of `directory`. The file goes when nobody uses it any more.
    pub(super) fn new(directory: &Path, size: u64) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let open = |directory: &Path| openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR);
        // Some network file systems have no files without a name.
        let file = open(directory).or_else(|_| open(&std::env::temp_dir()))?;
        Ok(Self {
            file: file.into(),
            size,
            progress: watch::channel(Progress::Coming(0)).0,
        })
    }

    /// How many bytes the blob has.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// How many bytes are here.
    pub(super) fn here(&self) -> u64 {
        match &*self.progress.borrow() {
            Progress::Coming(here) => *here,
            Progress::Whole => self.size,
            Progress::Failed(_) => 0,
        }
    }

    /// Adds what comes next. Blocks for as long as the page cache takes.
    pub(super) fn add(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        if end > self.size {
            return Err(io::Error::other("more bytes came than the blob has"));
        }
        self.file.write_all_at(bytes, at)?;
        self.progress.send_replace(Progress::Coming(end));
        Ok(())
    }

    /// All of it is here and was compared, or the rest cannot be fetched.
    pub(super) fn end(&self, result: Result<(), UpstreamError>) {
        self.progress.send_replace(match result {
            Ok(()) => Progress::Whole,
            Err(error) => Progress::Failed(error),
        });
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) -> Result<(), UpstreamError> {
        let mut progress = self.progress.subscribe();
        let ended = progress
            .wait_for(|progress| !matches!(progress, Progress::Coming(_)))
            .await;
        match ended.as_deref() {
            Ok(Progress::Failed(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// A range, as it comes.
    pub(super) fn read(
        self: &Arc<Self>,
        range: Range<u64>,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let reader = Reader {
            spool: self.clone(),
            progress: self.progress.subscribe(),
            left: range,
        };
        futures_util::stream::try_unfold(reader, |mut reader| async move {
            let piece = reader.next().await?;
            Ok(piece.map(|piece| (piece, reader)))
        })
    }

    /// How many bytes may be sent.
    fn readable(&self, progress: &Progress) -> io::Result<u64> {
        match progress {
            Progress::Coming(here) => Ok((*here).min(self.size.saturating_sub(1))),
            Progress::Whole => Ok(self.size),
            Progress::Failed(error) => Err(io::Error::other(error.clone())),
        }
    }
}

struct Reader {
    spool: Arc<Spool>,
    progress: watch::Receiver<Progress>,
    left: Range<u64>,
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let readable = loop {
            let readable = self.spool.readable(&self.progress.borrow_and_update())?;
            if readable > self.left.start {
                break readable;
            }
            self.progress.changed().await.map_err(io::Error::other)?;
        };
        let end = readable.min(self.left.end).min(self.left.start + PIECE);
        let (spool, range) = (self.spool.clone(), self.left.start..end);
        let reading = tokio::task::spawn_blocking(move || {
            let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
            let mut piece = vec![0; length];
            spool.file.read_exact_at(&mut piece, range.start)?;
            Ok::<_, io::Error>(Bytes::from(piece))
        });
        let piece = reading.await.map_err(io::Error::other)??;
        self.left.start = end;
        Ok(Some(piece))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _};

    use super::*;

    fn spool(size: u64) -> Arc<Spool> {
        Arc::new(Spool::new(&std::env::temp_dir(), size).unwrap())
    }

    #[tokio::test]
    async fn the_last_byte_comes_when_the_digest_is_known_to_be_right() {
        let spool = spool(4);
        let mut reader = Box::pin(spool.read(0..4));
        spool.add(0, b"abcd").unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap(), "abc");
        assert!(reader.next().now_or_never().is_none());
        spool.end(Ok(()));
        assert_eq!(reader.next().await.unwrap().unwrap(), "d");
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn a_reader_of_what_fails_sees_a_break() {
        let spool = spool(4);
        let reader = Box::pin(spool.read(1..4));
        spool.add(0, b"abc").unwrap();
        let error = UpstreamError::NotFound("gone".to_owned());
        spool.end(Err(error));
        let read: Result<Vec<Bytes>, _> = reader.try_collect().await;
        assert!(read.unwrap_err().to_string().contains("gone"));
        assert!(spool.ended().await.is_err());
    }

    #[test]
    fn no_more_than_the_blob_has() {
        assert!(spool(4).add(2, b"abc").is_err());
    }
}
