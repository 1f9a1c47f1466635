//! Reads a layer whole, once, and makes its index while it streams in; on request its contents are kept.
//!
//! The index is *proven*: this host has seen every byte, and layer digest and diff ID agree with the
//! manifest and the configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use xebec_artifact::made::MadeIndex;
use xebec_cache::disk::DiskFile;
use xebec_cache::room::Room;
use xebec_cache::store::{LayerKey, StagedLayer};
use xebec_format::digest::Digest;
use xebec_index::indexer::{DataSink, IndexError, IndexOptions, index_layer};
use xebec_oci::{BlobStream, Client, Descriptor};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Reply;
use xebec_trust::RepositoryName;

use crate::budget::{Account, Held};
use crate::facts;
use crate::found_image::FoundImage;
use crate::images::Images;
use crate::images::Report;
use crate::registry_failure::registry_failure;

/// Parts of a blob in flight between the network and the indexer. A part is what one read of a connection gives
/// (16 KiB to 1 MiB), so this bounds memory and still lets the network run ahead.
const QUEUE: usize = 32;
/// How much room is made at once on a full disk.
const ROOM_AT_ONCE: usize = 16 << 20;

impl Images {
    /// Indexes layer `number` of an image, and keeps the index with its sections in the store. With an account, which counts their
    /// memory, it keeps the layer's contents too, so that the layer is complete at once.
    ///
    /// # Errors
    /// When its tree takes more memory than the image may. When the blob cannot be fetched, is not a layer, or has another digest than
    /// the image says.
    pub async fn index_layer(
        &self,
        client: &Client,
        found: &FoundImage,
        number: usize,
        keeping: Option<&Arc<Account>>,
        report: &Report,
    ) -> Result<LayerKey, Failure> {
        let (Some(descriptor), Some(diff_id)) = (found.layers.get(number), found.diff_ids.get(number)) else {
            return Err(Failure::new(FailureKind::NotFound, "there is no such layer"));
        };
        let repository = found.reference.repository();
        let stream = client
            .blob_stream(repository, &descriptor.digest, descriptor.size, 0)
            .await
            .map_err(|error| registry_failure(&error))?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let feed = feed(stream, found, descriptor, number, sender, report);
        let images = self.clone();
        let (descriptor, diff_id) = (descriptor.clone(), *diff_id);
        let reader = facts::repository_name(repository)?;
        // While it goes on; the decoder of the index then counts that.
        if let Some(account) = keeping {
            account.check()?;
        }
        let held = keeping.and_then(|account| account.hold(0));
        // It goes at the pace of a registry, so it has none of the threads that decode pages for readers. There are as many
        // as streams under way, of which a registry has a limited number.
        let index = apart("index a layer", move || {
            let key = images.index_stream(&descriptor, diff_id, Parts::new(receiver), held)?;
            // The repository gave all of it.
            images.note_proven(key, &reader)
        });
        let (fed, indexed) = tokio::join!(feed, index);
        let indexed = indexed?;
        if let Some(account) = keeping {
            account.check()?;
        }
        // The network's error explains a broken stream better than the indexer's.
        fed?;
        indexed
    }

    /// The same of a layer whose blob is in a file of this host. Images of the repository `reader` may be shown it.
    ///
    /// # Errors
    /// The same, and those of reading the file.
    pub(crate) async fn index_file(
        &self,
        path: PathBuf,
        descriptor: &Descriptor,
        diff_id: Digest,
        reader: &RepositoryName,
        keeping: Option<&Arc<Account>>,
    ) -> Result<LayerKey, Failure> {
        let held = keeping.and_then(|account| account.hold(0));
        let (images, descriptor, reader) = (self.clone(), descriptor.clone(), reader.clone());
        let index = apart("index a layer", move || {
            let file = File::open(&path)
                .map_err(|error| Failure::host(format!("read {}", path.display()), error))?;
            let key = images.index_stream(&descriptor, diff_id, file, held)?;
            images.note_proven(key, &reader)
        });
        let indexed = index.await?;
        if let Some(account) = keeping {
            account.check()?;
        }
        indexed
    }

    /// Notes that this host has read all of a layer, and that images of a repository may be shown it.
    fn note_proven(&self, key: LayerKey, reader: &RepositoryName) -> Result<LayerKey, Failure> {
        facts::update(&self.store, key, |record| {
            record.set_proven();
            facts::open(&self.store, key, record, reader);
        })?;
        Ok(key)
    }

