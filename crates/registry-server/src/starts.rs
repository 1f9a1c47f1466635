//! What starts share that are answered at the same time: the artifacts that were read, and turns.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use xebec_artifact::known::{KnownArtifact, KnownArtifacts};
use xebec_format::digest::Digest;

/// Starts that are planned at the same time, and recordings that are read: a hostile one may take 100 MB meanwhile.
const PLANNED_AT_ONCE: usize = 16;
const READ_AT_ONCE: usize = 2;

/// What starts share. A turn goes along with work that does not stop when its request does.
pub(crate) struct Starts {
    known: Mutex<KnownArtifacts>,
    planning: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

impl Default for Starts {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            planning: Arc::new(Semaphore::new(PLANNED_AT_ONCE)),
            reading: Arc::new(Semaphore::new(READ_AT_ONCE)),
        }
    }
}

impl Starts {
    /// The turn of a start that is planned.
    pub(crate) async fn planning(&self) -> Option<OwnedSemaphorePermit> {
        self.planning.clone().acquire_owned().await.ok()
    }

    /// Reads an artifact when its turn comes.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.reading.clone().acquire_owned().await.ok()?;
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read()
        });
        reading.await.ok()
    }

    /// An artifact that was read before.
    pub(crate) fn known(&self, digest: &Digest) -> Option<Arc<KnownArtifact>> {
        self.known.lock().get(digest)
    }

    /// Keeps an artifact.
    pub(crate) fn keep(&self, digest: Digest, artifact: Arc<KnownArtifact>) {
        self.known.lock().keep(digest, artifact);
    }
}
