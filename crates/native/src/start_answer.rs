//! What a registry sends for a start: the answers to the requests that the host would make one after the other.
//!
//! A magic number, the length of the head, the head, and then the contents of all answers in the order of the head.

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

/// The media type of the whole answer.
pub const TYPE: &str = "application/vnd.xebec.start.v1";
/// The first bytes.
pub const MAGIC: [u8; 8] = *b"XEBECST1";
/// How many bytes come before the head: the magic number, and the length of the head, little-endian.
pub const PREFIX: usize = 12;
/// The longest head, in bytes.
pub const MAX_HEAD: usize = 4 << 20;
/// The most answers.
pub const MAX_ANSWERS: usize = 1024;
/// The most pieces of blobs in all answers.
pub const MAX_PIECES: usize = 1 << 16;
/// The longest content of an answer but for pieces of blobs, in bytes: a host may have to keep it until it is asked for.
pub const MAX_WHOLE: u64 = 32 << 20;

/// Which answers follow, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The answers.
    pub answers: Vec<Answer>,
}

/// One answer: which request it answers, and how many bytes of content it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    /// To `GET /v2/NAME/manifests/REFERENCE`.
    Manifest {
        /// The tag or digest.
        reference: String,
        /// The media type, without parameters.
        media_type: String,
        /// Bytes.
        size: u64,
    },
    /// To `GET /v2/NAME/referrers/SUBJECT`: an index of all of them.
    Referrers {
        /// To which they refer.
        subject: Digest,
        /// Bytes.
        size: u64,
    },
    /// To `GET /v2/NAME/blobs/DIGEST`.
    Blob {
        /// The digest.
        digest: Digest,
        /// Bytes.
        size: u64,
    },
    /// To requests for ranges of a blob.
    Pieces {
        /// The digest.
        digest: Digest,
        /// Offset and length of each, ascending; no two overlap.
        pieces: Vec<(u64, u64)>,
    },
}

impl Answer {
    /// How many bytes of content it has.
    pub fn size(&self) -> u64 {
        match self {
            Self::Manifest { size, .. } | Self::Referrers { size, .. } | Self::Blob { size, .. } => *size,
            Self::Pieces { pieces, .. } => pieces.iter().map(|(_, length)| *length).sum(),
        }
    }
}

/// Why an answer is not read.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// It begins with other bytes.
    #[error("the answer does not begin as a start answer of version 1")]
    Magic,
    /// More than [`MAX_HEAD`].
    #[error("the head of the answer has {0} bytes, and {MAX_HEAD} are read at most")]
    TooLong(u64),
    /// No JSON, or a field is missing or wrong.
    #[error("the head of the answer cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// More than [`MAX_ANSWERS`] or [`MAX_PIECES`].
    #[error("the answer has more than {MAX_ANSWERS} parts or {MAX_PIECES} pieces")]
    TooMany,
    /// Content that is longer than [`MAX_WHOLE`].
    #[error("a part of the answer has {0} bytes, and {MAX_WHOLE} are read at most")]
    TooLarge(u64),
    /// Pieces that overlap, descend, are empty or end beyond the last byte that there can be.
    #[error("the pieces of blob {0} do not ascend")]
    Pieces(Digest),
}

/// The length of the head, of the first bytes of an answer.
///
/// # Errors
/// If it is no start answer, or the head is too long.
pub fn head_size(prefix: [u8; PREFIX]) -> Result<usize, HeadError> {
    let [magic @ .., a, b, c, d] = prefix;
    if magic != MAGIC {
        return Err(HeadError::Magic);
    }
    let size = u32::from_le_bytes([a, b, c, d]);
    match size as usize <= MAX_HEAD {
        true => Ok(size as usize),
        false => Err(HeadError::TooLong(size.into())),
    }
}