    fn index_stream(
        &self,
        descriptor: &Descriptor,
        diff_id: Digest,
        blob: impl Read,
        held: Option<Held>,
    ) -> Result<LayerKey, Failure> {
        let staged = self.store.stage(&descriptor.digest)?;
        let keep_data = held.is_some();
        let mut sink = held.map(|held| DataFile {
            file: staged.data().clone(),
            room: self.store.room().clone(),
            held,
        });
        let sink = sink.as_mut().map(|sink| sink as &mut dyn DataSink);
        let indexed = index_layer(blob, &IndexOptions::default(), sink).map_err(not_indexed)?;
        let made = MadeIndex::new(indexed, descriptor.digest, diff_id)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let (encoded, sections) = (&made.encoded, made.sections());
        let key = LayerKey {
            layer: descriptor.digest,
            index: Digest::of(encoded),
        };
        if self.store.contains(key) {
            // The same index is there already, perhaps with data and in use: only what it lacks is added.
            self.store.add(key, encoded)?;
            let directory = self.store.directory().join(key.folder());
            for (name, bytes) in sections {
                xebec_kernel::file::write_atomically(&directory.join(name), bytes)
                    .map_err(|error| Failure::on_root_disk(format_args!("write {name} of {key}"), &error))?;
            }
            if keep_data {
                self.keep_spans(key, encoded, &staged)?;
            }
        } else {
            staged.keep_file("index", encoded)?;
            for (name, bytes) in sections {
                staged.keep_file(name, bytes)?;
            }
            if keep_data {
                staged.claim_all(&made.index)?;
            }
            staged.publish(key, made.index.data_size)?;
        }
        Ok(key)
    }

    /// Copies the spans of a layer that streamed in to the folder that it already has.
    fn keep_spans(&self, key: LayerKey, index: &[u8], staged: &StagedLayer<'_>) -> Result<(), Failure> {
        let layer = self.store.open_layer(key, index)?;
        let failed =
            |error: io::Error| Failure::on_root_disk(format_args!("write the data of {key}"), &error);
        let data = staged.data();
        for (number, span) in layer.table().spans.iter().enumerate() {
            let length =
                usize::try_from(span.data.end - span.data.start).map_err(|e| failed(io::Error::other(e)))?;
            let mut bytes = vec![0; length];
            data.read_exact_at(&mut bytes, span.data.start).map_err(failed)?;
            layer.write_span(number, &bytes).map_err(failed)?;
        }
        Ok(())
    }
}

/// A disk that takes no more is no fault of the image.
fn not_indexed(error: IndexError) -> Failure {
    match &error {
        IndexError::Sink(problem) => Failure::on_root_disk("keeping the layer's contents", problem),
        _ => Failure::new(FailureKind::Integrity, &error),
    }
}

/// Runs work that may take as long as a registry likes, in a thread of its own.
async fn apart<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || {
        let _ = tell.send(work());
    };
    std::thread::Builder::new()
        .name("whole-layer".to_owned())
        .spawn(work)
        .map_err(|error| Failure::host(what, error))?;
    told.await.map_err(|_| Failure::host(what, "its thread panicked"))
}

async fn feed(
    mut stream: BlobStream,
    found: &FoundImage,
    descriptor: &Descriptor,
    number: usize,
    sender: mpsc::Sender<Bytes>,
    report: &Report,
) -> Result<(), Failure> {
    let failed = |error| registry_failure(&error);
    let what = format!(
        "layer {}/{} {}",
        number + 1,
        found.layers.len(),
        descriptor.digest.short()
    );
    let mut done = 0;
    while let Some(part) = stream.next_part().await.map_err(failed)? {
        done += part.len() as u64;
        if sender.send(part).await.is_err() {
            // The indexer gave up; its own error says why.
            return Ok(());
        }
        report(Reply::bytes(what.clone(), done, descriptor.size));
    }
    Ok(())
}

/// The parts of a blob as a reader.
struct Parts {
    receiver: mpsc::Receiver<Bytes>,
    part: Bytes,
}

impl Parts {
    fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self {
            receiver,
            part: Bytes::new(),
        }
    }
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.receiver.blocking_recv() {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

struct DataFile {
    file: Arc<dyn DiskFile>,
    room: Arc<Room>,
    /// The memory of the tree.
    held: Held,
}

impl DataSink for DataFile {
    fn write(&mut self, data_offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.file.write_all_at(bytes, data_offset) {
            // More than this write needs: a layer that is read whole goes on and on.
            Err(error) if is_full(&error) && self.room.make(bytes.len().max(ROOM_AT_ONCE) as u64) => {
                self.file.write_all_at(bytes, data_offset)
            }
            other => other,
        }
    }

    fn hold(&mut self, bytes: u64) -> io::Result<()> {
        match self.held.grow(bytes) {
            true => Ok(()),
            false => Err(io::Error::other("it holds more than its image may")),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_takes_no_more_is_the_hosts_fault_and_a_bad_layer_the_images() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let failure = not_indexed(IndexError::Sink(full()));
        assert_eq!(failure.kind, FailureKind::Host);
        assert!(
            failure.message.contains("`xebec cache gc --to SIZE`"),
            "{failure}"
        );
        assert_eq!(
            not_indexed(IndexError::TooLarge { limit: 1 }).kind,
            FailureKind::Integrity
        );
    }
}
