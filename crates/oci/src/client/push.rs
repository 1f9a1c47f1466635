//! Blobs and manifests to a registry.
//!
//! A blob that is there already is not sent again; one that another repository of the registry has is mounted
//! from it. Otherwise it is sent in one piece, and in several to registries (or proxies before them) that do
//! not take one piece of that size. A blob that another registry has is fetched from there while it is sent.
//!
//! Where the caller keeps the place of an upload ([`Uploads`]), a large blob is sent in pieces, and one that was stopped goes on after what the
//! registry says is there.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use reqwest::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName};
use reqwest::{Method, Url};
use xebec_format::digest::{Digest, Digester};

use super::Client;
use super::uploads::{Begun, Kept, PIECE, Uploads, next_place, with_digest};
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object, Target};
use crate::reference::Repository;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Payload, PayloadSource, Place};

/// Where the bytes of a blob are.
#[derive(Debug, Clone)]
pub enum BlobSource {
    /// In memory.
    Bytes(Bytes),
    /// In a file, which must not change meanwhile.
    File(PathBuf),
    /// In a repository of this or of another registry, from which they come while they are sent.
    Repository {
        /// The client for that registry.
        client: Box<Client>,
        /// The repository.
        repository: Repository,
        /// The digest of the blob, which the registry that gets it compares.
        digest: Digest,
        /// Its size in bytes.
        size: u64,
    },
}

/// How a blob came to be in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobUpload {
    /// It was there.
    Existed,
    /// Another repository of the registry had it.
    Mounted,
    /// It was sent.
    Sent,
}

/// A manifest that the registry took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedManifest {
    /// Its digest.
    pub digest: Digest,
    /// Whether the registry noted its `subject`, so that the referrers API lists it (`OCI-Subject`).
    pub subject_noted: bool,
}

/// A blob that is to be sent.
struct Blob {
    digest: Digest,
    size: u64,
    source: BlobSource,
}

/// A blob of a repository that is fetched while it is sent.
#[derive(Debug)]
struct OfRepository {
    client: Client,
    repository: Repository,
    digest: Digest,
    size: u64,
}

impl PayloadSource for OfRepository {
    fn fetch(
        &self,
        offset: u64,
        length: u64,
    ) -> Pin<Box<dyn Future<Output = Result<reqwest::Body, Fault>> + Send + '_>> {
        Box::pin(async move {
            if length == 0 {
                return Ok(reqwest::Body::from(Bytes::new()));
            }
            let range = offset..offset.saturating_add(length);
            let stream = self
                .client
                .blob_range_stream(&self.repository, &self.digest, self.size, range);
            // Its own call has tried again already. To the other registry this is a body that it cannot be given.
            let stream = stream.await.map_err(|error| Fault::Protocol(error.to_string()))?;
            Ok(reqwest::Body::wrap_stream(stream))
        })
    }
}

impl Blob {
    fn part(&self, offset: u64, length: u64) -> Payload {
        match &self.source {
            BlobSource::Bytes(bytes) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                Payload::Bytes(bytes.slice(at(offset)..at(offset.saturating_add(length))))
            }
            BlobSource::File(path) => Payload::File {
                path: path.clone(),
                offset,
                length,
            },
            BlobSource::Repository {
                client, repository, ..
            } => Payload::Fetched {
                source: Arc::new(OfRepository {
                    client: (**client).clone(),
                    repository: repository.clone(),
                    digest: self.digest,
                    size: self.size,
                }),
                offset,
                length,
            },
        }
    }
}

impl Client {
    /// Brings a blob into `repository` and gives its digest. `mount_from` is another repository of the same
    /// registry that may have it.
    ///
    /// # Errors
    /// If the file cannot be read, or the registry does not take the blob.
    pub async fn push_blob(
        &self,
        repository: &Repository,
        source: BlobSource,
        mount_from: Option<&Repository>,
    ) -> Result<(Digest, BlobUpload), ClientError> {
        self.push_blob_keeping(repository, source, mount_from, None).await
    }

