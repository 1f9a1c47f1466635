//! Takes a compressed stream apart: plain bytes out, and a description by which the same stream is made again.
//!
//! The stream is read once, in pieces of one size, however it comes, so that the same stream has the same description. Of each gzip member the head tells who may have written it. The likeliest encoders are tried on the first plain
//! bytes; the first one that makes what the stream has is followed to the end ([`crate::replay`]). If none does, or if it differs later, the rest of
//! the member is described by a prediction and its corrections.

use crate::description::{Description, Making, Part, Slice};
use crate::gzip::{self, Fingerprint, Head};
use crate::method::Method;
use crate::refusal::{Limits, Refusal};
use crate::take_deflate::DeflateTaker;
use xebec_zstd_frames::describe::{Describer, Failure, Options, Stretch};

/// Bytes of the stream that are looked at together. What is found depends on how much is known when it is looked for.
const PIECE: usize = 32 << 10;
/// Bytes by which formats are told apart.
const MAGIC: usize = 4;
/// Encoders that are tried on the members of a stream, at most, those that made the member before not counted. A stream of many small members that none of
/// them makes would take too long; its other members are predicted.
const MOST_TRIES: usize = 4_000;
/// Members that are predicted, at most: each takes some tenth of a millisecond, however short it is.
const MOST_PREDICTED: usize = 20_000;
/// Members of a stream, at most. An eStargz layer has one for each file and each 4 MiB.
const MOST_MEMBERS: usize = 1 << 18;

/// Bytes that a description may keep, at most: as they are, or as corrections. They stay in memory. A stream that needs more is not worth it, or is
/// some gigabytes of bytes after a gzip member.
const MOST_OF_DESCRIPTION: u64 = 128 << 20;

/// Takes one stream apart.
pub struct TakeApart {
    limits: Limits,
    plain_bytes: u64,
    description: Description,
    /// Bytes that came and were not looked at yet: less than a piece.
    gathered: Vec<u8>,
    /// Bytes that were not understood yet.
    pending: Vec<u8>,
    state: State,
    /// The encoder of the member before.
    likely: Option<Method>,
    members: usize,
    predicted: usize,
    tries_left: usize,
    /// How many parts were counted, how many bytes they keep, and how many they all may.
    counted: usize,
    kept: u64,
    pub(crate) most_kept: u64,
    /// How many members may be predicted.
    pub(crate) most_predicted: usize,
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
            gathered: Vec::with_capacity(PIECE),
            pending: Vec::new(),
            state: State::Head,
            likely: None,
            members: 0,
            predicted: 0,
            tries_left: MOST_TRIES,
            counted: 0,
            kept: 0,
            most_kept: MOST_OF_DESCRIPTION,
            most_predicted: MOST_PREDICTED,
        }
    }

    /// Takes the next bytes of the stream, and gives the plain bytes that they make to `plain`, some of them later.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; nothing more may be given then.
    pub fn write(&mut self, mut stream: &[u8], plain: &mut dyn FnMut(&[u8])) -> Result<(), Refusal> {
        while !stream.is_empty() {
            let room = PIECE - self.gathered.len();
            let (piece, rest) = stream.split_at(stream.len().min(room));
            self.gathered.extend_from_slice(piece);
            stream = rest;
            if self.gathered.len() == PIECE {
                self.look(false, plain)?;
            }
        }
        Ok(())
    }

    /// Looks at what was gathered. With `is_end`, nothing more will come.
    fn look(&mut self, is_end: bool, plain: &mut dyn FnMut(&[u8])) -> Result<(), Refusal> {
        // What is pending moves with each member, so there is little of it.
        self.pending.append(&mut self.gathered);
        while self.step(is_end, plain)? {}
        // The last part may still grow.
        if let Some((last, before)) = self.description.parts.split_last() {
            let new = before.get(self.counted..).unwrap_or_default();
            self.kept += new.iter().map(Part::kept_bytes).sum::<u64>();
            self.counted = before.len();
            if self.kept + last.kept_bytes() > self.most_kept {
                return Err(Refusal::TooLong);
            }
        }
        Ok(())
    }

    /// The stream has ended: gives the last plain bytes, and returns the description.
    ///
    /// # Errors
    ///
    /// [`Refusal`].
    pub fn finish(mut self, plain: &mut dyn FnMut(&[u8])) -> Result<Description, Refusal> {
        self.look(true, plain)?;
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
            State::Rest => {}
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
            State::Rest => {
                self.move_bytes(self.pending.len());
                Ok(false)
            }
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
                Ok(true)
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
        let made_by = taker.made_by();
        self.predicted += usize::from(made_by.is_none());
        if self.predicted > self.most_predicted {
            return Err(Refusal::Unknown);
        }
        self.likely = made_by.or(self.likely);
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
