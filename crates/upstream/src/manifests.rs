//! Tags and manifests of an upstream: brought into the store, and compared with the upstream after a while.
//!
//! A manifest by digest never changes; once it is here, nobody is asked. When a tag's time is over, the upstream is asked again which
//! manifest the tag names. The request has no body, so registries that limit pulls do not count it. It goes on in the background of a
//! client that has waited for a second. When a tag was confirmed stands in the store, so restarts and other nodes know it.
//!
//! A tag that a client pushed here or that the configuration calls immutable stays as it is, even if the upstream has another one.

use std::time::Duration;

use bytes::Bytes;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_oci::FetchedManifest;
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_store::{Algorithm, Digest, NewManifest, RepositoryName, Tag};

use crate::error::UpstreamError;
use crate::manifest::Facts;
use crate::upstreams::{Upstream, known};

/// How much what is here is worth.
#[derive(Debug)]
pub enum Freshness {
    /// The upstream says so, or did a short time ago.
    Fresh,
    /// It is what the upstream had when it was asked last. Why it could not be asked again:
    Stale(UpstreamError),
    /// The upstream lists so many more, which are fetched when somebody asks again.
    Incomplete(usize),
}

impl Freshness {
    /// The warning that a client is to be told.
    pub fn warning(&self) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::Stale(error) => Some(format!(
                "this is a copy that could not be compared with its upstream: {error}"
            )),
            Self::Incomplete(more) => Some(format!(
                "{more} more are in the list of the upstream and not here yet; ask again"
            )),
        }
    }
}

impl Upstream {
    /// Sees that the store has what a tag names. When it has something, that stays good while the upstream is not to be asked.
    ///
    /// # Errors
    /// When the store has nothing for the tag, and the upstream neither, or does not answer.
    pub async fn refresh_tag(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
    ) -> Result<Freshness, UpstreamError> {
        let stored = self.store().tag(repository, tag).await?;
        let is_due = |updated: u64| {
            let age = milliseconds_since_1970().saturating_sub(updated);
            age >= u64::try_from(self.settings().tag_ttl.as_millis()).unwrap_or(u64::MAX)
        };
        let is_current = stored.as_ref().is_some_and(|stored| !is_due(stored.updated));
        if is_current || stored.is_some() && self.stays(repository, tag).await? {
            self.counts().hit();
            return Ok(Freshness::Fresh);
        }
        let stored = stored.map(|stored| stored.digest);
        let (upstream, is_here) = (self.clone(), stored.is_some());
        if let Err(error) = self.may_ask(repository, tag.as_str()) {
            if is_here {
                self.counts().hit();
            }
            return kept(is_here, error);
        }
        if let Some(slowness) = self.health().slowness().filter(|_| is_here) {
            self.counts().hit();
            return Ok(Freshness::Stale(slowness));
        }
        let key = (repository.clone(), tag.to_string());
        let ask = || {
            let (repository, tag) = (repository.clone(), tag.clone());
            async move { upstream.ask_tag(&repository, &tag, stored).await }
        };
        let asked = self.state().asked_manifests.answer(key, ask);
        let result = match is_here {
            true => self.in_time(asked).await,
            false => asked.await,
        };
        match result {
            Ok(()) => Ok(Freshness::Fresh),
            Err(error) => kept(is_here, error),
        }
    }

    /// Whether a tag that is here is not the upstream's to move.
    async fn stays(&self, repository: &RepositoryName, tag: &Tag) -> Result<bool, UpstreamError> {
        Ok(self.is_immutable(repository, tag) || self.store().is_own_tag(repository, tag).await?)
    }

