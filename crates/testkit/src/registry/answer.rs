//! The distribution API, and the faults on top of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName};
use hyper::{Request, Response, Version};
use serde_json::json;
use xebec_format::digest::Digest;

use super::access::{self, Access};
use super::body::FaultyBody;
use super::connection::Connection;
use super::distort::{distort, respond};
use super::fault::Fault;
use super::log::{Entry, Place, RequestHead};
use super::reply::Reply;
use super::start;
use super::state::{Inner, State};
use super::store::INDEX_TYPE;

/// Answers a request; `None`: break the connection.
pub(super) async fn answer(
    connection: &Connection,
    request: Request<Incoming>,
) -> Option<Response<FaultyBody>> {
    let state = &connection.state;
    let head = head_of(connection, &request);
    let sent = Arc::new(AtomicU64::new(0));
    let fault = {
        let mut inner = state.inner.lock();
        if inner.down {
            return None;
        }
        inner.script.next(&head)
    };
    match &fault {
        Some(Fault::Hang) => {
            record(state, head, 0, &sent);
            std::future::pending::<()>().await;
            return None;
        }
        Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
        Some(Fault::Reset(0)) => {
            record(state, head, 0, &sent);
            return None;
        }
        _ => {}
    }
    let body = request.into_body().collect().await.ok()?.to_bytes();
    let reply = injected(fault.as_ref()).unwrap_or_else(|| {
        let mut inner = state.inner.lock();
        if fault == Some(Fault::ExpireTokens) {
            inner.tokens.expire();
        }
        let ignore_range = fault == Some(Fault::IgnoreRange);
        route(state, &mut inner, &head, &body, ignore_range)
    });
    let mut reply = distort(reply, fault.as_ref());
    let is_of_the_api = head.place == Place::Registry && head.path.starts_with("/v2/");
    if is_of_the_api && state.options.native && !state.inner.lock().hides_native {
        reply = reply.with("xebec-native", "1");
    }
    record(state, head.clone(), reply.status, &sent);
    Some(respond(connection, &head, reply, fault.as_ref(), sent))
}

/// A reply that a fault puts in place of the registry's own.
fn injected(fault: Option<&Fault>) -> Option<Reply> {
    match fault? {
        Fault::Status { code, retry_after } => {
            let reply = Reply::error(*code, "INJECTED");
            let retry_after = retry_after.iter();
            Some(retry_after.fold(reply, |reply, value| reply.with("retry-after", value.as_str())))
        }
        Fault::Html => Some(
            Reply::new(200)
                .with("content-type", "text/html")
                .body("<html>Welcome</html>"),
        ),
        Fault::Answer {
            status,
            content_type,
            body,
        } => Some(
            Reply::new(*status)
                .with("content-type", *content_type)
                .body(body.clone()),
        ),
        Fault::Says { status, headers } => {
            let headers = headers.iter();
            Some(headers.fold(Reply::new(*status), |reply, (name, value)| {
                reply.with(name, value.as_str())
            }))
        }
        _ => None,
    }
}

fn head_of(connection: &Connection, request: &Request<Incoming>) -> RequestHead {
    let text = |name: HeaderName| {
        request
            .headers()
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::to_owned)
    };
    RequestHead {
        place: connection.place,
        connection: connection.number,
        http2: request.version() == Version::HTTP_2,
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        range: text(header::RANGE),
        authorization: text(header::AUTHORIZATION),
    }
}

fn record(state: &State, head: RequestHead, status: u16, sent: &Arc<AtomicU64>) {
    state
        .inner
        .lock()
        .log
        .push(Entry::new(head, status, sent.clone()));
}

