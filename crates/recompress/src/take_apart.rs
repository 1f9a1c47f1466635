//! Takes a compressed stream apart: plain bytes out, and a description by which the same stream is made again.
//!
//! The stream is read once, in pieces. Of each gzip member the head tells who may have written it. The likeliest encoders are tried on the first plain
//! bytes; the first one that makes what the stream has is followed to the end ([`crate::replay`]). If none does, or if it differs later, the rest of
//! the member is described by a prediction and its corrections.

use crate::description::{Description, Making, Part, Slice};
use crate::feed::Feed;
use crate::gzip::{self, Fingerprint, Head};
use crate::method::Method;
use crate::predicted::Predicted;
use crate::replay::{Progress, Replay};
use xebec_deflate::format::inflate::InvalidDeflate;
use xebec_zstd_frames::InvalidZstd;
use xebec_zstd_frames::describe::{Describer, Failure, Options, Stretch};

/// Bytes of the stream that are looked at together.
const PIECE: usize = 32 << 10;
/// Bytes by which formats are told apart.
const MAGIC: usize = 4;
/// Plain bytes on which encoders are tried first.
const PROBE: usize = 256 << 10;
/// Plain bytes on which they are tried at most: an encoder that has written nothing by then is none.
const MOST_PROBE: usize = 16 << 20;

/// What is kept of a stream while an encoder is followed, at most: plain bytes since the last slice, and blocks. Encoders that are known stay far below.
const MOST_KEPT: usize = 32 << 20;
const MOST_ITEMS: usize = 1 << 20;
/// Flushes of a stream, at most: a writer that flushes after each byte is not followed.
const MOST_FLUSHES: usize = 4 << 20;

/// Encoders that are tried on the members of a stream, at most, those that made the member before not counted. A stream of many small members that none of
/// them makes would take too long; its other members are predicted.
const MOST_TRIES: usize = 20_000;
/// Members of a stream, at most. An eStargz layer has one for each file and each 4 MiB.
const MOST_MEMBERS: usize = 1 << 18;

/// Blocks of a deflate stream, at most: so many, and one for so many plain bytes. Each costs time, and a stream of empty blocks would take longer than any
/// layer; encoders have hundreds of bytes in a block even if they are flushed all the time.
const MOST_SMALL_BLOCKS: u64 = 100_000;
const LEAST_OF_BLOCK: u64 = 64;

/// How much a stream may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Plain bytes.
    pub plain: u64,
}

