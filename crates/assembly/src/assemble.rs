//! The side that stores: a recipe and contents become the blob.

use std::io::{self, Read};

use bytes::Bytes;
use xebec_recipe::{ChunkId, Part, Recipe};
use xebec_recompress::{Description, InvalidDescription, RestoreError, Restorer};

use crate::apart::{Written, fill};

/// Plain bytes that are passed on at once.
const PART: usize = 256 << 10;

/// Memory that the description of the compression takes, at most.
const DESCRIPTION: u64 = 48 << 20;
/// Plain bytes for each byte of a blob, at most, and for an empty one: gzip makes a 1032nd of zeros.
const MOST_PLAIN: u64 = 1100;
const LEAST_PLAIN: u64 = 1 << 20;

/// Why no blob comes of it.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The contents that were sent cannot be read, or end too soon.
    #[error("the contents cannot be read: {0}")]
    Contents(io::Error),
    /// More contents were sent than the recipe has.
    #[error("contents follow that the recipe does not have")]
    TooMany,
    /// A content that is here cannot be read, or has another length than the recipe says.
    #[error("a content that is here cannot be read: {0}")]
    Here(io::Error),
    /// The description of the compression is none.
    #[error("{0}")]
    Description(#[from] InvalidDescription),
    /// The description is not that of these contents, or takes more work than a layer does.
    #[error("the description of the compression does not fit the layer's contents")]
    DoesNotFit,
    /// The contents do not belong to the description.
    #[error("{0}")]
    Restore(#[from] RestoreError),
    /// The blob would have another size than the recipe says.
    #[error("it makes another number of bytes than it says")]
    Size,
    /// The blob is not taken, or the work was stopped.
    #[error("{0}")]
    Stopped(io::Error),
}

/// What a blob is put together of.
pub struct Materials<'m> {
    /// Whether the registry has a content: the stream of contents lacks it.
    pub is_here: &'m dyn Fn(&ChunkId) -> bool,
    /// A content that the registry has.
    pub here: &'m mut dyn FnMut(&ChunkId) -> io::Result<Bytes>,
    /// Those that it lacks, in the order of the recipe.
    pub sent: &'m mut dyn Read,
}

/// Puts a blob together, and passes its bytes to `to`, in order. `go_on` is asked for each part, and ends the work by an error.
///
/// # Errors
/// [`AssemblyError`]. What was passed on is then no blob.
pub fn assemble(
    recipe: &Recipe,
    materials: Materials<'_>,
    to: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> Result<Written, AssemblyError> {
    let (plain, size) = (recipe.plain_size(), recipe.blob().size);
    let description = match recipe.description() {
        [] => None,
        bytes => Some(Description::from_bytes_within(bytes, DESCRIPTION)?),
    };
    if plain / MOST_PLAIN > size + LEAST_PLAIN / MOST_PLAIN {
        return Err(AssemblyError::DoesNotFit);
    }
    if let Some(description) = &description {
        if description.stream_length() != size {
            return Err(AssemblyError::Size);
        }
        if !description.fits(plain) {
            return Err(AssemblyError::DoesNotFit);
        }
    }
    let mut blob = Blob {
        restorer: description.as_ref().map(Restorer::new),
        left: recipe.blob().size,
        to,
        go_on,
    };
    let Materials { is_here, here, sent } = materials;
    let (mut written, mut part) = (Written::default(), vec![0; PART]);
    for piece in recipe.parts() {
        let length = piece.length();
        match piece {
            Part::Inline(bytes) => blob.write(bytes)?,
            Part::Zeros(_) => {
                part.fill(0);
                blob.write_zeros(length, &part)?;
            }
            Part::Chunk { id, .. } if is_here(&id) => {
                let bytes = here(&id).map_err(AssemblyError::Here)?;
                if bytes.len() as u64 != length {
                    return Err(AssemblyError::Here(io::ErrorKind::InvalidData.into()));
                }
                written.left_out += length;
                blob.write(&bytes)?;
            }
            Part::Chunk { .. } => {
                written.sent += length;
                let mut sent = sent.take(length);
                blob.write_from(&mut sent, length, &mut part)?;
            }
        }
    }
    match fill(&mut &mut *sent, &mut [0]).map_err(AssemblyError::Contents)? {
        0 => blob.finish().map(|()| written),
        _ => Err(AssemblyError::TooMany),
    }
}

/// The blob's bytes on their way.
struct Blob<'b, 'd> {
    restorer: Option<Restorer<'d>>,
    /// Bytes that it may still have.
    left: u64,
    to: &'b mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    go_on: &'b mut dyn FnMut() -> io::Result<()>,
}

impl Blob<'_, '_> {
    fn write(&mut self, plain: &[u8]) -> Result<(), AssemblyError> {
        for part in plain.chunks(PART) {
            (self.go_on)().map_err(AssemblyError::Stopped)?;
            let mut bytes = Vec::new();
            match &mut self.restorer {
                Some(restorer) => restorer.write(part, &mut bytes)?,
                None => bytes.extend_from_slice(part),
            }
            self.pass_on(bytes)?;
        }
        Ok(())
    }

    fn write_zeros(&mut self, mut length: u64, zeros: &[u8]) -> Result<(), AssemblyError> {
        while length > 0 {
            let part = usize::try_from(length).unwrap_or(usize::MAX).min(zeros.len());
            self.write(zeros.get(..part).unwrap_or_default())?;
            length -= part as u64;
        }
        Ok(())
    }

    fn write_from(
        &mut self,
        sent: &mut impl Read,
        mut length: u64,
        part: &mut [u8],
    ) -> Result<(), AssemblyError> {
        while length > 0 {
            let read = fill(sent, part).map_err(AssemblyError::Contents)?;
            if read == 0 {
                return Err(AssemblyError::Contents(io::ErrorKind::UnexpectedEof.into()));
            }
            self.write(part.get(..read).unwrap_or_default())?;
            length = length.saturating_sub(read as u64);
        }
        Ok(())
    }

    fn pass_on(&mut self, bytes: Vec<u8>) -> Result<(), AssemblyError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(AssemblyError::Size)?;
        (self.to)(bytes).map_err(AssemblyError::Stopped)
    }

    fn finish(mut self) -> Result<(), AssemblyError> {
        if let Some(restorer) = self.restorer.take() {
            let mut bytes = Vec::new();
            restorer.finish(&mut bytes)?;
            self.pass_on(bytes)?;
        }
        match self.left {
            0 => Ok(()),
            _ => Err(AssemblyError::Size),
        }
    }
}
