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
use crate::request::MAX_PAGE;

/// The manifest whose referrers a tag lists, if it is such a tag. The specification cuts digits of `sha512` off, so that its digests
/// cannot be had back.
pub(crate) fn subject(tag: &Tag) -> Option<Digest> {
    let digits = tag.as_str().strip_prefix("sha256-")?;
    format!("sha256:{digits}").parse().ok()
}

/// The list, if what is `stored` under the tag is not it.
pub(crate) async fn listing(
    call: &Call<'_>,
    repository: &RepositoryName,
    subject: &Digest,
    stored: Option<&Manifest>,
) -> Result<Option<Vec<u8>>, ApiError> {
    let store = &call.registry.store;
    let page = store.referrers(repository, subject, None, MAX_PAGE, None).await;
    let page = page.map_err(|error| failure::of("listing referrers", &error))?;
    let recorded = page.items.iter().map(|item| item.digest.to_string()).collect();
    if stored.is_some_and(|manifest| listed(&manifest.content) == Some(recorded)) {
        return Ok(None);
    }
    match page.items.is_empty() {
        true => Ok(None),
        false => Ok(serde_json::to_vec(&Index::of(page.items)).ok()),
    }
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
        assert_eq!(
            subject(&tag(&format!("sha256-{digits}"))).unwrap().to_string(),
            format!("sha256:{digits}")
        );
        for other in [
            "latest",
            "sha256-abc",
            &format!("sha256-{digits}.sig"),
            &format!("sha512-{digits}"),
        ] {
            assert_eq!(subject(&tag(other)), None, "{other}");
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
