//! Blobs of a directory: compared with their digests while they are read, and taken once for all repositories.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use xebec_kernel::keyed_lock::KeyedLock;
use xebec_store::{AppendError, Digest, RepositoryName, Store, StoreError};

use super::layout;
use super::options::{ImportOptions, Taking};
use super::source::{Source, said};
use crate::put::Refusal;
use crate::tally::Tally;

/// So many bytes are read at once.
const PIECE: usize = 256 << 10;

/// Those of all repositories.
pub(super) struct Blobs {
    store: Store,
    source: Arc<Source>,
    taking: Taking,
    dry_run: bool,
    tally: Arc<Tally>,
    turns: KeyedLock<Digest>,
    /// Those that a dry run has counted.
    counted: Mutex<HashSet<Digest>>,
}

impl Blobs {
    pub(super) fn new(
        store: &Store,
        source: &Arc<Source>,
        options: &ImportOptions,
        tally: &Arc<Tally>,
    ) -> Self {
        Self {
            store: store.clone(),
            source: source.clone(),
            taking: options.taking,
            dry_run: options.dry_run,
            tally: tally.clone(),
            turns: KeyedLock::default(),
            counted: Mutex::default(),
        }
    }

    /// Sees that a repository has a blob. The refusal says why the other registry does not give it.
    pub(super) async fn bring(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Refusal> {
        let _turn = self.turns.take(digest.clone()).await;
        let here = match self.dry_run {
            true => self.store.peek_blob(name, digest).await?,
            // With the promise that it stays until the manifest is put.
            false => self.store.blob(name, digest).await?,
        };
        if here.is_some() {
            self.tally.add(|moved| moved.blobs_here += 1);
            return Ok(());
        }
        self.is_shown(name, digest)?;
        if self.dry_run {
            return self.count(digest).await;
        }
        if self.store.adopt_blob(name, digest).await?.is_some() {
            self.tally.add(|moved| moved.blobs_here += 1);
            return Ok(());
        }
        let path = layout::data(digest);
        let file = self
            .source
            .file(&path)
            .map_err(|error| self.unreadable(&path, &error))?;
        match self.taking {
            Taking::Copy => self.copy(name, digest, file, &path).await?,
            Taking::HardLink | Taking::Move => {
                let adopted = self.store.adopt_file(name, digest, file).await;
                let blob = adopted.map_err(|error| self.refused(&path, error))?;
                self.tally.add(|moved| moved.bytes += blob.size);
            }
        }
        self.tally.add(|moved| moved.blobs += 1);
        Ok(())
    }

    /// The other registry gives a blob of a repository only if that has a link to it: one without may be another tenant's.
    fn is_shown(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Refusal> {
        let path = layout::layer(name, digest);
        let (link, _) = self
            .source
            .link(&path)
            .map_err(|error| self.unreadable(&path, &error))?;
        match link == digest.to_string() {
            true => Ok(()),
            false => Err(Refusal::Skip(format!(
                "{} names something else",
                self.source.shown(&path)
            ))),
        }
    }

    fn unreadable(&self, path: &str, error: &io::Error) -> Refusal {
        Refusal::Skip(format!("{}: {}", self.source.shown(path), said(error)))
    }

    /// The refusal for a store's error about a file's bytes, with the file's name.
    fn refused(&self, path: &str, error: StoreError) -> Refusal {
        match error {
            StoreError::DigestMismatch { found, .. } => {
                let file = self.source.shown(path);
                Refusal::Skip(format!("{file} is damaged: its digest is {found}"))
            }
            other => other.into(),
        }
    }

    async fn count(&self, digest: &Digest) -> Result<(), Refusal> {
        let path = layout::data(digest);
        let size = self.source.file(&path).and_then(|file| file.metadata());
        let size = size.map_err(|error| self.unreadable(&path, &error))?.len();
        if self.store.any_blob(digest).await?.is_some() {
            self.tally.add(|moved| moved.blobs_here += 1);
        } else if self.counted.lock().insert(digest.clone()) {
            self.tally.add(|moved| {
                moved.blobs += 1;
                moved.bytes += size;
            });
        }
        Ok(())
    }

    async fn copy(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        file: File,
        path: &str,
    ) -> Result<(), Refusal> {
        let id = self.store.begin_upload(name).await?;
        let sent = self
            .store
            .append(name, &id, None, pieces(file, self.tally.clone()))
            .await;
        let finished = match sent {
            Ok(_) => {
                let finished = self.store.finish_upload(name, &id, digest).await;
                finished.map(drop).map_err(|error| self.refused(path, error))
            }
            Err(AppendError::Store(error)) => Err(error.into()),
            Err(AppendError::Body(error)) => Err(self.unreadable(path, &error)),
            Err(error) => Err(Refusal::Skip(error.to_string())),
        };
        if finished.is_err() {
            // One whose bytes are wrong is ended already.
            self.store.cancel_upload(name, &id).await?;
        }
        finished
    }

    /// Removes the file of a blob that an image which is here names, if files are to be moved.
    pub(super) async fn remove(&self, name: &RepositoryName, digest: &Digest) -> Result<(), StoreError> {
        if self.taking != Taking::Move || self.dry_run {
            return Ok(());
        }
        let directory = layout::blob(digest);
        // The record of one that was here may have lost its object: then this is the last copy.
        let is_whole = match self.store.peek_blob(name, digest).await? {
            Some(blob) => self.store.has_object(&blob).await,
            None => false,
        };
        let reason = match is_whole {
            false => "the store has lost its bytes; scrub the store, and import again".to_owned(),
            true => match self.source.remove(&directory, layout::DATA) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => said(&error),
                _ => return Ok(()),
            },
        };
        let what = self.source.shown(&directory);
        self.tally
            .skip(name.as_str(), what, format!("it stays: {reason}"));
        Ok(())
    }

    /// A manifest's bytes, which are what the digest says.
    pub(super) fn manifest(&self, digest: &Digest) -> Result<Bytes, String> {
        let path = layout::data(digest);
        let limit = self.store.config().max_manifest;
        let read = self.source.read(&path, limit);
        let (content, _) = read.map_err(|error| format!("{}: {}", self.source.shown(&path), said(&error)))?;
        let found = Digest::of(digest.algorithm(), &content);
        match found == *digest {
            true => Ok(content.into()),
            false => Err(format!(
                "{} is damaged: its digest is {found}",
                self.source.shown(&path)
            )),
        }
    }
}

/// A file in pieces, which are counted.
fn pieces(file: File, tally: Arc<Tally>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let state = (Arc::new(file), tally);
    futures_util::stream::try_unfold(state, |(file, tally)| async move {
        let reader = file.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            let read = (&*reader).read(&mut piece)?;
            piece.truncate(read);
            Ok::<_, io::Error>(Bytes::from(piece))
        });
        let piece = reading.await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Ok(None);
        }
        tally.add(|moved| moved.bytes += piece.len() as u64);
        Ok(Some((piece, (file, tally))))
    })
}
