//! `/v2/NAME/_xebec/push/layers`: a layer is pushed without the contents that the registry has (docs/formats/native-service.md, "Pushing a
//! layer").
//!
//! What the registry has are the contents of layers that the client names and may pull: nothing else is looked up, so nobody learns what
//! other repositories have, and nothing of them goes into a layer. The layer that comes of it is stored as an upload is, if its digest is
//! the one that the client named.

mod sources;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Method, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc;
use xebec_access::Peer;
use xebec_assembly::{AssemblyError, Incoming, Order, OrderError, Parcel, RECIPE};
use xebec_dedup::{Cutting, Restorer, Source};
use xebec_events::EventKind;
use xebec_native::push::{
    BITMAP_TYPE, Bitmap, Cut, MAX_QUESTION, MAX_RECIPE, Offer, PARCEL_TYPE, QUESTION_TYPE, Question,
};
use xebec_recipe::ChunkId;
use xebec_store::{Blob, Digest, RepositoryName, Store, StoreError, UploadId};

use super::call::{Call, Outcome, What};
use super::{failure, manifests, quota, reply, uploads};
use crate::error::{ApiError, Code};
use crate::server::clients::Admitted;

/// Bytes of a layer that is put together, at most.
const MOST_LAYER: u64 = 16 << 30;
/// Time that a layer may take: so long, and a second for so many bytes that come, and that it has.
const TIME: Duration = Duration::from_secs(60);
const SLOWEST_COMING: u64 = 256 << 10;
const SLOWEST_MADE: u64 = 1 << 20;
/// Layers and questions of one client that are under way, at most.
const MOST_OF_ONE: usize = 2;
/// How often an upload that came to nothing is given up again while its last piece is being written, and after which pause.
const GIVEN_UP: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);
/// Pieces on their way to the thread that works, and from it.
const UNDER_WAY: usize = 4;

