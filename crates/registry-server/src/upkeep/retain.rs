//! Retention: what no rule keeps goes.

use std::collections::BTreeMap;

use xebec_events::{Gone, Thing};
use xebec_policy::retention::{self, Decision, ManifestRecord};
use xebec_store::{Holding, RepositoryName, Store, StoreError, TagRecord, Unused};

use super::{Report, Tidied, Upkeep};

impl Upkeep {
    pub(super) async fn retain(
        &self,
        (dry_run, now): (bool, u64),
        report: Report<'_>,
        tidied: &mut Tidied,
    ) -> Result<(), StoreError> {
        let is_covered = |repository: &RepositoryName| {
            let mut rules = self.retention.iter();
            rules.any(|rule| rule.repositories.covers(repository.as_str()))
        };
        for repository in self.repositories(is_covered).await? {
            let tags = self.tags(&repository).await?;
            let held = self.holdings(&repository).await?;
            let (tag_records, manifests): (Vec<_>, Vec<_>) = (
                tags.iter().map(tag_record).collect(),
                held.iter().map(manifest_record).collect(),
            );
            let rules = &self.retention;
            let plan = retention::plan(
                repository.as_str(),
                &tag_records,
                &manifests,
                rules,
                &self.immutability,
                now,
            );
            let held: BTreeMap<String, &Holding> = held
                .iter()
                .map(|holding| (holding.digest.to_string(), holding))
                .collect();
            let decided = tags.iter().zip(&plan.tags);
            let tags: Vec<_> = decided.filter(|(_, decision)| !decision.keep).collect();
            tidied.tags += self
                .let_tags_go(&repository, tags, &held, dry_run, report)
                .await?;
            for decision in plan.manifests.iter().filter(|decision| !decision.keep) {
                let Some(holding) = held.get(&decision.digest) else {
                    continue;
                };
                let unused = Unused {
                    manifests: vec![holding.digest.clone()],
                    since: used(holding),
                    is_copy: false,
                };
                if !dry_run && !self.store.remove_unused(&repository, &unused).await? {
                    continue;
                }
                tidied.manifests += 1;
                report(&self.gone(&repository, Thing::Manifest, decision));
            }
        }
        Ok(())
    }

    /// How many tags went, or would go. Companions come last: they stay if an image was used meanwhile, and are decided on the next time.
    async fn let_tags_go(
        &self,
        repository: &RepositoryName,
        mut tags: Vec<(&TagRecord, &Decision)>,
        held: &BTreeMap<String, &Holding>,
        dry_run: bool,
        report: Report<'_>,
    ) -> Result<u64, StoreError> {
        let belongs = |decision: &Decision| retention::is_companion(&decision.name);
        tags.sort_by_key(|(_, decision)| belongs(decision));
        let (mut gone, mut is_used) = (0, false);
        for (tag, decision) in tags {
            if is_used && belongs(decision) {
                break;
            }
            let pulled = held.get(&decision.digest).map_or(0, |holding| holding.pulled);
            if !dry_run && !self.store.remove_unused_tag(repository, tag, pulled).await? {
                is_used |= !belongs(decision);
                continue;
            }
            gone += 1;
            report(&self.gone(repository, Thing::Tag(tag.name.to_string()), decision));
        }
        Ok(gone)
    }

    fn gone(&self, repository: &RepositoryName, what: Thing, decision: &Decision) -> Gone {
        let tag = match &what {
            Thing::Tag(tag) => Some(tag.as_str()),
            _ => None,
        };
        let rules = retention::covering(&self.retention, repository.as_str(), tag);
        let rules: Vec<String> = rules.iter().map(|place| (place + 1).to_string()).collect();
        let which = match rules.as_slice() {
            [one] => format!("[[retention]] {one}"),
            several => format!("[[retention]] {}", several.join(", ")),
        };
        let why = match what {
            Thing::Manifest => format!("no tag leads to it, and it is older than {which} allows"),
            _ => format!("{which} covers it, and no rule keeps it"),
        };
        Gone {
            repository: repository.to_string(),
            what,
            digest: decision.digest.clone(),
            why,
        }
    }
}

fn used(holding: &Holding) -> u64 {
    holding.created.max(holding.pushed).max(holding.pulled)
}

/// When something was pulled last at the latest. A first pull is written down at once, so 0 means that nobody has pulled it.
fn pulled(known: u64) -> Option<u64> {
    let behind = u64::try_from(Store::PULLS_BEHIND.as_millis()).unwrap_or(u64::MAX);
    (known > 0).then(|| known.saturating_add(behind))
}

fn tag_record(tag: &TagRecord) -> retention::TagRecord {
    retention::TagRecord {
        name: tag.name.to_string(),
        digest: tag.digest.to_string(),
        updated: tag.updated,
        pulled: pulled(tag.pulled),
    }
}

fn manifest_record(holding: &Holding) -> ManifestRecord {
    ManifestRecord {
        digest: holding.digest.to_string(),
        created: holding.created.max(holding.pushed),
        pulled: pulled(holding.pulled),
        subject: holding.subject.as_ref().map(ToString::to_string),
        children: holding.children.iter().map(ToString::to_string).collect(),
    }
}
