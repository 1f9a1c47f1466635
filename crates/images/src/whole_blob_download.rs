//! A blob that comes whole: some registries answer a request for a range with everything.
//!
//! Arriving bytes are written to a file without a name, and a reader of a range waits until the file reaches its end.
//! So however many ranges are wanted, the blob is fetched once. Ranges that readers get are not verified: a range has no
//! digest of its own, and spans are compared with theirs before anything of them is kept. But a blob that turns out
//! wrong at its end has failed, so that the next reader makes a new start. The file goes with the spool.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use xebec_format::digest::{Digest, Digester};
use xebec_oci::BlobStream;

/// A blob on its way.
pub(crate) struct WholeBlobDownload {
    file: Arc<File>,
    arrived: watch::Receiver<Arrived>,
}

/// How far it has come.
#[derive(Clone, Debug, Default)]
struct Arrived {
    bytes: u64,
    /// Why nothing more comes.
    failure: Option<String>,
}

impl WholeBlobDownload {
    /// Takes in the stream of `blob`, in a task of its own, which ends with the spool. The file is made in `directory`: inside of
    /// a layer's folder it needs the room that the layer needs anyway.
    ///
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn start(directory: &Path, blob: Digest, stream: BlobStream) -> io::Result<Self> {
        let path = directory.join("arriving");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        fs::remove_file(&path)?;
        let file = Arc::new(file);
        let (sender, arrived) = watch::channel(Arrived::default());
        tokio::spawn(take_in(blob, stream, file.clone(), sender));
        Ok(Self { file, arrived })
    }

    /// Whether nothing more comes although something is missing.
    pub(crate) fn has_failed(&self) -> bool {
        self.arrived.borrow().failure.is_some()
    }

    /// A reader that outlives a change of spools.
    pub(crate) fn reader(&self) -> SpoolReader {
        SpoolReader {
            file: self.file.clone(),
            arrived: self.arrived.clone(),
        }
    }
}

/// Reads a [`WholeBlobDownload`]. The blob goes on coming while there is a spool or a reader.
pub(crate) struct SpoolReader {
    file: Arc<File>,
    arrived: watch::Receiver<Arrived>,
}

impl SpoolReader {
    /// The bytes of `range`, once they are there.
    ///
    /// # Errors
    /// A text for people: the error that ended the stream, or that of the file system.
    pub(crate) async fn read(mut self, range: Range<u64>) -> Result<Bytes, String> {
        let there = |arrived: &Arrived| arrived.bytes >= range.end || arrived.failure.is_some();
        let arrived = self.arrived.wait_for(there).await.map(|arrived| arrived.clone());
        let arrived = arrived.map_err(|_| "the blob ended before the range".to_owned())?;
        if arrived.bytes < range.end {
            return Err(arrived.failure.unwrap_or_default());
        }
        let length =
            usize::try_from(range.end.saturating_sub(range.start)).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, range.start);
        read.map_err(|error| format!("read what has arrived of the blob: {error}"))?;
        Ok(bytes.into())
    }
}

async fn take_in(blob: Digest, mut stream: BlobStream, file: Arc<File>, sender: watch::Sender<Arrived>) {
    let (mut position, mut digester) = (0, Digester::new());
    let failure = loop {
        let part = tokio::select! {
            // Nobody is interested any more.
            () = sender.closed() => return,
            part = stream.next() => part,
        };
        match part {
            Some(Ok(part)) => {
                digester.update(&part);
                match write(&file, position, part).await {
                    Ok(bytes) => position += bytes,
                    Err(failure) => break failure,
                }
                sender.send_modify(|arrived| arrived.bytes = position);
            }
            Some(Err(error)) => break error.to_string(),
            None => match digester.finish() {
                found if found == blob => return,
                found => break format!("the registry sent {found} whole instead of {blob}"),
            },
        }
    };
    sender.send_modify(|arrived| arrived.failure = Some(failure));
}

async fn write(file: &Arc<File>, offset: u64, part: Bytes) -> Result<u64, String> {
    let file = file.clone();
    let written =
        tokio::task::spawn_blocking(move || file.write_all_at(&part, offset).map(|()| part.len() as u64));
    let written = written.await.map_err(|error| error.to_string())?;
    written
        .map_err(|error| format!("keep a blob that comes whole because the registry ignores ranges: {error}"))
}
