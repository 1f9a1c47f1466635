//! A layer blob: the tar file of changes, hashed and compressed while it is made.
//!
//! The caller's thread reads files and hashes the plain stream. A second one compresses, hashes what comes of it and writes. A bounded
//! channel is between them, so memory is that of some parts and of the encoder.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;

use flate2::GzBuilder;
use flate2::write::GzEncoder;
use xebec_format::digest::{Digest, Digester};

use crate::changes::{Caller, Note, Output, write_changes};
use crate::error::CommitError;

/// Plain bytes that are passed on at once. With zstd each such part is a frame of its own: a frame can be decoded from its beginning
/// only, and a reader of one page waits for the whole frame.
const PART: usize = 1 << 20;
/// Parts on their way between the two threads.
const UNDER_WAY: usize = 4;

/// The usual level of gzip.
const GZIP: u32 = 6;

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// By gzip, which every runtime reads. Levels 1 to 9.
    Gzip(u32),
    /// By zstd, in less time and space. Levels 1 to 19.
    Zstd(i32),
}

impl Compression {
    /// The compression of that name, `gzip` or `zstd`, with a level or the usual one.
    ///
    /// # Errors
    /// A sentence that says which there are.
    pub fn named(name: &str, level: Option<u32>) -> Result<Self, String> {
        match (name, level) {
            ("gzip", None) => Ok(Self::Gzip(GZIP)),
            ("gzip", Some(level @ 1..=9)) => Ok(Self::Gzip(level)),
            ("zstd", None) => Ok(Self::Zstd(zstd::DEFAULT_COMPRESSION_LEVEL)),
            ("zstd", Some(level @ 1..=19)) => Ok(Self::Zstd(level.cast_signed())),
            ("gzip", Some(level)) => Err(format!("gzip has levels from 1 to 9, and not {level}")),
            ("zstd", Some(level)) => Err(format!("zstd has levels from 1 to 19, and not {level}")),
            _ => Err(format!(
                "{name:?} is not a compression of layers; use gzip or zstd"
            )),
        }
    }

    /// The media type of a layer.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Gzip(_) => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd(_) => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// A layer blob that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the blob.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of the plain tar file.
    pub diff_id: Digest,
    /// The size of that in bytes.
    pub plain_size: u64,
    /// Entries, the root's own not counted. Without any, the container changed nothing.
    pub entries: u64,
    /// Its media type.
    pub media_type: &'static str,
}

#[cfg(test)]
impl Layer {
    /// That of a container which changed nothing, for tests that look at none of it.
    pub(crate) fn empty() -> Self {
        let digest = Digest::of(b"");
        Self {
            digest,
            size: 0,
            diff_id: digest,
            plain_size: 0,
            entries: 0,
            media_type: "",
        }
    }
}

/// Writes the changes in an upper directory to `to` as a layer. `go_on` is asked for each file and part, and ends it by an error; `note`
/// hears of files that are left out.
///
/// # Errors
/// [`CommitError`]. What was written is then no layer.
pub fn make_layer(
    upper: &Path,
    compression: Compression,
    to: impl Write + Send,
    go_on: &mut dyn FnMut() -> io::Result<()>,
    note: &mut dyn FnMut(Note),
) -> Result<Layer, CommitError> {
    let (sender, receiver) = sync_channel(UNDER_WAY);
    std::thread::scope(|scope| {
        let packer = std::thread::Builder::new().name("compress".to_owned());
        let packer = packer.spawn_scoped(scope, move || pack(&receiver, compression, to));
        let packer = packer.map_err(CommitError::Write)?;
        let mut stream = Stream {
            part: Vec::with_capacity(PART),
            sender: Some(sender),
            digester: Digester::new(),
            size: 0,
        };
        let walked = write_changes(upper, &mut stream, Caller { go_on, note });
        let walked = walked.and_then(|entries| stream.pass_on().map(|()| entries));
        // The packer ends when the channel is closed.
        stream.sender = None;
        let packed = joined(packer);
        match (walked, packed) {
            // The other thread says why it takes no more.
            (Err(CommitError::Write(_)), Err(error)) => Err(CommitError::Write(error)),
            (Err(error), _) => Err(error),
            (_, Err(error)) => Err(CommitError::Write(error)),
            (Ok(entries), Ok((digest, size))) => Ok(Layer {
                digest,
                size,
                diff_id: stream.digester.finish(),
                plain_size: stream.size,
                entries,
                media_type: compression.media_type(),
            }),
        }
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("the thread that compresses panicked"));
    thread.join().unwrap_or_else(panicked)
}

/// The plain stream.
struct Stream {
    part: Vec<u8>,
    sender: Option<SyncSender<Vec<u8>>>,
    digester: Digester,
    size: u64,
}

impl Stream {
    fn pass_on(&mut self) -> Result<(), CommitError> {
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART));
        self.digester.update(&part);
        self.size += part.len() as u64;
        let sent = self.sender.as_ref().map(|sender| sender.send(part));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(CommitError::Write(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Output for Stream {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), CommitError> {
        while !bytes.is_empty() {
            let length = bytes.len().min(PART - self.part.len());
            let (now, later) = bytes.split_at(length);
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART {
                self.pass_on()?;
            }
        }
        Ok(())
    }
}

/// Compresses what comes, until the channel is closed. Gives digest and size of what it wrote.
fn pack(parts: &Receiver<Vec<u8>>, compression: Compression, to: impl Write) -> io::Result<(Digest, u64)> {
    let mut to = Measured {
        to: BufWriter::with_capacity(PART, to),
        digester: Digester::new(),
        size: 0,
    };
    match compression {
        Compression::Gzip(level) => {
            // No name, no time, and no system in the header.
            let mut encoder: GzEncoder<_> = GzBuilder::new()
                .mtime(0)
                .operating_system(255)
                .write(to, flate2::Compression::new(level));
            parts.iter().try_for_each(|part| encoder.write_all(&part))?;
            to = encoder.finish()?;
        }
        Compression::Zstd(level) => {
            let mut encoder = zstd::bulk::Compressor::new(level)?;
            for part in parts {
                to.write_all(&encoder.compress(&part)?)?;
            }
        }
    }
    to.flush()?;
    Ok((to.digester.finish(), to.size))
}

/// Passes bytes on, and measures them.
struct Measured<W> {
    to: W,
    digester: Digester,
    size: u64,
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digester.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
