//! The tag `sha256-HEX` under which clients that do not know the referrers API look for what refers to a manifest.
//!
//! It is kept in step by being made anew for each request, from the same records as the referrers API, so that neither pushes nor
//! deletes by other clients can leave it behind. A tag that a client has pushed itself is answered as it was pushed while it lists all
//! that is there.

use std::collections::BTreeSet;

use serde::Deserialize;
use xebec_store::{Digest, Manifest, RepositoryName, Tag};

use super::call::Call;
use super::failure;
use super::referrers::Index;
use crate::error::ApiError;

/// Clients take a manifest of up to 4 MiB; a list ends before.
const MOST_BYTES: usize = 3 << 20;
const CUT: &str = "more refers to this than such a list has room for; use a client that knows the referrers API, which lists all";

/// The manifest whose referrers a tag lists, if it is such a tag.
pub(crate) async fn subject(
    call: &Call<'_>,
    repository: &RepositoryName,
    tag: &Tag,
) -> Result<Option<Digest>, ApiError> {
    let Some(beginning) = beginning(tag) else {
        return Ok(None);
    };
    if let Ok(digest) = beginning.parse() {
        return Ok(Some(digest));
    }
    let store = &call.registry.store;
    let found = store.subject_beginning(repository, &beginning).await;
    found.map_err(|error| failure::of("looking up what is referred to", &error))
}

/// The digest that such a tag is made of, or the half of it that the specification keeps of a `sha512`.
fn beginning(tag: &Tag) -> Option<String> {
    let (algorithm, digits) = tag.as_str().split_once('-')?;
    let is_half = digits.len() == 64
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (matches!(algorithm, "sha256" | "sha512") && is_half).then(|| format!("{algorithm}:{digits}"))
}

/// The list, if what is `stored` under the tag is not it, and what a client is told of it. A list of more than fits into a manifest is
/// cut, unless a client has stored one of its own.
pub(crate) async fn listing(
    call: &Call<'_>,
    repository: &RepositoryName,
    subject: &Digest,
    stored: Option<&Manifest>,
) -> Result<Option<(Vec<u8>, Option<&'static str>)>, ApiError> {
    let store = &call.registry.store;
    let found = store.referrers_within(repository, subject, MOST_BYTES).await;
    let found = found.map_err(|error| failure::of("listing referrers", &error))?;
    let (found, more) = (found.items, found.next);
    let recorded = found.iter().map(|item| item.digest.to_string()).collect();
    let is_it = |stored: &Manifest| listed(&stored.content).is_some_and(|own| more || own == recorded);
    if found.is_empty() || stored.is_some_and(is_it) {
        return Ok(None);
    }
    let content = serde_json::to_vec(&Index::of(found)).ok();
    Ok(content.map(|content| (content, more.then_some(CUT))))
}

/// The digests that an index lists.
fn listed(content: &[u8]) -> Option<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Listed {
        manifests: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        digest: String,
    }
    let listed: Listed = serde_json::from_slice(content).ok()?;
    Some(listed.manifests.into_iter().map(|entry| entry.digest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_tags_name_a_manifest() {
        let digits = "a".repeat(64);
        let tag = |text: &str| text.parse::<Tag>().unwrap();
        for algorithm in ["sha256", "sha512"] {
            let found = beginning(&tag(&format!("{algorithm}-{digits}")));
            assert_eq!(found, Some(format!("{algorithm}:{digits}")));
        }
        for other in [
            "latest",
            "sha256-abc",
            &format!("sha256-{digits}.sig"),
            &format!("sha384-{digits}"),
        ] {
            assert_eq!(beginning(&tag(other)), None, "{other}");
        }
    }

    #[test]
    fn an_index_lists_digests() {
        let content = br#"{"manifests": [{"digest": "b"}, {"digest": "a", "size": 1}]}"#;
        assert_eq!(
            listed(content),
            Some(BTreeSet::from(["a".to_owned(), "b".to_owned()]))
        );
        assert_eq!(listed(b"{}"), None);
    }
}
