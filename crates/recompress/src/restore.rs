//! Makes a stream again from its description and its plain bytes.

use std::ops::Range;

use crate::description::{Description, MOST_HISTORY, Part};
use crate::kept::Kept;
use crate::slice::{Mismatch, SliceRestorer};

/// Plain bytes around slices that are wanted with theirs, by each plain byte of the stream, at most; a stream may have so many more.
const MOST_AROUND: u64 = 16;
const LEAST_PLAIN: u64 = 4 << 20;
/// Slices of a stream, at most: so many, and one for each so many plain bytes.
const MOST_SLICES: u64 = 4096;
const LEAST_OF_SLICE: u64 = 4096;

/// Why a stream cannot be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The plain bytes end too soon.
    #[error("there are fewer plain bytes than the description wants")]
    TooFewPlainBytes,
    /// The plain bytes go on after the end.
    #[error("there are more plain bytes than the description wants")]
    TooManyPlainBytes,
    /// The encoder made something else than the description promises: these plain bytes do not belong to it, or it is damaged.
    #[error("the plain bytes do not belong to the description")]
    Mismatch,
}

impl From<Mismatch> for RestoreError {
    fn from(Mismatch: Mismatch) -> RestoreError {
        RestoreError::Mismatch
    }
}

/// A part of the stream that can be made by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The bytes of the stream that it makes.
    pub stream: Range<u64>,
    /// The plain bytes that it needs: some before and after those that are its own. Empty if the description has its bytes.
    pub needs: Range<u64>,
    /// Which part it is.
    part: usize,
    /// Where its own plain bytes begin.
    plain: u64,
    /// Where those of its deflate stream begin.
    deflate: u64,
}

impl Description {
    /// The parts of the stream, in order. Together they are the whole stream.
    pub fn places(&self) -> Vec<Place> {
        let (mut stream, mut plain, mut deflate) = (0_u64, 0_u64, 0_u64);
        let mut places = Vec::with_capacity(self.parts.len());
        for (part, description) in self.parts.iter().enumerate() {
            let (length, own, needs) = match description {
                Part::Bytes(bytes) => (bytes.len() as u64, 0, plain..plain),
                Part::Slice(slice) => {
                    if slice.is_first() {
                        deflate = plain;
                    }
                    let needs = plain.saturating_sub(u64::from(slice.history))
                        ..plain + slice.plain + u64::from(slice.lookahead);
                    (slice.bytes(), slice.plain, needs)
                }
            };
            places.push(Place {
                stream: stream..stream + length,
                needs,
                part,
                plain,
                deflate,
            });
            stream += length;
            plain += own;
        }
        places
    }

    /// How many bytes the stream has.
    pub fn stream_length(&self) -> u64 {
        let lengths = self.parts.iter().map(|part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Slice(slice) => slice.bytes(),
        });
        lengths.sum()
    }

    /// Whether it is that of a stream of so many plain bytes, and making the stream takes work in proportion to them: what a stranger sends
    /// may have millions of slices of nothing, each of which wants megabytes before it.
    pub fn fits(&self, plain: u64) -> bool {
        let (mut own, mut around, mut slices) = (0_u64, 0_u64, 0_u64);
        for part in &self.parts {
            if let Part::Slice(slice) = part {
                own += slice.plain;
                around += u64::from(slice.history) + u64::from(slice.lookahead);
                slices += 1;
            }
        }
        own == plain
            && around / MOST_AROUND <= plain + LEAST_PLAIN
            && slices <= MOST_SLICES + plain / LEAST_OF_SLICE
    }

    /// Makes one part. `plain` is what it needs ([`Place::needs`]).
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    pub fn restore(&self, place: &Place, plain: &[u8]) -> Result<Vec<u8>, RestoreError> {
        let mut stream = Vec::new();
        match self.parts.get(place.part) {
            None => return Err(RestoreError::Mismatch),
            Some(Part::Bytes(bytes)) => stream.extend_from_slice(bytes),
            Some(Part::Slice(slice)) => {
                let (history, own) = plain
                    .split_at_checked(slice.history as usize)
                    .ok_or(RestoreError::TooFewPlainBytes)?;
                let mut restorer = SliceRestorer::new(slice, history, place.plain - place.deflate)?;
                restorer.write(own, &mut stream)?;
                if !restorer.has_ended() {
                    return Err(RestoreError::TooFewPlainBytes);
                }
            }
        }
        Ok(stream)
    }
}

/// Makes a whole stream again, from the first byte to the last.
pub struct Restorer<'a> {
    parts: std::slice::Iter<'a, Part>,
    slice: Option<SliceRestorer>,
    /// Plain bytes that slices need, from some history before the slice at work on.
    plain: Kept,
    /// Where the slice at work begins, and where the one after it does.
    from: u64,
    next: u64,
    /// Where the deflate stream of the slice begins.
    stream_from: u64,
    /// The plain bytes that came, and those that the slice at work has taken.
    taken: u64,
}

