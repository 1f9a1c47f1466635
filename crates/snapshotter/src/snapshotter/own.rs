//! The image of which a snapshot shows the lazy layers: the one whose name its container has.
//!
//! containerd shares a chain of layers between all images of a namespace that claim it, and a pull of the second one does not
//! name that image. So before the snapshotter gives a container's mounts, it asks containerd by which name the container is made
//! ([`crate::containerd::owners`]). If that is another name than the one for which the chain was admitted, its layers must be admitted
//! for that name; then the snapshot notes them as its own, and no registry is asked about them again.

use tracing::{debug, warn};

use super::Snapshotter;
use crate::api::{Kind, Mount};
use crate::error::{ErrorKind, SnapshotError};
use crate::lazy::LazyImages;
use crate::record::LazyLayer;
use crate::store::Chain;

/// How often it is found out again of which image a snapshot is that others change meanwhile.
const TRIES: usize = 5;

impl<L: LazyImages> Snapshotter<L> {
    /// Mounts of an active snapshot or a view. A lazy image's view is shown again if it is shown no more.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::FailedPrecondition`] for a committed one, and for one of an image whose name
    /// wants more than vouches for its layers; what [`LazyImages::view`] says.
    pub async fn mounts(&self, key: String) -> Result<Vec<Mount>, SnapshotError> {
        for _ in 0..TRIES {
            let seen = self.mountable(&key).await?;
            // containerd and registries may take long, and layers that are read whole longer. A client that removes the snapshot
            // meanwhile waits for none of them: containerd holds a lock of its own then that all others want.
            let own = match seen.lazy_part().cloned() {
                Some(part) => Some(self.own_part(&key, &seen, part).await?),
                None => None,
            };
            let _one = self.keys.lock(&key).await;
            let chain = self.mountable(&key).await?;
            if !is_same(&chain, &seen) {
                continue;
            }
            if let Some(own) = own.as_ref().filter(|own| Some(*own) != chain.lazy_part()) {
                self.note(&key, chain.record.id, own).await?;
            }
            let view = self.view(&key, chain.record.kind(), own.as_ref()).await?;
            return self
                .in_background(move |inner| inner.mounts(&chain, view.as_deref()))
                .await;
        }
        let message = format!("snapshot {key:?} changes while it is mounted; ask again");
        Err(SnapshotError::new(ErrorKind::Unavailable, message))
    }

    async fn mountable(&self, key: &str) -> Result<Chain, SnapshotError> {
        let wanted = key.to_owned();
        let chain = self
            .in_background(move |inner| inner.store.chain(&wanted))
            .await?;
        if chain.record.kind() == Kind::Committed {
            let message = format!("snapshot {key:?} is committed, and only others made on it can be mounted");
            return Err(SnapshotError::precondition(message));
        }
        Ok(chain)
    }

    /// From now on the snapshot shows the layers of that image. Its key is locked.
    async fn note(&self, key: &str, id: u64, own: &LazyLayer) -> Result<(), SnapshotError> {
        debug!(snapshot = key, "its container is one of {}", own.reference);
        // Before it is noted: nothing may go on with the view of the other image. A bind mount of that view keeps it from going.
        self.in_background(move |inner| {
            inner.unbind(id);
            Ok(())
        })
        .await?;
        self.lazy.release(key).await?;
        let (wanted, noted) = (key.to_owned(), own.clone());
        self.in_background(move |inner| inner.store.update(&wanted, |record| record.base = Some(noted)))
            .await?;
        Ok(())
    }

    /// The lazy layers that a snapshot shows, as its container's image has them.
    ///
    /// # Errors
    /// [`ErrorKind::FailedPrecondition`] when that image's name wants more than there is to vouch for them,
    /// [`ErrorKind::Unavailable`] when nobody says what it is.
    async fn own_part(&self, key: &str, chain: &Chain, part: LazyLayer) -> Result<LazyLayer, SnapshotError> {
        let Some(owners) = &self.owners else {
            return Ok(part);
        };
        let mut images = match owners.of(key).await {
            Ok(images) => images,
            Err(error) => {
                // Layers that hold for any image hold for this one.
                if let Some(shared) = chain.lazy_name()
                    && self.lazy.holds_for_all(shared, &part).await
                {
                    warn!(
                        snapshot = key,
                        "{error}; its layers are proven whatever its image is called"
                    );
                    return Ok(part);
                }
                let message = format!(
                    "{error}, so Xebec cannot find out by which name the image of {key:?} was asked for, and its layers \
                     were admitted for {} only. Say where containerd listens: `address` in [snapshotter] of daemon.toml",
                    part.reference
                );
                return Err(SnapshotError::new(ErrorKind::Unavailable, message));
            }
        };
        // Names with a digest want more, so they have the last word.
        images.sort_by_key(|image| image.name.contains('@'));
        let mut own = part.clone();
        if let Some(shared) = chain.lazy_name() {
            for image in images {
                own = self.lazy.own(&image, shared, &own).await?;
            }
        }
        Ok(own)
    }
}

/// Whether a snapshot is still the one that was seen, on the same layers of the same image.
fn is_same(chain: &Chain, seen: &Chain) -> bool {
    let told = |chain: &Chain| (chain.record.id, chain.lazy_part().cloned());
    told(chain) == told(seen) && chain.lazy_name() == seen.lazy_name()
}