/// Why a stream is not taken apart. It stays as it is, then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not compressed, or in a format that is not known.
    #[error("the format of the stream is not known")]
    Format,
    /// A deflate stream is broken.
    #[error("{0}")]
    Deflate(#[from] InvalidDeflate),
    /// Zstd frames are broken, or need a dictionary or too large a window.
    #[error("{0}")]
    Zstd(#[from] InvalidZstd),
    /// It has more plain bytes than it may.
    #[error("there are more than {0} plain bytes")]
    TooLarge(u64),
    /// It ends in the middle.
    #[error("the stream ends too soon")]
    Truncated,
    /// Something in it that no encoder writes, and that a description cannot tell.
    #[error("the stream has what no encoder writes")]
    Unknown,
}

/// Takes one stream apart.
pub struct TakeApart {
    limits: Limits,
    plain_bytes: u64,
    description: Description,
    /// Bytes that come and were not understood yet.
    pending: Vec<u8>,
    state: State,
    /// The encoder of the member before.
    likely: Option<Method>,
    members: usize,
    tries_left: usize,
}

enum State {
    Head,
    Deflate(Box<DeflateTaker>),
    Trailer,
    Frames(Box<Describer>),
    /// Bytes after the last member.
    Rest,
}

impl TakeApart {
    /// Begins.
    pub fn new(limits: Limits) -> TakeApart {
        TakeApart {
            limits,
            plain_bytes: 0,
            description: Description::default(),
            pending: Vec::new(),
            state: State::Head,
            likely: None,
            members: 0,
            tries_left: MOST_TRIES,
        }
    }

    /// Takes the next bytes of the stream, and gives the plain bytes that they make to `plain`.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing more may be given then.
    pub fn write(&mut self, stream: &[u8], plain: &mut dyn FnMut(&[u8])) -> Result<(), Refusal> {
        // What is pending moves with each member, so there is little of it.
        for piece in stream.chunks(PIECE) {
            self.pending.extend_from_slice(piece);
            while self.step(false, plain)? {}
        }
        Ok(())
    }

    /// The stream has ended: gives the last plain bytes, and returns the description.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub fn finish(mut self, plain: &mut dyn FnMut(&[u8])) -> Result<Description, Refusal> {
        while self.step(true, plain)? {}
        match self.state {
            State::Frames(describer) => {
                let (parts, plain_bytes) = (&mut self.description.parts, &mut self.plain_bytes);
                describer
                    .finish(&mut |stretch| put_frames(&stretch, parts, plain, plain_bytes))
                    .map_err(refusal)?;
                if *plain_bytes > self.limits.plain {
                    return Err(Refusal::TooLarge(self.limits.plain));
                }
            }
            State::Head if self.pending.is_empty() && !self.description.parts.is_empty() => {}
            State::Rest => push_bytes(&mut self.description.parts, self.pending),
            State::Head if self.description.parts.is_empty() => return Err(Refusal::Format),
            _ => return Err(Refusal::Truncated),
        }
        Ok(self.description)
    }

    /// Goes on by one state. False if more input is needed.
    fn step(&mut self, is_end: bool, plain: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        match &self.state {
            State::Head => self.head(is_end),
            State::Deflate(_) => self.deflate(is_end, plain),
            State::Trailer if self.pending.len() < gzip::TRAILER => Ok(false),
            State::Trailer => {
                self.move_bytes(gzip::TRAILER);
                self.state = State::Head;
                Ok(!self.pending.is_empty())
            }
            State::Frames(_) => self.frames(plain),
            State::Rest => Ok(false),
        }
    }

    /// Puts the first bytes that are pending into the description.
    fn move_bytes(&mut self, count: usize) {
        // Into memory of their own size: there may be many of them, and each would keep what is pending.
        let bytes = self.pending.drain(..count).collect();
        push_bytes(&mut self.description.parts, bytes);
    }

    /// A member or a frame begins, or the last one is over.
    fn head(&mut self, is_end: bool) -> Result<bool, Refusal> {
        let is_first = self.description.parts.is_empty();
        if is_first && is_zstd(&self.pending) {
            self.state = State::Frames(Box::new(Describer::new(Options::default())));
            return Ok(true);
        }
        if self.pending.len() < MAGIC && !is_end {
            return Ok(false);
        }
        match gzip::head(&self.pending) {
            Head::Length(length) => {
                self.members += 1;
                if self.members > MOST_MEMBERS {
                    return Err(Refusal::Unknown);
                }
                let mut candidates = candidates(Fingerprint::of(&self.pending), self.likely);
                candidates.truncate(self.tries_left.max(1));
                self.move_bytes(length);
                self.state = State::Deflate(Box::new(DeflateTaker::new(candidates)));
                Ok(true)
            }
            Head::None if is_first => Err(Refusal::Format),
            Head::None => {
                self.state = State::Rest;
                Ok(false)
            }
            Head::MoreInput => Ok(false),
        }
    }

    fn deflate(&mut self, is_end: bool, plain: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        let State::Deflate(taker) = &mut self.state else {
            return Ok(false);
        };
        taker.feed.push(&self.pending);
        self.pending.clear();
        let (plain_bytes, limit) = (&mut self.plain_bytes, self.limits.plain);
        let mut sink = |bytes: &[u8]| {
            *plain_bytes += bytes.len() as u64;
            plain(bytes);
            *plain_bytes <= limit
        };
        if !taker.read(is_end, &mut sink, limit, &mut self.description.parts)? {
            return Ok(false);
        }
        self.pending = taker.feed.take_rest();
        self.likely = taker.made_by().or(self.likely);
        self.tries_left = self.tries_left.saturating_sub(taker.tries);
        self.state = State::Trailer;
        Ok(true)
    }

    fn frames(&mut self, plain: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        let State::Frames(describer) = &mut self.state else {
            return Ok(false);
        };
        let (parts, plain_bytes) = (&mut self.description.parts, &mut self.plain_bytes);
        // A few bytes can make a thousand times as many plain ones: the limit is looked at often.
        for piece in self.pending.chunks(1024) {
            describer
                .push(piece, &mut |stretch| {
                    put_frames(&stretch, parts, plain, plain_bytes)
                })
                .map_err(refusal)?;
            if *plain_bytes > self.limits.plain {
                return Err(Refusal::TooLarge(self.limits.plain));
            }
        }
        self.pending.clear();
        Ok(false)
    }
}

/// Whether zstd frames begin here, one that readers skip or another.
fn is_zstd(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    )
}

fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Invalid(invalid) => Refusal::Zstd(invalid),
        Failure::Corrections(_) => Refusal::Unknown,
    }
}

/// Adds a stretch of zstd frames.
fn put_frames(
    stretch: &Stretch<'_>,
    parts: &mut Vec<Part>,
    plain: &mut dyn FnMut(&[u8]),
    plain_bytes: &mut u64,
) {
    *plain_bytes += stretch.plain.len() as u64;
    plain(stretch.plain);
    parts.push(Part::Slice(Slice {
        plain: stretch.plain.len() as u64,
        history: xebec_zstd_frames::restore::history(&stretch.corrections).unwrap_or_default() as u32,
        lookahead: 0,
        bits: 8 * stretch.compressed as u64,
        begun: (0, 0),
        is_last: true,
        making: Making::Frames(stretch.corrections.clone()),
    }));
}

/// Appends bytes to the last part, if that has bytes too.
fn push_bytes(parts: &mut Vec<Part>, bytes: Vec<u8>) {
    match parts.last_mut() {
        Some(Part::Bytes(last)) => last.extend(bytes),
        _ if bytes.is_empty() => {}
        _ => parts.push(Part::Bytes(bytes)),
    }
}

