//! Shows that an encoder makes a deflate stream again, slice by slice.
//!
//! An encoder that began with the stream, or that was resumed at a cut, reads the plain bytes and must write what the stream has. When a slice is long
//! enough, it is asked for a cut, and a new encoder is resumed there, with nothing but plain bytes before the cut and the few numbers that the cut
//! has. A cut is kept only if the new encoder makes the next slice: a table that was filled from the bytes before may differ from one that saw all.
//! Where it does, more bytes before are tried, and in the end the encoder before the cut goes on as if there had been none.

use crate::description::{Making, Part, Slice};
use crate::feed::Feed;
use crate::method::Method;
use crate::slice;
use xebec_bitstream::BitWriter;
use xebec_deflate::encoders::{Cut, Encoder, Output};

/// Plain bytes that an encoder is given at once: it needs about so many after a slice.
const PIECE: u64 = 16 << 10;

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The encoder makes the stream as far as it was read.
    MoreInput,
    /// The encoder makes the whole stream.
    Done,
    /// The encoder makes another stream from the last slice on.
    Differs,
}

/// Where a slice begins.
#[derive(Debug, Clone)]
struct Begin {
    cut: Cut,
    is_start: bool,
    begun: (u8, u8),
    history: u64,
    /// Flushes before it.
    flushed: usize,
}

/// An encoder at work on a slice.
struct Run {
    /// Whether the encoder does not flush by itself.
    is_flushed: bool,
    begin: Begin,
    encoder: Box<dyn Encoder>,
    output: Output,
    /// Plain bytes that it was given, from the beginning of the stream.
    fed: u64,
    /// Flushes that it was given or that came before it, from the beginning of the stream.
    flushed: usize,
    is_finished: bool,
    /// The position in the stream of the first byte of `written`.
    written_from: u64,
    /// Bytes that were written and not compared yet.
    written: Vec<u8>,
}

/// An encoder that is tried on a stream.
pub(crate) struct Replay {
    method: Method,
    run: Run,
    /// The run of the slice before, until the run after it has made its slice.
    before: Option<(Run, Cut)>,
    /// Bytes of the stream that agreed with what an encoder wrote.
    agreed: u64,
}

impl Replay {
    /// Begins with a stream of which nothing was forgotten. `None` if there is no such encoder.
    pub(crate) fn new(method: Method) -> Option<Replay> {
        let begin = Begin {
            cut: Cut {
                plain: 0,
                bit: 0,
                state: Vec::new(),
            },
            is_start: true,
            begun: (0, 0),
            history: 0,
            flushed: 0,
        };
        Some(Replay {
            method,
            run: Run::of(method, begin, method.start()?),
            before: None,
            agreed: 0,
        })
    }

    /// How many bytes of the stream were compared and found the same.
    pub(crate) fn agreed(&self) -> u64 {
        self.agreed
    }

    /// The encoder.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Where the first slice begins that is not in `parts` yet: plain bytes, and bit of the stream.
    pub(crate) fn open_from(&self) -> (u64, u64) {
        let begin = self
            .before
            .as_ref()
            .map_or(&self.run.begin, |(run, _)| &run.begin);
        (begin.cut.plain, begin.cut.bit)
    }

    /// From which plain byte on the feed must keep what it has.
    pub(crate) fn needs_from(&self) -> u64 {
        self.open_from().0.saturating_sub(self.method.most_history())
    }

    /// Compares as far as the feed goes. Appends the slices that are shown to `parts`.
    pub(crate) fn step(&mut self, feed: &Feed, parts: &mut Vec<Part>) -> Progress {
        loop {
            let already = self.run.written_from;
            let agrees = self.run.advance(feed);
            self.agreed += self.run.written_from.saturating_sub(already);
            if !agrees {
                if !self.retry(feed) {
                    return Progress::Differs;
                }
            } else if self.run.is_finished {
                self.settle(feed, parts);
                parts.push(Part::Slice(self.run.slice(
                    self.method,
                    feed.plain.end(),
                    feed.bits(),
                    true,
                    feed,
                )));
                return Progress::Done;
            } else if let Some(cut) = self.run.output.cut.take() {
                self.go_on_at(cut, feed, parts);
            } else {
                return Progress::MoreInput;
            }
        }
    }

    /// The run has made its slice up to the cut: the slice before it is shown, and another run begins at the cut.
    fn go_on_at(&mut self, cut: Cut, feed: &Feed, parts: &mut Vec<Part>) {
        self.settle(feed, parts);
        match resumed(self.method, &cut, 0, feed) {
            Some(next) => {
                let run = std::mem::replace(&mut self.run, next);
                self.before = Some((run, cut));
            }
            None => self.run.output.wanted = Some(cut.plain + slice::least(cut.plain)),
        }
    }

    /// The run that is there has shown that the cut before it is one.
    fn settle(&mut self, feed: &Feed, parts: &mut Vec<Part>) {
        if let Some((run, cut)) = self.before.take() {
            parts.push(Part::Slice(run.slice(
                self.method,
                cut.plain,
                cut.bit,
                false,
                feed,
            )));
        }
    }

    /// Another try with the slice: with more bytes before it, or by the run before. False if there is none.
    fn retry(&mut self, feed: &Feed) -> bool {
        let Some((mut run, cut)) = self.before.take() else {
            return false;
        };
        match resumed(self.method, &cut, self.run.begin.history + 1, feed) {
            Some(next) => {
                self.run = next;
                self.before = Some((run, cut));
            }
            None => {
                run.output.wanted = Some(cut.plain + slice::least(cut.plain));
                self.run = run;
            }
        }
        true
    }

