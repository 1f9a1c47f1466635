//! Eviction: copies of upstreams' images that nobody uses go, or those that take too much room.

use std::time::Duration;

use xebec_events::{Gone, Thing};
use xebec_kernel::size;
use xebec_policy::eviction::{self, Copied, Limits, Why};
use xebec_settings::period::Period;
use xebec_store::{RepositoryName, StoreError, Unused};
use xebec_upstream::UpstreamSettings;

use super::{Report, Tidied, Upkeep};

/// Pulls are written down once a minute, maybe by another process: what was used since counts as used now.
const LEAST_GRACE: Duration = Duration::from_secs(300);

impl Upkeep {
    pub(super) async fn evict(
        &self,
        (dry_run, now): (bool, u64),
        report: Report<'_>,
        tidied: &mut Tidied,
    ) -> Result<(), StoreError> {
        for upstream in self.upstreams.iter().filter(|upstream| upstream.is_limited()) {
            let is_of = |repository: &RepositoryName| {
                let of = UpstreamSettings::of(&self.upstreams, repository);
                of.is_some_and(|of| of.prefix == upstream.prefix)
            };
            let mut copies = Vec::new();
            for repository in self.repositories(is_of).await? {
                let held = self.holdings(&repository).await?;
                let tags = self.tags(&repository).await?;
                copies.extend(eviction::copies(
                    repository.as_str(),
                    &held,
                    &tags,
                    &self.immutability,
                ));
            }
            let limits = Limits {
                keep: upstream.keep,
                keep_for: upstream.keep_for.map(milliseconds),
                grace: milliseconds(self.store.config().grace.max(LEAST_GRACE)),
            };
            for (copy, why) in eviction::plan(&copies, &limits, now) {
                if !dry_run && !self.remove(copy).await? {
                    continue;
                }
                tidied.copies += 1;
                report(&gone(copy, why, upstream));
            }
        }
        Ok(())
    }

    async fn remove(&self, copy: &Copied) -> Result<bool, StoreError> {
        // It came from a record, so it is a name.
        let Ok(repository) = copy.repository.parse() else {
            return Ok(false);
        };
        let unused = Unused {
            manifests: copy.manifests.clone(),
            since: copy.used,
            is_copy: true,
        };
        self.store.remove_unused(&repository, &unused).await
    }
}

fn gone(copy: &Copied, why: Why, upstream: &UpstreamSettings) -> Gone {
    let registry = &upstream.registry;
    let why = match why {
        Why::Unused => {
            let time = Period(upstream.keep_for.unwrap_or_default());
            format!("a copy from {registry} that nobody used for {time} (keep_for)")
        }
        Why::TooMuch => {
            let room = size::for_people(upstream.keep.unwrap_or_default());
            format!("copies from {registry} take more than {room} (keep), and the others were used later")
        }
    };
    Gone {
        repository: copy.repository.clone(),
        what: Thing::Copy {
            tags: copy.tags.clone(),
            manifests: copy.manifests.len(),
        },
        digest: copy
            .manifests
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        why,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
