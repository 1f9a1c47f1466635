//! Repositories of a registry that runs are copied into the store: all platforms of their tags, what refers to them, and what cosign has
//! attached by tags.
//!
//! Contents that are here are not fetched: of a tag whose manifest is here whole, only its name is asked. Tags that the source has no
//! longer stay, unless the mirror prunes.

mod blobs;
mod image_time;
mod names;
mod rate;
mod repository;
mod settings;
mod source;

use std::sync::Arc;

use tokio::sync::Semaphore;
use xebec_kernel::keyed_lock::KeyedLock;
use xebec_oci::Client;
use xebec_store::Store;

pub use self::settings::{MirrorSettings, MirrorSettingsError};
pub use self::source::MirrorError;

use self::blobs::Blobs;
use self::names::Pair;
use self::rate::Rate;
use self::repository::{Copier, CopierParts};
use self::source::{Source, Trouble};
use crate::put::Rules;
use crate::tally::Tally;

/// A mirror of another registry, or of a part of it.
#[derive(Clone)]
pub struct Mirror {
    store: Store,
    settings: MirrorSettings,
    rules: Rules,
    source: Source,
}

impl Mirror {
    /// One with these settings, which puts what it copies into `store`. `variable` reads the environment. Nothing is asked yet.
    ///
    /// # Errors
    /// If settings cannot be used.
    pub fn new(
        store: &Store,
        settings: &MirrorSettings,
        rules: &Rules,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, MirrorSettingsError> {
        settings.check()?;
        let client = Client::new(settings.client(variable)?);
        let client = client
            .map_err(|error| MirrorSettingsError::Client(settings.source.clone(), error.to_string()))?;
        Ok(Self {
            store: store.clone(),
            settings: settings.clone(),
            rules: rules.clone(),
            source: Source { client },
        })
    }

    /// The source: a registry, or a part of it.
    pub fn source(&self) -> &str {
        &self.settings.source
    }

    /// Copies what is not here, and counts it in `tally`.
    ///
    /// # Errors
    /// If the source is away or does not say what it has, or the store fails. Faults of single things are in the tally, and end nothing.
    pub async fn run(&self, tally: &Arc<Tally>) -> Result<(), MirrorError> {
        let blobs = Blobs {
            store: self.store.clone(),
            source: self.source.clone(),
            tally: tally.clone(),
            rate: Arc::new(Rate::new(self.settings.rate)),
            at_once: Semaphore::new(self.settings.jobs),
            turns: KeyedLock::default(),
        };
        for name in self.repositories().await? {
            match self.repository(&name, &blobs, tally).await {
                Ok(()) => tally.add(|moved| moved.repositories += 1),
                Err(Trouble::Skip(reason)) => tally.skip(&name, "repository", reason),
                Err(Trouble::End(error)) => return Err(error),
            }
        }
        Ok(())
    }

    async fn repository(&self, name: &str, blobs: &Blobs, tally: &Tally) -> Result<(), Trouble> {
        let (registry, _) = self.settings.parts();
        let pair = Pair::new(registry, name, &self.settings.to).map_err(Trouble::Skip)?;
        let tags = self.source.tags(&pair.there).await?;
        let parts = CopierParts {
            settings: &self.settings,
            rules: &self.rules,
            blobs,
            tally,
            pair: &pair,
        };
        let copier = Copier::new(parts, &tags);
        copier.run(&tags).await.map_err(Trouble::End)
    }

    /// The names there of what is to be copied.
    async fn repositories(&self) -> Result<Vec<String>, MirrorError> {
        let (registry, prefix) = self.settings.parts();
        let patterns = &self.settings.repositories;
        let is_wanted = |name: &String| {
            let is_covered = patterns.is_empty() || patterns.iter().any(|pattern| pattern.covers(name));
            is_covered && names::is_below(prefix, name)
        };
        // Without patterns, what stands after the host may be the one repository that is meant.
        let meant = (patterns.is_empty() && !prefix.is_empty()).then(|| vec![prefix.to_owned()]);
        let listed = match names::literal(patterns) {
            Some(names) => names,
            None => match self
                .source
                .catalog(registry)
                .await
                .map_err(|error| (error.to_string(), error.into()))
            {
                Ok(names) => names,
                Err((_, Trouble::End(error))) => return Err(error),
                Err((reason, Trouble::Skip(_))) => meant.clone().ok_or_else(|| MirrorError::NoCatalog {
                    registry: registry.to_owned(),
                    reason,
                })?,
            },
        };
        let mut wanted: Vec<String> = listed.into_iter().filter(is_wanted).collect();
        wanted.sort_unstable();
        wanted.dedup();
        match wanted.is_empty() {
            false => Ok(wanted),
            true => meant.ok_or_else(|| MirrorError::Nothing {
                registry: registry.to_owned(),
            }),
        }
    }
}
