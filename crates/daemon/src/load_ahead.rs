//! Runtime images that are loaded with a pull, before a container is asked for.

use std::sync::Arc;

use tracing::warn;
use xebec_protocol::failure::Failure;
use xebec_recordings::prepare::PreparedStart;

use crate::ending::Ending;
use crate::preparation::Preparation;
use crate::runtime_images::RuntimeImages;
use crate::view_cleanup::ViewCleanup;

/// Loads runtime images with pulls.
pub(crate) struct LoadAhead {
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) runtime_images: Arc<RuntimeImages>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) ending: Arc<Ending>,
}

impl LoadAhead {
    /// Loads the runtime image of an image of which there is no view yet. It is pulled, so one is likely to follow; then it
    /// finds the pages here, or on their way.
    pub(crate) fn begin(self: &Arc<Self>, start: PreparedStart) {
        let this = self.clone();
        tokio::spawn(async move {
            let PreparedStart {
                image: prepared,
                mut recording,
            } = start;
            let image = prepared.found.reference.clone();
            if let Some(Ok(begun)) = &mut recording {
                // Other services follow when a container comes: they would be broken off here, in their midst or not.
                Arc::make_mut(&mut begun.found).rest.clear();
            }
            let loaded = async {
                // An ending daemon begins nothing.
                let Some(_reservation) = this
                    .preparation
                    .reserve(&prepared)
                    .await?
                    .filter(|_| this.ending.goes_on().is_ok_and(|on| on))
                else {
                    return Ok(());
                };
                let loading = this.runtime_images.begin(&prepared, recording).await?;
                // Its indexes are not held as long as a registry likes.
                drop(prepared);
                if let Some(mut loading) = loading {
                    let _ = loading.outcome.wait_for(Option::is_some).await;
                }
                this.cleanup.forget_unused();
                Ok::<_, Failure>(())
            };
            if let Err(failure) = loaded.await {
                warn!(%image, "its runtime image is not loaded with the pull: {failure}");
            }
        });
    }
}
