//! Asking for a range of a blob, and what the head of the answer says.

use std::ops::Range;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, RANGE};
use xebec_format::digest::Digest;

use super::Client;
use crate::auth::Scope;
use crate::error::Fault;
use crate::reference::Repository;
use crate::transport::Ask;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;

impl Client {
    /// Sends a range request and checks that the head of the answer fits it.
    pub(super) async fn open(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        range: &Range<u64>,
    ) -> Result<Opened, Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        match answer.status().as_u16() {
            206 => {
                let length = check_partial(&answer, range)?;
                endpoint.server.honours_ranges.set(true);
                Ok(Opened::Part(answer, length))
            }
            200 => {
                // To a range that is the whole blob, 200 is a fair answer.
                let is_all = range.start == 0 && answer.content_length().is_some_and(|all| all <= range.end);
                if !is_all && endpoint.server.honours_ranges.get() != Some(false) {
                    endpoint.server.honours_ranges.set(false);
                    tracing::warn!(
                        registry = endpoint.server.authority,
                        "the registry ignores Range and sends whole blobs; lazy reads cost a full download there"
                    );
                }
                Ok(Opened::Whole(answer))
            }
            416 => Err(Fault::WrongRange(format!(
                "the registry says that bytes {}..{} are outside of the blob",
                range.start, range.end
            ))),
            _ => Err(answer.into_fault().await),
        }
    }
}

/// One way to go on after the head of an answer to a range request.
pub(super) enum Opened {
    /// The body is (a start of) the rest of the range: this many bytes.
    Part(Answer, u64),
    /// The body is the whole blob.
    Whole(Answer),
}

pub(super) fn blob_ask(
    repository: &Repository,
    blob: &Digest,
    range: Option<Range<u64>>,
    stream: bool,
) -> Ask {
    let path = format!("{}/blobs/{blob}", repository.name());
    let mut ask = Ask::get(path, Scope::pull(repository.name()));
    ask.blob = Some(*blob);
    ask.stream = stream;
    match range {
        Some(range) => ask.header(
            RANGE,
            &format!("bytes={}-{}", range.start, range.end.saturating_sub(1)),
        ),
        None => ask,
    }
}

/// Checks the head of a 206 answer; the length of the part that it brings.
fn check_partial(answer: &Answer, asked: &Range<u64>) -> Result<u64, Fault> {
    let content_type = answer.header(CONTENT_TYPE.as_str()).unwrap_or_default();
    if content_type.starts_with("multipart/") {
        return Err(Fault::WrongRange(
            "one range was asked for, several parts came".to_owned(),
        ));
    }
    let Some(got) = answer.content_range() else {
        return Err(Fault::WrongRange(
            "status 206 without a usable Content-Range".to_owned(),
        ));
    };
    // A server may send less than was asked for (RFC 9110, section 15.3.7), but from the same start.
    if got.start != asked.start || got.end > asked.end {
        return Err(Fault::WrongRange(format!(
            "asked for bytes {}..{}, got {}..{}",
            asked.start, asked.end, got.start, got.end
        )));
    }
    let length = got.end - got.start;
    match answer.content_length() {
        Some(announced) if announced != length => Err(Fault::WrongRange(format!(
            "Content-Range has {length} bytes, Content-Length says {announced}"
        ))),
        _ => Ok(length),
    }
}

/// Drops the part of `part` that is still to be skipped.
pub(super) fn skip_in(part: &mut Bytes, skip: &mut u64) {
    let dropped = (part.len() as u64).min(*skip);
    *skip -= dropped;
    *part = part.split_off(usize::try_from(dropped).unwrap_or(part.len()));
}
