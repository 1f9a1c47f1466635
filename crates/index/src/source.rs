//! The blob as it streams in: a reader with a buffer that can be looked at, and the offset of every byte.

use std::io::{self, Read};

/// Bytes buffered at most; longer than any header that must be seen whole.
pub(crate) const BUFFER: usize = 256 << 10;

/// A buffered reader that knows where in the blob it is.
pub(crate) struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    position: usize,
    end: usize,
    /// Offset in the blob of the buffer's first byte.
    base: u64,
    finished: bool,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; BUFFER],
            position: 0,
            end: 0,
            base: 0,
            finished: false,
        }
    }

    /// Reads until at least `low` bytes (at most [`BUFFER`]) are there or the blob has ended.
    pub(crate) fn fill(&mut self, low: usize) -> io::Result<()> {
        if self.available().len() >= low || self.finished {
            return Ok(());
        }
        self.buffer.copy_within(self.position..self.end, 0);
        self.base += self.position as u64;
        self.end -= self.position;
        self.position = 0;
        while self.end < low.min(BUFFER) {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.finished = true;
                    return Ok(());
                }
                // A reader that claims more than there was room for must not be believed.
                Ok(count) => self.end = (self.end + count).min(BUFFER),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The bytes that are buffered and not consumed.
    pub(crate) fn available(&self) -> &[u8] {
        &self.buffer[self.position..self.end]
    }

    /// Whether nothing follows what is [`Self::available`].
    pub(crate) fn is_last(&self) -> bool {
        self.finished
    }

    /// Moves on by `count` bytes of what is available.
    pub(crate) fn consume(&mut self, count: usize) {
        self.position = (self.position + count).min(self.end);
    }

    /// Offset in the blob of the first available byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }
}
