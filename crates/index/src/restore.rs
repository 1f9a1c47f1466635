//! The exact tar again: frame and data space, put together in the order that the pieces tell.
//!
//! This proves an index (the digest of the result must be the layer's diff ID) and it is how a registry that
//! keeps files once gives back the layer. Memory is one buffer, whatever the layer's size.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use xebec_format::digest::{Digest, Digester};
use xebec_format::layer::LayerIndex;

/// Bytes copied at a time.
const BUFFER: usize = 256 << 10;

/// The data space of a layer, every byte of it present.
pub trait DataSource {
    /// Fills `buffer` with the bytes at `data_offset`.
    ///
    /// # Errors
    /// When not all of them can be read.
    fn read_exact_at(&self, data_offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl DataSource for File {
    fn read_exact_at(&self, data_offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, data_offset)
    }
}

impl DataSource for [u8] {
    fn read_exact_at(&self, data_offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(data_offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(buffer.len())?));
        let bytes = range
            .and_then(|range| self.get(range))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// Why a tar cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The index has no frame: it comes from a table of contents, which does not carry one.
    #[error("the layer's index has no frame, so its tar cannot be restored")]
    NoFrame,
    /// The index's pieces are not in order, or lie outside the plain stream.
    #[error("the layer's index lists pieces that are out of order")]
    Pieces,
    /// The frame cannot be read or decoded.
    #[error("reading the layer's frame: {0}")]
    Frame(io::Error),
    /// The frame is longer or shorter than what the pieces leave.
    #[error("the layer's frame does not fill the gaps between its contents: it is too {0}")]
    FrameLength(&'static str),
    /// The compressed frame is not the one that the index names.
    #[error("the layer's frame has digest {found}, but the index says {expected}")]
    FrameDigest {
        /// The digest in the index.
        expected: Digest,
        /// The digest of the frame that was read.
        found: Digest,
    },
    /// The data space cannot be read.
    #[error("reading the layer's data at {at}: {error}")]
    Data {
        /// Offset in the data space.
        at: u64,
        /// The error of the [`DataSource`].
        error: io::Error,
    },
    /// The tar cannot be written.
    #[error("writing the restored tar: {0}")]
    Write(io::Error),
}

/// Writes the layer's plain stream to `tar`, from `frame` (the compressed section) and `data`.
///
/// Returns the digest of what was written; it is the layer's diff ID, or something is wrong with index or data.
///
/// # Errors
/// See [`RestoreError`]. Bytes that were written before an error are worth nothing.
pub fn restore_tar(
    index: &LayerIndex,
    frame: impl Read,
    data: &(impl DataSource + ?Sized),
    tar: impl Write,
) -> Result<Digest, RestoreError> {
    let section = index.frame.as_ref().ok_or(RestoreError::NoFrame)?;
    let hashing = Hashing {
        reader: frame,
        digest: Digester::new(),
    };
    let mut frame = zstd::stream::read::Decoder::new(hashing).map_err(RestoreError::Frame)?;
    let mut output = Tar {
        tar,
        digest: Digester::new(),
        buffer: vec![0; BUFFER],
    };
    let mut plain = 0;
    for piece in &index.pieces {
        let gap = piece
            .plain_offset
            .checked_sub(plain)
            .ok_or(RestoreError::Pieces)?;
        output.copy_frame(&mut frame, gap)?;
        output.copy_data(data, piece.data_offset, piece.length)?;
        plain = piece
            .plain_offset
            .checked_add(piece.length)
            .ok_or(RestoreError::Pieces)?;
    }
    output.copy_frame(
        &mut frame,
        index.plain_size.checked_sub(plain).ok_or(RestoreError::Pieces)?,
    )?;
    if frame.read(&mut [0]).map_err(RestoreError::Frame)? != 0 {
        return Err(RestoreError::FrameLength("long"));
    }
    let mut rest = frame.finish();
    io::copy(&mut rest, &mut io::sink()).map_err(RestoreError::Frame)?;
    let found = rest.into_inner().digest.finish();
    if found != section.digest {
        return Err(RestoreError::FrameDigest {
            expected: section.digest,
            found,
        });
    }
    output.tar.flush().map_err(RestoreError::Write)?;
    Ok(output.digest.finish())
}

struct Tar<W> {
    tar: W,
    digest: Digester,
    buffer: Vec<u8>,
}

impl<W: Write> Tar<W> {
    fn copy_frame(&mut self, frame: &mut impl Read, length: u64) -> Result<(), RestoreError> {
        self.copy(length, |_, buffer| match frame.read_exact(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(RestoreError::FrameLength("short"))
            }
            result => result.map_err(RestoreError::Frame),
        })
    }

    fn copy_data(
        &mut self,
        data: &(impl DataSource + ?Sized),
        start: u64,
        length: u64,
    ) -> Result<(), RestoreError> {
        self.copy(length, |done, buffer| {
            let at = start.checked_add(done).ok_or(RestoreError::Pieces)?;
            data.read_exact_at(at, buffer)
                .map_err(|error| RestoreError::Data { at, error })
        })
    }

    /// Writes `length` bytes that `fill` gives; it is told how many came before.
    fn copy(
        &mut self,
        length: u64,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), RestoreError>,
    ) -> Result<(), RestoreError> {
        let mut done = 0;
        while done < length {
            let size = (length - done).min(BUFFER as u64) as usize;
            let buffer = &mut self.buffer[..size];
            fill(done, buffer)?;
            self.digest.update(buffer);
            self.tar.write_all(buffer).map_err(RestoreError::Write)?;
            done += size as u64;
        }
        Ok(())
    }
}

/// A reader that hashes what is read.
struct Hashing<R> {
    reader: R,
    digest: Digester,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.digest.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}