fn route(state: &State, inner: &mut Inner, head: &RequestHead, body: &Bytes, ignore_range: bool) -> Reply {
    if head.place == Place::Cdn {
        return cdn(inner, head, ignore_range);
    }
    if head.path == "/token" {
        return token(state, inner, head, body);
    }
    let Some(path) = head.path.strip_prefix("/v2/") else {
        return Reply::new(404);
    };
    let kinds = [
        "/manifests/",
        "/blobs/uploads/",
        "/blobs/",
        "/referrers/",
        "/tags/list",
        "/_xebec/start/answer",
    ];
    let split = kinds.iter().find_map(|kind| {
        let at = path.find(kind)?;
        Some((path.get(..at)?, *kind, path.get(at + kind.len()..)?))
    });
    let reads = matches!(head.method.as_str(), "GET" | "HEAD");
    let repository = split.map_or("", |(repository, _, _)| repository);
    let is_start = split.is_some_and(|(_, kind, _)| kind == "/_xebec/start/answer");
    let action = if reads || is_start { "pull" } else { "push" };
    let access = &state.options.access;
    let base = state.base(Place::Registry);
    let authorization = head.authorization.as_deref();
    if let Err(wanted) = access::check(access, &inner.tokens, authorization, repository, action, &base) {
        return Reply::error(401, "UNAUTHORIZED").with("www-authenticate", wanted);
    }
    match split {
        None if path.is_empty() => Reply::new(200).body("{}"),
        None => Reply::error(404, "NOT_FOUND"),
        Some((name, "/manifests/", reference)) if reads => get_manifest(inner, name, reference),
        Some((name, "/manifests/", reference)) => put_manifest(state, inner, head, name, reference, body),
        Some((name, "/blobs/uploads/", session)) => upload(state, inner, head, name, session, body),
        Some((name, "/blobs/", digest)) => get_blob(state, inner, head, name, digest, ignore_range),
        Some((_, "/_xebec/start/answer", _)) if !state.options.native => Reply::error(404, "NOT_FOUND"),
        Some((name, "/_xebec/start/answer", "")) if head.method == "POST" => {
            start::answer(&inner.start, &mut inner.store, name, body)
        }
        Some((_, "/_xebec/start/answer", _)) => Reply::error(405, "UNSUPPORTED"),
        Some((name, "/tags/list", "")) => tags(inner, head, name),
        Some((name, _, subject)) => referrers(state, inner, head, name, subject),
    }
}

fn token(state: &State, inner: &mut Inner, head: &RequestHead, body: &Bytes) -> Reply {
    let Access::Token {
        life,
        login,
        refresh_token,
    } = &state.options.access
    else {
        return Reply::new(404);
    };
    let form = String::from_utf8_lossy(body).into_owned();
    let parameters = pairs(if head.method == "POST" { &form } else { &head.query });
    let get = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let allowed = match (head.method.as_str(), login) {
        ("POST", _) => {
            get("grant_type") == Some("refresh_token")
                && refresh_token.is_some()
                && get("refresh_token") == refresh_token.as_deref()
        }
        (_, Some((username, password))) => {
            access::is_login(head.authorization.as_deref(), username, password)
        }
        (_, None) => true,
    };
    if !allowed {
        return Reply::error(401, "UNAUTHORIZED");
    }
    let scopes = parameters.iter().filter(|(key, _)| key == "scope");
    let scopes = scopes
        .flat_map(|(_, value)| value.split(' ').map(str::to_owned))
        .collect();
    let answer = inner.tokens.give(scopes, *life);
    Reply::new(200)
        .with("content-type", "application/json")
        .body(answer)
}

fn get_manifest(inner: &mut Inner, name: &str, reference: &str) -> Reply {
    match inner.store.repository(name).manifest(reference) {
        None => Reply::error(404, "MANIFEST_UNKNOWN"),
        Some((digest, manifest)) => Reply::new(200)
            .with("content-type", manifest.media_type.as_str())
            .with("docker-content-digest", digest.to_string())
            .body(manifest.bytes.clone()),
    }
}

