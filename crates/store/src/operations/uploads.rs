//! Uploads: begun, continued, finished. Acknowledged bytes are on the disk.
//!
//! A task of its own writes what a request sends, so that a client that goes away in the middle loses nothing that came before.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, pin_mut};
use tokio::sync::mpsc;

use crate::database::Transaction;
use crate::error::{AppendError, Result, StoreError};
use crate::model::Blob;
use crate::name::{RepositoryName, UploadId};
use crate::operations::room::LOOKED_AT;
use crate::records::garbage::Garbage;
use crate::records::uploads::UploadRecord;
use crate::records::{blobs, garbage, repositories, uploads};
use crate::store::{Store, milliseconds, now};
use xebec_objects::{Algorithm, Digest, Hasher};
use xebec_objects::{Finished, Note, Released, Writer, new_key};
use xebec_placement::PlaceName;
use xebec_sessions::Held;

/// So many bytes are written at once. An upload holds three times as many in memory.
const BATCH: usize = 128 << 10;
/// How often an upload under way is noted as such, at most.
const TOUCH: Duration = Duration::from_secs(30);

/// An upload that a request wants to continue.
enum TakenUp {
    Writer(UploadRecord, Held, Box<Writer>),
    Busy,
    Unknown,
}

impl Store {
    /// Begins an upload.
    ///
    /// # Errors
    /// If the repository has as many as it may have, or the database fails.
    pub async fn begin_upload(&self, repository: &RepositoryName) -> Result<UploadId> {
        let random = |source| StoreError::System {
            doing: "begin an upload",
            source,
        };
        self.check_room().await?;
        let id = UploadId::random().map_err(random)?;
        let object = new_key().map_err(random)?;
        let writer = self.inner.objects.begin(&object);
        self.check_uploads(repository).await?;
        let (of, begun) = (repository.clone(), id.clone());
        self.write_records("begin an upload", move |tx| {
            uploads::begin(tx, &of, &begun, &object, now())
        })
        .await?;
        self.inner.upload_counts.begun(repository);
        if let Some(writer) = writer
            && let Some((held, _)) = self.inner.sessions.hold(&id)
        {
            held.leave(writer);
        }
        Ok(id)
    }

    async fn check_uploads(&self, repository: &RepositoryName) -> Result<()> {
        let (counts, most) = (&self.inner.upload_counts, self.inner.config.max_uploads);
        if !counts.is_due(repository, most) {
            return Ok(());
        }
        let of = repository.clone();
        let count = move |tx: &mut dyn Transaction| uploads::count(tx, &of, most);
        let counted = self.read_records("count a repository's uploads", count).await?;
        if counted >= most {
            let repository = repository.clone();
            return Err(StoreError::TooManyUploads { repository, most });
        }
        counts.counted(repository, counted);
        Ok(())
    }

    /// How many bytes of an upload are safely here; `None` if the repository has no such upload.
    ///
    /// # Errors
    /// If the database or the object store fails.
    pub async fn upload(&self, repository: &RepositoryName, id: &UploadId) -> Result<Option<u64>> {
        let Some(record) = self.upload_record(repository, id).await? else {
            return Ok(None);
        };
        if let Some(size) = self.inner.sessions.size(id) {
            return Ok(Some(size));
        }
        let size = self.inner.objects.uploaded(&record.object, record.size).await;
        size.map(Some).map_err(|source| StoreError::Object {
            doing: "see how far an upload is",
            key: record.object,
            source,
        })
    }

    pub(crate) async fn upload_record(
        &self,
        repository: &RepositoryName,
        id: &UploadId,
    ) -> Result<Option<UploadRecord>> {
        let (repository, id) = (repository.clone(), id.clone());
        self.read_records("find an upload", move |tx| uploads::find(tx, &repository, &id))
            .await
    }

