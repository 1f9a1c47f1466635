//! The side that pushes: a blob to its recipe, and the contents that the other side lacks.

use std::io::{self, Read, Write};

use xebec_recipe::{
    Blob, CannotBuild, ChunkId, Cutter, Limits, Part, Piece, Recipe, RecipeBuilder, Splitter,
};
use xebec_recompress::{Refusal, TakeApart};

use crate::plain::{Format, reader};

/// Bytes that are read at once.
const PART: usize = 256 << 10;
/// Plain bytes of a layer, at most.
const MOST_PLAIN: u64 = 64 << 30;

/// Why a blob is not taken apart. Then it is pushed as it is.
#[derive(Debug, thiserror::Error)]
pub enum CannotTakeApart {
    /// It cannot be read, or the contents cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no stream that can be described.
    #[error("{0}")]
    Compression(#[from] Refusal),
    /// The recipe is beyond the limits.
    #[error("{0}")]
    Recipe(#[from] CannotBuild),
    /// The blob is not the one that the recipe was made of.
    #[error("the blob has changed since it was taken apart")]
    Changed,
}

/// Contents that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Plain bytes of contents that were written.
    pub sent: u64,
    /// Plain bytes of contents that were left out.
    pub left_out: u64,
}

/// Takes a blob apart. `of` is what it is, and `limits` are those of the recipe.
///
/// # Errors
/// [`CannotTakeApart`].
pub fn take_apart(
    mut blob: impl Read,
    of: Blob,
    cutter: Cutter,
    limits: Limits,
) -> Result<Recipe, CannotTakeApart> {
    let mut pieces = Pieces {
        splitter: Splitter::new(cutter),
        sink: Sink {
            builder: RecipeBuilder::new(limits),
            failed: None,
        },
    };
    let mut part = vec![0; PART];
    let mut length = fill(&mut blob, &mut part)?;
    let first = part.get(..length).unwrap_or_default();
    let mut compressed = (Format::of(first) != Format::Plain)
        .then(|| TakeApart::new(xebec_recompress::Limits { plain: MOST_PLAIN }));
    while length > 0 {
        let bytes = part.get(..length).unwrap_or_default();
        match &mut compressed {
            Some(apart) => apart.write(bytes, &mut |plain| pieces.write(plain))?,
            None => pieces.write(bytes),
        }
        pieces.check()?;
        length = fill(&mut blob, &mut part)?;
    }
    let description = match compressed {
        Some(apart) => apart.finish(&mut |plain| pieces.write(plain))?.to_bytes(),
        None => Vec::new(),
    };
    pieces.finish(of, description)
}

struct Pieces {
    splitter: Splitter,
    sink: Sink,
}

struct Sink {
    builder: RecipeBuilder,
    failed: Option<CannotBuild>,
}

impl Pieces {
    fn write(&mut self, plain: &[u8]) {
        let sink = &mut self.sink;
        self.splitter.write(plain, &mut |piece| sink.add(piece));
    }

    fn check(&mut self) -> Result<(), CannotBuild> {
        self.sink.failed.take().map_or(Ok(()), Err)
    }

    fn finish(self, of: Blob, description: Vec<u8>) -> Result<Recipe, CannotTakeApart> {
        let mut sink = self.sink;
        self.splitter.finish(&mut |piece| sink.add(piece));
        match sink.failed {
            Some(failed) => Err(failed.into()),
            None => Ok(sink.builder.finish(of, description)?),
        }
    }
}

impl Sink {
    fn add(&mut self, piece: Piece<'_>) {
        if self.failed.is_none()
            && let Err(failed) = self.builder.add(piece)
        {
            self.failed = Some(failed);
        }
    }
}

/// Writes the contents of a blob that `is_sent` says are wanted, in the order of the recipe, which was made of the blob.
///
/// # Errors
/// [`CannotTakeApart`]: I/O errors, and a blob that the recipe was not made of.
pub fn write_contents(
    recipe: &Recipe,
    blob: impl Read,
    is_sent: &dyn Fn(&ChunkId) -> bool,
    mut to: impl Write,
) -> Result<Written, CannotTakeApart> {
    let mut plain = reader(blob)?;
    let mut written = Written::default();
    for part in recipe.parts() {
        let length = part.length();
        let copied = match part {
            Part::Chunk { id, .. } if is_sent(&id) => {
                written.sent += length;
                io::copy(&mut plain.by_ref().take(length), &mut to)?
            }
            other => {
                if let Part::Chunk { .. } = other {
                    written.left_out += length;
                }
                io::copy(&mut plain.by_ref().take(length), &mut io::sink())?
            }
        };
        if copied != length {
            return Err(CannotTakeApart::Changed);
        }
    }
    match plain.read(&mut [0])? {
        0 => Ok(written),
        _ => Err(CannotTakeApart::Changed),
    }
}

/// Reads until the part is full, or nothing more comes.
pub(crate) fn fill(from: &mut impl Read, part: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = part.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
