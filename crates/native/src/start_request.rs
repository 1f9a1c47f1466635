//! What a host sends that starts a service: which image it wants, which service, and what it has already.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use crate::runs::PageRuns;

/// The media type of a request.
pub const TYPE: &str = "application/vnd.xebec.start-request.v1+json";
/// The longest request, in bytes.
pub const MAX_SIZE: usize = 1 << 20;
/// The most layers that a host tells of.
pub const MAX_LAYERS: usize = 512;
/// The most words of a command line.
pub const MAX_WORDS: usize = 1024;

/// What a host wants, and what it has. Nothing in it decides what may be read: only the caller's rights in the repository do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest {
    /// The tag or the digest of the manifest, or of the image index that leads to it.
    pub reference: String,
    /// The platform: `linux/arm64/v8`.
    pub platform: String,
    /// The service whose pages are wanted; `None` if no pages are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<WantedService>,
    /// Layers that the host holds, by their digests. A host tells them only to registries that are listed for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<Digest, HeldLayer>,
}

/// A service, without its words: the registry compares them with those of recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedService {
    /// Replaces the image's entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<WordHash>>,
    /// Replaces the image's command if not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<WordHash>,
    /// The command is said later, and may be another one of the image.
    #[serde(default)]
    pub is_said_later: bool,
}

/// The first eight bytes of the SHA-256 of a word; written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WordHash(u64);

impl WordHash {
    /// The hash of a word.
    pub fn of(word: &str) -> Self {
        let digest = Digest::of(word.as_bytes());
        let first = digest.as_bytes().first_chunk().copied();
        Self(u64::from_be_bytes(first.unwrap_or_default()))
    }
}

impl From<WordHash> for String {
    fn from(hash: WordHash) -> Self {
        format!("{:016x}", hash.0)
    }
}

impl TryFrom<String> for WordHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let are_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = u64::from_str_radix(&text, 16).ok().filter(|_| are_digits);
        let wrong = "the hash of a word has 16 hexadecimal digits";
        hash.map(Self).ok_or(wrong)
    }
}

/// A layer that a host holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLayer {
    /// By which index.
    pub index: Digest,
    /// The pages of its data space that are there.
    #[serde(default)]
    pub pages: PageRuns,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// More than [`MAX_SIZE`].
    #[error("the request has more than {MAX_SIZE} bytes")]
    TooLong,
    /// No JSON, or a field is missing or wrong.
    #[error("the request cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// More than [`MAX_LAYERS`] or [`MAX_WORDS`].
    #[error("the request names more than {MAX_LAYERS} layers or {MAX_WORDS} words")]
    TooMany,
}

