//! The body of a start answer, which is read as far as somebody asks for one of its contents.
//!
//! Contents come in the order of the head. Each that comes before the one that is asked for is kept until it is asked for, too. A call
//! that waits reads on, for all: there is no task that could outlive the start. When the last user goes, the body is closed. So it is
//! when a call has waited in vain: everything else would have to wait as long.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};
use xebec_format::digest::Digest;
use xebec_native::start_answer::Answer as Listed;

use super::contents::{Contents, MAX_KEPT};
use crate::error::Fault;
use crate::reference::Repository;
use crate::transport::http::Answer;

/// How long one content is waited for since something of it came; pieces of blobs, since anything came.
const WAIT: Duration = Duration::from_secs(10);
/// How long one content is waited for though it comes, as the budget has it for a plain request.
const LONGEST: Duration = Duration::from_secs(120);

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

impl Content {
    /// Whether it is no longer than a plain answer may be.
    ///
    /// # Errors
    /// If it is.
    pub(crate) fn within(&self, limit: u64) -> Result<(), Fault> {
        let is_within = self.bytes.len() as u64 <= limit;
        is_within.then_some(()).ok_or(Fault::TooLarge { limit })
    }
}

/// What one registry has answered in advance, about one repository.
#[derive(Debug)]
pub(crate) struct Answers {
    repository: Repository,
    listed: Vec<Listed>,
    contents: parking_lot::Mutex<Contents>,
    /// The rest of the body, of which one call reads for all; `None` when nothing more comes.
    body: Mutex<Option<Rest>>,
}

/// The rest of a body.
#[derive(Debug)]
struct Rest {
    answer: Answer,
    /// For how long calls have waited, one after the other, since something of it came. While none does, nobody knows what has come.
    silent: Duration,
}

impl Rest {
    /// The next part, waited for until then, and until all calls together have waited long enough.
    async fn chunk(&mut self, until: Instant) -> Result<Result<Option<Bytes>, Fault>, Elapsed> {
        let begun = Instant::now();
        let until = until.min(begun + WAIT.saturating_sub(self.silent));
        let waiting = Waiting(&mut self.silent, begun);
        let part = timeout_at(until, self.answer.chunk()).await?;
        drop(waiting);
        self.silent = Duration::ZERO;
        Ok(part)
    }
}

/// A call that waits. It may be given up at any time, and its time counts.
struct Waiting<'a>(&'a mut Duration, Instant);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.0 += self.1.elapsed();
    }
}

impl Answers {
    /// The answers that a head lists. `begun` are the first bytes after it.
    pub(crate) fn new(repository: Repository, listed: Vec<Listed>, answer: Answer, begun: Bytes) -> Self {
        let mut contents = Contents::new(listed.iter().map(Listed::size), MAX_KEPT);
        let is_all = contents.take_in(begun);
        Self {
            repository,
            listed,
            contents: parking_lot::Mutex::new(contents),
            body: Mutex::new((!is_all).then_some(Rest {
                answer,
                silent: Duration::ZERO,
            })),
        }
    }

    /// A content, once; `None` if it does not come.
    pub(crate) async fn take(&self, repository: &Repository, wanted: Wanted<'_>) -> Option<Content> {
        let mut listed = (0..).zip(&self.listed);
        let (number, listed) = listed.find(|(_, listed)| wanted.is_answered_by(listed))?;
        if *repository != self.repository {
            return None;
        }
        let _asked = Asked(self, number);
        let bytes = self.wait(number, Contents::whole).await?;
        let media_type = match listed {
            Listed::Manifest { media_type, .. } => Some(media_type.clone()),
            _ => None,
        };
        Some(Content { bytes, media_type })
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
        let part = self.wait(number, Contents::part).await;
        part.ok_or_else(|| Fault::Broken("the answer in advance broke off".to_owned()))
    }

    /// Nobody asks for this content any more.
    pub(super) fn forget(&self, number: usize) {
        self.contents.lock().forget(number);
    }

    /// What `look` finds of a content once it is here; `None` if it does not come. Until then, `look` gives a number that grows as long
    /// as it is worth waiting.
    async fn wait<T>(
        &self,
        number: usize,
        look: impl Fn(&mut Contents, usize) -> ControlFlow<Option<T>, u64>,
    ) -> Option<T> {
        let longest = Instant::now() + LONGEST;
        let (mut last, mut until) = (None, longest);
        loop {
            let (found, seen) = {
                let mut contents = self.contents.lock();
                (look(&mut contents, number), contents.came())
            };
            match found {
                ControlFlow::Break(found) => return found,
                ControlFlow::Continue(now) if last < Some(now) => {
                    (last, until) = (Some(now), longest.min(Instant::now() + WAIT));
                }
                ControlFlow::Continue(_) => {}
            }
            if !self.more(seen, until).await {
                return None;
            }
        }
    }

    /// Reads on until then, unless more than `seen` has come meanwhile; whether anything came. If nothing came for as long as one content is
    /// waited for, nothing more is read for anybody. It may be given up at any time: what has come is in its place by then.
    async fn more(&self, seen: u64, until: Instant) -> bool {
        let mut body = self.body.lock().await;
        if self.contents.lock().came() > seen {
            return true;
        }
        let Some(rest) = &mut *body else {
            return false;
        };
        let broken = match rest.chunk(until).await {
            Ok(Ok(Some(part))) => {
                if self.contents.lock().take_in(part) {
                    *body = None;
                }
                return true;
            }
            Ok(Ok(None)) => "it ended".to_owned(),
            Ok(Err(fault)) => fault.to_string(),
            Err(_) if rest.silent < WAIT => {
                debug!(
                    "other contents of an answer in advance came for too long; this one is asked for by itself"
                );
                return false;
            }
            Err(_) => "nothing more came".to_owned(),
        };
        warn!("an answer in advance broke off: {broken}; the rest is asked for by itself");
        *body = None;
        false
    }
}

/// A content that a call asks for: when the call ends, in whatever way, nothing of it is kept.
struct Asked<'a>(&'a Answers, usize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};

    use super::*;

    fn blob(content: &[u8]) -> Listed {
        Listed::Blob {
            digest: Digest::of(content),
            size: content.len() as u64,
        }
    }

    /// Half of the first content comes while the second is waited for, and nothing after that. The time is the runtime's: it goes on when nothing else can.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_waited_for_once_since_its_last_byte() {
        let (first, second) = (vec![1; 40_000], vec![2; 10]);
        let half = Bytes::from(first[..20_000].to_vec());
        let late = stream::once(async move {
            tokio::time::sleep(WAIT / 2).await;
            Ok::<_, std::io::Error>(half)
        });
        let body = reqwest::Body::wrap_stream(late.chain(stream::pending()));
        let repository = Repository::new("registry.example", "app").unwrap();
        let listed = vec![blob(&first), blob(&second)];
        let answers = Answers::new(repository.clone(), listed, Answer::of_body(body), Bytes::new());
        let begun = Instant::now();
        for (wanted, waited) in [(&second, WAIT), (&first, WAIT * 3 / 2)] {
            let digest = Digest::of(wanted);
            let came = answers.take(&repository, Wanted::Blob(&digest)).await;
            assert!(came.is_none());
            let late = begun.elapsed().saturating_sub(waited);
            assert!(
                begun.elapsed() >= waited && late < Duration::from_secs(1),
                "{:?}",
                begun.elapsed()
            );
        }
    }
}