    /// Adds a body to an upload, at its end; `at` is where the client believes that to be. Returns how many bytes are safely here now.
    ///
    /// # Errors
    /// If the body breaks off, the offset is wrong, or anything fails. The bytes before that are kept.
    pub async fn append(
        &self,
        repository: &RepositoryName,
        id: &UploadId,
        at: Option<u64>,
        body: impl Stream<Item = io::Result<Bytes>> + Send,
    ) -> Result<u64, AppendError> {
        let unknown = || AppendError::Unknown {
            repository: repository.clone(),
            id: id.clone(),
        };
        let (record, held, writer) = match self.take_up(repository, id).await? {
            TakenUp::Writer(record, held, writer) => (record, held, *writer),
            TakenUp::Busy => return Err(AppendError::Busy(id.clone())),
            TakenUp::Unknown => return Err(unknown()),
        };
        let size = writer.size();
        if let Some(at) = at.filter(|at| *at != size) {
            tracing::debug!("upload {id} is at {size}, the client at {at}");
            held.leave(writer);
            return Err(AppendError::WrongOffset { at: size });
        }
        let (batches, received) = mpsc::channel(1);
        let store = self.clone();
        let upload = (id.clone(), record);
        let writing = tokio::spawn(async move { store.write_batches(upload, held, writer, received).await });
        let limit = self.inner.config.max_blob;
        let sent = send_in_batches(body, batches, size, limit).await;
        let written = writing.await.map_err(|error| StoreError::System {
            doing: "write an upload",
            source: io::Error::other(error),
        })?;
        let size = written?.ok_or_else(unknown)?;
        sent.map(|()| size)
    }

    /// Takes an upload for this request, and then reads its record: of one that another request has just finished, the object is a blob,
    /// and nothing may be added to it. It is noted as touched before its object is, so that no collection takes the record and leaves the
    /// object.
    async fn take_up(&self, repository: &RepositoryName, id: &UploadId) -> Result<TakenUp> {
        let Some((held, writer)) = self.inner.sessions.hold(id) else {
            return Ok(TakenUp::Busy);
        };
        let Some(mut record) = self.upload_record(repository, id).await? else {
            return Ok(TakenUp::Unknown);
        };
        // Of another node's part this process's writer knows nothing. The record does: each part ends by noting how far the upload is.
        let is_current = |writer: &Writer| writer.size() == record.size && writer.key() == record.object;
        let writer = writer.filter(is_current);
        let failed = |source, key: &str| StoreError::Object {
            doing: "go on with an upload",
            key: key.to_owned(),
            source,
        };
        let note = match &writer {
            Some(_) => Note {
                object: record.object.clone(),
                size: record.size,
                progress: record.progress.clone(),
                released: Vec::new(),
            },
            None => {
                let objects = &self.inner.objects;
                let taken = objects.take_over(&record.object, record.size, record.progress.as_deref());
                taken.map_err(|error| failed(error, &record.object))?
            }
        };
        let is_stale = record.touched.saturating_add(milliseconds(self.touch_interval())) <= now();
        if is_stale || note.object != record.object {
            let progress = note.progress.clone();
            if !self.note(id, &mut record, note).await? {
                let is_there = self.upload_record(repository, id).await?.is_some();
                return Ok(if is_there { TakenUp::Busy } else { TakenUp::Unknown });
            }
            record.progress = progress;
        }
        if let Some(writer) = writer {
            return Ok(TakenUp::Writer(record, held, Box::new(writer)));
        }
        let resumed = self
            .inner
            .objects
            .resume(&record.object, record.progress.as_deref())
            .await;
        let writer = resumed.map_err(|error| failed(error, &record.object))?;
        held.note(writer.size());
        Ok(TakenUp::Writer(record, held, Box::new(writer)))
    }

    /// How often an upload under way is noted as such: several times before it would be given up.
    fn touch_interval(&self) -> Duration {
        TOUCH.min(self.inner.config.upload_timeout / 4)
    }

    /// Writes what comes until nothing more comes; `None` if the upload is gone meanwhile.
    async fn write_batches(
        &self,
        (id, mut record): (UploadId, UploadRecord),
        held: Held,
        mut writer: Writer,
        mut received: mpsc::Receiver<Vec<Bytes>>,
    ) -> Result<Option<u64>> {
        let (mut touched, mut looked_at) = (Instant::now(), writer.size());
        while let Some(batch) = received.recv().await {
            let written = writer.write(batch).await;
            writer = written.map_err(|error| not_written(error, &record))?;
            if self.has_objects_in_root() && writer.size() - looked_at >= LOOKED_AT {
                looked_at = writer.size();
                self.check_room().await?;
            }
            if let Some(note) = writer.unrecorded() {
                if !self.note(&id, &mut record, note).await? {
                    return Ok(None);
                }
                touched = Instant::now();
            }
            if touched.elapsed() < self.touch_interval() {
                continue;
            }
            touched = Instant::now();
            let Some((synced, note)) = self.sync(&id, &mut record, writer).await? else {
                return Ok(None);
            };
            writer = synced;
            if !self.note(&id, &mut record, note).await? {
                return Ok(None);
            }
            held.note(writer.size());
        }
        let Some((writer, note)) = self.sync(&id, &mut record, writer).await? else {
            return Ok(None);
        };
        // Quotas count an upload by its record.
        let is_recorded = note.progress.is_none() && note.size == record.size;
        if !is_recorded && !self.note(&id, &mut record, note).await? {
            return Ok(None);
        }
        let size = writer.size();
        held.leave(writer);
        Ok(Some(size))
    }