impl StartRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// If it is none, or beyond a limit.
    pub fn decode(bytes: &[u8]) -> Result<Self, RequestError> {
        if bytes.len() > MAX_SIZE {
            return Err(RequestError::TooLong);
        }
        let request: Self = serde_json::from_slice(bytes)?;
        let words = request.service.as_ref().map_or(0, WantedService::words);
        match request.held.len() > MAX_LAYERS || words > MAX_WORDS {
            true => Err(RequestError::TooMany),
            false => Ok(request),
        }
    }

    /// The request as it is sent. What the host has is left out as far as the request would be too long otherwise, the layers with
    /// the most runs first. A command line of too many words is left out: then no pages are wanted.
    pub fn encode(mut self) -> Vec<u8> {
        self.service = self.service.filter(|service| service.words() <= MAX_WORDS);
        // Every value of these types has a JSON form.
        let size = |layer: &HeldLayer| serde_json::to_vec(layer).map_or(0, |bytes| bytes.len());
        let mut layers: Vec<_> = std::mem::take(&mut self.held).into_iter().collect();
        layers.sort_by_cached_key(|(digest, layer)| (layer.pages.runs().len(), *digest));
        layers.truncate(MAX_LAYERS);
        // Without any, it has no field for them.
        let field = r#","held":{}"#.len();
        let mut left =
            MAX_SIZE.saturating_sub(serde_json::to_vec(&self).map_or(0, |bytes| bytes.len()) + field);
        let fitting = layers.into_iter().map_while(|(digest, layer)| {
            let name = digest.to_string().len() + r#""":,"#.len();
            left = left.checked_sub(name + size(&layer))?;
            Some((digest, layer))
        });
        self.held = fitting.collect();
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

impl WantedService {
    /// How many words its command line has.
    fn words(&self) -> usize {
        self.entrypoint.as_ref().map_or(0, Vec::len) + self.command.len()
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::single_range_in_vec_init,
    reason = "a test that cannot go on should stop"
)]
mod tests {
    use super::*;

    fn request() -> StartRequest {
        let layer = HeldLayer {
            index: Digest::of(b"index"),
            pages: PageRuns::new(vec![0..3, 7..9]),
        };
        StartRequest {
            reference: "latest".to_owned(),
            platform: "linux/amd64".to_owned(),
            service: Some(WantedService {
                command: vec![WordHash::of("serve")],
                ..WantedService::default()
            }),
            held: BTreeMap::from([(Digest::of(b"layer"), layer)]),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let bytes = request().encode();
        assert_eq!(StartRequest::decode(&bytes).unwrap(), request());
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("[0,3,4,2]") && !text.contains("serve"), "{text}");
        let least = br#"{"reference": "1", "platform": "linux/amd64", "later": 1}"#;
        assert_eq!(StartRequest::decode(least).unwrap().service, None);
    }

    #[test]
    fn hashes_of_words_have_16_digits() {
        let text = serde_json::to_string(&WordHash::of("abc")).unwrap();
        assert_eq!(text, r#""ba7816bf8f01cfea""#);
        assert_eq!(
            serde_json::from_str::<WordHash>(&text).unwrap(),
            WordHash::of("abc")
        );
        for wrong in ["", "ba7816bf8f01cfe", "+a7816bf8f01cfea", "ba7816bf8f01cfeaa"] {
            assert!(
                serde_json::from_value::<WordHash>(wrong.into()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn limits() {
        assert!(matches!(
            StartRequest::decode(&vec![b' '; MAX_SIZE + 1]),
            Err(RequestError::TooLong)
        ));
        assert!(matches!(StartRequest::decode(b"{}"), Err(RequestError::Json(_))));
        let layers = |count: usize, runs: u64| {
            let pages = PageRuns::new((0..runs).map(|place| place * 9..place * 9 + 1).collect());
            let held = (0..count).map(|number| {
                let layer = HeldLayer {
                    index: Digest::of(b"index"),
                    pages: pages.clone(),
                };
                (Digest::of(&number.to_le_bytes()), layer)
            });
            StartRequest {
                held: held.collect(),
                ..request()
            }
        };
        let many = serde_json::to_vec(&layers(MAX_LAYERS + 1, 0)).unwrap();
        assert!(matches!(StartRequest::decode(&many), Err(RequestError::TooMany)));
        let cut = StartRequest::decode(&layers(MAX_LAYERS + 1, 0).encode()).unwrap();
        assert_eq!(cut.held.len(), MAX_LAYERS);
        let cut = StartRequest::decode(&layers(20, 30_000).encode()).unwrap();
        assert!((5..20).contains(&cut.held.len()), "{}", cut.held.len());
        let service = WantedService {
            command: vec![WordHash::of("a"); MAX_WORDS + 1],
            ..WantedService::default()
        };
        let words = StartRequest {
            service: Some(service),
            ..request()
        };
        let bytes = serde_json::to_vec(&words).unwrap();
        assert!(matches!(StartRequest::decode(&bytes), Err(RequestError::TooMany)));
        let without = StartRequest::decode(&words.encode()).unwrap();
        assert_eq!((without.service, without.held), (None, request().held));
    }

    /// As many layers as fit are told, those with the fewest runs.
    #[test]
    fn a_request_is_as_long_as_it_may_be() {
        for runs in [1, 100, 3000] {
            let pages = PageRuns::new((0..runs).map(|place| place * 9..place * 9 + 1).collect());
            let held = (0..MAX_LAYERS).map(|number| {
                let layer = HeldLayer {
                    index: Digest::of(b"index"),
                    pages: pages.clone(),
                };
                (Digest::of(&number.to_le_bytes()), layer)
            });
            let request = StartRequest {
                held: held.collect(),
                ..request()
            };
            let one = serde_json::to_vec(request.held.values().next().unwrap())
                .unwrap()
                .len()
                + 75;
            let bytes = request.encode();
            let kept = StartRequest::decode(&bytes).unwrap().held.len();
            assert!(
                kept == MAX_LAYERS || (bytes.len() <= MAX_SIZE && bytes.len() + one + 1 > MAX_SIZE),
                "{kept}"
            );
        }
    }
}
