//! What a host and a registry say to each other when a layer is pushed of which the registry has most contents already
//! (docs/formats/native-service.md, "Pushing a layer").
//!
//! The host asks with a [`Question`], which contents the registry has in layers that the caller may read, and gets a [`Bitmap`]. Then it
//! sends a parcel: a [`ParcelHead`], the recipe, the bitmap of what it leaves out, and all other contents.

use serde::{Deserialize, Serialize};

/// The media type of a question.
pub const QUESTION_TYPE: &str = "application/vnd.xebec.push-question.v1";
/// The media type of its answer.
pub const BITMAP_TYPE: &str = "application/vnd.xebec.push-bitmap.v1";
/// The media type of a parcel.
pub const PARCEL_TYPE: &str = "application/vnd.xebec.push-parcel.v1";

/// Layers in which a registry looks for contents, at most: it opens the recipe of each.
pub const MAX_SOURCES: usize = 64;
/// Contents of a layer, at most. A layer with more is pushed as a blob.
pub const MAX_CONTENTS: usize = 1 << 18;
/// Bytes of a recipe, at most.
pub const MAX_RECIPE: u64 = 16 << 20;
/// Bytes of the head of a question or a parcel, at most: so many sources with the longest names.
pub const MAX_HEAD: usize = 64 << 10;
/// Bytes of an offer, at most.
pub const MAX_OFFER: u64 = 64 << 10;
/// Bytes of a question, at most.
pub const MAX_QUESTION: usize = PREFIX + MAX_HEAD + ENTRY * MAX_CONTENTS;

/// Bytes before a head: the magic, and the head's length.
pub const PREFIX: usize = 12;
/// Bytes of a content in a question: its SHA-256 and its length.
const ENTRY: usize = 36;
/// Bytes of the name of a repository, and of a digest as text.
const MAX_NAME: usize = 255;

const QUESTION: [u8; 8] = *b"XEBECPQ1";
const PARCEL: [u8; 8] = *b"XEBECPL1";

/// How a registry cuts the contents of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// A file is one content; of a large one, each 8 MiB.
    Files,
    /// Large files are cut where their contents say so.
    Contents,
}

/// What a registry offers to those who push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// How its layers are cut: contents that are cut otherwise are not found.
    pub cut: Cut,
    /// Bytes of a layer that it puts together, at most.
    pub layer: u64,
}

/// A layer in which contents are looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its repository, if that is another one than the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Its digest.
    pub layer: String,
}

/// Which of these contents the registry has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where it looks, in this order.
    pub sources: Vec<Source>,
    /// SHA-256 and length of each.
    pub contents: Vec<([u8; 32], u32)>,
}

/// The beginning of a parcel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelHead {
    /// The layers that have what is left out.
    pub sources: Vec<Source>,
    /// How many bytes the recipe has, which follows.
    pub recipe: u64,
    /// How many contents the recipe has: of so many bits is the bitmap that follows the recipe.
    pub contents: u64,
}

/// A bit for each content: whether the registry has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    bits: Vec<u8>,
    length: usize,
}

/// Why a message is refused.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// It does not begin as one.
    #[error("this is no message of a push of version 1")]
    Magic,
    /// It ends too soon, or goes on after its end.
    #[error("the message has another length than it says")]
    Length,
    /// The head is longer than [`MAX_HEAD`].
    #[error("the head has more than {MAX_HEAD} bytes")]
    HeadTooLong,
    /// The head cannot be read.
    #[error("the head cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// More than [`MAX_SOURCES`], or a name that is too long.
    #[error("a push names {MAX_SOURCES} layers at most, with names of {MAX_NAME} bytes at most")]
    Sources,
    /// More than [`MAX_CONTENTS`].
    #[error("a layer that is put together has {MAX_CONTENTS} contents at most")]
    Contents,
    /// More than [`MAX_RECIPE`].
    #[error("the recipe of a layer that is put together has {MAX_RECIPE} bytes at most")]
    Recipe,
    /// A bit is set that stands for nothing.
    #[error("the bitmap has bits beyond its end")]
    Bits,
}

/// The head of a question.
#[derive(Serialize, Deserialize)]
struct QuestionHead {
    sources: Vec<Source>,
}

