//! From a request for a page to its answer: rights, then what is in the store, then HTML.

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use xebec_access::{Action, Need, Refusal};
use xebec_store::{Digest, RepositoryName, StoreError};

use super::{CONTENT_SECURITY_POLICY, Page, SCRIPT, STYLE, gather, html};
use crate::body::{self, AnswerBody};
use crate::state::Registry;

const HTML: &str = "text/html; charset=utf-8";
/// How long browsers keep style and script, in seconds.
const KEEP: &str = "max-age=3600";

/// What is sent: a status, a media type, and the text.
struct Content {
    status: StatusCode,
    media_type: &'static str,
    text: String,
    challenge: Option<String>,
}

impl Content {
    fn html(text: String) -> Self {
        Self {
            status: StatusCode::OK,
            media_type: HTML,
            text,
            challenge: None,
        }
    }

    fn problem(status: StatusCode, heading: &str, sentence: &str) -> Self {
        Self {
            status,
            ..Self::html(html::problem(heading, sentence))
        }
    }

    fn missing() -> Self {
        Self::problem(
            StatusCode::NOT_FOUND,
            "Not found",
            "No repository or image of this name is here, or you may not see it.",
        )
    }
}

/// The page that a request asks for. `None` when it asks for something else.
pub async fn answer(registry: &Registry, parts: &Parts) -> Option<Response<AnswerBody>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return None;
    }
    let page = Page::parse(parts.uri.path(), parts.uri.query())?;
    let content = content(registry, parts, page).await.unwrap_or_else(|error| {
        tracing::error!("cannot show a page: {error}");
        Content::problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Not shown",
            "The registry cannot read its records; its log says why.",
        )
    });
    Some(response(content))
}

async fn content(registry: &Registry, parts: &Parts, page: Page) -> Result<Content, StoreError> {
    let store = &registry.store;
    match page {
        Page::Style => Ok(of_file("text/css; charset=utf-8", STYLE)),
        Page::Script => Ok(of_file("text/javascript; charset=utf-8", SCRIPT)),
        Page::Repositories { search, after } => {
            if let Err(refusal) = registry.guard.check(parts, &[]).await {
                return Ok(refused(refusal));
            }
            let may_read = |name: String| async move { may_pull(registry, parts, &name).await }.boxed();
            let view = gather::repositories(store, &search, after.as_deref(), may_read).await?;
            Ok(Content::html(html::repositories(&view)))
        }
        Page::Repository { name, after } => {
            let Ok(name) = name.parse::<RepositoryName>() else {
                return Ok(Content::missing());
            };
            if let Some(refused) = refusal(registry, parts, &name).await {
                return Ok(refused);
            }
            let view = gather::repository(store, host(parts), &name, after.as_deref()).await?;
            Ok(view.map_or_else(Content::missing, |view| Content::html(html::repository(&view))))
        }
        Page::Image { name, digest } => {
            let (Ok(name), Ok(digest)) = (name.parse::<RepositoryName>(), digest.parse::<Digest>()) else {
                return Ok(Content::missing());
            };
            if let Some(refused) = refusal(registry, parts, &name).await {
                return Ok(refused);
            }
            let view = gather::image(store, host(parts), &name, &digest).await?;
            Ok(view.map_or_else(Content::missing, |view| Content::html(html::image(&view))))
        }
        Page::Activity => Ok(activity(registry, parts).await),
    }
}

/// Requests about repositories that the caller may pull from, and those about none for who may list all repositories.
async fn activity(registry: &Registry, parts: &Parts) -> Content {
    let catalog = Need {
        repository: String::new(),
        action: Action::Catalog,
    };
    if let Err(refusal) = registry.guard.check(parts, &[catalog]).await {
        return refused(refusal);
    }
    let (errors, slow) = registry.activity.all();
    let mut seen = [Vec::new(), Vec::new()];
    for (list, seen) in [errors, slow].into_iter().zip(&mut seen) {
        for entry in list {
            let is_seen = match &entry.repository {
                Some(name) => may_pull(registry, parts, name).await,
                None => true,
            };
            if is_seen {
                seen.push(entry);
            }
        }
    }
    let [errors, slow] = &seen;
    Content::html(html::activity(errors, slow))
}

async fn may_pull(registry: &Registry, parts: &Parts, name: &str) -> bool {
    registry.guard.check(parts, &[pull(name)]).await.is_ok()
}

fn pull(name: &str) -> Need {
    Need {
        repository: name.to_owned(),
        action: Action::Pull,
    }
}

/// The answer to who may not pull from a repository. Who is known and may not learns nothing of what is there.
async fn refusal(registry: &Registry, parts: &Parts, name: &RepositoryName) -> Option<Content> {
    let refusal = registry.guard.check(parts, &[pull(name.as_str())]).await.err()?;
    Some(refused(refusal))
}

fn refused(refusal: Refusal) -> Content {
    match refusal {
        Refusal::Unauthorized { challenge, detail } => Content {
            challenge: Some(challenge),
            ..Content::problem(StatusCode::UNAUTHORIZED, "Log in", &detail)
        },
        Refusal::Denied { .. } => Content::missing(),
        Refusal::Unavailable { detail, .. } => {
            Content::problem(StatusCode::SERVICE_UNAVAILABLE, "Not now", &detail)
        }
    }
}

fn of_file(media_type: &'static str, text: &str) -> Content {
    Content {
        media_type,
        ..Content::html(text.to_owned())
    }
}

/// The name by which the client reaches this registry.
fn host(parts: &Parts) -> &str {
    let header = || parts.headers.get(HOST)?.to_str().ok();
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    authority.or_else(header).unwrap_or("HOST:PORT")
}

fn response(content: Content) -> Response<AnswerBody> {
    let bytes = Bytes::from(content.text);
    let length = HeaderValue::from(bytes.len());
    let mut response = Response::new(body::full(bytes));
    *response.status_mut() = content.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content.media_type));
    let is_page = content.media_type == HTML;
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("cache-control", if is_page { "no-store" } else { KEEP }),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(challenge) = content.challenge.and_then(|text| text.parse().ok()) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
