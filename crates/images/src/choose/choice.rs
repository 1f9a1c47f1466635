//! The input of choosing indexes for one image, and the choice for a layer.

use crate::facts;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore};
use xebec_artifact::artifact::Artifact;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_oci::Client;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::ImageRequest;
use xebec_trust::{Binding, Evidence, Policy, Refusal, RepositoryName, Signing};

use crate::budget::Account;
use crate::found_image::FoundImage;
use crate::images::Images;
use crate::prepared_layer::PreparedLayer;
use crate::referrers::Referrers;

/// Layers of an image that are asked for at the same time: few, for all pieces of each are held, 64 MiB of them.
pub(crate) const SHOWING: u32 = 4;

/// The context in which the indexes of one image are chosen.
pub struct Choice<'a> {
    pub(crate) images: &'a Images,
    pub(crate) client: Client,
    pub(crate) referrers: &'a Referrers,
    pub(crate) found: &'a FoundImage,
    pub(crate) request: &'a ImageRequest,
    pub(crate) policy: Policy,
    pub(crate) repository: RepositoryName,
    pub(crate) offered: OfferedIndexes,
    /// By which indexes this host used the image before.
    pub(crate) used: OnceLock<Vec<LayerKey>>,
    pub(crate) artifacts: OnceCell<Vec<FoundArtifact>>,
    /// Bounds how many calls ask at once whether the repository has a layer.
    pub(crate) showing: Semaphore,
    /// By which it is counted what its indexes take.
    pub(crate) account: Arc<Account>,
}

impl<'a> Choice<'a> {
    /// Begins to choose for an image.
    ///
    /// # Errors
    /// When the image's repository has no name by which it could be trusted, and when a policy or logins cannot be read.
    pub fn new(
        images: &'a Images,
        request: &'a ImageRequest,
        found: &'a FoundImage,
        referrers: &'a Referrers,
    ) -> Result<Self, Failure> {
        let repository = facts::repository_name(found.reference.repository())?;
        Ok(Self {
            images,
            client: images.clients.get(request.docker_config.as_deref())?,
            referrers,
            found,
            request,
            policy: images.policy()?,
            repository,
            offered: OfferedIndexes::default(),
            used: OnceLock::new(),
            artifacts: OnceCell::new(),
            showing: Semaphore::new(SHOWING as usize),
            account: images.budget.open(found.reference.to_string()),
        })
    }

    /// Asks by this client, which may have answers in advance.
    #[must_use]
    pub fn asking(self, client: Client) -> Self {
        Self { client, ..self }
    }
}

/// How a layer's index was found, or what stands in the way.
#[derive(Clone)]
pub(crate) enum Outcome {
    Chosen(Box<PreparedLayer>),
    /// There is an index, but it is not trusted enough.
    Refused(Refusal),
    /// There is none.
    Missing(String),
    /// There is one, but no index makes this layer lazy.
    Whole(String),
}

/// Why a layer cannot be lazy.
#[derive(Clone, Debug)]
pub struct NotChosen {
    /// There is an index, but it is not trusted enough.
    pub is_refused: bool,
    /// For people.
    pub reason: String,
}

/// An index artifact of the image and what vouches for it.
pub(crate) struct FoundArtifact {
    pub(crate) artifact: Artifact,
    pub(crate) binding: Option<Binding>,
    pub(crate) signing: Option<Signing>,
    pub(crate) listed: bool,
}

/// Indexes that are offered, and what vouches for them.
#[derive(Default)]
pub(crate) struct OfferedIndexes {
    pub(crate) evidence: Evidence,
    /// By layer; with its bytes unless the cache has them.
    pub(crate) indexes: HashMap<Digest, (LayerKey, Option<Bytes>)>,
}
