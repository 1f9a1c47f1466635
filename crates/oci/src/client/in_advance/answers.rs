//! The body of a start answer, which is read as far as somebody asks for one of its contents.
//!
//! Contents come in the order of the head. Each that comes before the one that is asked for is kept until it is asked for, too. A call
//! that waits reads on, for all: there is no task that could outlive the start. When the last user goes, the body is closed.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::Mutex;
use tracing::{debug, warn};
use xebec_format::digest::Digest;
use xebec_native::start_answer::Answer as Listed;

use crate::error::Fault;
use crate::reference::Repository;
use crate::transport::http::Answer;

/// The most that is kept of contents that nobody has asked for yet, in bytes.
pub(crate) const MAX_KEPT: usize = 64 << 20;
/// The least memory that a part of a content counts for: it keeps the buffer that it came in.
const LEAST: usize = 4 << 10;
/// How long one content is waited for; then it is asked for by itself. Pieces of blobs are waited for as long as bytes come.
const WAIT: Duration = Duration::from_secs(10);

/// What a call asks for: a manifest by tag or digest, what refers to one, a whole blob.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    Manifest(&'a str),
    Referrers(&'a Digest),
    Blob(&'a Digest),
}

impl Wanted<'_> {
    fn is_answered_by(self, listed: &Listed) -> bool {
        match (self, listed) {
            (Self::Manifest(name), Listed::Manifest { reference, .. }) => name == reference,
            (Self::Referrers(digest), Listed::Referrers { subject, .. }) => digest == subject,
            (Self::Blob(wanted), Listed::Blob { digest, .. }) => wanted == digest,
            _ => false,
        }
    }
}

impl std::fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manifest(name) => write!(f, "manifest {name}"),
            Self::Referrers(subject) => write!(f, "referrers of {subject}"),
            Self::Blob(digest) => write!(f, "blob {digest}"),
        }
    }
}

/// One content, as it came.
#[derive(Debug)]
pub(crate) struct Content {
    /// All of its bytes.
    pub(crate) bytes: Bytes,
    /// The media type that was said with it.
    pub(crate) media_type: Option<String>,
}

/// What one registry has answered in advance, about one repository.
#[derive(Debug)]
pub(crate) struct Answers {
    repository: Repository,
    listed: Vec<Listed>,
    body: Mutex<Body>,
}

impl Answers {
    /// The answers that a head lists. `begun` are the first bytes after it.
    pub(crate) fn new(repository: Repository, listed: Vec<Listed>, answer: Answer, begun: Bytes) -> Self {
        let contents = listed.iter().map(|listed| Coming {
            missing: listed.size(),
            parts: VecDeque::new(),
            is_wanted: false,
            is_gone: false,
        });
        let mut body = Body {
            answer: Some(answer),
            contents: contents.collect(),
            next: 0,
            kept: 0,
        };
        body.take_in(begun);
        Self {
            repository,
            listed,
            body: Mutex::new(body),
        }
    }

    /// A content, once; `None` if it does not come.
    pub(crate) async fn take(&self, repository: &Repository, wanted: Wanted<'_>) -> Option<Content> {
        let mut listed = (0..).zip(&self.listed);
        let (number, listed) = listed.find(|(_, listed)| wanted.is_answered_by(listed))?;
        if *repository != self.repository {
            return None;
        }
        let taken = tokio::time::timeout(WAIT, self.whole(number)).await;
        let bytes = taken.unwrap_or_else(|_| {
            debug!(
                registry = repository.registry(),
                "{wanted} did not come in {} s",
                WAIT.as_secs()
            );
            None
        })?;
        let media_type = match listed {
            Listed::Manifest { media_type, .. } => Some(media_type.clone()),
            _ => None,
        };
        Some(Content { bytes, media_type })
    }

    async fn whole(&self, number: usize) -> Option<Bytes> {
        loop {
            let mut body = self.body.lock().await;
            let content = body.contents.get_mut(number)?;
            if content.is_gone {
                return None;
            }
            content.is_wanted = true;
            if content.missing == 0 {
                content.is_gone = true;
                let parts = std::mem::take(&mut content.parts);
                body.kept -= parts.iter().map(weight).sum::<usize>();
                return Some(joined(parts));
            }
            if !body.more().await {
                return None;
            }
        }
    }

