//! Takes one deflate stream apart: looks for the encoder that wrote it, follows that one, and predicts what none makes.

use crate::description::Part;
use crate::feed::Feed;
use crate::method::Method;
use crate::predicted::Predicted;
use crate::refusal::Refusal;
use crate::replay::{Progress, Replay};

/// Plain bytes on which encoders are tried first.
const PROBE: usize = 256 << 10;
/// Plain bytes on which they are tried at most: an encoder that has written nothing by then is none.
const MOST_PROBE: usize = 16 << 20;

/// What is kept of a stream while an encoder is followed, at most: plain bytes since the last slice, and blocks. Encoders that are known stay far below.
const MOST_KEPT: usize = 32 << 20;
const MOST_ITEMS: usize = 1 << 20;
/// Flushes of a stream, at most: a writer that flushes after each byte is not followed.
const MOST_FLUSHES: usize = 4 << 20;

/// Blocks of a deflate stream, at most: so many, and one for so many plain bytes. Each costs time, and a stream of empty blocks would take longer than any
/// layer; encoders have hundreds of bytes in a block even if they are flushed all the time.
const MOST_SMALL_BLOCKS: u64 = 100_000;
const LEAST_OF_BLOCK: u64 = 64;

/// Takes one deflate stream apart.
pub(crate) struct DeflateTaker {
    pub(crate) feed: Feed,
    stage: Stage,
    /// Encoders that were not refuted, the likeliest first.
    candidates: Vec<Method>,
    /// How many encoders were refuted while all were tried. Those that were followed and differed later are not counted: each gives way once.
    pub(crate) tries: usize,
}

/// How far the stream is understood.
enum Stage {
    /// Encoders are tried when there are so many plain bytes.
    Probing { at: usize },
    /// An encoder is followed.
    Replaying(Box<Replay>),
    /// No encoder makes it from some place on.
    Predicting(Box<Predicted>),
    /// The stream has ended, made by this encoder to its end.
    Done(Option<Method>),
}

impl DeflateTaker {
    /// Begins a stream that one of these may have written, the likeliest first.
    pub(crate) fn new(candidates: Vec<Method>) -> DeflateTaker {
        DeflateTaker {
            feed: Feed::default(),
            stage: Stage::Probing { at: PROBE },
            candidates,
            tries: 0,
        }
    }

    /// The encoder that makes the stream, once that is known.
    pub(crate) fn made_by(&self) -> Option<Method> {
        match &self.stage {
            Stage::Done(method) => *method,
            _ => None,
        }
    }

    /// Reads as far as there is input. True if the stream has ended and `parts` make it.
    pub(crate) fn read(
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
                        // Each gives way once, so the tries are few.
                        self.candidates.retain(|candidate| *candidate != method);
                        match replay.successor(&self.candidates, &self.feed, parts) {
                            Some((next, Progress::Done)) => self.stage = Stage::Done(Some(next.method())),
                            Some((next, _)) => self.stage = Stage::Replaying(Box::new(next)),
                            None => return self.predict(plain, bit, parts),
                        }
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