impl<'a> Restorer<'a> {
    /// Begins with the first byte.
    pub fn new(description: &'a Description) -> Restorer<'a> {
        Restorer {
            parts: description.parts.iter(),
            slice: None,
            plain: Kept::default(),
            from: 0,
            next: 0,
            stream_from: 0,
            taken: 0,
        }
    }

    /// Takes the next plain bytes, and appends to `stream` what they make.
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    pub fn write(&mut self, plain: &[u8], stream: &mut Vec<u8>) -> Result<(), RestoreError> {
        self.plain.push(plain);
        self.go_on(false, stream)
    }

    /// All plain bytes have come: appends the rest.
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    pub fn finish(mut self, stream: &mut Vec<u8>) -> Result<(), RestoreError> {
        self.go_on(true, stream)?;
        match (&self.slice, self.next.cmp(&self.plain.end())) {
            (Some(_), _) | (None, std::cmp::Ordering::Greater) => Err(RestoreError::TooFewPlainBytes),
            (None, std::cmp::Ordering::Less) => Err(RestoreError::TooManyPlainBytes),
            (None, std::cmp::Ordering::Equal) => Ok(()),
        }
    }

    /// Forgets what came for a slice that has made all of its bytes, but for what the next one may want before it.
    fn forget(&mut self) {
        let needed = self.plain.end().min(self.next);
        self.plain.forget_before(needed.saturating_sub(MOST_HISTORY));
    }

    fn go_on(&mut self, is_end: bool, stream: &mut Vec<u8>) -> Result<(), RestoreError> {
        loop {
            if let Some(slice) = &mut self.slice {
                let plain = self.plain.slice(self.taken, u64::MAX);
                let taken = slice.write(plain, stream)?;
                self.taken += taken as u64;
                // A long slice does not have all of its plain bytes kept.
                let needed = self.taken.min(self.next);
                self.plain.forget_before(needed.saturating_sub(MOST_HISTORY));
                if !slice.has_ended() {
                    return Ok(());
                }
                self.slice = None;
            }
            match self.parts.as_slice().first() {
                // More would be kept, and nothing made of them.
                None if self.next < self.plain.end() => return Err(RestoreError::TooManyPlainBytes),
                None => {
                    self.forget();
                    return Ok(());
                }
                Some(Part::Bytes(bytes)) => stream.extend_from_slice(bytes),
                Some(Part::Slice(slice)) => {
                    // The bytes before a slice are there; of those after its beginning there may be none yet.
                    self.from = self.next;
                    let history = self
                        .plain
                        .slice(self.from.saturating_sub(u64::from(slice.history)), self.from);
                    let has_come = self.plain.end() >= self.from;
                    if !has_come || history.len() < slice.history as usize {
                        // What is missing before a slice that has begun does not come any more.
                        if is_end || has_come {
                            return Err(RestoreError::TooFewPlainBytes);
                        }
                        self.forget();
                        return Ok(());
                    }
                    if slice.is_first() {
                        self.stream_from = self.from;
                    }
                    self.slice = Some(SliceRestorer::new(slice, history, self.from - self.stream_from)?);
                    self.next = self.from + slice.plain;
                    self.taken = self.from;
                    self.plain.forget_before(self.from.saturating_sub(MOST_HISTORY));
                }
            }
            self.parts.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice that makes nothing of its plain bytes.
    fn nothing(plain: u64, history: u32) -> Part {
        Part::Slice(crate::description::Slice {
            plain,
            history,
            lookahead: 0,
            bits: 0,
            begun: (0, 0),
            is_last: false,
            making: crate::description::Making::Encoder {
                method: crate::method::Method {
                    family: crate::method::Family::Go,
                    level: 6,
                    variant: 0,
                    block: 0,
                },
                state: None,
                flushes: Vec::new(),
            },
        })
    }

    #[test]
    fn plain_bytes_of_a_slice_that_makes_nothing_are_not_kept() {
        let parts = vec![nothing(1 << 40, 0), nothing(0, 0)];
        let description = Description { parts };
        let mut restorer = Restorer::new(&description);
        let (piece, mut made) = (vec![0; 256 << 10], Vec::new());
        for _ in 0..256 {
            restorer.write(&piece, &mut made).unwrap();
            // It is let go when that is half of what is kept.
            let most = 2 * MOST_HISTORY as usize + 2 * piece.len();
            assert!(restorer.plain.len() <= most, "{}", restorer.plain.len());
        }
    }

    #[test]
    fn work_is_in_proportion_to_the_plain_bytes() {
        let fits = |parts: Vec<Part>, plain| Description { parts }.fits(plain);
        assert!(fits(vec![nothing(10, 0), nothing(20, 5)], 30));
        assert!(!fits(vec![nothing(10, 0), nothing(20, 5)], 31), "another stream");
        let many = |n: u64, history| (0..n).map(|_| nothing(0, history)).collect();
        assert!(fits(many(MOST_SLICES, 0), 0) && !fits(many(MOST_SLICES + 1, 0), 0));
        assert!(!fits(many(100, MOST_HISTORY as u32), 0));
    }
}