    /// The places of pieces of these blobs of the repository, in the order in which they come.
    pub(super) fn pieces(
        &self,
        repository: &Repository,
        blobs: &[Digest],
    ) -> impl Iterator<Item = (usize, Digest, &[(u64, u64)])> {
        let is_it = *repository == self.repository;
        let listed = (0..).zip(&self.listed).filter(move |_| is_it);
        listed.filter_map(move |(number, listed)| match listed {
            Listed::Pieces { digest, pieces } if blobs.contains(digest) => {
                Some((number, *digest, pieces.as_slice()))
            }
            _ => None,
        })
    }

    /// The next part of a content, as it comes; `None` at its end.
    ///
    /// # Errors
    /// If the rest of it does not come.
    pub(super) async fn part(&self, number: usize) -> Result<Option<Bytes>, Fault> {
        let gone = || Fault::Broken("the answer in advance broke off".to_owned());
        loop {
            let mut body = self.body.lock().await;
            let content = body.contents.get_mut(number).ok_or_else(gone)?;
            if content.is_gone {
                return Err(gone());
            }
            content.is_wanted = true;
            if let Some(part) = content.parts.pop_front() {
                body.kept -= weight(&part);
                return Ok(Some(part));
            }
            if content.missing == 0 {
                content.is_gone = true;
                return Ok(None);
            }
            if !body.more().await {
                return Err(gone());
            }
        }
    }
}

#[derive(Debug)]
struct Body {
    /// `None` when nothing more comes.
    answer: Option<Answer>,
    /// In the order of the head.
    contents: Vec<Coming>,
    /// The one to which the next bytes belong.
    next: usize,
    /// What all parts weigh together.
    kept: usize,
}

/// A content, as far as it has come and was not taken.
#[derive(Debug)]
struct Coming {
    /// How many bytes are still to come.
    missing: u64,
    parts: VecDeque<Bytes>,
    /// Somebody waits for it.
    is_wanted: bool,
    /// It was taken, or there was no room for it.
    is_gone: bool,
}

impl Body {
    /// Reads on; whether anything came. It may be given up at any time: what has come is in its place by then.
    async fn more(&mut self) -> bool {
        let Some(answer) = &mut self.answer else {
            return false;
        };
        let broken = match answer.chunk().await {
            Ok(Some(part)) => {
                self.take_in(part);
                return true;
            }
            Ok(None) => "it ended".to_owned(),
            Err(fault) => fault.to_string(),
        };
        warn!("an answer in advance broke off: {broken}; the rest is asked for by itself");
        self.answer = None;
        false
    }

    /// Puts bytes to the contents that they belong to.
    fn take_in(&mut self, mut bytes: Bytes) {
        while let Some(content) = self.contents.get_mut(self.next) {
            if bytes.is_empty() && content.missing > 0 {
                return;
            }
            let length = bytes
                .len()
                .min(usize::try_from(content.missing).unwrap_or(usize::MAX));
            let part = bytes.split_to(length);
            content.missing -= length as u64;
            if !content.is_gone && !part.is_empty() {
                self.kept += weight(&part);
                content.parts.push_back(part);
            }
            if self.kept > MAX_KEPT {
                self.make_room();
            }
            if self
                .contents
                .get(self.next)
                .is_some_and(|content| content.missing == 0)
            {
                self.next += 1;
            }
        }
        // All is here, and what follows belongs to nothing.
        self.answer = None;
    }

    /// Throws a content away: one that nobody waits for, else the one that is just coming.
    fn make_room(&mut self) {
        let is_idle = |content: &Coming| !content.is_wanted && !content.parts.is_empty();
        let idle = self.contents.iter().position(is_idle);
        if let Some(content) = self.contents.get_mut(idle.unwrap_or(self.next)) {
            let parts = std::mem::take(&mut content.parts);
            content.is_gone = true;
            self.kept -= parts.iter().map(weight).sum::<usize>();
        }
    }
}

fn weight(part: &Bytes) -> usize {
    part.len().max(LEAST)
}

fn joined(parts: VecDeque<Bytes>) -> Bytes {
    let mut parts = Vec::from(parts);
    if let [_] = parts[..] {
        return parts.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}
