//! Referrers of a manifest at an upstream: the list of them is fetched, and each manifest in it is brought into the store. From the
//! store's records the registry makes its own list. So lists go on while the upstream is away, fallback tags are in step with them, and
//! referrers that were attached here are in the list, too.

use std::time::Instant;

use xebec_store::{Digest, RepositoryName};

use crate::error::UpstreamError;
use crate::manifests::Freshness;
use crate::upstreams::{Upstream, known};

/// Manifests of one list that are fetched at once. The next time that somebody asks, others follow.
const MOST_NEW: usize = 64;
/// Lists of which it is remembered when they were fetched.
const MOST_LISTED: usize = 100_000;

impl Upstream {
    /// Sees that the store has what refers to `subject`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn refresh_referrers(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
    ) -> Result<Freshness, UpstreamError> {
        let key = (repository.clone(), subject.clone());
        let was = {
            let listed = self.state().listed.lock();
            listed.get(&key).copied()
        };
        if was.is_some_and(|was| was.elapsed() < self.settings().tag_ttl) || known(subject).is_err() {
            return Ok(Freshness::Fresh);
        }
        let trouble = match was {
            Some(_) => self.health().slowness(),
            None => self.health().trouble(),
        };
        if let Some(trouble) = trouble {
            return Ok(Freshness::Stale(trouble));
        }
        let upstream = self.clone();
        let ask = || {
            let (repository, subject) = key.clone();
            async move { upstream.ask_referrers(&repository, &subject).await }
        };
        let asked = self.state().asked_referrers.answer(key.clone(), ask);
        // The first call waits for the list; later ones have the last list.
        let result = match was {
            Some(_) => self.in_time(asked).await,
            None => asked.await,
        };
        match result {
            Ok(0) | Err(UpstreamError::NotFound(_)) => Ok(Freshness::Fresh),
            Ok(more) => Ok(Freshness::Incomplete(more)),
            Err(error @ UpstreamError::Store(_)) => Err(error),
            Err(error) => Ok(Freshness::Stale(error)),
        }
    }

    async fn ask_referrers(
        &self,
        repository: &RepositoryName,
        subject: &Digest,
    ) -> Result<usize, UpstreamError> {
        let theirs = self.theirs(repository)?;
        let listed = self.client().referrers(&theirs, &known(subject)?, None).await;
        let listed = listed.map_err(|error| self.failed(&error));
        self.health().note(&listed);
        let (mut new, mut left_out) = (0, 0);
        for entry in listed? {
            let digest = entry.digest.to_string();
            let here: Digest = digest
                .parse()
                .map_err(|error: xebec_store::InvalidDigest| UpstreamError::NotFound(error.to_string()))?;
            let is_here = self.store().has_manifest(repository, &here).await?;
            if is_here || self.state().absent.has(repository, &digest) {
                continue;
            }
            if new == MOST_NEW {
                left_out += 1;
                continue;
            }
            new += 1;
            match self.ask_manifest(repository, &digest).await {
                Ok(()) => {}
                // Listed, and gone or of no use: the others are not lost by that, nor kept waiting the next time.
                Err(UpstreamError::NotFound(_) | UpstreamError::Wrong { .. }) => {
                    self.state().absent.note(repository, &digest);
                }
                Err(error) => return Err(error),
            }
        }
        if left_out > 0 {
            return Ok(left_out);
        }
        let mut lists = self.state().listed.lock();
        if lists.len() >= MOST_LISTED {
            lists.clear();
        }
        lists.insert((repository.clone(), subject.clone()), Instant::now());
        Ok(0)
    }
}
