//! A registry of Xebec answers all questions of a start by one answer (docs/formats/native-service.md). A client that has such an answer
//! takes from it what a call asks for, in place of a request, and does with it what the call does with any answer. Nothing of it counts
//! for more than what a plain registry says.

pub(crate) mod answers;
mod contents;
pub(crate) mod pieces;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use tracing::{debug, warn};
use xebec_format::digest::Digest;
use xebec_native::START;
use xebec_native::start_answer::{self, Head, PREFIX, head_size};
use xebec_native::start_request::{self, StartRequest};

use self::answers::{Answers, Content, Wanted};
use self::pieces::PiecesInAdvance;
use super::Client;
use super::failover::pass_over;
use crate::auth::Scope;
use crate::error::Fault;
use crate::media_type::without_parameters;
use crate::memory;
use crate::reference::Repository;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Payload, Place};

/// How long the head of an answer may take: a proxy may hold it back until all of it has come.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// For this long after a start request in vain there is none: each start would wait for it. A proxy that lets no such requests pass but
/// all headers, so that the registry is remembered again at once, does not change soon.
const REST_AFTER_LACK: Duration = Duration::from_secs(5 * 60);
/// The same after a fault, as mirrors rest.
const REST_AFTER_FAULT: Duration = Duration::from_secs(30);
/// Codes of errors (distribution spec, "Error Codes") that are about the image: the plain way has the same error, for the user.
const ABOUT_IT: [&str; 3] = ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NAME_INVALID"];

/// A registry, or a mirror of it, that answers starts in advance and may be asked to.
#[derive(Debug)]
pub struct NativeService {
    client: Client,
    repository: Repository,
    endpoint: Endpoint,
}

/// That there are no answers in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswers {
    /// What is asked for is not there, or not for this client. If the plain way has it, the service must [`NativeService::rest`].
    Refused,
    /// Anything else.
    Other,
}

/// Why there are no answers in advance.
enum Vain {
    /// The server does not give them.
    Lack(String),
    /// What is asked for is not there, or not for this client.
    Verdict,
    /// Anything else.
    Fault(Fault),
}

impl From<Fault> for Vain {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Client {
    /// The service that answers a start of an image of `repository`, if the first that may say what a tag means was seen to have one.
    pub fn native_service(&self, repository: &Repository) -> Option<NativeService> {
        let transport = &self.transport;
        let first = transport.servers.readable(repository.registry(), false, false);
        let endpoint = first.into_iter().next()?;
        let may = transport.config.of_registry(repository.registry()).native
            && transport.config.of_registry(&endpoint.server.authority).native;
        let is_native = may
            && !endpoint.server.do_starts_rest()
            && memory::is_native(&*transport.memory, &endpoint.server.name());
        is_native.then(|| NativeService {
            client: self.clone(),
            repository: repository.clone(),
            endpoint,
        })
    }

    /// The same client without answers in advance: for what goes on after a start.
    #[must_use]
    pub fn without_answers(&self) -> Self {
        Self {
            answers: None,
            ..self.clone()
        }
    }

    /// Whether this client has an answer in advance.
    pub fn has_answers(&self) -> bool {
        self.answers.is_some()
    }

    /// Pieces of these blobs that come in advance.
    pub fn pieces_in_advance(&self, repository: &Repository, blobs: &[Digest]) -> Option<PiecesInAdvance> {
        PiecesInAdvance::find(self.answers.as_ref()?, repository, blobs)
    }

    /// A content that came in advance and is what `check` expects. A call asks for others by itself.
    pub(super) async fn in_advance<T>(
        &self,
        repository: &Repository,
        wanted: Wanted<'_>,
        check: impl FnOnce(Content) -> Result<T, Fault>,
    ) -> Option<T> {
        let answers = self.answers.as_ref()?;
        let content = Box::pin(answers.take(repository, wanted)).await?;
        let checked = check(content);
        checked
            .inspect_err(|fault| {
                warn!("{repository}: {wanted}, as it came in advance: {fault}; it is asked for by itself");
            })
            .ok()
    }
}

impl NativeService {
    /// Whether it may be told what this host holds.
    pub fn may_be_told(&self) -> bool {
        let config = &self.client.transport.config;
        // A mirror is another listener than the registry.
        let name = match self.endpoint.mirror_of {
            None => self.repository.registry(),
            Some(_) => &self.endpoint.server.authority,
        };
        config.of_registry(name).tell_held
    }

