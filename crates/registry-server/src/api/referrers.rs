//! `/v2/NAME/referrers/DIGEST`: what refers to a manifest, as an image index.

use std::collections::BTreeMap;

use hyper::header::{CACHE_CONTROL, HeaderName, LINK};
use serde::Serialize;
use xebec_store::{Digest, Referrer, RepositoryName};
use xebec_upstream::manifest::OCI_INDEX;

use super::call::{Call, Outcome};
use super::failure;
use super::reply;
use super::through;
use crate::error::{ApiError, Code};
use crate::request::{MAX_PAGE, percent_encode};

const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

/// An entry of an index.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// An index.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u32,
    media_type: &'static str,
    manifests: Vec<Entry>,
}

impl Index {
    /// An index of what refers to something.
    pub(crate) fn of(referrers: impl IntoIterator<Item = Referrer>) -> Self {
        let entry = |referrer: Referrer| Entry {
            media_type: referrer.media_type,
            digest: referrer.digest.to_string(),
            size: referrer.size,
            artifact_type: referrer.artifact_type,
            annotations: referrer.annotations,
        };
        Self {
            schema_version: 2,
            media_type: OCI_INDEX,
            manifests: referrers.into_iter().map(entry).collect(),
        }
    }
}

/// Lists what refers to a manifest, which need not be there.
pub(crate) async fn list(call: &Call<'_>, repository: &RepositoryName, subject: &Digest) -> Outcome {
    let artifact_type = call.query.get("artifactType").filter(|text| !text.is_empty());
    let after = call.query.get("last").map(str::parse::<Digest>).transpose();
    let after = after.map_err(|error| ApiError::new(Code::DigestInvalid, error.to_string()))?;
    let warning = through::referrers(call, repository, subject).await?;
    let room = call.room(call.registry.settings.max_manifest).await?;
    let page = call
        .registry
        .store
        .referrers(repository, subject, artifact_type, MAX_PAGE, after.as_ref())
        .await;
    let page = page.map_err(|error| failure::of("listing referrers", &error))?;
    // Clients take an index of up to 4 MiB: the store ends a page before.
    let last = page.items.last().filter(|_| page.next);
    let next = last.map(|last| last.digest.to_string());
    let content = serde_json::to_vec(&Index::of(page.items)).unwrap_or_default();
    let mut answer = reply::with(
        reply::bytes(OCI_INDEX, room.hold(content)),
        CACHE_CONTROL,
        "no-cache",
    );
    if let Some(warning) = warning {
        answer = reply::with_warning(answer, &warning);
    }
    if artifact_type.is_some() {
        answer = reply::with(answer, FILTERS_APPLIED, "artifactType");
    }
    if let Some(last) = next {
        let filter = artifact_type.map_or(String::new(), |text| {
            format!("artifactType={}&", percent_encode(text))
        });
        let link = format!("</v2/{repository}/referrers/{subject}?{filter}last={last}>; rel=\"next\"");
        answer = reply::with(answer, LINK, link);
    }
    Ok(answer)
}
