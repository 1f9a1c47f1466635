//! Artifacts by which a registry answers starts: recordings and lists of indexes, as they were read once. Content with a digest never
//! changes, so this holds for as long as there is memory. Which repositories have an artifact is not known here: the registry asks its
//! store each time.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use xebec_format::digest::Digest;
use xebec_oci::Manifest;

use crate::carried::Carried;

/// What is kept in memory, in bytes: some thousand recordings of ordinary size.
const MOST_BYTES: u64 = 64 << 20;
/// What an entry takes besides.
const ENTRY: u64 = 1024;

/// An artifact, as it was read.
#[derive(Debug)]
pub struct KnownArtifact {
    /// The manifest, as it came.
    pub content: Bytes,
    /// What is in it.
    pub carried: Carried,
}

impl KnownArtifact {
    /// Reads a manifest that refers to `subject`.
    pub fn read(content: Bytes, media_type: &str, subject: Digest) -> Self {
        let manifest = Manifest::parse(&content, Some(media_type)).ok();
        Self {
            carried: manifest.map_or_else(Carried::default, |manifest| Carried::read(manifest, subject)),
            content,
        }
    }

    fn memory(&self) -> u64 {
        ENTRY + self.content.len() as u64 + self.carried.memory()
    }
}

/// The artifacts that were read lately.
#[derive(Debug, Default)]
pub struct KnownArtifacts {
    /// Each with when it was used last.
    artifacts: HashMap<Digest, (Arc<KnownArtifact>, u64)>,
    bytes: u64,
    uses: u64,
}

impl KnownArtifacts {
    /// An artifact that was read before.
    pub fn get(&mut self, digest: &Digest) -> Option<Arc<KnownArtifact>> {
        self.uses += 1;
        let (artifact, used) = self.artifacts.get_mut(digest)?;
        *used = self.uses;
        Some(artifact.clone())
    }

    /// Keeps an artifact, in place of those that nobody has asked for the longest.
    pub fn keep(&mut self, digest: Digest, artifact: Arc<KnownArtifact>) {
        self.uses += 1;
        self.bytes += artifact.memory();
        if let Some((before, _)) = self.artifacts.insert(digest, (artifact, self.uses)) {
            self.bytes -= before.memory();
        }
        while self.bytes > MOST_BYTES {
            let oldest = self.artifacts.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(digest, _)| *digest) else {
                return;
            };
            if let Some((gone, _)) = self.artifacts.remove(&oldest) {
                self.bytes -= gone.memory();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_what_is_used_stays() {
        let mut known = KnownArtifacts::default();
        let name = |number: usize| Digest::of(&number.to_le_bytes());
        let artifact = |size| {
            let content = Bytes::from(vec![b' '; size]);
            Arc::new(KnownArtifact::read(content, "", Digest::of(b"image")))
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
        assert_eq!(known.bytes, 0);
    }
}
