//! Artifacts that refer to an image: found, and attached.
//!
//! The referrers API of distribution spec 1.1 is asked first. A registry without it (GHCR, older ones) keeps
//! the list as an ordinary index under the tag `sha256-<hex>`, which clients have to maintain themselves
//! ("Referrers Tag Schema"). Tags know no compare-and-swap, so two writers can lose each other's entry: after
//! writing, the list is read again, and written again if the entry is gone.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LINK};
use reqwest::{Method, Url};
use xebec_format::digest::Digest;

use super::{Client, PushedManifest};
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object};
use crate::manifest::{Descriptor, ImageManifest, Index, MAX_INDEX_ENTRIES, MAX_MANIFEST_SIZE, Manifest};
use crate::media_type::{OCI_INDEX, OCI_MANIFEST, without_parameters};
use crate::reference::Repository;
use crate::transport::headers::next_link;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Place};

/// Most pages of one list that are read.
const MAX_PAGES: usize = 64;
/// Times that a list under a fallback tag is written until the entry stays in it.
const TAG_WRITES: u32 = 8;
/// Longest pause before a list is written again; drawn evenly between zero and this times the tries so far.
const TAG_PAUSE: Duration = Duration::from_millis(150);

impl Client {
    /// What refers to `subject`, of one artifact type or of all. No list is an empty list.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be had.
    pub async fn referrers(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        let target = self.target(repository, Object::Referrers(*subject));
        // The list is not named by a digest, so only mirrors that may resolve tags are asked.
        let mut course = self.course(target, false);
        let listed = loop {
            let endpoint = course.endpoint();
            match course
                .limit(self.referrers_once(&endpoint, repository, subject, artifact_type))
                .await
            {
                Ok(listed) => break listed,
                Err(fault) => course.failed(fault).await?,
            }
        };
        let mut entries = match listed {
            Some(entries) => entries,
            None => self.tag_list(repository, subject).await?.manifests,
        };
        entries.retain(|entry| {
            artifact_type.is_none_or(|wanted| entry.artifact_type.as_deref() == Some(wanted))
        });
        Ok(entries)
    }

