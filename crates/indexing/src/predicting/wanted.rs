//! The new version of an image, for which a runtime image is to be predicted.

use std::sync::Arc;

use xebec_artifact::artifact::Artifact;
use xebec_store::RepositoryName;

use crate::image::Image;
use crate::settings::Signer;

/// An image to predict for.
pub(crate) struct Wanted {
    pub(crate) repository: RepositoryName,
    pub(crate) image: Image,
    /// Its configuration, as it is stored.
    pub(crate) config: Vec<u8>,
    /// The indexes of its layers.
    pub(crate) indexes: Artifact,
    /// Signs the artifact, if this registry made all of the indexes.
    pub(crate) signer: Option<Arc<Signer>>,
}
