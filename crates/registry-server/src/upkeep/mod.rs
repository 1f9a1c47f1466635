//! The removals before each collection: tags and manifests that no retention rule keeps, and copies of upstreams' images that nobody uses
//! or that take too much room. `serve` does it now and then, `gc` once; a dry run says what would go, and why.
//!
//! The decisions are pure ([`xebec_policy::retention`], [`xebec_policy::eviction`]). A tag or manifest that is pushed or pulled between
//! the decision and the deletion stays: the store compares once more, in the transaction that deletes.

mod evict;
pub mod retain;

use xebec_events::Gone;
use xebec_policy::immutability::Immutability;
use xebec_policy::retention::RetentionRule;
use xebec_store::{Holding, RepositoryName, Store, StoreError, TagRecord};
use xebec_upstream::UpstreamSettings;

use crate::config::Config;

/// So many records are looked up at once.
const STEP: usize = 500;

/// See the module.
pub struct Upkeep {
    store: Store,
    retention: Vec<RetentionRule>,
    immutability: Immutability,
    upstreams: Vec<UpstreamSettings>,
}

/// How much went, or would go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Tags that no rule keeps.
    pub tags: u64,
    /// Manifests without a tag.
    pub manifests: u64,
    /// Images of upstreams.
    pub copies: u64,
}

/// Told of each thing that goes.
pub type Report<'a> = &'a mut (dyn FnMut(&Gone) + Send);

impl Upkeep {
    /// By these rules.
    pub fn new(store: &Store, config: &Config) -> Self {
        Self {
            store: store.clone(),
            retention: config.retention.clone(),
            immutability: config.immutability.clone(),
            upstreams: config.upstreams.clone(),
        }
    }

    /// Deletes what is to go at the time `now`, in milliseconds since 1970, or only says so.
    ///
    /// # Errors
    /// If the store fails. The things that went before are gone.
    pub async fn run(&self, dry_run: bool, now: u64, report: Report<'_>) -> Result<Tidied, StoreError> {
        let mut tidied = Tidied::default();
        if !dry_run {
            self.store.write_pulls().await?;
        }
        if !self.retention.is_empty() {
            self.retain((dry_run, now), report, &mut tidied).await?;
        }
        if self.upstreams.iter().any(UpstreamSettings::is_limited) {
            self.evict((dry_run, now), report, &mut tidied).await?;
        }
        Ok(tidied)
    }

    /// All repositories for which `is_wanted` holds.
    async fn repositories(
        &self,
        is_wanted: impl Fn(&RepositoryName) -> bool,
    ) -> Result<Vec<RepositoryName>, StoreError> {
        let mut found: Vec<RepositoryName> = Vec::new();
        let mut after: Option<RepositoryName> = None;
        loop {
            let page = self
                .store
                .repositories(STEP, after.as_ref().map(RepositoryName::as_str))
                .await?;
            after = page.items.last().cloned();
            found.extend(page.items.into_iter().filter(&is_wanted));
            if !page.next {
                return Ok(found);
            }
        }
    }

    async fn tags(&self, repository: &RepositoryName) -> Result<Vec<TagRecord>, StoreError> {
        let mut found: Vec<TagRecord> = Vec::new();
        loop {
            let after = found.last().map(|tag| tag.name.clone());
            let after = after.as_ref().map(|tag| tag.as_str());
            let Some(page) = self.store.tags(repository, STEP, after).await? else {
                return Ok(found);
            };
            found.extend(page.items);
            if !page.next {
                return Ok(found);
            }
        }
    }

    async fn holdings(&self, repository: &RepositoryName) -> Result<Vec<Holding>, StoreError> {
        let mut found: Vec<Holding> = Vec::new();
        loop {
            let after = found.last().map(|holding| holding.digest.clone());
            let page = self.store.holdings(repository, STEP, after.as_ref()).await?;
            found.extend(page.items);
            if !page.next {
                return Ok(found);
            }
        }
    }
}
