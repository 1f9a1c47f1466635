//! From a request for a page to its answer: rights, then what is in the store, then HTML.

use bytes::Bytes;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use xebec_access::{Action, Caller, Need, Refusal};
use xebec_dedup::Restorer;
use xebec_store::{Digest, RepositoryName, StoreError};

use super::gather::{self, Place};
use super::view::{Space, Visitor};
use super::{CONTENT_SECURITY_POLICY, ICON, Page, SCRIPT, STYLE, html};
use crate::body::{self, AnswerBody};
use crate::state::Registry;

const HTML: &str = "text/html; charset=utf-8";
/// How long browsers keep style and script, in seconds.
const KEEP: &str = "max-age=3600";

/// Manifests are looked at for a page.
const MEMORY: u64 = 8 << 20;

/// The content of an answer: a status, a media type, and the text.
struct Content {
    status: StatusCode,
    media_type: &'static str,
    text: String,
    header: Option<(HeaderName, String)>,
}

impl Content {
    fn html(text: String) -> Self {
        Self {
            status: StatusCode::OK,
            media_type: HTML,
            text,
            header: None,
        }
    }

    fn problem(status: StatusCode, who: &Visitor, heading: &str, sentence: &str) -> Self {
        Self {
            status,
            ..Self::html(html::problem(who, heading, sentence))
        }
    }

    fn missing(who: &Visitor) -> Self {
        Self::problem(
            StatusCode::NOT_FOUND,
            who,
            "Not found",
            "No repository or image of this name is here, or you may not see it.",
        )
    }

    fn of_file(media_type: &'static str, text: &str) -> Self {
        Self {
            media_type,
            ..Self::html(text.to_owned())
        }
    }
}

/// The page that a request asks for. `None` when it asks for something else.
pub async fn answer(registry: &Registry, parts: &Parts) -> Option<Response<AnswerBody>> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return None;
    }
    let page = Page::parse(parts.uri.path(), parts.uri.query())?;
    Some(response(content(registry, parts, page).await))
}

async fn content(registry: &Registry, parts: &Parts, page: Page) -> Content {
    match page {
        Page::Style => return Content::of_file("text/css; charset=utf-8", STYLE),
        Page::Script => return Content::of_file("text/javascript; charset=utf-8", SCRIPT),
        Page::Icon => return Content::of_file("image/svg+xml", ICON),
        _ => {}
    }
    if let Some(refusal) = registry.mode.now().refusal(false) {
        let nobody = Visitor::default();
        return Content::problem(
            StatusCode::SERVICE_UNAVAILABLE,
            &nobody,
            "Not now",
            &refusal.detail,
        );
    }
    let Ok(_room) = registry.memory.room(parts, MEMORY).await else {
        let sentence = "So many manifests are on their way that there is no memory for a page; try again.";
        let nobody = Visitor::default();
        return Content::problem(StatusCode::SERVICE_UNAVAILABLE, &nobody, "Not now", sentence);
    };
    let asking = match Asking::new(registry, parts).await {
        Ok(asking) => asking,
        Err(refusal) => return refused(registry, &Visitor::default(), refusal),
    };
    asking.content(page).await.unwrap_or_else(|error| {
        tracing::error!("cannot show a page: {error}");
        Content::problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            &asking.who,
            "Not shown",
            "The registry cannot read its records; its log says why.",
        )
    })
}

/// A request of a visitor, who may be anonymous where that is allowed.
struct Asking<'a> {
    registry: &'a Registry,
    parts: &'a Parts,
    caller: Caller,
    who: Visitor,
}

impl<'a> Asking<'a> {
    async fn new(registry: &'a Registry, parts: &'a Parts) -> Result<Self, Refusal> {
        let caller = registry.guard.visitor(parts).await?;
        let who = Visitor {
            name: caller.name.clone(),
            can_log_in: registry.guard.challenge_for_browsers().is_some(),
            administers: registry.guard.may(&caller, &of_all(Action::Administer)),
        };
        Ok(Self {
            registry,
            parts,
            caller,
            who,
        })
    }

    async fn content(&self, page: Page) -> Result<Content, StoreError> {
        let (store, who) = (&self.registry.store, &self.who);
        match page {
            Page::Repositories { search, after } => self.repositories(&search, after.as_deref()).await,
            Page::Repository { name, search, after } => {
                let name = match self.readable(&name).await {
                    Ok(name) => name,
                    Err(refused) => return Ok(refused),
                };
                let view =
                    gather::repository(store, self.place(&name), &name, &search, after.as_deref()).await?;
                Ok(view.map_or_else(
                    || Content::missing(who),
                    |view| Content::html(html::repository(who, &view)),
                ))
            }
            Page::Image { name, digest } => {
                let name = match self.readable(&name).await {
                    Ok(name) => name,
                    Err(refused) => return Ok(refused),
                };
                let Ok(digest) = digest.parse::<Digest>() else {
                    return Ok(Content::missing(who));
                };
                let view = gather::image(store, self.place(&name), &name, &digest).await?;
                Ok(view.map_or_else(
                    || Content::missing(who),
                    |view| Content::html(html::image(who, &view)),
                ))
            }
            Page::Login => Ok(self.login()),
            Page::Activity => Ok(self.activity().await),
            Page::Space => self.space().await,
            Page::Style | Page::Script | Page::Icon => Ok(Content::missing(who)),
        }
    }

