//! One request: its limits, its id, its answer, and the line of the log about it.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{EXPECT, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use tracing::Instrument as _;
use xebec_access::{Peer, client_of};
use xebec_kernel::clock::milliseconds_since_1970;

use super::activity::Busy;
use super::clients::{self, Admitted};
use super::shared::Shared;
use crate::api::{self, Answer, AnsweredTo, Kind, RequestId};
use crate::body::{self, AnswerBody, RequestBody};
use crate::error::{ApiError, Code};
use crate::metrics::Held;
use crate::page::Page;
use crate::page::activity::Entry;
use crate::route::Route;
use crate::state::RETRY_AFTER as WAIT;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// An answer that begins later than this is slow.
const SLOW: Duration = Duration::from_secs(1);
/// The longest id that is taken over from a client.
const MAX_ID: usize = 64;

/// Answers a request.
pub(super) async fn serve(
    shared: Arc<Shared>,
    peer: SocketAddr,
    busy: Busy,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let begun = Instant::now();
    let held = shared.registry.metrics.begin_request();
    let (mut parts, incoming) = request.into_parts();
    let origin = clients::origin(peer.ip(), &parts.headers, &shared.settings.proxies);
    let id = request_id(&parts);
    parts
        .extensions
        .insert(Peer(SocketAddr::new(origin, peer.port())));
    parts.extensions.insert(RequestId(id.clone()));
    let mut body = RequestBody::new(incoming, shared.settings.limits.idle);
    let span = tracing::info_span!("request", id = %id);
    let (mut answer, admitted) = match admit(&shared, &parts, origin) {
        Ok(admitted) => {
            let answer = answered(&shared, &parts, &mut body).instrument(span.clone());
            (answer.await, Some(admitted))
        }
        Err(refusal) => (api::refusal(&shared.registry, &parts, &refusal), None),
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert(REQUEST_ID, value);
    }
    let after = begun.elapsed();
    let kind = answer.extensions().get::<Kind>().map_or("none", |kind| kind.0);
    let metrics = &shared.registry.metrics;
    metrics.answered(kind, parts.method.as_str(), answer.status().as_u16(), after);
    let record = Record {
        received: body.received(),
        user: answer
            .extensions()
            .get::<AnsweredTo>()
            .and_then(|to| to.0.clone()),
        status: answer.status().as_u16(),
        agent: text(&parts, hyper::header::USER_AGENT),
        id,
        parts,
        origin: origin.to_string(),
        kind,
        span,
        begun,
        after,
        sent: 0,
        is_whole: false,
        shared: shared.clone(),
        _held: (held, admitted, busy.clone()),
    };
    drain(body, &record.parts, busy);
    Ok(recorded(answer, record))
}

/// The answer, even where carrying the request out fails in a way that nobody has thought of.
async fn answered(shared: &Shared, parts: &Parts, body: &mut RequestBody) -> Answer {
    let answer = AssertUnwindSafe(api::answer(&shared.registry, parts, body)).catch_unwind();
    match answer.await {
        Ok(answer) => answer,
        Err(_) => {
            let error = ApiError::internal("carrying out the request", &"it panicked, see above");
            api::refusal(&shared.registry, parts, &error)
        }
    }
}

/// Lets a request in, unless its client sends them too fast or has too many under way. Requests for the registry's status are not counted.
fn admit(shared: &Shared, parts: &Parts, origin: IpAddr) -> Result<Admitted, ApiError> {
    let (limits, metrics) = (&shared.settings.limits, &shared.registry.metrics);
    if let Some(rate) = &shared.rate
        && !Route::parse(parts.uri.path()).is_ok_and(|route| route.kind() == "status")
        && let Err(wait) = rate.take(client_of(origin), shared.begun.elapsed())
    {
        metrics.refused("rate_of_one_client");
        let wait = wait.as_secs() + 1;
        let detail = format!(
            "this client sends requests faster than it may; try again in {wait} s, and send fewer in a second, \
             or have whoever administers the registry raise the limit ([limits] requests_per_second)"
        );
        let error = ApiError::new(Code::TooManyRequests, detail);
        return Err(error.with_header(RETRY_AFTER, wait.to_string()));
    }
    let admitted = shared.requests.admit(origin, limits.requests_per_client);
    admitted.ok_or_else(|| {
        metrics.refused("requests_of_one_client");
        let detail = format!(
            "this client has {} requests under way, the most that it may have; try again when some are done",
            limits.requests_per_client
        );
        ApiError::new(Code::TooManyRequests, detail).with_header(RETRY_AFTER, WAIT.as_secs().to_string())
    })
}