/// Carries out a request of any of the three kinds.
pub(crate) async fn answer(call: &mut Call<'_>, repository: &RepositoryName) -> Outcome {
    let registry = call.registry;
    let Some(restorer) = registry.restorer.as_ref().filter(|_| registry.deduplicates) else {
        let detail =
            "this registry does not keep files of layers once, so it puts none together; push the blob";
        return Err(ApiError::new(Code::Unsupported, detail).with_status(StatusCode::NOT_FOUND));
    };
    if call.parts.method == Method::GET {
        return Ok(reply::json(&Offer {
            cut: match registry.cutting {
                Cutting::Files => Cut::Files,
                Cutting::Contents => Cut::Contents,
            },
            layer: MOST_LAYER.min(registry.settings.max_blob),
        }));
    }
    let kind = call.header(CONTENT_TYPE).unwrap_or_default();
    match (&call.parts.method, kind) {
        (&Method::POST, QUESTION_TYPE) => question(call, repository, restorer).await,
        (&Method::PUT, PARCEL_TYPE) => parcel(call, repository, restorer).await,
        _ => {
            let detail = format!("POST takes {QUESTION_TYPE} here, and PUT {PARCEL_TYPE}");
            Err(ApiError::new(Code::Unsupported, detail).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
        }
    }
}

/// Says which contents are in layers that the caller may pull.
async fn question(call: &mut Call<'_>, repository: &RepositoryName, restorer: &Restorer) -> Outcome {
    let body = manifests::small_body(call, MAX_QUESTION as u64).await?;
    let (body, room) = body.ok_or_else(|| {
        let detail = format!("a question of a push has {MAX_QUESTION} bytes at most");
        ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    })?;
    let question = Question::decode(&body).map_err(|error| invalid(&error))?;
    drop(body);
    let turn = turn(call)?;
    let sources = sources::open(call, repository, restorer, &question.sources).await?;
    let looking = tokio::task::spawn_blocking(move || {
        let mut bitmap = Bitmap::new(question.contents.len());
        for (number, (id, length)) in question.contents.into_iter().enumerate() {
            if sources::find(&sources, &ChunkId(id), length).is_some() {
                bitmap.set(number);
            }
        }
        drop((room, turn));
        bitmap
    });
    let failed = |error| ApiError::internal("looking for contents", &error);
    let bitmap = looking.await.map_err(failed)?;
    Ok(reply::bytes(BITMAP_TYPE, bitmap.as_bytes().to_vec()))
}

/// Puts a layer together.
async fn parcel(call: &mut Call<'_>, repository: &RepositoryName, restorer: &Restorer) -> Outcome {
    let stored = stored(call, repository, restorer).await;
    if stored.is_err() {
        call.registry.metrics.not_assembled("failed");
    }
    let blob = stored?;
    call.registry.metrics.assembled(call.body.received(), blob.size);
    let what = What {
        digest: Some(&blob.digest),
        size: Some(blob.size),
        ..What::default()
    };
    call.tell(EventKind::PushBlob, repository, what);
    Ok(uploads::created(repository, &blob.digest))
}

async fn stored(
    call: &mut Call<'_>,
    repository: &RepositoryName,
    restorer: &Restorer,
) -> Result<Blob, ApiError> {
    let coming = quota::announced(call).ok_or_else(|| {
        ApiError::new(Code::SizeInvalid, "say with Content-Length how many bytes come")
            .with_status(StatusCode::LENGTH_REQUIRED)
    })?;
    if coming > MOST_LAYER + MAX_QUESTION as u64 + MAX_RECIPE {
        let detail =
            format!("{coming} bytes are more than any layer has that is put together; push the blob");
        return Err(ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let turn = turn(call)?;
    let time = TIME + Duration::from_secs(coming.min(MAX_RECIPE) / SLOWEST_COMING);
    let (registry, parts) = (call.registry, call.parts);
    let ordering = async {
        let mut incoming = Incoming::new(&mut *call.body);
        let head = incoming.head().await.map_err(refused)?;
        // What reading it takes beyond that is bounded by the turns.
        let room = registry
            .incoming
            .room(parts, RECIPE.most.min(8 * head.recipe))
            .await?;
        let order = incoming.order(&head).await.map_err(refused)?;
        Ok::<_, ApiError>((head.sources, order, incoming.into_rest().0, room))
    };
    let ordered = tokio::time::timeout(time, ordering).await;
    let (named, order, begun, memory) = ordered.map_err(|_| late())??;
    let (digest, size) = of_blob(&order, MOST_LAYER.min(registry.settings.max_blob))?;
    let sources = sources::open(call, repository, restorer, &named).await?;
    let (order, sources, here) = left_out(order, sources).await?;
    let room = quota::room(call, repository, Some(size)).await?;
    let upload = Upload::begin(&registry.store, repository).await?;
    let time = TIME + Duration::from_secs(coming / SLOWEST_COMING + size / SLOWEST_MADE);
    let recipe = order.recipe;
    let work = Work {
        parcel: Parcel { recipe, here },
        sources,
        turn,
    };
    let assembled = tokio::time::timeout(time, upload.assemble(call, begun, work)).await;
    assembled.map_err(|_| late())??;
    let blob = upload.finish(&digest, size).await;
    drop((room, memory));
    blob
}

/// What a thread needs that puts a layer together.
struct Work {
    parcel: Parcel,
    sources: Vec<Source>,
    turn: Turn,
}

/// Held while something of a push is worked on.
type Turn = (OwnedSemaphorePermit, Admitted);

fn turn(call: &Call<'_>) -> Result<Turn, ApiError> {
    let registry = call.registry;
    let peer = call.parts.extensions.get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
    let of_one = registry.assemblers.admit(peer, MOST_OF_ONE);
    let of_all = registry.assembling.clone().try_acquire_owned().ok();
    of_all.zip(of_one).ok_or_else(|| {
        let detail = "too many layers are put together now; push the blob";
        ApiError::new(Code::TooManyRequests, detail).with_header(RETRY_AFTER, "2")
    })
}

/// The blob that is named.
fn of_blob(order: &Order, most: u64) -> Result<(Digest, u64), ApiError> {
    let of = order.recipe.blob();
    let digest = of.digest.parse::<Digest>();
    let digest = digest.map_err(|error| ApiError::new(Code::DigestInvalid, error.to_string()))?;
    match of.size <= most {
        true => Ok((digest, of.size)),
        false => {
            let detail = format!("a layer that is put together has {most} bytes at most; push the blob");
            Err(ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE))
        }
    }
}

/// Which of the sources has each content that was left out.
async fn left_out(
    order: Order,
    sources: Vec<Source>,
) -> Result<(Order, Vec<Source>, HashMap<ChunkId, usize>), ApiError> {
    let looking = tokio::task::spawn_blocking(move || {
        let mut here = HashMap::new();
        for (number, (id, length)) in order.recipe.chunks().enumerate() {
            if order.left_out.has(number) {
                let source = sources::find(&sources, &id, length)
                    .ok_or_else(|| conflict(&format!("{id} is not in the layers that were named")))?;
                here.insert(id, source);
            }
        }
        Ok((order, sources, here))
    });
    let failed = |error| ApiError::internal("looking for contents", &error);
    looking.await.map_err(failed)?
}

/// An upload that goes again, unless it becomes a blob.
struct Upload {
    store: Store,
    repository: RepositoryName,
    id: Option<UploadId>,
}

impl Upload {
    async fn begin(store: &Store, repository: &RepositoryName) -> Result<Self, ApiError> {
        let begun = store.begin_upload(repository).await;
        Ok(Self {
            store: store.clone(),
            repository: repository.clone(),
            id: Some(begun.map_err(|error| failure::of("beginning the upload", &error))?),
        })
    }

    /// Has a layer put together, and appends its bytes.
    async fn assemble(&self, call: &mut Call<'_>, begun: Bytes, work: Work) -> Result<(), ApiError> {
        let Some(id) = &self.id else {
            return Err(conflict("the upload is over"));
        };
        let (to_work, sent) = mpsc::channel(UNDER_WAY);
        let (to_store, mut made) = mpsc::channel(UNDER_WAY);
        let handle = Handle::current();
        let working = tokio::task::spawn_blocking(move || {
            let Work {
                parcel,
                sources,
                turn,
            } = work;
            let read = |source: usize, id: &ChunkId| {
                let source = sources.get(source).ok_or(io::ErrorKind::NotFound)?;
                handle.block_on(source.read(id)).map_err(io::Error::other)
            };
            let assembled = parcel.assemble(&read, sent, &to_store);
            drop(turn);
            assembled
        });
        let pumping = async {
            let mut coming = stream::iter([Ok(begun)]).chain(&mut *call.body);
            while let Some(piece) = coming.next().await {
                // The thread has ended: what follows is of no use.
                if to_work.send(piece).await.is_err() {
                    break;
                }
            }
            drop(to_work);
        };
        let made = stream::poll_fn(move |context| made.poll_recv(context));
        let appending = self.store.append(&self.repository, id, Some(0), made);
        let ((), appended) = tokio::join!(pumping, appending);
        let worked = working.await;
        match worked.map_err(|error| ApiError::internal("putting a layer together", &error))? {
            Ok(_) => appended.map(drop).map_err(|error| failure::of_append(&error)),
            Err(AssemblyError::Contents(error)) => Err(failure::of_body(&error)),
            // The store has ended it, and says why.
            Err(AssemblyError::Stopped(_)) if appended.is_err() => {
                appended.map(drop).map_err(|error| failure::of_append(&error))
            }
            Err(error) => Err(conflict(&error.to_string())),
        }
    }

    /// Makes a blob of it.
    async fn finish(mut self, digest: &Digest, size: u64) -> Result<Blob, ApiError> {
        let Some(id) = self.id.clone() else {
            return Err(conflict("the upload is over"));
        };
        match self.store.finish_upload(&self.repository, &id, digest).await {
            Ok(blob) if blob.size == size => {
                self.id = None;
                Ok(blob)
            }
            Ok(_) => Err(conflict("the layer has another size than the recipe says")),
            Err(error @ StoreError::DigestMismatch { .. }) => Err(conflict(&error.to_string())),
            Err(error) => Err(failure::of("finishing the upload", &error)),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // A server that ends leaves it to the collection.
        let Ok(handle) = Handle::try_current() else { return };
        let (store, repository) = (self.store.clone(), self.repository.clone());
        // The client has no address to go on at.
        handle.spawn(async move {
            for _ in 0..GIVEN_UP {
                match store.cancel_upload(&repository, &id).await {
                    Err(StoreError::Busy(_)) => tokio::time::sleep(PAUSE).await,
                    _ => return,
                }
            }
        });
    }
}

/// No layer comes of this: the client pushes the blob.
fn conflict(why: &str) -> ApiError {
    let detail = format!("{why}; push the blob");
    ApiError::new(Code::DigestInvalid, detail).with_status(StatusCode::CONFLICT)
}

/// The layer takes too long.
fn late() -> ApiError {
    let detail = "the layer takes too long; push the blob";
    ApiError::new(Code::BlobUploadInvalid, detail).with_status(StatusCode::REQUEST_TIMEOUT)
}

fn refused(error: OrderError) -> ApiError {
    match error {
        OrderError::Body(error) => failure::of_body(&error),
        OrderError::Contents => conflict(&error.to_string()),
        OrderError::Thread => ApiError::internal("reading a recipe", &error),
        error => invalid(&error),
    }
}

fn invalid(error: &dyn std::error::Error) -> ApiError {
    let detail = format!("{error}; /v2/_oci/ext/discover says where pushes of layers are described");
    ApiError::new(Code::Unsupported, detail).with_status(StatusCode::BAD_REQUEST)
}