    /// A link to a place that this registry does not know, an old one perhaps, leads to the first page.
    async fn repositories(&self, search: &str, after: Option<&str>) -> Result<Content, StoreError> {
        let (store, guard) = (&self.registry.store, &self.registry.guard);
        let may_read = |name: &str| guard.may(&self.caller, &pull(name));
        let after = after.and_then(|place| guard.name_at(place));
        let look_at = self.registry.settings.looked_at;
        let found = gather::repositories(store, search, after.as_deref(), look_at, may_read).await?;
        let (mut view, next) = found;
        let next = next.map(|name| self.registry.place_after(&name, may_read));
        view.next = next.transpose()?;
        Ok(Content::html(html::repositories(&self.who, &view)))
    }

    fn place(&self, name: &RepositoryName) -> Place<'a> {
        let upstream = self.registry.upstreams.of(name);
        Place {
            host: host(self.parts),
            upstream: upstream.map(|upstream| upstream.registry()),
        }
    }

    /// The repository of this name, if the caller may pull from it. A caller without that right learns nothing of what is there.
    async fn readable(&self, name: &str) -> Result<RepositoryName, Content> {
        let name: RepositoryName = name.parse().map_err(|_| Content::missing(&self.who))?;
        let checked = self
            .registry
            .guard
            .check(self.parts, &[pull(name.as_str())])
            .await;
        match checked {
            Ok(_) => Ok(name),
            Err(refusal) => Err(refused(self.registry, &self.who, refusal)),
        }
    }

    /// The answer by which a browser asks for a name and a password, if its user has not logged in and can.
    fn logs_in(&self) -> Option<Content> {
        let challenge = self.registry.guard.challenge_for_browsers()?;
        let detail = "log in with the name and the password of your account".to_owned();
        let refusal = Refusal::Unauthorized { challenge, detail };
        let is_known = self.who.name.is_some();
        (!is_known).then(|| refused(self.registry, &self.who, refusal))
    }

    /// Asks a visitor who has not logged in for a login, and leads any other one to the first page.
    fn login(&self) -> Content {
        self.logs_in().unwrap_or_else(|| Content {
            status: StatusCode::SEE_OTHER,
            header: Some((LOCATION, "/".to_owned())),
            ..Content::html(String::new())
        })
    }

    /// Requests about repositories that the caller may pull from, for callers that may list repositories. Paths of other requests may
    /// name anything: they are for administrators.
    async fn activity(&self) -> Content {
        let guard = &self.registry.guard;
        if let Some(asking) = self.logs_in() {
            return asking;
        }
        if let Err(refusal) = guard.check(self.parts, &[of_all(Action::Catalog)]).await {
            return refused(self.registry, &self.who, refusal);
        }
        let (mut errors, mut slow) = self.registry.activity.all();
        for list in [&mut errors, &mut slow] {
            list.retain(|entry| match &entry.repository {
                Some(name) => guard.may(&self.caller, &pull(name)),
                None => self.who.administers,
            });
        }
        Content::html(html::activity(&self.who, &errors, &slow))
    }

    /// The room that everything takes up, for administrators: sums say something of repositories that others may not see.
    async fn space(&self) -> Result<Content, StoreError> {
        if let Some(asking) = self.logs_in() {
            return Ok(asking);
        }
        if !self.who.administers {
            return Ok(Content::missing(&self.who));
        }
        let view = Space {
            room: self.registry.store.space_of_late().await?,
            deduplicates: self.registry.deduplicates,
            restoring: self.registry.restorer.as_ref().map(Restorer::figures),
        };
        Ok(Content::html(html::space(&self.who, &view)))
    }
}

/// What concerns no repository by itself.
fn of_all(action: Action) -> Need {
    Need {
        repository: String::new(),
        action,
    }
}

fn pull(name: &str) -> Need {
    Need {
        repository: name.to_owned(),
        action: Action::Pull,
    }
}

/// Browsers log in with a name and a password, also where other clients are sent for a token.
fn refused(registry: &Registry, who: &Visitor, refusal: Refusal) -> Content {
    match refusal {
        Refusal::Unauthorized { challenge, detail } => {
            let challenge = registry.guard.challenge_for_browsers().unwrap_or(challenge);
            Content {
                header: Some((WWW_AUTHENTICATE, challenge)),
                ..Content::problem(StatusCode::UNAUTHORIZED, who, "Log in", &detail)
            }
        }
        Refusal::Denied { .. } => Content::missing(who),
        Refusal::Unavailable { detail, .. } => {
            Content::problem(StatusCode::SERVICE_UNAVAILABLE, who, "Not now", &detail)
        }
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
    if let Some((name, text)) = content.header
        && let Ok(value) = HeaderValue::try_from(text)
    {
        headers.insert(name, value);
    }
    response
}