    /// Sends a start request, once, and waits for the answer no longer than `time`, if that is given. Gives a client whose calls take
    /// their answers from it.
    ///
    /// # Errors
    /// If there is no answer: then everything is asked for by itself.
    pub async fn ask(&self, request: StartRequest, time: Option<Duration>) -> Result<Client, NoAnswers> {
        let server = &self.endpoint.server;
        // A start does not wait for an answer that it can do without.
        if server.gate.is_closed() || server.is_resting() {
            return Err(NoAnswers::Other);
        }
        let time = time.map_or(HEAD_TIME, |time| time.min(HEAD_TIME));
        let asked = Box::pin(self.ask_once(request));
        let asked = tokio::time::timeout(time, asked).await;
        let Ok(asked) = asked else {
            // It may have waited for a place of this host: that says nothing of the server.
            debug!(registry = server.authority, ?time, "no answer in advance in time");
            server.rest_starts(REST_AFTER_FAULT);
            return Err(NoAnswers::Other);
        };
        match asked {
            Ok(answers) => Ok(Client {
                answers: Some(Arc::new(answers)),
                ..self.client.clone()
            }),
            Err(Vain::Verdict) => Err(NoAnswers::Refused),
            Err(Vain::Lack(why)) => {
                debug!(
                    registry = server.authority,
                    why, "the registry answers no starts in advance"
                );
                self.client.transport.memory.saw_native(&server.name(), false);
                server.rest_starts(REST_AFTER_LACK);
                Err(NoAnswers::Other)
            }
            Err(Vain::Fault(fault)) => {
                debug!(registry = server.authority, %fault, "no answer in advance");
                pass_over(&self.endpoint, &fault);
                server.rest_starts(REST_AFTER_FAULT);
                Err(NoAnswers::Other)
            }
        }
    }

    /// What was refused is there after all, for this client: there are no start requests for a while.
    pub fn rest(&self) {
        self.endpoint.server.rest_starts(REST_AFTER_LACK);
    }

    async fn ask_once(&self, request: StartRequest) -> Result<Answers, Vain> {
        let Client {
            transport, counters, ..
        } = &self.client;
        let place = Place::Path(format!("{}/{START}", self.repository.name()));
        let mut ask = Ask::new(Method::POST, place, Scope::pull(self.repository.name()))
            .header(CONTENT_TYPE, start_request::TYPE)
            .header(ACCEPT, start_answer::TYPE)
            .payload(Payload::Bytes(request.encode().into()));
        // Its body is read while the start goes on, whose other requests need places.
        ask.stream = true;
        let answer = transport.send(&self.endpoint, &ask, counters).await?;
        let content_type = answer.header(CONTENT_TYPE.as_str()).map(without_parameters);
        match answer.status().as_u16() {
            200 if content_type == Some(start_answer::TYPE) => {}
            200 => return Err(Vain::Lack(format!("it answers with {content_type:?}"))),
            401 | 403 => return Err(Vain::Verdict),
            code @ (404 | 405 | 501) => {
                let codes = answer.error_codes().await;
                return Err(match codes.iter().any(|code| ABOUT_IT.contains(&code.as_str())) {
                    true => Vain::Verdict,
                    false => Vain::Lack(format!("HTTP status {code}")),
                });
            }
            _ => return Err(answer.into_fault().await.into()),
        }
        self.begin(answer).await
    }

    /// Reads what comes before the contents.
    async fn begin(&self, mut answer: Answer) -> Result<Answers, Vain> {
        let mut begun = BytesMut::new();
        let prefix = read_to(&mut answer, &mut begun, PREFIX).await?;
        let prefix = <[u8; PREFIX]>::try_from(&prefix[..]).unwrap_or_default();
        let size = head_size(prefix).map_err(|error| Vain::Lack(error.to_string()))?;
        let head = read_to(&mut answer, &mut begun, size).await?;
        let head = Head::decode(&head).map_err(|error| Vain::Lack(error.to_string()))?;
        Ok(Answers::new(
            self.repository.clone(),
            head.answers,
            answer,
            begun.freeze(),
        ))
    }
}

/// The next `size` bytes; what has come beyond them stays in `begun`.
async fn read_to(answer: &mut Answer, begun: &mut BytesMut, size: usize) -> Result<Bytes, Fault> {
    while begun.len() < size {
        let Some(part) = answer.chunk().await? else {
            return Err(Fault::Truncated {
                expected: size as u64,
                got: begun.len() as u64,
            });
        };
        begun.extend_from_slice(&part);
    }
    Ok(begun.split_to(size).freeze())
}