    /// Encoders of a family differ rarely, and the first bytes of a stream may not tell them apart. After [`Progress::Differs`]: another one of `candidates`
    /// that makes the stream from the open slice on as far as it was read, and what came of that. Appends to `parts` as [`Replay::step`] does.
    pub(crate) fn successor(
        &self,
        candidates: &[Method],
        feed: &Feed,
        parts: &mut Vec<Part>,
    ) -> Option<(Replay, Progress)> {
        let begin = self
            .before
            .as_ref()
            .map_or(&self.run.begin, |(run, _)| &run.begin);
        let others = candidates.iter().filter(|other| other.is_sibling(self.method));
        others.into_iter().find_map(|&method| {
            let mut least = 0;
            while let Some(run) = resumed(method, &begin.cut, least, feed) {
                least = run.begin.history + 1;
                let (before, agreed) = (None, 0);
                let mut next = Replay {
                    method,
                    run,
                    before,
                    agreed,
                };
                let mut shown = Vec::new();
                let progress = next.step(feed, &mut shown);
                if progress != Progress::Differs {
                    parts.append(&mut shown);
                    return Some((next, progress));
                }
            }
            None
        })
    }
}

/// A run from a cut on, with the shortest history of at least `least` bytes. `None` if there is none or the encoder cannot be resumed.
fn resumed(method: Method, cut: &Cut, least: u64, feed: &Feed) -> Option<Run> {
    let there = cut.plain.min(method.most_history());
    let wanted = method.histories().iter().map(|&history| history.min(there));
    let history = wanted.into_iter().find(|&history| history >= least)?;
    let bytes = feed.plain.slice(cut.plain - history, cut.plain);
    let encoder = method.resume(bytes, cut)?;
    let begun_bits = (cut.bit % 8) as u8;
    let begun = feed
        .stream
        .slice(cut.bit / 8, cut.bit / 8 + 1)
        .first()
        .copied()
        .unwrap_or_default();
    let begin = Begin {
        cut: cut.clone(),
        is_start: false,
        begun: (begun_bits, begun & ((1 << begun_bits) - 1)),
        history,
        flushed: feed.flushes.partition_point(|flush| flush.bit < cut.bit),
    };
    Some(Run::of(method, begin, encoder))
}

impl Run {
    fn of(method: Method, begin: Begin, encoder: Box<dyn Encoder>) -> Run {
        Run {
            is_flushed: !method.flushes_by_itself(),
            encoder,
            output: Output {
                bits: BitWriter::resume(begin.cut.bit, begin.begun.1),
                wanted: Some(begin.cut.plain + slice::least(begin.cut.plain)),
                cut: None,
            },
            fed: begin.cut.plain,
            flushed: begin.flushed,
            is_finished: false,
            written_from: begin.cut.bit / 8,
            written: Vec::new(),
            begin,
        }
    }

    /// Gives the encoder what the feed has, until a cut is there. False if it writes something else than the stream has.
    fn advance(&mut self, feed: &Feed) -> bool {
        while !self.is_finished && self.output.cut.is_none() {
            let flush = feed
                .flushes
                .get(self.flushed)
                .filter(|_| self.is_flushed)
                .map(|flush| flush.plain);
            let until = flush.unwrap_or(u64::MAX).min(feed.plain.end());
            // Whole pieces, so that what an encoder needs after a slice does not depend on how the stream came.
            let is_whole = until - self.fed.min(until) >= PIECE
                || flush.is_some_and(|flush| flush == until)
                || feed.has_ended();
            if self.fed < until && !is_whole {
                return self.agrees(feed);
            } else if self.fed < until {
                let plain = feed.plain.slice(self.fed, until.min(self.fed + PIECE));
                if plain.is_empty() {
                    return false;
                }
                self.encoder.write(plain, &mut self.output);
                self.fed += plain.len() as u64;
            } else if flush == Some(self.fed) {
                self.encoder.flush(&mut self.output);
                self.flushed += 1;
            } else if feed.has_ended() {
                self.encoder.finish(&mut self.output);
                self.output.bits.align();
                self.is_finished = true;
            } else {
                return self.agrees(feed);
            }
            if !self.agrees(feed) {
                return false;
            }
        }
        true
    }

    /// Compares what was written with what the stream has there.
    fn agrees(&mut self, feed: &Feed) -> bool {
        self.written.extend(self.output.bits.take());
        let length = self.written.len() as u64;
        let stream = feed.stream.slice(self.written_from, self.written_from + length);
        if stream != &self.written[..stream.len()] {
            return false;
        }
        self.written_from += stream.len() as u64;
        self.written.drain(..stream.len());
        let (written, streams) = (
            self.written_from + self.written.len() as u64,
            feed.bits().div_ceil(8),
        );
        // What was written may be ahead of what was read, but not at the end.
        !feed.has_ended() || (written <= streams && (!self.is_finished || written == streams))
    }

    /// The slice of this run, up to a bit of the stream.
    fn slice(&self, method: Method, plain: u64, bit: u64, is_last: bool, feed: &Feed) -> Slice {
        let begin = &self.begin.cut;
        // Those after the slice that the encoder was given to end its last block, too.
        let flushes = feed
            .flushes
            .get(self.begin.flushed..self.flushed)
            .unwrap_or_default()
            .iter();
        Slice {
            plain: plain - begin.plain,
            history: self.begin.history as u32,
            lookahead: self.fed.saturating_sub(plain) as u32,
            bits: bit - begin.bit,
            begun: self.begin.begun,
            is_last,
            making: Making::Encoder {
                method,
                state: (!self.begin.is_start).then(|| begin.state.clone()),
                flushes: flushes.map(|flush| flush.plain - begin.plain).collect(),
            },
        }
    }
}
