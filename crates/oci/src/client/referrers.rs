//! Artifacts that refer to an image: found, and attached.
//!
//! The referrers API of distribution spec 1.1 is asked first. A registry without it (GHCR, older ones) keeps
//! the list as an ordinary index under the tag `sha256-<hex>`, which clients have to maintain themselves
//! ("Referrers Tag Schema"). Tags know no compare-and-swap, so two writers can lose each other's entry: after
//! writing, the list is read again, and written again if the entry is gone.
//!
//! A registry that has no API and keeps a list is remembered ([`crate::memory`]): from then on the tag is asked first, and
//! the API only where the tag has nothing. So a registry that is wrongly remembered costs a request, and hides nothing but
//! what was attached since it has the API, for a day.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use xebec_format::digest::Digest;

use super::in_advance::answers::{Content, Wanted};
use super::{Client, PushedManifest};
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object};
use crate::manifest::{Descriptor, ImageManifest, Index, MAX_INDEX_ENTRIES, MAX_MANIFEST_SIZE, Manifest};
use crate::media_type::{OCI_INDEX, OCI_MANIFEST, without_parameters};
use crate::memory;
use crate::reference::Repository;
use crate::transport::headers::next_page;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Place};

/// Most pages of one list that are read.
const MAX_PAGES: usize = 64;
/// Times that a list under a fallback tag is written until the entry stays in it.
const TAG_WRITES: u32 = 8;
/// Longest pause before a list is written again; drawn evenly between zero and this times the tries so far.
const TAG_PAUSE: Duration = Duration::from_millis(150);

/// Codes of errors (distribution spec, "Error Codes") that do not say that the image or its repository is what is not there.
const SAY_NOTHING: [&str; 2] = ["UNSUPPORTED", "NOT_FOUND"];

/// How an answer that is no list is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The registry has no API.
    Clear,
    /// It gave none this time.
    Doubtful,
}

impl Client {
    /// The manifests that refer to `subject`, of one artifact type or of all. No list is an empty list.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn referrers(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        let in_advance = self.referrers_in_advance(repository, subject).await;
        let mut entries = match in_advance {
            Some(listed) => listed,
            None if self.lacks_referrers(repository.registry()) => {
                self.referrers_tag_first(repository, subject, artifact_type)
                    .await?
            }
            None => {
                self.referrers_api_first(repository, subject, artifact_type)
                    .await?
            }
        };
        entries.retain(|entry| {
            artifact_type.is_none_or(|wanted| entry.artifact_type.as_deref() == Some(wanted))
        });
        Ok(entries)
    }

    /// The whole list, if it came in advance.
    async fn referrers_in_advance(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Option<Vec<Descriptor>> {
        let wanted = Wanted::Referrers(subject);
        let read = |came: Content| {
            came.within(MAX_MANIFEST_SIZE)?;
            let mut entries = Vec::new();
            add_entries(&mut entries, &came.bytes).map(|()| entries)
        };
        self.in_advance(repository, wanted, read).await
    }

    /// Whether it is remembered of whom would be asked first that it has no API.
    fn lacks_referrers(&self, registry: &str) -> bool {
        let asked = self.transport.servers.readable(registry, false, false);
        let first = asked.first();
        first.is_some_and(|first| memory::lacks_referrers(&*self.transport.memory, &first.server.name()))
    }

    async fn referrers_tag_first(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        let list = self
            .tag_list(repository, subject)
            .await
            .map(|list| list.manifests);
        if list.as_ref().is_ok_and(|list| !list.is_empty()) {
            return list;
        }
        let (server, listed) = self.referrers_by_api(repository, subject, artifact_type).await?;
        match listed {
            Ok(listed) => {
                self.has_referrers(&server);
                Ok(listed)
            }
            Err(_) => list,
        }
    }

    async fn referrers_api_first(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        let (server, listed) = self.referrers_by_api(repository, subject, artifact_type).await?;
        let lack = match listed {
            Ok(listed) => {
                self.has_referrers(&server);
                return Ok(listed);
            }
            Err(lack) => lack,
        };
        let list = self.tag_list(repository, subject).await?.manifests;
        if lack == Lack::Clear && !list.is_empty() {
            self.transport.memory.saw_referrers(&server, false);
        }
        Ok(list)
    }

    /// A server has the API: that it had none is forgotten.
    fn has_referrers(&self, server: &str) {
        if self.transport.memory.lacked_referrers(server).is_some() {
            self.transport.memory.saw_referrers(server, true);
        }
    }

    /// Asks the API. Tells which server answered ([`crate::transport::registry::Server::name`]).
    pub(super) async fn referrers_by_api(
        &self,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<(String, Result<Vec<Descriptor>, Lack>), ClientError> {
        let target = self.target(repository, Object::Referrers(*subject));
        // The list is not named by a digest, so only mirrors that may resolve tags are asked.
        let mut failover = self.failover(target, false);
        loop {
            let endpoint = failover.endpoint();
            match failover
                .limit(self.referrers_once(&endpoint, repository, subject, artifact_type))
                .await
            {
                Ok(listed) => return Ok((endpoint.server.name(), listed)),
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    /// Asks the API of one endpoint.
    async fn referrers_once(
        &self,
        endpoint: &Endpoint,
        repository: &Repository,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Result<Vec<Descriptor>, Lack>, Fault> {
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
                    let is_clear = matches!(answer.status().as_u16(), 404 | 405);
                    let codes = answer.error_codes().await;
                    // "Not found" may be meant of the repository or the image, although it should not.
                    let is_about_it = codes.iter().any(|code| !SAY_NOTHING.contains(&code.as_str()));
                    let is_lack = is_clear && !is_about_it;
                    return Ok(Err(if is_lack { Lack::Clear } else { Lack::Doubtful }));
                }
                _ => return Err(answer.into_fault().await),
            }
            let next = next_page(answer.url(), answer.headers())?;
            add_entries(&mut entries, &answer.body(MAX_MANIFEST_SIZE).await?)?;
            place = match next {
                None => return Ok(Ok(entries)),
                Some(next) => Place::Url(next),
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
        let server = self.transport.servers.registry(repository.registry()).name();
        if pushed.subject_noted {
            self.has_referrers(&server);
        }
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

/// Adds the entries of a page.
fn add_entries(entries: &mut Vec<Descriptor>, page: &[u8]) -> Result<(), Fault> {
    let page: Index = serde_json::from_slice(page)
        .map_err(|error| Fault::Protocol(format!("the list of referrers cannot be read: {error}")))?;
    entries.extend(page.manifests);
    match entries.len() > MAX_INDEX_ENTRIES {
        true => Err(Fault::Protocol(format!(
            "more than {MAX_INDEX_ENTRIES} referrers"
        ))),
        false => Ok(()),
    }
}

/// `sha256-<hex>` (distribution spec 1.1, "Referrers Tag Schema").
fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
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
    }
}
