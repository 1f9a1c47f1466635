//! Releases the layers of lazy images that only removed snapshots showed.
//!
//! A lazy snapshot has no files: what was read of its layer is in a cache that knows nothing of snapshots. A client that removes
//! an image to make room, as a kubelet does when the disk is full, would get none. So the snapshotter tells the owner of that cache
//! which layers are still shown. If a process dies in between, the rest is done when the store is opened again.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::Snapshotter;
use super::inner::Inner;
use crate::error::SnapshotError;
use crate::lazy::{LazyImages, Shown};

/// How long [`Snapshotter::let_go_soon`] tries, and the pause between two tries.
const SOON: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

impl<L: LazyImages> Snapshotter<L> {
    /// Lets go the layers of lazy images that only removed snapshots needed, if any were removed. Layers that cannot go now are left
    /// for the next time that this is asked for; says whether all could go.
    pub async fn let_go(&self) -> bool {
        let _one = self.gone.letting_go.lock().await;
        // Before the others are looked at: what is removed from now on is for the next time.
        let Some(gone) = self.gone.take() else {
            return true;
        };
        let is_done = self.could_let_go(gone.clone()).await;
        if !is_done {
            self.gone.put_back(gone);
        }
        is_done
    }

    /// The same, for a client that looks at the disk afterwards: a kubelet that finds no more room evicts pods. Work in the background
    /// may look at a layer just now, so what cannot go is tried again for [`SOON`].
    pub(super) async fn let_go_soon(&self) {
        let end = Instant::now() + SOON;
        while !self.let_go().await && Instant::now() < end {
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn could_let_go(&self, gone: BTreeSet<String>) -> bool {
        // Also before: a pull has a snapshot then, or is among them.
        let held = self.pulls.hold();
        let Some(pulled) = held.pulled.clone() else {
            return false;
        };
        match self.in_background(Inner::shown).await {
            Ok(shown) => {
                let shown = Shown {
                    gone,
                    pulled,
                    ..shown
                };
                self.lazy.let_go(shown).await
            }
            Err(problem) => {
                warn!("layers of removed snapshots stay for now: {problem}");
                false
            }
        }
    }
}

impl Inner {
    /// The lazy images that snapshots show.
    fn shown(&self) -> Result<Shown, SnapshotError> {
        let mut shown = Shown::default();
        self.store.lazy_parts(|name, parts| {
            if parts.lazy.is_some() {
                shown.chains.insert(name.to_owned());
            }
            for part in [parts.lazy, parts.base].into_iter().flatten() {
                let depth = shown.kept.entry(part.manifest).or_default();
                *depth = part.depth.max(*depth);
            }
        })?;
        Ok(shown)
    }
}