    /// Makes all that came durable; what this returns is to be noted. `None` if the upload is gone meanwhile.
    async fn sync(
        &self,
        id: &UploadId,
        record: &mut UploadRecord,
        writer: Writer,
    ) -> Result<Option<(Writer, Note)>> {
        let Some(writer) = self.settle(id, record, writer, false).await? else {
            return Ok(None);
        };
        let synced = writer.sync().await;
        synced.map(Some).map_err(|error| not_written(error, record))
    }

    /// Waits for what is on its way, and notes it. Bytes in memory are not safe, and do not count. `None` if the upload is gone meanwhile.
    async fn settle(
        &self,
        id: &UploadId,
        record: &mut UploadRecord,
        writer: Writer,
        is_last: bool,
    ) -> Result<Option<Writer>> {
        let settled = writer.settled(is_last).await;
        let mut writer = settled.map_err(|error| not_written(error, record))?;
        let is_noted = match writer.unrecorded() {
            Some(note) => self.note(id, record, note).await?,
            None => true,
        };
        Ok(is_noted.then_some(writer))
    }

    /// Has the record hold the note; `false` if the upload is gone, or somebody else's by now. Objects that the upload has no more are
    /// deleted.
    async fn note(&self, id: &UploadId, record: &mut UploadRecord, note: Note) -> Result<bool> {
        let (id, object, since) = (id.clone(), record.object.clone(), now());
        let written = note.clone();
        let is_noted = self
            .write_records("note how far an upload is", move |tx| {
                uploads::note(tx, &id, &object, &written, since)
            })
            .await?;
        if is_noted {
            (record.object, record.size) = (note.object, note.size);
            self.sweep_released(note.released, since);
        }
        Ok(is_noted)
    }

    fn sweep_released(&self, released: Vec<Released>, since: u64) {
        for Released { key, size } in released {
            self.sweep_main_soon(&key, size, since);
        }
    }

    /// Makes a blob of an upload. When this has returned, the blob is the repository's, and durable.
    ///
    /// # Errors
    /// If the bytes have another digest: then nothing of them is kept. If anything else fails: then this can be tried again.
    pub async fn finish_upload(
        &self,
        repository: &RepositoryName,
        id: &UploadId,
        digest: &Digest,
    ) -> Result<Blob> {
        let unknown = || StoreError::UnknownUpload {
            repository: repository.clone(),
            id: id.clone(),
        };
        let (mut record, _held, writer) = match self.take_up(repository, id).await? {
            TakenUp::Writer(record, held, writer) => (record, held, *writer),
            TakenUp::Busy => return Err(StoreError::Busy(id.clone())),
            TakenUp::Unknown => return Err(unknown()),
        };
        let settled = self.settle(id, &mut record, writer, true).await?;
        let completed = settled.ok_or_else(unknown)?.complete().await;
        let Finished {
            object,
            size,
            hasher,
            released,
        } = completed.map_err(|source| StoreError::Object {
            doing: "finish an upload",
            key: record.object.clone(),
            source,
        })?;
        let found = match digest.algorithm() {
            Algorithm::Sha256 => hasher.finish(),
            Algorithm::Sha512 => self.digest_of(&object, size, Algorithm::Sha512).await?,
        };
        if found != *digest {
            self.end_upload(repository, id, size).await?;
            let wanted = digest.clone();
            return Err(StoreError::DigestMismatch { wanted, found });
        }
        let blob = (found, size, object);
        let recorded = self.record_blob(repository, (id, record.object), blob, released);
        recorded.await?.ok_or_else(unknown)
    }

    /// Reads an object from its beginning to its end.
    async fn digest_of(&self, object: &str, size: u64, algorithm: Algorithm) -> Result<Digest> {
        let failed = |source| StoreError::Object {
            doing: "read what was uploaded",
            key: object.to_owned(),
            source,
        };
        let mut hasher = Hasher::new(algorithm);
        let mut pieces = self.inner.objects.read(object, 0..size).await.map_err(failed)?;
        while let Some(piece) = pieces.next().await {
            hasher.update(&piece.map_err(failed)?);
        }
        Ok(hasher.finish())
    }

