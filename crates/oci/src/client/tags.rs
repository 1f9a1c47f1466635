//! The tags that a repository offers in place of one that it does not have.

use std::time::Duration;

use reqwest::header::LINK;
use serde::Deserialize;

use super::Client;
use crate::auth::Scope;
use crate::error::{ClientError, Fault};
use crate::reference::Repository;
use crate::transport::Ask;
use crate::transport::headers::next_link;
use crate::transport::registry::Endpoint;

/// How long a registry may take to list tags: the user waits for an error.
const TIME: Duration = Duration::from_secs(3);
/// Tags that are asked for. Registries list them by name, and few repositories have more.
const ASKED: usize = 1000;
/// Longest list: a thousand tags of 128 bytes, and room for more than was asked for.
const MAX_LIST: u64 = 1 << 20;
/// Tags that a message names.
const NAMED: usize = 5;
/// Longest tag (distribution specification).
const MAX_TAG: usize = 128;

/// The tag list of a repository, as the registry sends it.
#[derive(Debug, Default, Deserialize)]
struct TagList {
    /// Some registries say `null` for none.
    tags: Option<Vec<String>>,
}

impl Client {
    /// The error for a tag that is not there: which tags are, or that there is no such repository. `error` itself if the registry
    /// does not say.
    pub(super) async fn explain_missing_tag(
        &self,
        repository: &Repository,
        tag: &str,
        error: ClientError,
    ) -> ClientError {
        let endpoint = self.transport.servers.origin(repository.registry());
        let listed = tokio::time::timeout(TIME, self.tags_once(&endpoint, repository)).await;
        let text = repository.to_string();
        match listed {
            Ok(Ok((tags, is_all))) => ClientError::NoTag {
                repository: text,
                tag: tag.to_owned(),
                offered: offer(tag, tags, is_all),
            },
            Ok(Err(Fault::Status {
                code: 404, message, ..
            })) if message.starts_with("NAME_UNKNOWN") => ClientError::NoRepository { repository: text },
            _ => error,
        }
    }

    /// The tags of a repository, and whether these are all of them.
    async fn tags_once(
        &self,
        endpoint: &Endpoint,
        repository: &Repository,
    ) -> Result<(Vec<String>, bool), Fault> {
        let path = format!("{}/tags/list?n={ASKED}", repository.name());
        let ask = Ask::get(path, Scope::pull(repository.name()));
        let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
        if answer.status() != 200 {
            return Err(answer.into_fault().await);
        }
        let is_all = answer.header(LINK.as_str()).and_then(next_link).is_none();
        let list = read_list(&answer.body(MAX_LIST).await?)
            .map_err(|error| Fault::Protocol(format!("the list of tags cannot be read: {error}")))?;
        Ok((list, is_all))
    }
}

/// The tags that the answer to a request for them lists.
pub(crate) fn read_list(body: &[u8]) -> serde_json::Result<Vec<String>> {
    let list: TagList = serde_json::from_slice(body)?;
    Ok(list.tags.unwrap_or_default())
}

/// The tags that are most like the one that was asked for, in words.
pub(crate) fn offer(wanted: &str, mut tags: Vec<String>, is_all: bool) -> String {
    // They are shown on a terminal.
    tags.retain(|tag| {
        !tag.is_empty() && tag.len() <= MAX_TAG && tag.bytes().all(|byte| byte.is_ascii_graphic())
    });
    // Tags that hold lists of referrers and signatures are no images that a user looks for.
    tags.retain(|tag| !tag.starts_with("sha256-"));
    if tags.is_empty() {
        return "it has no tags".to_owned();
    }
    tags.sort_by_cached_key(|tag| (likeness(wanted, tag), std::cmp::Reverse(tag.clone())));
    let named: Vec<&str> = tags.iter().take(NAMED).map(String::as_str).collect();
    let (list, others) = (named.join(", "), tags.len() - named.len());
    match (others, is_all) {
        (0, true) => format!("it has: {list}"),
        (others, true) => format!("it has: {list} (and {others} more)"),
        (_, false) => format!("it has: {list}, and many others"),
    }
}

/// How far a tag is from the one that was asked for; the smallest is the most like it.
fn likeness(wanted: &str, tag: &str) -> (bool, usize) {
    let (wanted, tag) = (wanted.to_ascii_lowercase(), tag.to_ascii_lowercase());
    let begins = tag.starts_with(&wanted) || wanted.starts_with(&tag);
    (!begins, distance(wanted.as_bytes(), tag.as_bytes()))
}

/// Bytes that must be put in, left out or changed to make one of the other (Levenshtein).
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, byte) in one.iter().enumerate() {
        let mut diagonal = above;
        let mut left = above + 1;
        let mut next = vec![left];
        for (column, candidate) in other.iter().enumerate() {
            let up = row.get(column + 1).copied().unwrap_or(usize::MAX);
            let changed = diagonal + usize::from(byte != candidate);
            left = changed.min(up.saturating_add(1)).min(left + 1);
            diagonal = up;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(one.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn distances() {
        for (one, other, wanted) in [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3)] {
            assert_eq!(
                distance(one.as_bytes(), other.as_bytes()),
                wanted,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn the_closest_come_first() {
        let all = [
            "1.27",
            "1.27.3-alpine",
            "1.26",
            "latest",
            "mainline",
            "stable",
            "1.27-perl",
        ];
        assert_eq!(
            offer("1", tags(&all), true),
            "it has: 1.27, 1.26, 1.27-perl, 1.27.3-alpine, stable (and 2 more)"
        );
        assert!(offer("lastest", tags(&all), true).starts_with("it has: latest,"));
        assert_eq!(offer("2", tags(&["a", "b"]), true), "it has: b, a");
        assert_eq!(offer("2", tags(&["a"]), false), "it has: a, and many others");
        assert_eq!(offer("2", Vec::new(), true), "it has no tags");
        assert_eq!(
            offer("2", tags(&["\u{1b}[31m", "sha256-00", "ok"]), true),
            "it has: ok"
        );
    }
}
