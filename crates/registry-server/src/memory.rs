//! Room in memory for what is not streamed: manifests that come in or go out, and lists of what refers to one. All of it together is
//! bounded, and what one client takes, however many requests it has under way and however slowly it sends or reads.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use xebec_access::{Peer, client_of};
use xebec_store::Digest;

use crate::error::{ApiError, Code};

/// Room is counted in pieces of this many bytes.
const PIECE: u64 = 1024;
/// When a client that got no room may ask again, in seconds.
const AGAIN: &str = "2";

/// The room, and each client's part of it.
#[derive(Debug)]
pub struct Memory {
    all: Arc<Semaphore>,
    of_one: usize,
    patience: Duration,
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    /// Manifests that are being read: all clients that ask for one of them read the same bytes.
    shared: Mutex<HashMap<Digest, Weak<Held>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(64 << 20, 16 << 20, Duration::from_secs(10))
    }
}

impl Memory {
    /// So many bytes for all, so many of them for one client. A request waits so long for its part.
    pub fn new(all: u64, of_one: u64, patience: Duration) -> Self {
        Self {
            all: Arc::new(Semaphore::new(pieces(all))),
            of_one: pieces(of_one),
            patience,
            clients: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// Room for so many bytes of a request, or all that one client may have if that is less.
    ///
    /// # Errors
    /// If there is none in time.
    pub(crate) async fn room(&self, parts: &Parts, bytes: u64) -> Result<Room, ApiError> {
        let (client, wanted) = self.part(parts, bytes);
        let taken = async {
            let of_client = client.acquire_many_owned(wanted).await.ok()?;
            let of_all = self.all.clone().acquire_many_owned(wanted).await.ok()?;
            Some(Room { of_client, of_all })
        };
        let taken = tokio::time::timeout(self.patience, taken).await;
        taken.ok().flatten().ok_or_else(|| {
            let detail = "so many manifests are on their way that there is no memory for another one; try again, and read answers to \
                          their end";
            ApiError::new(Code::Unavailable, detail).with_header(RETRY_AFTER, AGAIN)
        })
    }

    /// The same, if there is some now.
    pub(crate) fn room_now(&self, parts: &Parts, bytes: u64) -> Option<Room> {
        let (client, wanted) = self.part(parts, bytes);
        let of_client = client.try_acquire_many_owned(wanted).ok()?;
        let of_all = self.all.clone().try_acquire_many_owned(wanted).ok()?;
        Some(Room { of_client, of_all })
    }

    /// The client's part, and how many pieces a request of so many bytes takes of it.
    fn part(&self, parts: &Parts, bytes: u64) -> (Arc<Semaphore>, u32) {
        let wanted = u32::try_from(pieces(bytes).min(self.of_one)).unwrap_or(u32::MAX);
        let peer = parts.extensions.get::<Peer>();
        let key = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| client_of(peer.0.ip()));
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(&key).and_then(Weak::upgrade) {
            return (known, wanted);
        }
        let new = Arc::new(Semaphore::new(self.of_one));
        insert(&mut clients, key, Arc::downgrade(&new));
        (new, wanted)
    }

    /// The bytes of a manifest, which keep their room until nobody reads them any more. If somebody reads this manifest already, it is
    /// the same bytes, and the room is free.
    pub(crate) fn share(&self, digest: &Digest, content: Bytes, room: Room) -> Bytes {
        let mut shared = self.shared.lock();
        if let Some(held) = shared.get(digest).and_then(Weak::upgrade) {
            return Bytes::from_owner(Reader(held));
        }
        let held = Arc::new(Held::new(content, room));
        insert(&mut shared, digest.clone(), Arc::downgrade(&held));
        Bytes::from_owner(Reader(held))
    }
}

/// Before a map grows, what is gone leaves it.
fn insert<K: Eq + Hash, V>(map: &mut HashMap<K, Weak<V>>, key: K, value: Weak<V>) {
    if map.len() == map.capacity() {
        map.retain(|_, value| value.strong_count() > 0);
    }
    map.insert(key, value);
}

fn pieces(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(PIECE))
        .unwrap_or(usize::MAX)
        .min(Semaphore::MAX_PERMITS)
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    of_client: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Room {
    /// The bytes with no more room than they need, which they keep until nobody reads them any more.
    pub(crate) fn hold(self, content: Vec<u8>) -> Bytes {
        Bytes::from_owner(Reader(Arc::new(Held::new(content.into(), self))))
    }
}

#[derive(Debug)]
struct Held {
    content: Bytes,
    _room: Room,
}

impl Held {
    fn new(content: Bytes, mut room: Room) -> Self {
        let needed = pieces(content.len() as u64);
        for permit in [&mut room.of_client, &mut room.of_all] {
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
        Self { content, _room: room }
    }
}

struct Reader(Arc<Held>);

impl AsRef<[u8]> for Reader {
    fn as_ref(&self) -> &[u8] {
        &self.0.content
    }
}