impl Question {
    /// The question as it is sent.
    ///
    /// # Errors
    /// If it is beyond a limit.
    pub fn encode(&self) -> Result<Vec<u8>, PushError> {
        if self.contents.len() > MAX_CONTENTS {
            return Err(PushError::Contents);
        }
        check(&self.sources)?;
        let sources = self.sources.clone();
        let mut bytes = with_prefix(QUESTION, &QuestionHead { sources })?;
        for (id, length) in &self.contents {
            bytes.extend_from_slice(id);
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads a question.
    ///
    /// # Errors
    /// If it is none, or beyond a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, PushError> {
        let (prefix, rest) = bytes.split_first_chunk().ok_or(PushError::Length)?;
        let size = head_size(QUESTION, *prefix)?;
        let (head, rest) = rest.split_at_checked(size).ok_or(PushError::Length)?;
        let QuestionHead { sources } = serde_json::from_slice(head)?;
        check(&sources)?;
        let (entries, rest) = rest.as_chunks::<ENTRY>();
        match entries.len() > MAX_CONTENTS {
            true => return Err(PushError::Contents),
            false if !rest.is_empty() => return Err(PushError::Length),
            false => {}
        }
        let mut contents = Vec::with_capacity(entries.len());
        for entry in entries {
            let (id, length) = entry.split_first_chunk::<32>().ok_or(PushError::Length)?;
            let length = length.try_into().map_err(|_| PushError::Length)?;
            contents.push((*id, u32::from_le_bytes(length)));
        }
        Ok(Self { sources, contents })
    }
}

impl ParcelHead {
    /// The head with what is before it.
    ///
    /// # Errors
    /// If it is beyond a limit.
    pub fn encode(&self) -> Result<Vec<u8>, PushError> {
        self.check()?;
        with_prefix(PARCEL, self)
    }

    /// How many bytes the head has that follows.
    ///
    /// # Errors
    /// If no head follows, or one that is too long.
    pub fn size(prefix: [u8; PREFIX]) -> Result<usize, PushError> {
        head_size(PARCEL, prefix)
    }

    /// Reads a head, without what is before it.
    ///
    /// # Errors
    /// If it is none, or beyond a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, PushError> {
        if bytes.len() > MAX_HEAD {
            return Err(PushError::HeadTooLong);
        }
        let head: Self = serde_json::from_slice(bytes)?;
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), PushError> {
        match self.recipe > MAX_RECIPE {
            true => return Err(PushError::Recipe),
            false if self.contents > MAX_CONTENTS as u64 => return Err(PushError::Contents),
            false => {}
        }
        check(&self.sources)
    }
}

impl Bitmap {
    /// One of so many bits, of which none is set.
    pub fn new(length: usize) -> Self {
        Self {
            bits: vec![0; length.div_ceil(8)],
            length,
        }
    }

    /// The bits as they were sent, so many.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub fn from_bytes(bytes: &[u8], length: usize) -> Result<Self, PushError> {
        if bytes.len() != length.div_ceil(8) {
            return Err(PushError::Length);
        }
        let used = length % 8;
        let is_clean = used == 0 || bytes.last().is_none_or(|last| last >> used == 0);
        match is_clean {
            true => Ok(Self {
                bits: bytes.to_vec(),
                length,
            }),
            false => Err(PushError::Bits),
        }
    }

    /// The bits as they are sent: eight in a byte, the lowest first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// How many bits there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bits at all.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the bit is set.
    pub fn has(&self, number: usize) -> bool {
        let byte = self.bits.get(number / 8).copied().unwrap_or_default();
        number < self.length && byte >> (number % 8) & 1 == 1
    }

    /// Sets a bit.
    pub fn set(&mut self, number: usize) {
        if let Some(byte) = self.bits.get_mut(number / 8).filter(|_| number < self.length) {
            *byte |= 1 << (number % 8);
        }
    }
}

fn check(sources: &[Source]) -> Result<(), PushError> {
    let is_long = |source: &Source| {
        let repository = source.repository.as_ref().map_or(0, String::len);
        repository > MAX_NAME || source.layer.len() > MAX_NAME
    };
    match sources.len() > MAX_SOURCES || sources.iter().any(is_long) {
        true => Err(PushError::Sources),
        false => Ok(()),
    }
}

fn with_prefix(magic: [u8; 8], head: &impl Serialize) -> Result<Vec<u8>, PushError> {
    let head = serde_json::to_vec(head)?;
    let length = u32::try_from(head.len()).map_err(|_| PushError::HeadTooLong)?;
    if head.len() > MAX_HEAD {
        return Err(PushError::HeadTooLong);
    }
    Ok([&magic[..], &length.to_le_bytes(), &head].concat())
}

