//! Takes one blob apart: into chunks that are stored in packs, and a recipe.
//!
//! It works in a thread of its own with a low priority. The blob is read once, in pieces.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use xebec_recipe::{CannotBuild, Cutter, Piece, RecipeBuilder, Splitter};
use xebec_recompress::{Limits, Refusal, TakeApart};
use xebec_store::{Blob, BlobReader, LARGEST_PIECE, Store, StoreError};

use crate::aside::aside;
use crate::error::DedupError;
use crate::pack_files::{Written, drop_drafts};
use crate::packing::{Packed, Packing};
use crate::settings::{Cutting, Settings};

/// Chunks of a blob, at most. Each takes memory while it is taken apart and while it is restored.
const MOST_CHUNKS: u64 = 1 << 20;
/// A description may have this part of the blob's bytes. One with more saves nothing, or little for a long time of restoring.
const MOST_DESCRIPTION: u64 = 8;
/// Processor time that any blob may take, and that one may take for each MiB of it: a hundred times as long as an honest one.
const TIME: Duration = Duration::from_secs(30);
const TIME_PER_MIB: Duration = Duration::from_secs(4);

/// What came of a blob.
pub(crate) enum TakenApart {
    /// Its recipe, which is not stored yet, and the packs that it needs.
    Made {
        recipe: Vec<u8>,
        plain: u64,
        packed: Packed,
    },
    /// It stays intact; why, for people.
    Kept(String),
}

/// Takes a blob apart.
///
/// # Errors
/// If the store fails. Then it can be tried again.
pub(crate) async fn take_apart(
    store: &Store,
    blob: &Blob,
    settings: &Settings,
) -> Result<TakenApart, DedupError> {
    let stream = store.read(blob, 0..blob.size).await?;
    let written = Written::default();
    let work = Work {
        stream,
        blob: blob.clone(),
        settings: settings.clone(),
        packing: Packing::new(store.clone(), Handle::current(), settings.level, written.clone()),
        handle: Handle::current(),
    };
    let made = aside(
        "take-apart",
        &blob.digest.to_string(),
        settings.gives_way,
        move || work.run(),
    )
    .await;
    let made = made.flatten();
    if !matches!(made, Ok(TakenApart::Made { .. })) {
        let written = std::mem::take(&mut *written.lock());
        drop_drafts(store, written).await;
    }
    made
}

struct Work {
    stream: BlobReader,
    blob: Blob,
    settings: Settings,
    packing: Packing,
    handle: Handle,
}

/// Why it does not go on.
enum Stop {
    Kept(String),
    Failed(DedupError),
}

