//! Of which image a snapshot shows the lazy layers: of the one whose name its container has.
//!
//! containerd shares a chain of layers between all images of a namespace that claim it, and a pull of the second one names
//! it to nobody. So before a container's mounts are told, containerd is asked by which name the container is made
//! ([`crate::containerd::owners`]). If that is another one than the chain was let in for, its layers must be vouched for as
//! that name needs it; then the snapshot notes them as its own, and nobody is asked about them again.

use tracing::{debug, warn};

use super::Snapshotter;
use crate::error::{ErrorKind, SnapshotError};
use crate::lazy::LazyImages;
use crate::record::LazyLayer;
use crate::store::Chain;

impl<L: LazyImages> Snapshotter<L> {
    /// The lazy layers that a snapshot shows, as its container's image has them.
    ///
    /// # Errors
    /// [`ErrorKind::FailedPrecondition`] when that image's name wants more than there is to vouch for them,
    /// [`ErrorKind::Unavailable`] when nobody says what it is.
    pub(super) async fn own_part(
        &self,
        key: &str,
        chain: &Chain,
        part: LazyLayer,
    ) -> Result<LazyLayer, SnapshotError> {
        let Some(owners) = &self.owners else {
            return Ok(part);
        };
        let mut images = match owners.of(key).await {
            Ok(images) => images,
            // What would do for the strictest name does for each.
            Err(error) if self.lazy.holds_for_digest(&part).await => {
                warn!(
                    snapshot = key,
                    "{error}; its layers are vouched for whatever its image is called"
                );
                return Ok(part);
            }
            Err(error) => {
                let message = format!(
                    "{error}, so nobody knows by which name the image of {key:?} was asked for, and its layers were let \
                     in for {} only. Say where containerd listens: `address` in [snapshotter] of daemon.toml",
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
        if own != part {
            debug!(snapshot = key, "its container is one of {}", own.reference);
            // Before it is noted: nothing may go on with the view of the other.
            self.lazy.release(key).await;
            let (wanted, noted) = (key.to_owned(), own.clone());
            self.in_background(move |inner| inner.store.update(&wanted, |record| record.base = Some(noted)))
                .await?;
        }
        Ok(own)
    }
}