    /// The answer, if it comes within the wait of a client that could be answered already.
    pub(super) async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let wait = self.settings().wait;
        match tokio::time::timeout(wait, asked).await {
            Ok(result) => result,
            Err(_) => {
                let silent = self.silent(wait);
                self.health().is_slow(silent.clone());
                Err(silent)
            }
        }
    }

    fn silent(&self, wait: Duration) -> UpstreamError {
        UpstreamError::Away {
            registry: self.registry().to_owned(),
            reason: format!("no answer in {} ms", wait.as_millis()),
        }
    }

    async fn ask_tag(
        &self,
        repository: &RepositoryName,
        tag: &Tag,
        stored: Option<Digest>,
    ) -> Result<(), UpstreamError> {
        // It may have come between the moment when a client missed it and this one.
        if stored.is_none() && self.store().tag(repository, tag).await?.is_some() {
            return Ok(());
        }
        let theirs = self.theirs(repository)?;
        let said = self
            .client()
            .manifest_digest(&theirs, tag.as_str(), ACCEPT_IMAGE)
            .await;
        let said = self.noted(repository, tag.as_str(), said)?;
        if let Some(stored) =
            stored.filter(|stored| said.is_some_and(|said| said.to_string() == stored.to_string()))
            && let Some(manifest) = self.store().manifest(repository, &stored).await?
        {
            // Confirmed: the store notes when.
            return self
                .put(
                    repository,
                    &manifest.media_type,
                    manifest.content,
                    std::slice::from_ref(tag),
                )
                .await;
        }
        // By digest, if it is known: what comes is compared with it.
        let name = said.map_or_else(|| tag.to_string(), |digest| digest.to_string());
        self.may_fetch(&theirs)?;
        let fetched = self.client().manifest(&theirs, &name, ACCEPT_IMAGE).await;
        let fetched = self.noted(repository, tag.as_str(), fetched)?;
        self.keep(repository, fetched, std::slice::from_ref(tag)).await
    }

    /// Sees that the store has a manifest.
    ///
    /// # Errors
    /// When it is not here, and the upstream lacks it, too, or does not answer.
    pub async fn refresh_manifest(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<(), UpstreamError> {
        if self.store().has_manifest(repository, digest).await? {
            self.counts().hit();
            return Ok(());
        }
        let name = digest.to_string();
        self.may_ask(repository, &name)?;
        let upstream = self.clone();
        let key = (repository.clone(), name.clone());
        let ask = || {
            let (repository, digest) = (repository.clone(), digest.clone());
            async move {
                match upstream.store().has_manifest(&repository, &digest).await? {
                    true => Ok(()),
                    false => upstream.ask_manifest(&repository, &name).await,
                }
            }
        };
        known(digest)?;
        self.state().asked_manifests.answer(key, ask).await
    }

    pub(super) async fn ask_manifest(
        &self,
        repository: &RepositoryName,
        digest: &str,
    ) -> Result<(), UpstreamError> {
        let theirs = self.theirs(repository)?;
        self.may_fetch(&theirs)?;
        let fetched = self.client().manifest(&theirs, digest, ACCEPT_IMAGE).await;
        let fetched = self.noted(repository, digest, fetched)?;
        self.keep(repository, fetched, &[]).await
    }

    async fn keep(
        &self,
        repository: &RepositoryName,
        fetched: FetchedManifest,
        tags: &[Tag],
    ) -> Result<(), UpstreamError> {
        let media_type = fetched.media_type.unwrap_or_default();
        self.put(repository, &media_type, fetched.bytes, tags).await?;
        self.state().arrived.notify_one();
        Ok(())
    }

    /// Puts a manifest into the store. The blobs and manifests that it names need not be there: they come when they are asked for.
    async fn put(
        &self,
        repository: &RepositoryName,
        media_type: &str,
        content: Bytes,
        tags: &[Tag],
    ) -> Result<(), UpstreamError> {
        let facts = Facts::read(&content, Some(media_type)).map_err(|error| UpstreamError::Wrong {
            registry: self.registry().to_owned(),
            reason: error.to_string(),
        })?;
        let mut references = facts.references;
        for reference in &mut references {
            reference.required = false;
        }
        let manifest = NewManifest {
            digest: Digest::of(Algorithm::Sha256, &content),
            media_type: facts.media_type,
            content,
            references,
            subject: facts.subject,
            artifact_type: facts.artifact_type,
            annotations: facts.annotations,
            immutable: tags
                .iter()
                .filter(|tag| self.is_immutable(repository, tag))
                .cloned()
                .collect(),
            is_pushed: false,
        };
        self.store().put_copy(repository, &manifest, tags).await?;
        Ok(())
    }
}

/// A copy that is here is good enough; if there is none, the error is the answer.
fn kept(is_here: bool, error: UpstreamError) -> Result<Freshness, UpstreamError> {
    match is_here {
        true => Ok(Freshness::Stale(error)),
        false => Err(error),
    }
}
