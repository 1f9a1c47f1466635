//! Takes one waiting manifest after the other and indexes its layers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::Notify;
use xebec_artifact::artifact::{ARTIFACT_TYPE, Artifact, LayerBlobs};
use xebec_artifact::recording::RUNTIME_IMAGE_TYPE;
use xebec_oci::Manifest;
use xebec_oci::image_config::MAX_CONFIG_SIZE;
use xebec_store::{
    Blob, DatabaseConfig, Digest, IndexingTask, LayerOutcome, ManifestWithin, RepositoryName, Store,
};
use xebec_upstream::{UpstreamError, Upstreams};

use crate::image::{self, Image, Layer};
use crate::known::Note;
use crate::layer::{self, LayerError};
use crate::predicting::{self, Outcome, Wanted};
use crate::publish::{self, here};
use crate::settings::{IndexingSettings, Signer, SignerError};
use crate::surroundings::{Alone, Surroundings};
use xebec_events::{Event, EventKind, Listener};

/// A manifest that a process took is taken again after this time, if nobody has said what came of it: that process is gone.
const LEASE: Duration = Duration::from_secs(3600);
/// So often a manifest is tried when the reason is a passing one.
const MOST_TRIES: u64 = 6;
/// After the first try; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// How often the store is asked for what is due, beside each time that something comes.
const LOOK: Duration = Duration::from_secs(30);
/// A larger artifact is not read, in bytes.
const MAX_ARTIFACT: u64 = 4 << 20;
/// While nothing may be written, it is looked this often whether that has changed.
const LOOK_AT_MODE: Duration = Duration::from_secs(1);

/// What came of a manifest.
enum Came {
    /// All that was to be done.
    Done,
    /// Some of its layers could not be indexed, for these reasons.
    NotWholly(String),
    /// It is indexed, and predicting failed for a reason that may pass.
    PredictAgain(String),
}

/// See the module.
pub struct Indexer {
    store: Store,
    upstreams: Upstreams,
    signer: Option<Arc<Signer>>,
    jobs: usize,
    predicts: bool,
    /// Told when a manifest has come.
    arrived: Arc<Notify>,
    /// The registry that it is a part of: nothing is begun while nothing may be written there.
    surroundings: Arc<dyn Surroundings>,
}

impl Indexer {
    /// One that works once [`Indexer::run`] is called. It is also woken by `arrived`.
    ///
    /// # Errors
    /// If there is to be a signature and the key cannot be used.
    pub fn new(
        settings: &IndexingSettings,
        store: Store,
        upstreams: Upstreams,
        arrived: Arc<Notify>,
    ) -> Result<Self, SignerError> {
        Ok(Self {
            store,
            upstreams,
            signer: settings.signer()?.map(Arc::new),
            jobs: settings.jobs.max(1),
            predicts: settings.predict,
            arrived,
            surroundings: Arc::new(Alone),
        })
    }

    /// The same as a part of a registry: it begins nothing while nothing may be written there, and counts what comes of manifests.
    #[must_use]
    pub fn within(self, surroundings: Arc<dyn Surroundings>) -> Self {
        Self { surroundings, ..self }
    }

    /// Works until the program ends.
    pub async fn run(self: Arc<Self>) {
        self.until_normal().await;
        if matches!(self.store.config().database, DatabaseConfig::Embedded)
            && let Err(error) = self.store.release_indexing().await
        {
            tracing::warn!("{error}");
        }
        let jobs = (0..self.jobs).map(|_| self.clone().work());
        futures_util::future::join_all(jobs).await;
    }

