//! Proof of an index: a complete layer's data space and its frame give the exact tar file. Its digest must be the
//! diff ID, and indexing it anew must give the same tree, the same pieces and the same contents.

use std::fs;
use std::io::{self, Write};

use xebec_artifact::artifact::{BlobRef, FRAME_TYPE};
use xebec_cache::layer::CachedLayer;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_index::indexer::{IndexOptions, IndexedLayer, index_layer};
use xebec_index::restore::{DataSource, RestoreError, restore_tar};
use xebec_kernel::file::write_atomically;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::Record;

use crate::facts;
use crate::images::Images;
use crate::origin;

/// The outcome of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Layer and index agree.
    Proven,
    /// Nothing is wrong, but there is nothing to prove it with.
    Unprovable(String),
    /// They do not agree. The index is marked and never used again.
    Disproved(String),
}

/// Frames larger than this are not proven: they are held in memory. 1 GiB is the frame of a layer of some hundred
/// million files.
const MAX_FRAME: u64 = 1 << 30;

/// Proves the index of a complete layer, and keeps the result with it.
///
/// # Errors
/// When the frame cannot be fetched or the cache cannot be read. A layer that is not complete is *unprovable*.
pub async fn prove(images: &Images, key: LayerKey) -> Result<Verdict, Failure> {
    let bytes = images.store().index_bytes(key)?;
    let index = LayerIndex::decode(&bytes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let Some(section) = index.frame.clone() else {
        return Ok(Verdict::Unprovable(
            "its table of contents is bound by the manifest already".to_owned(),
        ));
    };
    let Some(diff_id) = index.diff_id else {
        return Ok(Verdict::Unprovable("the index has no diff ID".to_owned()));
    };
    let frame = match fetch_frame(images, key, section.digest, section.size).await {
        Ok(frame) => frame,
        Err(reason) => return Ok(Verdict::Unprovable(reason)),
    };
    let store = images.store().clone();
    let layer = store.look(key)?;
    if !layer.is_complete() {
        return Ok(Verdict::Unprovable("the layer is not complete".to_owned()));
    }
    if layer.has_unverified() {
        let reason = "pages that a runtime image brought are still being compared with the layer; try again in a minute";
        return Ok(Verdict::Unprovable(reason.to_owned()));
    }
    let check = tokio::task::spawn_blocking(move || compare(&index, diff_id, &frame, &layer));
    let (verdict, contents) = check
        .await
        .map_err(|error| Failure::host("prove a layer", error))?;
    match &verdict {
        Verdict::Proven => {
            let path = store.directory().join(key.folder()).join("contents");
            write_atomically(&path, &contents)
                .map_err(|error| Failure::host("keep content digests", error))?;
            facts::update(&store, key, Record::set_proven)?;
        }
        Verdict::Disproved(problem) => {
            facts::update(&store, key, |record| record.set_disproved(problem))?;
        }
        Verdict::Unprovable(_) => {}
    }
    Ok(verdict)
}

async fn fetch_frame(images: &Images, key: LayerKey, digest: Digest, size: u64) -> Result<Vec<u8>, String> {
    let directory = images.store().directory().join(key.folder());
    let path = directory.join("frame");
    if let Ok(bytes) = fs::read(&path)
        && Digest::of(&bytes) == digest
    {
        return Ok(bytes);
    }
    let mut reasons = vec!["the frame is not at hand".to_owned()];
    for origin in origin::read(&directory) {
        let Some(repository) = origin.parse_repository() else {
            continue;
        };
        let client = images
            .clients()
            .get(origin.docker_config.as_deref())
            .map_err(|f| f.to_string())?;
        let descriptor = BlobRef { digest, size }.descriptor(FRAME_TYPE);
        match client.blob(&repository, &descriptor, MAX_FRAME).await {
            Ok(bytes) => {
                // Kept, so that the next proof, and a command that restores the tar file, need not ask.
                let _ = write_atomically(&path, &bytes);
                return Ok(bytes.to_vec());
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

/// The verdict, and the content digests that were computed on the way.
fn compare(index: &LayerIndex, diff_id: Digest, frame: &[u8], layer: &CachedLayer) -> (Verdict, Vec<u8>) {
    match index_again(index, frame, layer) {
        Err(problem) => (Verdict::Disproved(problem), Vec::new()),
        Ok((restored, again)) => match difference(index, diff_id, restored, &again) {
            Some(problem) => (Verdict::Disproved(problem), Vec::new()),
            None => (Verdict::Proven, again.contents),
        },
    }
}

/// Puts the tar file together and indexes it, both at once: it may be larger than memory.
fn index_again(
    index: &LayerIndex,
    frame: &[u8],
    layer: &CachedLayer,
) -> Result<(Digest, IndexedLayer), String> {
    let (mut reader, writer) = io::pipe().map_err(|error| format!("no pipe: {error}"))?;
    let (restored, again) = std::thread::scope(|scope| {
        let restored = scope.spawn(move || {
            let mut writer = io::BufWriter::with_capacity(1 << 20, writer);
            let digest = restore_tar(index, frame, &Data(layer), &mut writer)?;
            writer.flush().map_err(RestoreError::Write)?;
            Ok::<_, RestoreError>(digest)
        });
        let again = index_layer(
            io::BufReader::with_capacity(1 << 20, &reader),
            &IndexOptions::default(),
            None,
        );
        // An indexer that gives up early must not leave the writer blocked.
        let _ = io::copy(&mut reader, &mut io::sink());
        (restored.join(), again)
    });
    let restored = restored.map_err(|_| "restoring panicked".to_owned())?;
    let restored = restored.map_err(|error| format!("cannot rebuild the tar file: {error}"))?;
    let again = again.map_err(|error| format!("the rebuilt tar file is not readable: {error}"))?;
    Ok((restored, again))
}

fn difference(index: &LayerIndex, diff_id: Digest, restored: Digest, again: &IndexedLayer) -> Option<String> {
    if restored != diff_id {
        return Some(format!(
            "the rebuilt tar file has digest {restored}, but the diff ID is {diff_id}"
        ));
    }
    if again.index.entries != index.entries {
        let mut pairs = again.index.entries.iter().zip(&index.entries);
        let place = pairs
            .find(|(one, other)| one != other)
            .map(|(one, _)| one.path.to_string());
        return Some(format!(
            "the trees differ, first {}",
            place.unwrap_or_else(|| "at the end".to_owned())
        ));
    }
    if again.index.pieces != index.pieces {
        return Some("the pieces differ".to_owned());
    }
    (again.index.contents != index.contents).then(|| "the content digests differ".to_owned())
}

struct Data<'a>(&'a CachedLayer);

impl DataSource for Data<'_> {
    fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(bytes, offset)
    }
}
