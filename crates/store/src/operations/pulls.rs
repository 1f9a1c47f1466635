//! When manifests and tags were pulled last: noted at once, written down soon after.

use std::time::Duration;

use crate::error::Result;
use crate::name::{RepositoryName, Tag};
use crate::records::{manifests, repositories, tags};
use crate::store::{Store, milliseconds, now};
use xebec_objects::Digest;

/// A pull of what was pulled within this time waits for the next [`Store::write_pulls`]; any other is written down at once, since rules
/// that count last use may let it go, in another process, too.
const RECENT: Duration = Duration::from_secs(300);
/// So long others are waited for, which are written in the same transaction.
const GATHERED: Duration = Duration::from_millis(100);

impl Store {
    /// So much later something may have been pulled than its record says, if [`Store::write_pulls`] is called once a minute.
    pub const PULLS_BEHIND: Duration = Duration::from_secs(RECENT.as_secs() + 60);

    /// Notes in memory that a manifest was pulled, by this tag; `known` is when that was last, as its record says. This waits for nothing.
    pub fn note_pull(&self, repository: &RepositoryName, digest: &Digest, tag: Option<&Tag>, known: u64) {
        let pull = (repository.clone(), digest.clone(), tag.cloned());
        let at = now();
        self.inner.pulls.note(pull, at);
        let is_recent = known.saturating_add(milliseconds(RECENT)) > at;
        if is_recent || !self.inner.pulls.await_write() {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GATHERED).await;
            store.inner.pulls.begin();
            if let Err(error) = store.write_pulls().await {
                tracing::debug!("when manifests were pulled last is written down later: {error}");
            }
        });
    }

    /// Writes down what was pulled since the last time. When this comes back, all is written that was noted before, whoever has written it. The server
    /// calls it about once a minute, and when it ends.
    ///
    /// # Errors
    /// If the database fails. The pulls that were noted are written the next time.
    pub async fn write_pulls(&self) -> Result<()> {
        let _alone = self.inner.pulls.writing.lock().await;
        let mut pulls = self.inner.pulls.take();
        while !pulls.is_empty() {
            let rest = pulls.split_off(pulls.len().min(256));
            let some = pulls.clone();
            let written = self
                .write_records("note what was pulled", move |tx| {
                    for ((repository, digest, tag), at) in &some {
                        let Some(id) = repositories::find(tx, repository)? else {
                            continue;
                        };
                        manifests::note_pull(tx, id, digest, *at)?;
                        if let Some(tag) = tag {
                            tags::note_pull(tx, id, tag, *at)?;
                        }
                    }
                    Ok(())
                })
                .await;
            if let Err(error) = written {
                for (pull, at) in pulls.into_iter().chain(rest) {
                    self.inner.pulls.note(pull, at);
                }
                return Err(error);
            }
            pulls = rest;
        }
        Ok(())
    }
}
