//! Lists the referrers of an image in its registry: index artifacts, recordings. A start needs both, so it asks once for all.
//!
//! It asks even before it has the image's configuration, since a recording's artifact carries that: then the registry need
//! not be asked for it. The artifact's author is not trusted for that: the manifest has the configuration's digest.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::warn;
use xebec_container::Identity;
use xebec_format::digest::Digest;
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_oci::{Client, ClientError, Descriptor, FetchedManifest, Manifest, Repository};

use crate::embedded_config::config_user;

/// Artifacts that are fetched for the configuration they may carry, at the same time. They are small, are needed next, and
/// few images have more recordings.
const AHEAD: usize = 4;

/// Artifacts in which the configuration of an image may be embedded that this host does not know.
pub struct ConfigCarriers<'a> {
    /// Their type.
    pub artifact_type: &'a str,
    /// Whether it is time to ask for those of a manifest.
    pub are_due: &'a (dyn Fn(Digest) -> bool + Sync),
    /// Whether one may be used, by the manifest and its own digest.
    pub is_wanted: &'a (dyn Fn(Digest, Digest) -> bool + Sync),
}

/// The configuration of an image, as a recording of it carries it.
pub(crate) struct EmbeddedConfig {
    pub(crate) bytes: Bytes,
    /// The numbers of its user, as the recording says.
    pub(crate) user: Option<Identity>,
}

impl EmbeddedConfig {
    fn of(descriptor: &Descriptor) -> Option<Self> {
        Some(Self {
            bytes: descriptor.embedded()?.into(),
            user: config_user(descriptor),
        })
    }
}

/// The artifacts that refer to one image.
pub struct Referrers {
    client: Client,
    repository: Repository,
    manifest: Digest,
    /// All of them, where one list serves several questions.
    all: Option<OnceCell<Vec<Descriptor>>>,
    /// Those that were fetched before they were asked for.
    ahead: Mutex<HashMap<Digest, FetchedManifest>>,
    in_vain: AtomicBool,
}

impl Referrers {
    /// Asks for one type at a time.
    pub fn by_type(client: Client, repository: &Repository, manifest: Digest) -> Self {
        Self {
            client,
            repository: repository.clone(),
            manifest,
            all: None,
            ahead: Mutex::default(),
            in_vain: AtomicBool::new(false),
        }
    }

    /// Asks once, for all types.
    pub fn at_once(client: Client, repository: &Repository, manifest: Digest) -> Self {
        Self {
            all: Some(OnceCell::new()),
            ..Self::by_type(client, repository, manifest)
        }
    }

    /// Those of a type. None are an empty list.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub async fn of_type(&self, artifact_type: &str) -> Result<Vec<Descriptor>, ClientError> {
        let Some(all) = &self.all else {
            return self.ask(Some(artifact_type)).await;
        };
        let all = all.get_or_try_init(|| self.ask(None)).await?;
        let is_wanted = |entry: &&Descriptor| entry.artifact_type.as_deref() == Some(artifact_type);
        Ok(all.iter().filter(is_wanted).cloned().collect())
    }

    /// The image's configuration, if one of its recordings has it, with the numbers of its user. Artifacts that were fetched for it
    /// are not fetched again.
    pub(crate) async fn config(
        &self,
        config: &Descriptor,
        carriers: &ConfigCarriers<'_>,
    ) -> Option<EmbeddedConfig> {
        let listed = match self.of_type(carriers.artifact_type).await {
            Ok(listed) => listed,
            Err(error) => {
                warn!("what refers to {}: {error}", self.manifest);
                self.in_vain.store(true, Ordering::Relaxed);
                return None;
            }
        };
        let wanted = listed
            .iter()
            .map(|entry| entry.digest)
            .filter(|digest| (carriers.is_wanted)(self.manifest, *digest));
        let fetched = join_all(wanted.take(AHEAD).map(|digest| self.artifact(digest))).await;
        let fetched: Vec<FetchedManifest> = fetched.into_iter().flatten().collect();
        let found = fetched.iter().find_map(|artifact| match artifact.parse() {
            Ok(Manifest::Image(artifact)) => {
                let mut carried = artifact
                    .layers
                    .iter()
                    .filter(|entry| entry.digest == config.digest);
                carried.find_map(EmbeddedConfig::of)
            }
            _ => None,
        });
        let mut ahead = self.ahead.lock();
        ahead.extend(fetched.into_iter().map(|artifact| (artifact.digest, artifact)));
        found
    }

    /// Whether the list was asked for ahead, and could not be fetched.
    pub fn is_in_vain(&self) -> bool {
        self.in_vain.load(Ordering::Relaxed)
    }

    /// One of them.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub async fn artifact(&self, digest: Digest) -> Result<FetchedManifest, ClientError> {
        let ahead = self.ahead.lock().remove(&digest);
        if let Some(ahead) = ahead {
            return Ok(ahead);
        }
        let name = digest.to_string();
        self.client.manifest(&self.repository, &name, ACCEPT_IMAGE).await
    }

    async fn ask(&self, artifact_type: Option<&str>) -> Result<Vec<Descriptor>, ClientError> {
        let asked = self
            .client
            .referrers(&self.repository, &self.manifest, artifact_type);
        match asked.await {
            Err(ClientError::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}