/// Reads the rest of the body and forgets it, so that the client sees the answer. The body of a client that waits to be told to go on
/// is not read.
fn drain(body: RequestBody, parts: &Parts, busy: Busy) {
    if body.is_empty() || (parts.headers.contains_key(EXPECT) && body.received() == 0) {
        return;
    }
    tokio::spawn(async move {
        body.drain().await;
        drop(busy);
    });
}

/// The client's own id, if it is one, or a new one.
fn request_id(parts: &Parts) -> String {
    let own = text(parts, REQUEST_ID);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match !own.is_empty() && own.len() <= MAX_ID && own.bytes().all(is_plain) {
        true => own,
        false => format!("{:016x}", fastrand::u64(..)),
    }
}

fn text(parts: &Parts, name: HeaderName) -> String {
    let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// The record of a request that is being answered. Once its answer has gone out, or was broken off, it is written to the log.
struct Record {
    parts: Parts,
    origin: String,
    user: Option<String>,
    id: String,
    agent: String,
    kind: &'static str,
    status: u16,
    span: tracing::Span,
    begun: Instant,
    after: Duration,
    received: u64,
    sent: u64,
    is_whole: bool,
    shared: Arc<Shared>,
    _held: (Held, Option<Admitted>, Busy),
}

impl Record {
    /// The repository that the request is about, by the name that it has here.
    fn repository(&self) -> Option<String> {
        let (path, query) = (self.parts.uri.path(), self.parts.uri.query());
        let upstreams = &self.shared.registry.upstreams;
        let here = upstreams.path(path, query.unwrap_or_default());
        match Route::parse(here.as_deref().unwrap_or(path)) {
            Ok(route) => route.repository().map(ToString::to_string),
            Err(_) => Page::parse(path, query)?.repository().map(str::to_owned),
        }
    }

    /// Remembers what failed or took long until it was answered, for the page that shows it.
    fn remember(&self) {
        let is_failure = self.status >= 500;
        if self.kind == "status" || (!is_failure && self.after < SLOW) {
            return;
        }
        let entry = Entry {
            at_ms: milliseconds_since_1970(),
            request: format!("{} {}", self.parts.method, self.parts.uri.path()),
            repository: self.repository(),
            status: self.status,
            took_ms: self.after.as_millis().try_into().unwrap_or(u64::MAX),
            id: self.id.clone(),
        };
        let activity = &self.shared.registry.activity;
        match is_failure {
            true => activity.failed(entry),
            false => activity.slow(entry),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.remember();
        self.shared.registry.metrics.moved(self.received, self.sent);
        let _entered = self.span.enter();
        let (head, whole) = (milliseconds(self.after), milliseconds(self.begun.elapsed()));
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = %self.parts.method,
                    path = %self.parts.uri.path(),
                    status = self.status,
                    from = %self.origin,
                    user = self.user.as_deref().unwrap_or("-"),
                    received = self.received,
                    sent = self.sent,
                    head_ms = head,
                    ms = whole,
                    // As a text, which is quoted: clients write what they like.
                    agent = self.agent.as_str(),
                    broken = !self.is_whole,
                    "answered"
                )
            };
        }
        match self.kind {
            // A program that watches the registry asks for it every few seconds.
            "status" => line!(tracing::Level::DEBUG),
            _ if self.status >= 500 => line!(tracing::Level::WARN),
            _ => line!(tracing::Level::INFO),
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    // Three digits after the point.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn recorded(answer: Answer, mut record: Record) -> Response<AnswerBody> {
    if record.parts.method == Method::HEAD || answer.body().is_end_stream() {
        record.is_whole = true;
        drop(record);
        return answer.map(|_| body::empty());
    }
    answer.map(|body| Recorded { body, record }.boxed_unsync())
}

/// A body that counts what goes out.
struct Recorded {
    body: AnswerBody,
    record: Record,
}

impl Body for Recorded {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.record.sent += bytes.len() as u64;
        }
        if let Poll::Ready(Some(Err(error))) = &frame {
            self.record
                .span
                .in_scope(|| tracing::warn!("the answer breaks off: {error}"));
        }
        self.record.is_whole = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: &str) -> String {
        let request = Request::builder().header(REQUEST_ID, value).body(()).unwrap();
        request_id(&request.into_parts().0)
    }

    #[test]
    fn a_clients_id_is_kept_if_it_is_harmless() {
        assert_eq!(id("abc-1.2_Z"), "abc-1.2_Z");
        for other in ["", "a b", "a\"b", &"x".repeat(65)] {
            let made = id(other);
            assert!(made.len() == 16 && made != other, "{other}");
        }
    }
}
