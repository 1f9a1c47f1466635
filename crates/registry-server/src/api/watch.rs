//! `/v2/NAME/_xebec/watch/changes`: what changes in a repository, as it happens (docs/formats/native-service.md).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use tokio::time::Instant;
use xebec_access::Peer;
use xebec_native::watch::{Change, HEARTBEAT, MAX_TAGS, TYPE};
use xebec_store::{RepositoryName, Tag};

use super::call::{Call, Outcome};
use super::reply;
use crate::body;
use crate::error::{ApiError, Code};
use crate::watchers::{NoWatch, Watch};

/// When nothing changes, this often something comes all the same.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// A watch ends after this, so that the caller's rights are looked at anew.
const LIFE: Duration = Duration::from_secs(10 * 60);
/// A client with too many watches may try again after this, in seconds.
const AGAIN: &str = "300";
/// Proxies that collect an answer before they pass it on are asked not to.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Begins a watch.
pub(crate) fn answer(call: &Call<'_>, repository: &RepositoryName) -> Outcome {
    let peer = call.parts.extensions.get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    let watch = call.registry.watchers.watch(repository, peer);
    let watch = watch.map_err(|why| refusal(call, &why))?;
    let answer = Response::new(body::endless(events(watch)));
    let answer = reply::with(answer, CONTENT_TYPE, TYPE);
    let answer = reply::with(answer, CACHE_CONTROL, "no-store");
    Ok(reply::with(answer, NO_BUFFERING, "no"))
}

fn refusal(call: &Call<'_>, why: &NoWatch) -> ApiError {
    let counted = match why {
        NoWatch::Ending => {
            let detail = "the registry is about to end; try again when it is back";
            return ApiError::new(Code::Unavailable, detail);
        }
        NoWatch::TooManyOfOne => "watches_of_one_client",
        NoWatch::TooMany => "watches",
    };
    call.registry.metrics.refused(counted);
    let detail =
        "so many watches are under way that there is no place for another one; ask now and then instead";
    ApiError::new(Code::TooManyRequests, detail).with_header(RETRY_AFTER, AGAIN)
}

/// The events of a watch, with something at once and whenever nothing has changed for a while.
fn events(watch: Watch) -> impl stream::Stream<Item = io::Result<Bytes>> + Send {
    let end = Instant::now() + LIFE;
    stream::unfold((watch, true), move |(mut watch, is_first)| async move {
        if is_first {
            return Some((Ok(Bytes::from_static(HEARTBEAT.as_bytes())), (watch, false)));
        }
        let event = tokio::select! {
            biased;
            () = tokio::time::sleep_until(end) => return None,
            change = watch.next() => Bytes::from(change?.encode()),
            () = tokio::time::sleep(HEARTBEAT_EVERY) => Bytes::from_static(HEARTBEAT.as_bytes()),
        };
        Some((Ok(event), (watch, false)))
    })
}

/// Tells those who watch the repository of a manifest that was pushed.
pub(crate) fn pushed(
    call: &Call<'_>,
    repository: &RepositoryName,
    digest: &xebec_store::Digest,
    tags: &[Tag],
    subject: Option<&xebec_store::Digest>,
) {
    let watchers = &call.registry.watchers;
    if let Some(subject) = subject {
        watchers.referred(repository, subject);
    }
    let Ok(digest) = digest.to_string().parse() else {
        return;
    };
    for tags in tags.chunks(MAX_TAGS) {
        let tags = tags.iter().map(Tag::to_string).collect();
        watchers.tell(repository, Change::Tagged { tags, digest });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::watchers::Watchers;

    #[tokio::test(start_paused = true)]
    async fn a_watch_gives_signs_of_life_and_ends() {
        let (watchers, repository) = (Watchers::default(), "a".parse().unwrap());
        let watch = watchers
            .watch(&repository, IpAddr::V4(Ipv4Addr::LOCALHOST))
            .unwrap();
        let begun = Instant::now();
        let mut events = Box::pin(events(watch));
        assert_eq!(events.next().await.unwrap().unwrap(), HEARTBEAT);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        watchers.tell(&repository, Change::Missed);
        assert_eq!(events.next().await.unwrap().unwrap(), Change::Missed.encode());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(events.next().await.unwrap().unwrap(), HEARTBEAT);
        assert!(begun.elapsed() >= HEARTBEAT_EVERY);
        while events.next().await.is_some() {}
        assert!(begun.elapsed() >= LIFE && begun.elapsed() <= LIFE + HEARTBEAT_EVERY);
    }
}
