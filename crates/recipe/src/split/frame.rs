//! What frames files, gathered into long pieces, with long runs of zeros told apart.

use super::piece::{Piece, Sink};

/// A run of fewer zeros is part of the bytes around it.
const LEAST_ZEROS: u64 = 4 << 10;
/// Bytes that are gathered before they are passed on.
const MOST_GATHERED: usize = 64 << 10;

/// Gathers the bytes of the frame.
#[derive(Default)]
pub(super) struct Frame {
    /// At most [`MOST_GATHERED`] bytes, and those of one call and [`LEAST_ZEROS`].
    bytes: Vec<u8>,
    /// Zeros after those.
    zeros: u64,
}

impl Frame {
    /// The next bytes.
    pub(super) fn put(&mut self, bytes: &[u8], sink: &mut Sink<'_>) {
        // A call may bring any number of bytes.
        for mut part in bytes.chunks(MOST_GATHERED) {
            while !part.is_empty() {
                let zeros = part.iter().position(|&byte| byte != 0).unwrap_or(part.len());
                self.zeros += zeros as u64;
                part = part.get(zeros..).unwrap_or_default();
                let others = part.iter().position(|&byte| byte == 0).unwrap_or(part.len());
                if others > 0 {
                    self.settle_zeros(sink);
                    self.bytes
                        .extend_from_slice(part.get(..others).unwrap_or_default());
                    part = part.get(others..).unwrap_or_default();
                }
            }
            if self.bytes.len() >= MOST_GATHERED {
                self.pass_on(sink);
            }
        }
    }

    /// Passes all on: something else follows.
    pub(super) fn flush(&mut self, sink: &mut Sink<'_>) {
        self.settle_zeros(sink);
        self.pass_on(sink);
    }

    /// The run of zeros is over.
    fn settle_zeros(&mut self, sink: &mut Sink<'_>) {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros >= LEAST_ZEROS {
            self.pass_on(sink);
            sink(Piece::Zeros(zeros));
        } else {
            self.bytes.resize(self.bytes.len() + zeros as usize, 0);
        }
    }

    fn pass_on(&mut self, sink: &mut Sink<'_>) {
        if !self.bytes.is_empty() {
            sink(Piece::Inline(&self.bytes));
            self.bytes.clear();
        }
    }
}