    /// The one transaction by which an upload, which is written under this key, becomes a blob, and what else it had garbage; `None` if the
    /// upload is gone, or somebody else's.
    pub(crate) async fn record_blob(
        &self,
        repository: &RepositoryName,
        (id, key): (&UploadId, String),
        (digest, size, object): (Digest, u64, String),
        released: Vec<Released>,
    ) -> Result<Option<Blob>> {
        // A record without its object is mended by the object that was just pushed.
        let sound = match self.any_blob(&digest).await? {
            Some(old) => self.sound_object(&old).await,
            None => None,
        };
        let (repository, id, since) = (repository.clone(), id.clone(), now());
        let ended = released.clone();
        let recorded = self
            .write_records("record a blob", move |tx| {
                if !uploads::end(tx, &id, &key, &ended, since)? {
                    return Ok(None);
                }
                let repository = repositories::find_or_make(tx, &repository, now())?;
                let new = blobs::NewBlob {
                    digest: &digest,
                    size,
                    object: &object,
                };
                let recorded = blobs::record(tx, &new, sound.as_deref(), now())?;
                blobs::link(tx, repository, &digest, now())?;
                Ok(Some(recorded))
            })
            .await?;
        Ok(recorded.map(|(blob, thrown_away)| {
            self.sweep_released(released, since);
            if let Some(object) = thrown_away {
                self.sweep_main_soon(&object, size, now());
            }
            blob
        }))
    }

    /// Ends an upload and removes what there is of it; `false` if the repository has no such upload.
    ///
    /// # Errors
    /// If another request continues it, or the database fails.
    pub async fn cancel_upload(&self, repository: &RepositoryName, id: &UploadId) -> Result<bool> {
        let held = self
            .inner
            .sessions
            .hold(id)
            .ok_or_else(|| StoreError::Busy(id.clone()))?;
        let size = self.upload(repository, id).await?;
        let is_ended = match size {
            Some(size) => self.end_upload(repository, id, size).await?,
            None => false,
        };
        drop(held);
        Ok(is_ended)
    }

    /// Makes garbage of an upload; `false` if it is gone already.
    pub(crate) async fn end_upload(
        &self,
        repository: &RepositoryName,
        id: &UploadId,
        size: u64,
    ) -> Result<bool> {
        let (repository, id) = (repository.clone(), id.clone());
        let ended = self
            .write_records("end an upload", move |tx| {
                let Some(record) = uploads::find(tx, &repository, &id)? else {
                    return Ok(None);
                };
                uploads::give_up(tx, &id)?;
                let since = now();
                garbage::throw_away(tx, &record.object, size, record.progress.as_deref(), since)?;
                Ok(Some(Garbage {
                    object: record.object,
                    size,
                    progress: record.progress,
                    since,
                    place: PlaceName::main(),
                }))
            })
            .await?;
        let is_ended = ended.is_some();
        ended.into_iter().for_each(|garbage| self.sweep_soon(garbage));
        Ok(is_ended)
    }
}

fn not_written(source: io::Error, record: &UploadRecord) -> StoreError {
    StoreError::Object {
        doing: "write an upload",
        key: record.object.clone(),
        source,
    }
}

/// Passes a body on in batches. The bytes before the body breaks off are passed on, too.
async fn send_in_batches(
    body: impl Stream<Item = io::Result<Bytes>> + Send,
    batches: mpsc::Sender<Vec<Bytes>>,
    mut size: u64,
    limit: u64,
) -> Result<(), AppendError> {
    pin_mut!(body);
    let (mut batch, mut length) = (Vec::new(), 0);
    let mut result = Ok(());
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) if size + piece.len() as u64 > limit => result = Err(AppendError::TooLarge { limit }),
            Ok(piece) => {
                size += piece.len() as u64;
                length += piece.len();
                batch.push(piece);
            }
            Err(error) => result = Err(AppendError::Body(error)),
        }
        if result.is_err() {
            break;
        }
        if length >= BATCH {
            length = 0;
            // If the writing task has ended it says why itself.
            if batches.send(std::mem::take(&mut batch)).await.is_err() {
                return Ok(());
            }
        }
    }
    let _ = batches.send(batch).await;
    result
}