    /// The same, where `uploads` keeps how far it is.
    ///
    /// # Errors
    /// Those of [`Client::push_blob`].
    pub async fn push_blob_keeping(
        &self,
        repository: &Repository,
        source: BlobSource,
        mount_from: Option<&Repository>,
        uploads: Option<&dyn Uploads>,
    ) -> Result<(Digest, BlobUpload), ClientError> {
        let blob = measure(source).await.map_err(|(path, source)| {
            let target = self.target(repository, Object::Api);
            ClientError::Source {
                target: Box::new(target),
                path,
                source,
            }
        })?;
        let target = self.target(repository, Object::BlobUpload(blob.digest));
        let from = mount_from.filter(|from| from.registry() == repository.registry() && *from != repository);
        let mut failover = self.failover_at_origin(target);
        let stuck = AtomicU32::new(0);
        loop {
            let endpoint = failover.endpoint();
            // A large upload takes its time; its requests are bounded one by one.
            let kept = uploads.map(|uploads| Kept {
                uploads,
                repository,
                blob: &blob.digest,
                stuck: &stuck,
            });
            let pushed = self.push_blob_once(&endpoint, repository, &blob, from, kept);
            match pushed.await {
                Ok(upload) => return Ok((blob.digest, upload)),
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn push_blob_once(
        &self,
        endpoint: &Endpoint,
        repository: &Repository,
        blob: &Blob,
        from: Option<&Repository>,
        kept: Option<Kept<'_>>,
    ) -> Result<BlobUpload, Fault> {
        let name = repository.name();
        let scope = Scope {
            mount_from: from.map(|from| from.name().to_owned()),
            ..Scope::push(name)
        };
        let path = Place::Path(format!("{name}/blobs/{}", blob.digest));
        let head = self
            .transport
            .send(
                endpoint,
                &Ask::new(Method::HEAD, path, scope.clone()),
                &self.counters,
            )
            .await?;
        match head.status().as_u16() {
            200 => return Ok(BlobUpload::Existed),
            404 => head.discard().await,
            _ => return Err(head.into_fault().await),
        }
        let kept = kept.filter(|_| blob.size > PIECE);
        if let Some(kept) = kept
            && self.goes_on(endpoint, &scope, blob, kept).await?
        {
            return Ok(BlobUpload::Sent);
        }
        let mount = from.map_or(String::new(), |from| {
            format!("?mount={}&from={}", blob.digest, from.name())
        });
        let start = Ask::new(
            Method::POST,
            Place::Path(format!("{name}/blobs/uploads/{mount}")),
            scope.clone(),
        )
        .payload(Payload::Bytes(Bytes::new()));
        let answer = self.transport.send(endpoint, &start, &self.counters).await?;
        match answer.status().as_u16() {
            201 if from.is_some() => return Ok(BlobUpload::Mounted),
            202 => {}
            _ => return Err(answer.into_fault().await),
        }
        let mut begun = Begun::read(&answer)?;
        answer.discard().await;
        if let Some(kept) = kept {
            if self.send_kept(endpoint, &scope, blob, begun, kept).await? {
                return Ok(BlobUpload::Sent);
            }
            // That upload is gone, or has a part of the blob.
            begun = self.begin(endpoint, name, &scope).await?;
        }
        self.send_at_once(endpoint, name, &scope, blob, begun).await?;
        Ok(BlobUpload::Sent)
    }

    /// Sends a blob in one piece, or in several if the registry does not take it so.
    async fn send_at_once(
        &self,
        endpoint: &Endpoint,
        name: &str,
        scope: &Scope,
        blob: &Blob,
        begun: Begun,
    ) -> Result<(), Fault> {
        match self.send_whole(endpoint, scope, begun.place, blob).await {
            // The codes by which a registry, or a proxy before it, refuses a body that it finds too large.
            Err(Fault::Status { code: 411 | 413, .. }) if blob.size > 0 => {
                tracing::debug!(blob = %blob.digest, "the registry does not take it in one piece");
                self.send_in_pieces(endpoint, name, scope, blob).await
            }
            other => other,
        }
    }

    async fn send_whole(
        &self,
        endpoint: &Endpoint,
        scope: &Scope,
        place: Url,
        blob: &Blob,
    ) -> Result<(), Fault> {
        let ask = Ask::new(
            Method::PUT,
            Place::Url(with_digest(place, &blob.digest)),
            scope.clone(),
        )
        .header(CONTENT_TYPE, "application/octet-stream")
        .payload(blob.part(0, blob.size));
        let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
        expect(answer, &[201, 204]).await.map(drop)
    }

    async fn send_in_pieces(
        &self,
        endpoint: &Endpoint,
        name: &str,
        scope: &Scope,
        blob: &Blob,
    ) -> Result<(), Fault> {
        let mut begun = self.begin(endpoint, name, scope).await?;
        self.send_from(endpoint, scope, blob, &mut begun, None).await
    }

    /// Begins another upload.
    async fn begin(&self, endpoint: &Endpoint, name: &str, scope: &Scope) -> Result<Begun, Fault> {
        let path = Place::Path(format!("{name}/blobs/uploads/"));
        let start = Ask::new(Method::POST, path, scope.clone()).payload(Payload::Bytes(Bytes::new()));
        let answer = self.transport.send(endpoint, &start, &self.counters).await?;
        let answer = expect(answer, &[202]).await?;
        let begun = Begun::read(&answer)?;
        answer.discard().await;
        Ok(begun)
    }

    /// Sends a blob in pieces from where its upload is, and notes in `begun` how far that is.
    async fn send_from(
        &self,
        endpoint: &Endpoint,
        scope: &Scope,
        blob: &Blob,
        begun: &mut Begun,
        kept: Option<Kept<'_>>,
    ) -> Result<(), Fault> {
        while begun.offset < blob.size {
            let (offset, length) = (begun.offset, begun.piece.min(blob.size - begun.offset));
            let ask = Ask::new(Method::PATCH, Place::Url(begun.place.clone()), scope.clone())
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_RANGE, &format!("{offset}-{}", offset + length - 1))
                .payload(blob.part(offset, length));
            let answer = expect(
                self.transport.send(endpoint, &ask, &self.counters).await?,
                &[202, 204],
            )
            .await?;
            begun.place = next_place(&answer)?;
            if let Some(kept) = kept {
                kept.note(Some(&begun.place));
            }
            answer.discard().await;
            begun.offset += length;
        }
        let place = begun.place.clone();
        let ask = Ask::new(
            Method::PUT,
            Place::Url(with_digest(place, &blob.digest)),
            scope.clone(),
        )
        .payload(Payload::Bytes(Bytes::new()));
        let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
        expect(answer, &[201, 204]).await.map(drop)
    }

    /// Sends a blob whose upload has begun, and keeps how far that is. `false` if the registry does not take it in pieces, or not to the
    /// end: then it gets the blob whole.
    async fn send_kept(
        &self,
        endpoint: &Endpoint,
        scope: &Scope,
        blob: &Blob,
        mut begun: Begun,
        kept: Kept<'_>,
    ) -> Result<bool, Fault> {
        kept.note(Some(&begun.place));
        match self
            .send_from(endpoint, scope, blob, &mut begun, Some(kept))
            .await
        {
            Ok(()) => {
                kept.note(None);
                Ok(true)
            }
            Err(Fault::Status {
                code: 405 | 411 | 415 | 501,
                ..
            }) if begun.offset == 0 => {
                kept.note(None);
                self.send_whole(endpoint, scope, begun.place, blob).await?;
                Ok(true)
            }
            Err(Fault::Status {
                code: 400 | 404 | 405 | 409 | 410 | 411 | 415 | 416 | 501,
                ..
            }) => {
                kept.note(None);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Goes on with an upload that was stopped; `false` if there is none any more, or it does not come to its end.
    async fn goes_on(
        &self,
        endpoint: &Endpoint,
        scope: &Scope,
        blob: &Blob,
        kept: Kept<'_>,
    ) -> Result<bool, Fault> {
        let Some(place) = kept.place(endpoint) else {
            return Ok(false);
        };
        let Some(mut begun) = self.ask_how_far(place, scope, blob, kept).await else {
            return Ok(false);
        };
        let at = begun.offset;
        tracing::debug!(blob = %blob.digest, at, "an upload goes on");
        match self
            .send_from(endpoint, scope, blob, &mut begun, Some(kept))
            .await
        {
            Ok(()) => {
                kept.note(None);
                Ok(true)
            }
            // The upload is not what was thought, unless the registry asks for patience.
            Err(fault @ Fault::Status { code: 400..=499, .. }) if !fault.is_retryable() => {
                kept.note(None);
                Ok(false)
            }
            // It says where the upload is, and cannot go on with it.
            Err(Fault::Status { code: 500, .. }) if begun.offset == at && kept.is_stuck() => {
                kept.note(None);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// How far an upload is that was stopped. A place that has no answer after as many tries as any call has is given up, since it may
    /// never have one again. Its note stays until another upload has begun: the registry may be away only for a while.
    async fn ask_how_far(&self, place: Url, scope: &Scope, blob: &Blob, kept: Kept<'_>) -> Option<Begun> {
        let ask = Ask::new(Method::GET, Place::Url(place), scope.clone());
        let target = self.target(kept.repository, Object::BlobUpload(blob.digest));
        let mut failover = self.failover_at_origin(target);
        loop {
            let endpoint = failover.endpoint();
            let once = self.transport.send(&endpoint, &ask, &self.counters);
            let fault = match failover.limit(once).await {
                Err(fault) => fault,
                Ok(answer) => match answer.status().as_u16() {
                    204 => {
                        let begun = Begun::resumed(&answer).filter(|begun| begun.offset <= blob.size);
                        answer.discard().await;
                        if begun.is_none() {
                            kept.note(None);
                        }
                        return begun;
                    }
                    400 | 404 | 409 | 410 | 416 => {
                        answer.discard().await;
                        kept.note(None);
                        return None;
                    }
                    _ => answer.into_fault().await,
                },
            };
            if let Err(error) = failover.failed(fault).await {
                tracing::debug!(%error, "an upload that was stopped does not go on");
                return None;
            }
        }
    }

    /// Puts a manifest into `repository` under `name`, a tag or its own digest.
    ///
    /// # Errors
    /// If the registry does not take it, for example because a blob it names is missing.
    pub async fn push_manifest(
        &self,
        repository: &Repository,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<PushedManifest, ClientError> {
        let digest = Digest::of(&bytes);
        let target = self.target(repository, Object::ManifestUpload(name.to_owned()));
        let path = Place::Path(format!("{}/manifests/{name}", repository.name()));
        let ask = Ask::new(Method::PUT, path, Scope::push(repository.name()))
            .header(CONTENT_TYPE, media_type)
            .payload(Payload::Bytes(bytes));
        let mut failover = self.failover_at_origin(target);
        loop {
            let endpoint = failover.endpoint();
            match failover
                .limit(self.push_manifest_once(&endpoint, &ask, digest))
                .await
            {
                Ok(pushed) => return Ok(pushed),
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn push_manifest_once(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        digest: Digest,
    ) -> Result<PushedManifest, Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        let answer = expect(answer, &[201, 202, 200]).await?;
        let stored = answer
            .header("docker-content-digest")
            .and_then(|text| text.parse::<Digest>().ok());
        if let Some(got) = stored.filter(|stored| *stored != digest) {
            return Err(Fault::WrongDigest {
                expected: digest,
                got,
            });
        }
        let subject_noted = answer
            .headers()
            .contains_key(HeaderName::from_static("oci-subject"));
        answer.discard().await;
        Ok(PushedManifest {
            digest,
            subject_noted,
        })
    }
}

/// Size and digest of a source.
async fn measure(source: BlobSource) -> Result<Blob, (PathBuf, std::io::Error)> {
    let path = match &source {
        BlobSource::Bytes(bytes) => {
            let (digest, size) = (Digest::of(bytes), bytes.len() as u64);
            return Ok(Blob { digest, size, source });
        }
        BlobSource::File(path) => path.clone(),
        BlobSource::Repository { digest, size, .. } => {
            let (digest, size) = (*digest, *size);
            return Ok(Blob { digest, size, source });
        }
    };
    let file = path.clone();
    let work = tokio::task::spawn_blocking(move || -> std::io::Result<(Digest, u64)> {
        use std::io::Read as _;
        let mut file = std::fs::File::open(file)?;
        let (mut digester, mut size, mut part) = (Digester::new(), 0, vec![0; 256 << 10]);
        loop {
            let read = file.read(&mut part)?;
            let Some(bytes) = part.get(..read).filter(|bytes| !bytes.is_empty()) else {
                return Ok((digester.finish(), size));
            };
            digester.update(bytes);
            size += read as u64;
        }
    });
    let measured = work
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let (digest, size) = measured.map_err(|error| (path, error))?;
    Ok(Blob { digest, size, source })
}

/// An answer of one of these statuses.
async fn expect(answer: Answer, statuses: &[u16]) -> Result<Answer, Fault> {
    if statuses.contains(&answer.status().as_u16()) {
        Ok(answer)
    } else {
        Err(answer.into_fault().await)
    }
}

impl Client {
    /// The target of a call about a registry as a whole.
    pub(super) fn registry_target(registry: &str) -> Target {
        Target {
            registry: registry.to_owned(),
            repository: None,
            object: Object::Api,
        }
    }
}
