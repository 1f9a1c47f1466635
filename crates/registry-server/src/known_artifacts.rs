//! Artifacts by which starts are answered: recordings and lists of indexes, as they were read once. Content with a digest never changes,
//! so this holds for as long as there is memory. Which repositories have an artifact is not known here: the store is asked each time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use xebec_artifact::carried::Carried;
use xebec_format::digest::Digest;
use xebec_oci::Manifest;

/// What is kept in memory, in bytes: some thousand recordings of ordinary size.
const MOST_BYTES: u64 = 64 << 20;
/// What an entry takes besides.
const ENTRY: u64 = 1024;
/// Starts that are planned at the same time, and recordings that are read: a hostile one may take 100 MB meanwhile.
const PLANNED_AT_ONCE: usize = 16;
const READ_AT_ONCE: usize = 2;
/// A start that does not get its turn in this time is answered with less.
const PATIENCE: Duration = Duration::from_secs(3);

/// An artifact, as it was read.
pub(crate) struct KnownArtifact {
    /// The manifest, as it came.
    pub(crate) content: Bytes,
    pub(crate) media_type: String,
    /// What is in it.
    pub(crate) carried: Carried,
}

impl KnownArtifact {
    /// Reads a manifest that refers to `subject`.
    pub(crate) fn read(content: Bytes, media_type: String, subject: Digest) -> Self {
        let manifest = Manifest::parse(&content, Some(&media_type)).ok();
        Self {
            carried: manifest.map_or_else(Carried::default, |manifest| Carried::read(manifest, subject)),
            content,
            media_type,
        }
    }

    fn memory(&self) -> u64 {
        ENTRY + self.content.len() as u64 + self.carried.memory()
    }
}

/// The artifacts that were read lately, and how many starts and recordings are dealt with at once.
pub(crate) struct KnownArtifacts {
    kept: Mutex<Kept>,
    planning: Semaphore,
    reading: Semaphore,
}

#[derive(Default)]
struct Kept {
    /// Each with when it was used last.
    artifacts: HashMap<xebec_store::Digest, (Arc<KnownArtifact>, u64)>,
    bytes: u64,
    uses: u64,
}

impl Default for KnownArtifacts {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            planning: Semaphore::new(PLANNED_AT_ONCE),
            reading: Semaphore::new(READ_AT_ONCE),
        }
    }
}

impl KnownArtifacts {
    /// The turn of a start that is planned; `None` if so many are planned that it does not come.
    pub(crate) async fn planning(&self) -> Option<SemaphorePermit<'_>> {
        turn(&self.planning).await
    }

    /// The turn of an artifact that is read.
    pub(crate) async fn reading(&self) -> Option<SemaphorePermit<'_>> {
        turn(&self.reading).await
    }

    /// An artifact that was read before.
    pub(crate) fn get(&self, digest: &xebec_store::Digest) -> Option<Arc<KnownArtifact>> {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        let now = kept.uses;
        let (artifact, used) = kept.artifacts.get_mut(digest)?;
        *used = now;
        Some(artifact.clone())
    }

    /// Keeps an artifact, in place of those that nobody has asked for the longest.
    pub(crate) fn keep(&self, digest: xebec_store::Digest, artifact: Arc<KnownArtifact>) {
        let mut kept = self.kept.lock();
        kept.uses += 1;
        kept.bytes += artifact.memory();
        let now = kept.uses;
        if let Some((before, _)) = kept.artifacts.insert(digest, (artifact, now)) {
            kept.bytes -= before.memory();
        }
        while kept.bytes > MOST_BYTES {
            let oldest = kept.artifacts.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
                return;
            };
            if let Some((gone, _)) = kept.artifacts.remove(&oldest) {
                kept.bytes -= gone.memory();
            }
        }
    }
}

async fn turn(turns: &Semaphore) -> Option<SemaphorePermit<'_>> {
    let turn = tokio::time::timeout(PATIENCE, turns.acquire()).await;
    turn.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use xebec_store::Algorithm;

    use super::*;

    #[test]
    fn the_memory_is_bounded_and_what_is_used_stays() {
        let known = KnownArtifacts::default();
        let name = |number: usize| xebec_store::Digest::of(Algorithm::Sha256, &number.to_le_bytes());
        let artifact = |size| {
            let content = Bytes::from(vec![b' '; size]);
            Arc::new(KnownArtifact::read(content, String::new(), Digest::of(b"image")))
        };
        for number in 0..100 {
            known.keep(name(number), artifact(1 << 20));
            assert!(known.get(&name(0)).is_some(), "{number}");
        }
        let kept = (0..100).filter(|number| known.get(&name(*number)).is_some());
        assert_eq!(kept.count(), 63);
        known.keep(name(0), artifact(1));
        known.keep(name(200), artifact(200 << 20));
        assert!(known.get(&name(200)).is_none(), "more than there is room for");
        assert_eq!(known.kept.lock().bytes, 0);
    }
}