/// The encoders to try: that of the member before first.
fn candidates(head: Fingerprint, likely: Option<Method>) -> Vec<Method> {
    let others = Method::candidates(head);
    let others = others.into_iter().filter(|method| Some(*method) != likely);
    likely.into_iter().chain(others).collect()
}

/// Takes one deflate stream apart.
struct DeflateTaker {
    feed: Feed,
    stage: Stage,
    /// Encoders that were not refuted, the likeliest first.
    candidates: Vec<Method>,
    /// Encoders that were refuted.
    tries: usize,
}

enum Stage {
    Probing { at: usize },
    Replaying(Box<Replay>),
    Predicting(Box<Predicted>),
    Done(Option<Method>),
}

impl DeflateTaker {
    fn new(candidates: Vec<Method>) -> DeflateTaker {
        DeflateTaker {
            feed: Feed::default(),
            stage: Stage::Probing { at: PROBE },
            candidates,
            tries: 0,
        }
    }

    /// The encoder that makes the stream, once that is known.
    fn made_by(&self) -> Option<Method> {
        match &self.stage {
            Stage::Done(method) => *method,
            _ => None,
        }
    }

    /// Reads as far as there is input. True if the stream has ended and `parts` make it.
    fn read(
        &mut self,
        is_end: bool,
        plain: &mut dyn FnMut(&[u8]) -> bool,
        limit: u64,
        parts: &mut Vec<Part>,
    ) -> Result<bool, Refusal> {
        loop {
            let bits = self.feed.bits();
            let bytes = self.feed.read(is_end)?;
            if !plain(bytes) {
                return Err(Refusal::TooLarge(limit));
            }
            let has_moved = self.feed.bits() > bits;
            self.work(parts)?;
            if matches!(self.stage, Stage::Done(_)) {
                return if self.feed.is_filled_with_zeros() {
                    Ok(true)
                } else {
                    Err(Refusal::Unknown)
                };
            }
            if !has_moved {
                return Ok(false);
            }
        }
    }

    /// Describes what was read.
    fn work(&mut self, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let most_blocks = MOST_SMALL_BLOCKS + self.feed.plain.end() / LEAST_OF_BLOCK;
        if self.feed.flushes.len() > MOST_FLUSHES || self.feed.blocks > most_blocks {
            return Err(Refusal::Unknown);
        }
        let is_much = self.feed.plain.len() > MOST_KEPT || self.feed.items.len() > MOST_ITEMS;
        match &mut self.stage {
            Stage::Probing { .. } if is_much => self.predict(0, 0, parts),
            Stage::Replaying(replay) if is_much => {
                let (plain, bit) = replay.open_from();
                self.predict(plain, bit, parts)
            }
            Stage::Probing { at } if self.feed.plain.len() < *at && !self.feed.has_ended() => Ok(()),
            Stage::Probing { at } => {
                *at *= 4;
                self.probe(parts)
            }
            Stage::Replaying(replay) => {
                let method = replay.method();
                match replay.step(&self.feed, parts) {
                    Progress::Done => self.stage = Stage::Done(Some(method)),
                    Progress::MoreInput => self.feed.forget_before(replay.needs_from(), replay.open_from().1),
                    Progress::Differs if replay.open_from().1 == 0 => {
                        self.candidates.retain(|candidate| *candidate != method);
                        self.stage = Stage::Probing {
                            at: 4 * self.feed.plain.len(),
                        };
                        return self.probe(parts);
                    }
                    Progress::Differs => {
                        let (plain, bit) = replay.open_from();
                        return self.predict(plain, bit, parts);
                    }
                }
                Ok(())
            }
            Stage::Predicting(predicted) => {
                if predicted.step(&mut self.feed, parts) {
                    self.stage = Stage::Done(None);
                }
                Ok(())
            }
            Stage::Done(_) => Ok(()),
        }
    }

    /// Tries the encoders on what was read.
    fn probe(&mut self, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let mut untried = std::mem::take(&mut self.candidates).into_iter();
        for method in untried.by_ref() {
            let Some(mut replay) = Replay::new(method) else {
                continue;
            };
            let mut shown = Vec::new();
            let progress = replay.step(&self.feed, &mut shown);
            if progress == Progress::Differs {
                self.tries += 1;
                continue;
            }
            self.candidates.push(method);
            if progress == Progress::Done || replay.agreed() > 0 {
                parts.append(&mut shown);
                self.stage = match progress {
                    Progress::Done => Stage::Done(Some(method)),
                    _ => Stage::Replaying(Box::new(replay)),
                };
                break;
            }
        }
        self.candidates.extend(untried);
        let is_over = self.candidates.is_empty() || self.feed.plain.len() > MOST_PROBE;
        if is_over && matches!(self.stage, Stage::Probing { .. }) {
            return self.predict(0, 0, parts);
        }
        Ok(())
    }

    /// From this block on, the stream is predicted.
    fn predict(&mut self, plain: u64, bit: u64, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let mut predicted = Predicted::new(plain, bit, &self.feed);
        self.stage = match predicted.step(&mut self.feed, parts) {
            true => Stage::Done(None),
            false => Stage::Predicting(Box::new(predicted)),
        };
        Ok(())
    }
}