    /// Asks the API of one endpoint; `None` if it has none.
    async fn referrers_once(
        &self,
        endpoint: &Endpoint,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Option<Vec<Descriptor>>, Fault> {
        if endpoint.server.has_referrers.get() == Some(false) {
            return Ok(None);
        }
        let mut query = String::new();
        if let Some(wanted) = artifact_type {
            query = format!("?artifactType={}", encode_query(wanted));
        }
        let mut place = Place::Path(format!("{}/referrers/{subject}{query}", repository.name()));
        let mut entries: Vec<Descriptor> = Vec::new();
        for _ in 0..MAX_PAGES {
            let ask = Ask::new(Method::GET, place, Scope::pull(repository.name())).header(ACCEPT, OCI_INDEX);
            let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
            // Registries without the API say so in many ways: not found, or their web page.
            let content_type = answer.header(CONTENT_TYPE.as_str()).map(without_parameters);
            match answer.status().as_u16() {
                200 if content_type == Some(OCI_INDEX) => {}
                200 | 400 | 404 | 405 | 406 | 501 if entries.is_empty() => {
                    // A repository that does not exist is "not found" too: that is no fact about the registry.
                    if answer.status() != 404 {
                        endpoint.server.has_referrers.set(false);
                    }
                    answer.discard().await;
                    return Ok(None);
                }
                _ => return Err(answer.into_fault().await),
            }
            let next = answer
                .header(LINK.as_str())
                .and_then(next_link)
                .map(|link| answer.url().join(link));
            let here = answer.url().clone();
            let page: Index = serde_json::from_slice(&answer.body(MAX_MANIFEST_SIZE).await?)
                .map_err(|error| Fault::Protocol(format!("the list of referrers cannot be read: {error}")))?;
            entries.extend(page.manifests);
            if entries.len() > MAX_INDEX_ENTRIES {
                return Err(Fault::Protocol(format!(
                    "more than {MAX_INDEX_ENTRIES} referrers"
                )));
            }
            endpoint.server.has_referrers.set(true);
            place = match next {
                None => return Ok(Some(entries)),
                Some(Ok(next)) if same_origin(&next, &here) => Place::Url(next),
                Some(_) => {
                    return Err(Fault::Protocol(
                        "the next page of referrers is elsewhere".to_owned(),
                    ));
                }
            };
        }
        Err(Fault::Protocol(format!(
            "more than {MAX_PAGES} pages of referrers"
        )))
    }

    /// The list under the fallback tag; empty if there is none.
    async fn tag_list(&self, repository: &Repository, subject: &Digest) -> Result<Index, ClientError> {
        let tag = fallback_tag(subject);
        match self.manifest(repository, &tag, &[OCI_INDEX]).await {
            Err(ClientError::NotFound { .. }) => Ok(Index::of(Vec::new())),
            Err(error) => Err(error),
            Ok(fetched) => match fetched.parse() {
                Ok(Manifest::Index(index)) => Ok(*index),
                // cosign keeps its signatures under tags that begin the same way; a manifest is no list.
                Ok(Manifest::Image(_)) => Ok(Index::of(Vec::new())),
                Err(source) => {
                    let target = Box::new(self.target(repository, Object::Manifest(tag)));
                    Err(ClientError::Manifest { target, source })
                }
            },
        }
    }

    /// Pushes `artifact`, whose `subject` is what it refers to, so that [`Client::referrers`] finds it. Its
    /// config and blobs must be there already.
    ///
    /// # Errors
    /// If the registry does not take it, or other writers keep removing it from the list.
    pub async fn attach(
        &self,
        repository: &Repository,
        artifact: &ImageManifest,
    ) -> Result<PushedManifest, ClientError> {
        let bytes = serde_json::to_vec(artifact).map_err(|error| ClientError::Config(error.to_string()))?;
        let digest = Digest::of(&bytes);
        let media_type = artifact.media_type.as_deref().unwrap_or(OCI_MANIFEST);
        let mut entry = Descriptor::of(media_type, &bytes);
        entry.artifact_type = artifact
            .artifact_type
            .clone()
            .or(Some(artifact.config.media_type.clone()));
        entry.annotations.clone_from(&artifact.annotations);
        let pushed = self
            .push_manifest(repository, &digest.to_string(), media_type, Bytes::from(bytes))
            .await?;
        if let Some(subject) = artifact.subject.as_ref().filter(|_| !pushed.subject_noted) {
            self.list_under_tag(repository, &subject.digest, entry).await?;
        }
        Ok(pushed)
    }

    /// Adds `entry` to the list under the fallback tag, until it stays there.
    async fn list_under_tag(
        &self,
        repository: &Repository,
        subject: &Digest,
        entry: Descriptor,
    ) -> Result<(), ClientError> {
        let tag = fallback_tag(subject);
        for round in 1..=TAG_WRITES {
            let mut list = self.tag_list(repository, subject).await?;
            if list.manifests.iter().any(|known| known.digest == entry.digest) {
                return Ok(());
            }
            list.manifests.push(entry.clone());
            let bytes = serde_json::to_vec(&list).map_err(|error| ClientError::Config(error.to_string()))?;
            self.push_manifest(repository, &tag, OCI_INDEX, Bytes::from(bytes))
                .await?;
            // Let a writer who read the same list finish, so that the check below sees who won.
            tokio::time::sleep((TAG_PAUSE * round).mul_f64(fastrand::f64())).await;
        }
        let list = self.tag_list(repository, subject).await?;
        if list.manifests.iter().any(|known| known.digest == entry.digest) {
            return Ok(());
        }
        let target = self.target(repository, Object::ManifestUpload(tag));
        let cause = Fault::Protocol("other writers keep overwriting the list of referrers".to_owned());
        Err(ClientError::Failed {
            target: Box::new(target),
            attempts: TAG_WRITES,
            cause,
        })
    }
}

/// `sha256-<hex>` (distribution spec 1.1, "Referrers Tag Schema").
fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

fn same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// A value for a query: everything but letters, digits and a few harmless signs is escaped.
fn encode_query(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/');
    text.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let subject = Digest::of(b"abc");
        assert_eq!(fallback_tag(&subject).len(), "sha256-".len() + 64);
        assert_eq!(
            encode_query("application/vnd.x+json; a"),
            "application/vnd.x%2Bjson%3B%20a"
        );
        let url = |text: &str| text.parse::<Url>().unwrap();
        assert!(same_origin(&url("https://a/x"), &url("https://a:443/y")));
        assert!(!same_origin(&url("https://a/x"), &url("http://a/x")));
    }
}