    async fn work(self: Arc<Self>) {
        loop {
            self.until_normal().await;
            match self.work_once().await {
                Ok(true) => {}
                Ok(false) => {
                    let _ = tokio::time::timeout(LOOK, self.arrived.notified()).await;
                }
                Err(error) => {
                    tracing::warn!("indexing waits for the store: {error}");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    async fn until_normal(&self) {
        while !self.surroundings.may_write() {
            tokio::time::sleep(LOOK_AT_MODE).await;
        }
    }

    /// Indexes the next manifest; `false` if none is due.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn work_once(&self) -> Result<bool, xebec_store::StoreError> {
        let Some(task) = self.store.take_indexing(LEASE).await? else {
            return Ok(false);
        };
        let IndexingTask {
            repository,
            manifest,
            tries,
        } = &task;
        let outcome = self.index(&task).await;
        self.surroundings.indexed(match &outcome {
            Ok(Came::Done | Came::PredictAgain(_)) => "done",
            Err(LayerError::Now(_)) => "failed_for_now",
            Ok(Came::NotWholly(_)) | Err(_) => "not_wholly",
        });
        match outcome {
            Ok(Came::Done) => self.store.settle_indexing(&task, None).await?,
            Ok(Came::NotWholly(problem)) | Err(LayerError::Never(problem) | LayerError::Here(problem)) => {
                tracing::info!(%repository, %manifest, "not indexed, or not all of it: {problem}");
                self.store.settle_indexing(&task, Some(problem)).await?;
            }
            Ok(Came::PredictAgain(problem)) | Err(LayerError::Now(problem)) if *tries < MOST_TRIES => {
                tracing::debug!(%repository, %manifest, "not indexed or predicted yet: {problem}");
                let pause =
                    FIRST_PAUSE * 2_u32.saturating_pow(u32::try_from(*tries).unwrap_or(0).saturating_sub(1));
                self.store.postpone_indexing(&task, pause, problem).await?;
            }
            Ok(Came::PredictAgain(problem)) => {
                tracing::warn!(%repository, %manifest, "no runtime image is predicted, and given up after {tries} tries: {problem}");
                self.store.settle_indexing(&task, None).await?;
            }
            Err(LayerError::Now(problem)) => {
                tracing::warn!(%repository, %manifest, "not indexed, and given up after {tries} tries: {problem}");
                self.store.settle_indexing(&task, Some(problem)).await?;
            }
        }
        Ok(true)
    }

    /// Indexes a manifest's layers and lists what came of them, then predicts.
    async fn index(&self, task: &IndexingTask) -> Result<Came, LayerError> {
        let repository = &task.repository;
        let Some(manifest) = self.store.manifest(repository, &task.manifest).await? else {
            return Ok(Came::Done);
        };
        if !image::is_image(manifest.artifact_type.as_deref()) {
            return Ok(Came::Done);
        }
        let image = Image::of(&manifest.media_type, &manifest.content).map_err(LayerError::Never)?;
        let Some(image) = image else {
            return Ok(Came::Done);
        };
        let (indexes, problems) = match self.listed(task).await? {
            Some(listed) => (listed, Vec::new()),
            None => self.index_layers(repository, &image).await?,
        };
        if !problems.is_empty() {
            return Ok(Came::NotWholly(problems.join("; ")));
        }
        let again = match self.predicts {
            true => self.predict(repository, image, indexes).await,
            false => None,
        };
        Ok(again.map_or(Came::Done, Came::PredictAgain))
    }

    /// Indexes an image's layers and lists their indexes in an artifact; says which layers could not be indexed.
    async fn index_layers(
        &self,
        repository: &RepositoryName,
        image: &Image,
    ) -> Result<(Artifact, Vec<String>), LayerError> {
        let config = self.config(repository, image).await?;
        let (mut artifact, mut problems) = (Artifact::default(), Vec::new());
        for layer in image.layers(&config).map_err(LayerError::Never)? {
            match self.layer(repository, layer).await {
                Ok(blobs) => {
                    artifact.layers.insert(layer.digest, blobs);
                }
                Err(LayerError::Never(problem) | LayerError::Here(problem)) => {
                    problems.push(format!("layer {}: {problem}", layer.digest));
                }
                Err(passing @ LayerError::Now(_)) => return Err(passing),
            }
        }
        if !artifact.layers.is_empty() {
            let digest = publish::publish(&self.store, repository, image, &artifact).await?;
            if let Some(signer) = &self.signer {
                publish::sign(&self.store, repository, signer, digest).await?;
            }
            self.surroundings
                .referred(repository, &here(image.descriptor.digest));
            tracing::info!(%repository, manifest = %image.descriptor.digest, artifact = %digest, "indexed");
        }
        Ok((artifact, problems))
    }

    /// Makes a runtime image of what was recorded of an earlier version. That nothing can be predicted is no problem of the image: it is
    /// said in the log, and not tried again. Returns a reason that may pass.
    async fn predict(&self, repository: &RepositoryName, image: Image, indexes: Artifact) -> Option<String> {
        let manifest = image.descriptor.digest;
        let outcome = match self.predicted(repository, image, indexes).await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(error),
        };
        self.surroundings.predicted(match &outcome {
            Ok(Outcome::Predicted(_)) => "done",
            Ok(Outcome::Recorded | Outcome::NothingBefore) => "not_needed",
            Err(LayerError::Now(_)) => "failed_for_now",
            Err(_) => "not_possible",
        });
        match outcome {
            Ok(Outcome::Predicted(artifact)) => {
                self.surroundings.referred(repository, &here(manifest));
                tracing::info!(%repository, %manifest, %artifact, "a runtime image is predicted");
            }
            Ok(Outcome::Recorded | Outcome::NothingBefore) => {}
            Err(LayerError::Never(problem) | LayerError::Here(problem)) => {
                tracing::info!(%repository, %manifest, "no runtime image is predicted: {problem}");
            }
            Err(LayerError::Now(problem)) => return Some(problem),
        }
        None
    }

    /// The same; `None` where nothing was ever recorded. Only what the repository has is read: no upstream is asked for anything.
    async fn predicted(
        &self,
        repository: &RepositoryName,
        image: Image,
        indexes: Artifact,
    ) -> Result<Option<Outcome>, LayerError> {
        let before = self.store.subjects_of_type(repository, RUNTIME_IMAGE_TYPE, 1);
        if before.await?.is_empty() {
            return Ok(None);
        }
        let config = image.config().digest;
        let config = predicting::read_blob(&self.store, repository, config, MAX_CONFIG_SIZE).await?;
        let lacks = || LayerError::Here(format!("{repository} does not have the image's configuration"));
        let config = config.ok_or_else(lacks)?;
        let signer = match self.has_made(&indexes).await? {
            true => self.signer.clone(),
            false => None,
        };
        let wanted = Wanted {
            repository: repository.clone(),
            image,
            config,
            indexes,
            signer,
        };
        predicting::predict(&self.store, wanted).await.map(Some)
    }

    /// Whether this registry has made all these indexes. It vouches for no others.
    async fn has_made(&self, indexes: &Artifact) -> Result<bool, LayerError> {
        for (layer, blobs) in &indexes.layers {
            let Some(LayerOutcome::Made(text)) = self.store.layer_outcome(&here(*layer)).await? else {
                return Ok(false);
            };
            if Note::read(&text).is_none_or(|note| note.blobs() != *blobs) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The index artifact that the image has, pushed by somebody or listed by its upstream; none in it if it cannot be read.
    async fn listed(&self, task: &IndexingTask) -> Result<Option<Artifact>, LayerError> {
        let (repository, subject) = (&task.repository, &task.manifest);
        if let Some(upstream) = self.upstreams.of(repository) {
            upstream
                .refresh_referrers(repository, subject)
                .await
                .map_err(passing)?;
        }
        let listed = self
            .store
            .bare_referrers(repository, subject, Some(ARTIFACT_TYPE), 1, None)
            .await?;
        let Some(first) = listed.items.first() else {
            return Ok(None);
        };
        let found = self
            .store
            .manifest_within(repository, &first.digest, MAX_ARTIFACT)
            .await?;
        let Some(ManifestWithin::Whole(found)) = found else {
            return Ok(Some(Artifact::default()));
        };
        let parsed = Manifest::parse(&found.content, Some(&found.media_type)).ok();
        let subject = subject.to_string().parse().ok();
        let artifact = parsed.zip(subject);
        let artifact = artifact.and_then(|(manifest, subject)| Artifact::decode(manifest, subject).ok());
        Ok(Some(artifact.unwrap_or_default()))
    }

    async fn config(&self, repository: &RepositoryName, image: &Image) -> Result<Vec<u8>, LayerError> {
        let descriptor = image.config();
        if descriptor.size > MAX_CONFIG_SIZE {
            return Err(LayerError::Never(format!(
                "a configuration of {} bytes is not read",
                descriptor.size
            )));
        }
        let blob = self.blob(repository, &here(descriptor.digest)).await?;
        let mut stream = self.store.read(&blob, 0..blob.size.min(MAX_CONFIG_SIZE)).await?;
        let mut config = Vec::new();
        while let Some(part) = stream.next().await {
            config.extend_from_slice(&part.map_err(|error| LayerError::Now(error.to_string()))?);
        }
        Ok(config)
    }

    /// A blob of the repository, which its upstream may have to give first.
    async fn blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<Blob, LayerError> {
        if let Some(blob) = self.store.peek_blob(repository, digest).await? {
            return Ok(blob);
        }
        match self.upstreams.of(repository) {
            Some(upstream) => upstream.bring(repository, digest).await.map_err(passing),
            None => Err(LayerError::Here(format!("{repository} does not have {digest}"))),
        }
    }

    async fn layer(&self, repository: &RepositoryName, layer: Layer) -> Result<LayerBlobs, LayerError> {
        let digest = here(layer.digest);
        match self.store.layer_outcome(&digest).await? {
            Some(LayerOutcome::Problem(problem)) => return Err(LayerError::Never(problem)),
            Some(LayerOutcome::Made(text)) => {
                let note = Note::read(&text).filter(|note| note.is_of(layer.diff_id));
                if let Some(note) = note
                    && note.give(&self.store, repository).await?
                {
                    return Ok(note.blobs());
                }
            }
            None => {}
        }
        let blob = self.blob(repository, &digest).await?;
        let made = match layer::index(&self.store, &blob, layer).await {
            Ok(made) => made,
            Err(LayerError::Never(problem)) => {
                let outcome = LayerOutcome::Problem(problem.clone());
                self.store.note_layer_outcome(&digest, outcome).await?;
                return Err(LayerError::Never(problem));
            }
            Err(other) => return Err(other),
        };
        let blobs = made.blobs();
        publish::keep_index(&self.store, repository, made).await?;
        let outcome = LayerOutcome::Made(Note::new(layer.diff_id, &blobs).text());
        self.store.note_layer_outcome(&digest, outcome).await?;
        Ok(blobs)
    }
}

fn passing(error: UpstreamError) -> LayerError {
    match error.is_passing() {
        true => LayerError::Now(error.to_string()),
        false => LayerError::Here(error.to_string()),
    }
}

impl Listener for Indexer {
    fn happened(&self, event: &Event) {
        if event.kind == EventKind::PushManifest {
            self.arrived.notify_one();
        }
    }
}
