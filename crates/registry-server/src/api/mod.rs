//! The API: from a request to its answer. [`answer`] is the way in; it knows no connections, so that tests need none.
//!
//! A request is taken apart ([`crate::route`]), its caller must have the rights that it needs ([`xebec_access`]), and then the file of its
//! endpoint carries it out. Nothing is looked up before the rights are clear.

mod blobs;
mod call;
mod failure;
mod fallback_tag;
mod lists;
mod manifests;
mod part;
mod push;
mod quota;
mod referrers;
mod reply;
mod start;
mod status;
mod through;
mod token;
mod uploads;
mod watch;

use std::borrow::Cow;

use hyper::header::ALLOW;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use xebec_access::{Action, Need};

pub use call::RequestId;
pub use reply::Answer;

use crate::body::RequestBody;
use crate::error::{ApiError, Code};
use crate::origin;
use crate::page;
use crate::request::Query;
use crate::route::Route;
use crate::state::Registry;

use call::{Call, Outcome};

/// The kind of request that an answer is for, in the answer's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Kind(pub &'static str);

/// The caller of the request, in the answer's extensions.
#[derive(Clone, Debug)]
pub struct AnsweredTo(pub Option<String>);

/// Carries a request out.
pub async fn answer(registry: &Registry, parts: &Parts, body: &mut RequestBody) -> Answer {
    if let Some(mut answer) = page::answer(registry, parts).await {
        answer.extensions_mut().insert(Kind("page"));
        return answer;
    }
    // A client may take this registry for a mirror of another one.
    let path = path_here(registry, parts);
    let (kind, outcome) = match Route::parse(&path) {
        Ok(route) => {
            let kind = route.kind();
            (kind, routed(registry, parts, body, &route).await)
        }
        Err(error) => ("none", Err(error.into())),
    };
    let mut answer = outcome.unwrap_or_else(|error| {
        tracing::debug!(code = error.code().text(), "refused");
        reply::error(&error)
    });
    mark(&mut answer, &path);
    answer.extensions_mut().insert(Kind(kind));
    answer
}

/// The path as this registry knows it. The endpoints of a registry as a whole are this one's, whichever registry a client takes it for.
fn path_here<'p>(registry: &Registry, parts: &'p Parts) -> Cow<'p, str> {
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    match Route::parse(path) {
        Ok(Route::Discovery(None)) => path.into(),
        _ => registry
            .upstreams
            .path(path, query)
            .map_or(path.into(), Cow::from),
    }
}

/// The answer to a request that is refused before it is looked at.
pub fn refusal(registry: &Registry, parts: &Parts, error: &ApiError) -> Answer {
    let mut answer = reply::error(error);
    mark(&mut answer, &path_here(registry, parts));
    answer
}

fn mark(answer: &mut Answer, path: &str) {
    if path.starts_with("/v2") {
        reply::as_registry(answer);
    }
}

async fn routed(registry: &Registry, parts: &Parts, body: &mut RequestBody, route: &Route) -> Outcome {
    if !route.allows(parts.method.as_str()) {
        let detail = format!(
            "{} is not for this endpoint; it knows {}",
            parts.method,
            route.methods()
        );
        return Err(ApiError::new(Code::Unsupported, detail).with_header(ALLOW, route.methods()));
    }
    match route {
        Route::Health => return Ok(status::health()),
        Route::Ready => return Ok(status::ready(registry).await),
        Route::Metrics => return status::metrics(registry),
        _ => {}
    }
    let writes = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    // Neither of these two writes.
    let needs_writing = writes && !matches!(route, Route::Token | Route::Start(_));
    if let Some(refusal) = registry.mode.now().refusal(needs_writing) {
        return Err(refusal.into());
    }
    if writes && origin::is_of_another_site(parts) {
        let detail = "the page of another site has a browser send this; use a client of registries";
        return Err(ApiError::new(Code::Denied, detail));
    }
    if matches!(route, Route::Token) {
        return token::answer(registry, parts, body).await;
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let query = query.ok_or_else(|| ApiError::new(Code::Unsupported, "the query is not encoded as a URL's"));
    let query = query.map_err(|error| error.with_status(StatusCode::BAD_REQUEST))?;
    let caller = registry.guard.check(parts, &needs(route, &parts.method)).await?;
    let user = caller.name.clone();
    let mut call = Call {
        registry,
        parts,
        query,
        caller,
        body,
    };
    let mut outcome = carried_out(&mut call, route).await;
    if let Ok(answer) = &mut outcome {
        answer.extensions_mut().insert(AnsweredTo(user));
    }
    outcome
}

/// The rights that a request needs.
fn needs(route: &Route, method: &Method) -> Vec<Need> {
    let (repository, action) = match route {
        Route::Catalog => (String::new(), Action::Catalog),
        Route::Uploads(repository) | Route::Upload(repository, _) | Route::Push(repository) => {
            (repository.to_string(), Action::Push)
        }
        Route::Start(repository) | Route::Watch(repository) | Route::Discovery(Some(repository)) => {
            (repository.to_string(), Action::Pull)
        }
        Route::Tags(repository)
        | Route::Manifest(repository, _)
        | Route::Blob(repository, _)
        | Route::Referrers(repository, _) => {
            let action = match *method {
                Method::GET | Method::HEAD => Action::Pull,
                Method::DELETE => Action::Delete,
                _ => Action::Push,
            };
            (repository.to_string(), action)
        }
        Route::Ping
        | Route::Discovery(None)
        | Route::Token
        | Route::Health
        | Route::Ready
        | Route::Metrics => return Vec::new(),
    };
    vec![Need { repository, action }]
}

async fn carried_out(call: &mut Call<'_>, route: &Route) -> Outcome {
    let method = &call.parts.method;
    match route {
        Route::Ping => Ok(status::ping()),
        Route::Catalog => lists::catalog(call).await,
        Route::Tags(repository) => lists::tags(call, repository).await,
        Route::Manifest(repository, reference) => match *method {
            Method::PUT => manifests::put(call, repository, reference).await,
            Method::DELETE => manifests::delete(call, repository, reference).await,
            _ => manifests::read(call, repository, reference).await,
        },
        Route::Blob(repository, digest) => match *method {
            Method::DELETE => blobs::delete(call, repository, digest).await,
            _ => blobs::read(call, repository, digest).await,
        },
        Route::Uploads(repository) => uploads::begin(call, repository).await,
        Route::Upload(repository, id) => uploads::one(call, repository, id).await,
        Route::Referrers(repository, subject) => referrers::list(call, repository, subject).await,
        Route::Start(repository) => start::answer(call, repository).await,
        Route::Watch(repository) => watch::answer(call, repository),
        Route::Push(repository) => push::answer(call, repository).await,
        Route::Discovery(_) => Ok(start::discovery()),
        // Answered before anybody is recognized.
        Route::Token | Route::Health | Route::Ready | Route::Metrics => {
            Err(ApiError::new(Code::Unsupported, "there is no such endpoint")
                .with_status(StatusCode::NOT_FOUND))
        }
    }
}