impl From<DedupError> for Stop {
    fn from(error: DedupError) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CannotBuild> for Stop {
    fn from(error: CannotBuild) -> Self {
        Self::Kept(error.to_string())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Kept(refusal.to_string())
    }
}

impl Work {
    fn run(self) -> Result<TakenApart, DedupError> {
        match self.parts() {
            Ok(made) => Ok(made),
            Err(Stop::Kept(why)) => Ok(TakenApart::Kept(why)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn parts(mut self) -> Result<TakenApart, Stop> {
        let begun = processor_time();
        let first = self.next()?.unwrap_or_default();
        let mut compressed = is_compressed(&first).then(|| {
            TakeApart::new(Limits {
                plain: self.settings.most_plain,
            })
        });
        let mut chunks = Chunks::new(&self.settings, self.packing);
        let (mut piece, mut read) = (Some(first), 0);
        while let Some(bytes) = piece {
            read += bytes.len() as u64;
            match &mut compressed {
                Some(apart) => apart.write(&bytes, &mut |plain| chunks.write(plain))?,
                None => chunks.write(&bytes),
            }
            chunks.check()?;
            let most = TIME + TIME_PER_MIB * u32::try_from(read >> 20).unwrap_or(u32::MAX);
            if processor_time().saturating_sub(begun) > most {
                return Err(Stop::Kept("it takes too long to take apart".to_owned()));
            }
            piece = next(&mut self.stream, &self.handle, &self.blob)?;
        }
        let description = match compressed {
            Some(apart) => apart.finish(&mut |plain| chunks.write(plain))?.to_bytes(),
            None => Vec::new(),
        };
        let share = description.len() as u64 * 100 / self.blob.size.max(1);
        if description.len() as u64 > self.blob.size / MOST_DESCRIPTION {
            return Err(Stop::Kept(format!(
                "what its plain files lack to make it again has {share} % of its size"
            )));
        }
        chunks.finish(&self.blob, description)
    }

    fn next(&mut self) -> Result<Option<Bytes>, Stop> {
        next(&mut self.stream, &self.handle, &self.blob)
    }
}

fn next(stream: &mut BlobReader, handle: &Handle, blob: &Blob) -> Result<Option<Bytes>, Stop> {
    let piece = handle.block_on(stream.next()).transpose();
    piece.map_err(|source| {
        Stop::Failed(DedupError::Read {
            key: blob.digest.to_string(),
            source,
        })
    })
}

/// Whether a stream begins as gzip or zstd does. Anything else is cut as it is.
fn is_compressed(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    )
}

/// Plain bytes on their way into chunks and a recipe.
struct Chunks {
    splitter: Splitter,
    sink: Sink,
}

struct Sink {
    builder: RecipeBuilder,
    packing: Packing,
    /// Plain bytes so far.
    plain: u64,
    count: u64,
    stop: Option<Stop>,
}

impl Chunks {
    fn new(settings: &Settings, packing: Packing) -> Self {
        let cutter = match settings.cutting {
            Cutting::Files => Cutter::Files,
            Cutting::Contents => Cutter::CONTENT,
        };
        Self {
            splitter: Splitter::new(cutter),
            sink: Sink {
                builder: RecipeBuilder::new(xebec_recipe::Limits::default()),
                packing,
                plain: 0,
                count: 0,
                stop: None,
            },
        }
    }

    fn write(&mut self, plain: &[u8]) {
        let sink = &mut self.sink;
        self.splitter.write(plain, &mut |piece| sink.take(piece));
    }

    /// Whether something stopped it.
    fn check(&mut self) -> Result<(), Stop> {
        self.sink.stop.take().map_or(Ok(()), Err)
    }

    fn finish(self, blob: &Blob, description: Vec<u8>) -> Result<TakenApart, Stop> {
        let mut sink = self.sink;
        self.splitter.finish(&mut |piece| sink.take(piece));
        if let Some(stop) = sink.stop {
            return Err(stop);
        }
        let blob = xebec_recipe::Blob {
            digest: blob.digest.to_string(),
            size: blob.size,
        };
        let recipe = sink.builder.finish(blob, description)?.to_bytes();
        if recipe.len() as u64 > LARGEST_PIECE {
            return Err(Stop::Kept("its recipe is too large".to_owned()));
        }
        Ok(TakenApart::Made {
            recipe,
            plain: sink.plain,
            packed: sink.packing.finish()?,
        })
    }
}

impl Sink {
    fn take(&mut self, piece: Piece<'_>) {
        // Nothing more is looked at: the caller ends soon.
        if self.stop.is_some() {
            return;
        }
        if let Err(stop) = self.add(piece) {
            self.stop = Some(stop);
        }
    }

    fn add(&mut self, piece: Piece<'_>) -> Result<(), Stop> {
        self.plain += match piece {
            Piece::Inline(bytes) | Piece::Chunk { bytes, .. } => bytes.len() as u64,
            Piece::Zeros(length) => length,
        };
        let id = self.builder.add(piece)?;
        if let (Some(id), Piece::Chunk { bytes, hint }) = (id, piece) {
            self.count += 1;
            if self.count > MOST_CHUNKS {
                return Err(Stop::Kept(format!(
                    "it has more than {MOST_CHUNKS} files, or parts of files"
                )));
            }
            self.packing.add(id, bytes, hint)?;
        }
        Ok(())
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