/// By name, as many as were asked for.
fn tags(inner: &mut Inner, head: &RequestHead, name: &str) -> Reply {
    let Some(repository) = inner
        .store
        .repositories
        .get(name)
        .filter(|known| !known.tags.is_empty())
    else {
        return Reply::error(404, "NAME_UNKNOWN");
    };
    let mut tags: Vec<&String> = repository.tags.keys().collect();
    tags.sort();
    let parameters = pairs(&head.query);
    let parameter = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    };
    if let Some(last) = parameter("last") {
        tags.retain(|tag| *tag > last);
    }
    let asked = parameter("n").and_then(|value| value.parse().ok());
    let asked = asked.unwrap_or(usize::MAX);
    let has_more = tags.len() > asked;
    tags.truncate(asked);
    let last = tags.last().map_or("", |tag| tag.as_str()).to_owned();
    let reply = Reply::new(200)
        .with("content-type", "application/json")
        .body(json!({ "name": name, "tags": tags }).to_string());
    match has_more {
        true => reply.with(
            "link",
            format!("</v2/{name}/tags/list?n={asked}&last={last}>; rel=\"next\""),
        ),
        false => reply,
    }
}

fn put_manifest(
    state: &State,
    inner: &mut Inner,
    head: &RequestHead,
    name: &str,
    reference: &str,
    body: &Bytes,
) -> Reply {
    if reference.contains(':') && reference != Digest::of(body).to_string() {
        return Reply::error(400, "DIGEST_INVALID");
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
        return Reply::error(400, "MANIFEST_INVALID");
    };
    let repository = inner.store.repository(name);
    let blobs = value["layers"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(value.get("config"));
    for blob in blobs {
        let digest = blob["digest"].as_str().and_then(|text| text.parse().ok());
        if !digest.is_some_and(|digest: Digest| repository.blobs.contains_key(&digest)) {
            return Reply::error(404, "MANIFEST_BLOB_UNKNOWN");
        }
    }
    let media_type = value["mediaType"].as_str().unwrap_or(INDEX_TYPE).to_owned();
    let digest = repository.put_manifest(reference, &media_type, body.clone());
    let reply = Reply::new(201)
        .with("location", head.path.as_str())
        .with("docker-content-digest", digest.to_string());
    match value["subject"]["digest"].as_str() {
        Some(subject) if state.options.referrers_api => reply.with("oci-subject", subject),
        _ => reply,
    }
}

fn get_blob(
    state: &State,
    inner: &mut Inner,
    head: &RequestHead,
    name: &str,
    digest: &str,
    ignore_range: bool,
) -> Reply {
    let found = digest
        .parse()
        .ok()
        .and_then(|digest| inner.store.repository(name).blobs.get(&digest).cloned());
    let Some(bytes) = found else {
        return Reply::error(404, "BLOB_UNKNOWN");
    };
    match state.options.redirect_blobs {
        Some(life) if head.method == "GET" => {
            let end = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or(Duration::ZERO)
                + life;
            let (base, signature) = (state.base(Place::Cdn), inner.signature);
            let url = format!(
                "{base}/store/blobs/{digest}?Expires={}&signature={signature}",
                end.as_secs()
            );
            Reply::new(307).with("location", url)
        }
        _ => ranged(bytes, head, ignore_range).with("docker-content-digest", digest),
    }
}

/// The second server. Like S3, it refuses a request that carries two kinds of proof.
fn cdn(inner: &Inner, head: &RequestHead, ignore_range: bool) -> Reply {
    let signature = format!("signature={}", inner.signature);
    if head.authorization.is_some() {
        return Reply::error(400, "ONLY_ONE_AUTH_MECHANISM_ALLOWED");
    }
    if !head.query.ends_with(&signature) {
        return Reply::error(403, "REQUEST_HAS_EXPIRED");
    }
    let digest = head
        .path
        .strip_prefix("/store/blobs/")
        .and_then(|text| text.parse().ok());
    match digest.and_then(|digest| inner.store.any_blob(&digest)) {
        Some(bytes) => ranged(bytes, head, ignore_range),
        None => Reply::error(404, "NO_SUCH_KEY"),
    }
}

/// The bytes, or the range of them that was asked for.
fn ranged(bytes: Bytes, head: &RequestHead, ignore_range: bool) -> Reply {
    let size = bytes.len() as u64;
    let asked = head
        .range
        .as_deref()
        .filter(|_| !ignore_range && head.method == "GET");
    let range = asked.and_then(|text| text.strip_prefix("bytes=")?.split_once('-'));
    let Some((Ok(first), last)) = range.map(|(first, last)| (first.parse::<u64>(), last.parse::<u64>()))
    else {
        return Reply::new(200)
            .with("content-type", "application/octet-stream")
            .body(bytes);
    };
    let end = last.map_or(size, |last| last.saturating_add(1)).min(size);
    if first >= end {
        return Reply::error(416, "RANGE_INVALID").with("content-range", format!("bytes */{size}"));
    }
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    Reply::new(206)
        .with("content-type", "application/octet-stream")
        .with("content-range", format!("bytes {first}-{}/{size}", end - 1))
        .body(bytes.slice(at(first)..at(end)))
}

fn upload(
    state: &State,
    inner: &mut Inner,
    head: &RequestHead,
    name: &str,
    session: &str,
    body: &Bytes,
) -> Reply {
    if body.len() as u64 > state.options.max_upload {
        return Reply::error(413, "SIZE_INVALID");
    }
    let parameters = pairs(&head.query);
    let get = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let place = |session: u64| format!("/v2/{name}/blobs/uploads/{session}?state=x");
    if head.method == "POST" {
        if let (Some(digest), Some(from)) = (get("mount").and_then(|text| text.parse().ok()), get("from"))
            && let Some(bytes) = inner.store.repository(from).blobs.get(&digest).cloned()
        {
            inner.store.repository(name).blobs.insert(digest, bytes);
            return Reply::new(201).with("location", format!("/v2/{name}/blobs/{digest}"));
        }
        return Reply::new(202).with("location", place(inner.store.start_upload()));
    }
    let Some((number, data)) = session
        .parse()
        .ok()
        .and_then(|number| Some((number, inner.store.uploads.get_mut(&number)?)))
    else {
        return Reply::error(404, "BLOB_UPLOAD_UNKNOWN");
    };
    if head.method == "GET" {
        return Reply::new(204)
            .with("range", format!("0-{}", data.len().saturating_sub(1)))
            .with("location", place(number));
    }
    data.extend_from_slice(body);
    if head.method == "PATCH" {
        return Reply::new(202)
            .with("range", format!("0-{}", data.len().saturating_sub(1)))
            .with("location", place(number));
    }
    let bytes = std::mem::take(data).freeze();
    inner.store.uploads.remove(&number);
    match get("digest").and_then(|text| text.parse::<Digest>().ok()) {
        Some(digest) if digest == Digest::of(&bytes) => {
            inner.store.repository(name).blobs.insert(digest, bytes);
            Reply::new(201).with("location", format!("/v2/{name}/blobs/{digest}"))
        }
        _ => Reply::error(400, "DIGEST_INVALID"),
    }
}

fn referrers(state: &State, inner: &mut Inner, head: &RequestHead, name: &str, subject: &str) -> Reply {
    if !state.options.referrers_api {
        return Reply::error(404, "NOT_FOUND");
    }
    let parameters = pairs(&head.query);
    let get = |name: &str| {
        parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    let mut entries = inner.store.repository(name).referrers(subject);
    let wanted = get("artifactType");
    if let Some(wanted) = &wanted {
        entries.retain(|entry| entry["artifactType"] == wanted.as_str());
    }
    let from: usize = get("from").and_then(|text| text.parse().ok()).unwrap_or(0);
    let page = state.options.referrers_page;
    let more = entries.len() > from + page;
    let entries: Vec<_> = entries.into_iter().skip(from).take(page).collect();
    let body = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries});
    let mut reply = Reply::new(200)
        .with("content-type", INDEX_TYPE)
        .body(body.to_string());
    if wanted.is_some() {
        reply = reply.with("oci-filters-applied", "artifactType");
    }
    if more {
        let query = wanted.map_or(String::new(), |wanted| {
            format!("&artifactType={}", wanted.replace('+', "%2B"))
        });
        let next = format!("<{}?from={}{query}>; rel=\"next\"", head.path, from + page);
        reply = reply.with("link", next);
    }
    reply
}

/// Keys and values of a query or form, decoded.
fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(k, v)| (decode(k), decode(v)))
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                if let (Some(high), Some(low)) = (hex(rest.next()), hex(rest.next())) {
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                }
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
