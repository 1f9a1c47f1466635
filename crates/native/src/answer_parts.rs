//! The parts of an answer, as far as they keep its limits: what does not fit is left out, and the host asks for it.

use std::collections::HashSet;

use xebec_format::digest::Digest;

use crate::start_answer::{Answer, Head, MAX_ANSWERS, MAX_PIECES, MAX_WHOLE};

/// All parts but pieces have no more bytes together: a host keeps 64 MiB of what it has not asked for yet.
pub const MOST_WHOLE: u64 = 48 << 20;

/// The parts of an answer that is made.
#[derive(Clone, Debug, Default)]
pub struct AnswerParts {
    head: Head,
    blobs: HashSet<Digest>,
    /// The bytes of all parts but pieces.
    whole: u64,
    pieces: usize,
}

impl AnswerParts {
    /// Adds a part, and says whether it fits.
    pub fn add(&mut self, part: Answer) -> bool {
        if !self.fits(&part) {
            return false;
        }
        match &part {
            Answer::Pieces { pieces, .. } => self.pieces += pieces.len(),
            whole => self.whole += whole.size(),
        }
        if let Answer::Blob { digest, .. } = &part {
            self.blobs.insert(*digest);
        }
        self.head.answers.push(part);
        true
    }

    /// Whether a part fits that is not there yet.
    pub fn fits(&self, part: &Answer) -> bool {
        let fits = match part {
            Answer::Pieces { pieces, .. } => self.pieces + pieces.len() <= MAX_PIECES,
            Answer::Blob { digest, .. } if self.has_blob(digest) => false,
            whole => whole.size() <= MAX_WHOLE.min(MOST_WHOLE.saturating_sub(self.whole)),
        };
        fits && !self.is_full()
    }

    /// Whether this blob is a part.
    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blobs.contains(digest)
    }

    /// Whether no further part fits.
    pub fn is_full(&self) -> bool {
        self.head.answers.len() >= MAX_ANSWERS
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// The head of the answer.
    pub fn head(&self) -> &Head {
        &self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_beyond_the_limits_do_not_fit() {
        let blob = |number: u64, size| Answer::Blob {
            digest: Digest::of(&number.to_le_bytes()),
            size,
        };
        let mut parts = AnswerParts::default();
        assert_eq!(
            (0..1100).filter(|number| parts.add(blob(*number, 1))).count(),
            MAX_ANSWERS
        );
        assert!(parts.is_full() && parts.head().encode().is_ok());
        let mut parts = AnswerParts::default();
        assert!(!parts.add(blob(0, MAX_WHOLE + 1)) && parts.add(blob(1, 20 << 20)));
        assert!(!parts.add(blob(1, 20 << 20)), "it is there");
        assert!(parts.add(blob(2, 20 << 20)) && !parts.add(blob(3, 20 << 20)) && parts.add(blob(4, 1)));
        let pieces = |count: u64| Answer::Pieces {
            digest: Digest::of(b"zone"),
            pieces: (0..count).map(|place| (place * 2, 1)).collect(),
        };
        assert!(parts.add(pieces(40_000)) && !parts.add(pieces(40_000)) && parts.add(pieces(20_000)));
        assert!(parts.head().encode().is_ok());
    }
}
