//! Faults that change what an answer says, and how it is sent.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::body::{End, FaultyBody};
use super::connection::Connection;
use super::fault::Fault;
use super::log::RequestHead;
use super::reply::Reply;

/// Faults that change what is said.
pub(super) fn distort(mut reply: Reply, fault: Option<&Fault>) -> Reply {
    let shift = |reply: &mut Reply, by: u64| {
        for (name, value) in &mut reply.headers {
            if *name == "content-range"
                && let Some((start, rest)) = value.trim_start_matches("bytes ").split_once('-')
                && let Ok(start) = start.parse::<u64>()
            {
                *value = format!("bytes {}-{rest}", start + by);
            }
        }
    };
    match fault {
        Some(Fault::WrongBytes) => {
            reply.body = reply.body.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>().into();
        }
        Some(Fault::WrongContentRange) => shift(&mut reply, 1),
        Some(Fault::WrongContentLength) => reply.length = Some(reply.body.len() as u64 + 1),
        Some(Fault::Multipart) => {
            reply
                .headers
                .retain(|(name, _)| *name != "content-range" && *name != "content-type");
            reply = reply.with("content-type", "multipart/byteranges; boundary=x");
        }
        Some(Fault::With(headers)) => {
            reply = headers
                .iter()
                .fold(reply, |reply, (name, value)| reply.with(name, value.as_str()));
        }
        Some(Fault::Page { link }) => reply = reply.with("link", link.as_str()),
        Some(Fault::ContentEncoding) => reply = reply.with("content-encoding", "gzip"),
        Some(Fault::ShortRange(most)) if reply.status == 206 && reply.body.len() as u64 > *most => {
            reply.body.truncate(usize::try_from(*most).unwrap_or(usize::MAX));
            let length = reply.body.len() as u64;
            for (name, value) in &mut reply.headers {
                if *name == "content-range"
                    && let Some((start, rest)) = value.trim_start_matches("bytes ").split_once('-')
                    && let (Ok(start), Some((_, size))) = (start.parse::<u64>(), rest.split_once('/'))
                {
                    *value = format!("bytes {start}-{}/{size}", start + length - 1);
                }
            }
        }
        _ => {}
    }
    reply
}

/// Makes the response, with faults that change how it is sent.
pub(super) fn respond(
    connection: &Connection,
    head: &RequestHead,
    reply: Reply,
    fault: Option<&Fault>,
    sent: Arc<AtomicU64>,
) -> Response<FaultyBody> {
    let length = reply.length.unwrap_or(reply.body.len() as u64);
    let bytes = if head.method == "HEAD" {
        Bytes::new()
    } else {
        reply.body
    };
    let body = FaultyBody::new(bytes, sent, connection.line.clone());
    let body = match fault {
        Some(Fault::Truncate(after)) => body.ending(End::Close(*after)),
        Some(Fault::Reset(after)) => body.ending(End::Reset(*after)),
        Some(Fault::Stall(after)) => body.ending(End::Never(*after)),
        Some(Fault::WrongContentLength) => body.ending(End::Close(length - 1)),
        Some(Fault::Trickle { bytes_per_second }) => body.crawling(*bytes_per_second),
        _ => body,
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if !matches!(reply.status, 204 | 304) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    response
}