impl Head {
    /// Reads a head; `bytes` are as many as [`head_size`] said.
    ///
    /// # Errors
    /// If it cannot be read or breaks a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        let head: Self = serde_json::from_slice(bytes)?;
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), HeadError> {
        let pieces = self.answers.iter().map(|answer| match answer {
            Answer::Pieces { pieces, .. } => pieces.len(),
            _ => 0,
        });
        if self.answers.len() > MAX_ANSWERS || pieces.sum::<usize>() > MAX_PIECES {
            return Err(HeadError::TooMany);
        }
        for answer in &self.answers {
            match answer {
                Answer::Pieces { digest, pieces } => {
                    are_ascending(pieces)
                        .then_some(())
                        .ok_or(HeadError::Pieces(*digest))?;
                }
                whole if whole.size() > MAX_WHOLE => return Err(HeadError::TooLarge(whole.size())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Everything that comes before the contents.
    ///
    /// # Errors
    /// If it breaks a limit.
    pub fn encode(&self) -> Result<Vec<u8>, HeadError> {
        self.check()?;
        let head = serde_json::to_vec(self)?;
        let size = u32::try_from(head.len())
            .ok()
            .filter(|size| *size as usize <= MAX_HEAD);
        let size = size.ok_or(HeadError::TooLong(head.len() as u64))?;
        Ok([&MAGIC[..], &size.to_le_bytes(), &head].concat())
    }

    /// How many bytes all contents have together.
    pub fn content_size(&self) -> u64 {
        let sizes = self.answers.iter().map(Answer::size);
        sizes.fold(0, u64::saturating_add)
    }
}

fn are_ascending(pieces: &[(u64, u64)]) -> bool {
    let mut end = 0;
    pieces.iter().all(|(offset, length)| {
        let ascends = *offset >= end && *length > 0;
        let after = offset.checked_add(*length);
        end = after.unwrap_or(u64::MAX);
        ascends && after.is_some()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn head() -> Head {
        let digest = Digest::of(b"blob");
        let manifest = Answer::Manifest {
            reference: "latest".to_owned(),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            size: 500,
        };
        let answers = vec![
            manifest,
            Answer::Referrers {
                subject: digest,
                size: 20,
            },
            Answer::Blob { digest, size: 7 },
            Answer::Pieces {
                digest,
                pieces: vec![(0, 5), (5, 1), (100, 10)],
            },
        ];
        Head { answers }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let bytes = head().encode().unwrap();
        let (prefix, rest) = bytes.split_first_chunk().unwrap();
        assert_eq!(head_size(*prefix).unwrap(), rest.len());
        let read = Head::decode(rest).unwrap();
        assert_eq!(read, head());
        assert_eq!(read.content_size(), 543);
    }

    #[test]
    fn what_is_no_answer() {
        assert!(matches!(head_size(*b"XEBECST2\0\0\0\0"), Err(HeadError::Magic)));
        assert!(matches!(head_size(*b"<!DOCTYPE ht"), Err(HeadError::Magic)));
        assert!(matches!(
            head_size(*b"XEBECST1\xff\xff\xff\xff"),
            Err(HeadError::TooLong(_))
        ));
        assert!(matches!(
            Head::decode(b"{\"answers\": [{\"kind\": \"other\"}]}"),
            Err(HeadError::Json(_))
        ));
        let digest = Digest::of(b"blob");
        for pieces in [
            vec![(0, 0)],
            vec![(0, 2), (1, 2)],
            vec![(9, 1), (0, 1)],
            vec![(u64::MAX, 2)],
        ] {
            let head = Head {
                answers: vec![Answer::Pieces { digest, pieces }],
            };
            assert!(matches!(head.encode(), Err(HeadError::Pieces(_))), "{head:?}");
            assert!(Head::decode(&serde_json::to_vec(&head).unwrap()).is_err());
        }
        let large = Head {
            answers: vec![Answer::Blob {
                digest,
                size: MAX_WHOLE + 1,
            }],
        };
        assert!(matches!(large.encode(), Err(HeadError::TooLarge(_))));
        let many = Head {
            answers: vec![Answer::Blob { digest, size: 1 }; MAX_ANSWERS + 1],
        };
        assert!(matches!(many.encode(), Err(HeadError::TooMany)));
        let pieces = (0..=MAX_PIECES as u64).map(|place| (place, 1)).collect();
        let many = Head {
            answers: vec![Answer::Pieces { digest, pieces }],
        };
        assert!(matches!(many.encode(), Err(HeadError::TooMany)));
    }
}