fn head_size(magic: [u8; 8], prefix: [u8; PREFIX]) -> Result<usize, PushError> {
    let length = prefix.strip_prefix(&magic).ok_or(PushError::Magic)?;
    let length = length.try_into().map_err(|_| PushError::Length)?;
    let length = u32::from_le_bytes(length) as usize;
    match length > MAX_HEAD {
        true => Err(PushError::HeadTooLong),
        false => Ok(length),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn source(repository: Option<&str>) -> Source {
        Source {
            repository: repository.map(str::to_owned),
            layer: format!("sha256:{}", "ab".repeat(32)),
        }
    }

    fn question() -> Question {
        Question {
            sources: vec![source(None), source(Some("team/base"))],
            contents: (0..9_u8).map(|n| ([n; 32], u32::from(n) + 1)).collect(),
        }
    }

    #[test]
    fn a_question_says_what_was_asked() {
        let bytes = question().encode().unwrap();
        assert_eq!(Question::decode(&bytes).unwrap(), question());
        for end in 0..bytes.len() {
            let is_whole = (bytes.len() - end).is_multiple_of(ENTRY) && bytes.len() - end <= 9 * ENTRY;
            assert_eq!(Question::decode(&bytes[..end]).is_ok(), is_whole, "{end}");
        }
        let mut other = bytes;
        other[7] = b'2';
        assert!(matches!(Question::decode(&other), Err(PushError::Magic)));
    }

    #[test]
    fn a_message_beyond_a_limit_is_refused_by_both_ends() {
        let mut many = question();
        many.sources = vec![source(None); MAX_SOURCES + 1];
        assert!(matches!(many.encode(), Err(PushError::Sources)));
        let head = serde_json::to_vec(&QuestionHead {
            sources: many.sources,
        })
        .unwrap();
        let length = u32::try_from(head.len()).unwrap().to_le_bytes();
        let sent = [&QUESTION[..], &length, &head].concat();
        assert!(matches!(Question::decode(&sent), Err(PushError::Sources)));

        let mut many = question();
        many.contents = vec![([0; 32], 1); MAX_CONTENTS + 1];
        assert!(matches!(many.encode(), Err(PushError::Contents)));
        many.contents.pop();
        let mut sent = many.encode().unwrap();
        assert!(sent.len() <= MAX_QUESTION);
        sent.extend_from_slice(&[0; ENTRY]);
        assert!(matches!(Question::decode(&sent), Err(PushError::Contents)));

        let long = [&QUESTION[..], &u32::MAX.to_le_bytes()].concat();
        assert!(matches!(Question::decode(&long), Err(PushError::HeadTooLong)));
        let mut named = question();
        named.sources[0].repository = Some("a".repeat(256));
        assert!(matches!(named.encode(), Err(PushError::Sources)));
    }

    #[test]
    fn a_parcel_says_what_follows_within_limits() {
        let head = ParcelHead {
            sources: question().sources,
            recipe: 1000,
            contents: 9,
        };
        let bytes = head.encode().unwrap();
        let (prefix, rest) = bytes.split_first_chunk().unwrap();
        assert_eq!(ParcelHead::size(*prefix).unwrap(), rest.len());
        assert_eq!(ParcelHead::decode(rest).unwrap(), head);
        let head = |recipe, contents| ParcelHead {
            sources: Vec::new(),
            recipe,
            contents,
        };
        assert!(head(MAX_RECIPE, MAX_CONTENTS as u64).encode().is_ok());
        assert!(head(MAX_RECIPE + 1, 0).encode().is_err());
        assert!(head(0, MAX_CONTENTS as u64 + 1).encode().is_err());
        let sent = serde_json::to_vec(&head(MAX_RECIPE + 1, 0)).unwrap();
        assert!(matches!(ParcelHead::decode(&sent), Err(PushError::Recipe)));
    }

    #[test]
    fn bits_are_those_that_were_set() {
        let mut bitmap = Bitmap::new(11);
        for number in [0, 8, 10, 11, 99] {
            bitmap.set(number);
        }
        assert_eq!(bitmap.as_bytes(), [1, 0b101]);
        let set: Vec<usize> = (0..20).filter(|number| bitmap.has(*number)).collect();
        assert_eq!(set, [0, 8, 10]);
        assert_eq!(Bitmap::from_bytes(&[1, 0b101], 11).unwrap(), bitmap);
        assert!(matches!(
            Bitmap::from_bytes(&[1, 0b1000], 11),
            Err(PushError::Bits)
        ));
        assert!(Bitmap::from_bytes(&[1], 11).is_err());
        assert!(Bitmap::from_bytes(&[1, 0, 0], 11).is_err());
        assert!(Bitmap::from_bytes(&[], 0).unwrap().is_empty());
    }
}
