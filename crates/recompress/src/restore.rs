//! Makes a stream again from its description and its plain bytes.

use std::ops::Range;

use crate::description::{Description, MOST_HISTORY, Part};
use crate::kept::Kept;
use crate::slice::{Mismatch, SliceRestorer};

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
        self.places().last().map_or(0, |place| place.stream.end)
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
                None => return Ok(()),
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
                        return if is_end || has_come {
                            Err(RestoreError::TooFewPlainBytes)
                        } else {
                            Ok(())
                        };
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
