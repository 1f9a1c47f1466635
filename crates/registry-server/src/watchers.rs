//! Hosts that watch repositories, and what they are told.
//!
//! Nothing waits for a host: each repository that is watched has a ring of the last changes, and a host that reads too slowly is told
//! that it missed some. A repository that nobody watches any more takes no memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::broadcast;
use xebec_native::watch::Change;
use xebec_store::{Digest, RepositoryName};

use crate::server::clients::{Admitted, Clients};

/// Changes of one repository that a host may be behind.
const KEPT: usize = 64;
/// Watches of one client, at most: hosts may be behind one address.
const MOST_OF_ONE: usize = 256;

/// None once the registry ends.
type Rings = Option<HashMap<RepositoryName, broadcast::Sender<Change>>>;

/// See the module.
pub struct Watchers {
    rings: Arc<Mutex<Rings>>,
    clients: Arc<Clients>,
    all: Arc<Clients>,
    most: AtomicUsize,
    most_of_one: AtomicUsize,
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            rings: Arc::new(Mutex::new(Some(HashMap::new()))),
            clients: Arc::default(),
            all: Arc::default(),
            most: AtomicUsize::new(usize::MAX),
            most_of_one: AtomicUsize::new(MOST_OF_ONE),
        }
    }
}

/// Why a watch does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoWatch {
    /// The client has too many.
    TooManyOfOne,
    /// All clients together have.
    TooMany,
    /// The registry ends.
    Ending,
}

/// What one host hears of a repository, until it is dropped.
pub(crate) struct Watch {
    rings: Arc<Mutex<Rings>>,
    repository: RepositoryName,
    changes: broadcast::Receiver<Change>,
    _counted: (Admitted, Admitted),
}

impl Watch {
    /// The next change; `None` once the registry ends.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        match self.changes.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Change::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut rings = self.rings.lock();
        let Some(rings) = rings.as_mut() else {
            return;
        };
        // This watch still counts as one that hears.
        let is_last = rings
            .get(&self.repository)
            .is_some_and(|ring| ring.receiver_count() <= 1);
        if is_last {
            rings.remove(&self.repository);
        }
    }
}

impl Watchers {
    /// Of the connections, and of the requests of one client, watches take half at most: the rest stays free for starts.
    pub(crate) fn limit(&self, connections: usize, requests_per_client: usize) {
        self.most.store(connections / 2, Ordering::Relaxed);
        let of_one = MOST_OF_ONE.min(requests_per_client / 2);
        self.most_of_one.store(of_one, Ordering::Relaxed);
    }

    /// Begins to watch a repository, for the client at this address.
    pub(crate) fn watch(&self, repository: &RepositoryName, client: IpAddr) -> Result<Watch, NoWatch> {
        let of_one = self
            .clients
            .admit(client, self.most_of_one.load(Ordering::Relaxed));
        // One client stands for all of them.
        let of_all = self
            .all
            .admit(IpAddr::from([0; 4]), self.most.load(Ordering::Relaxed));
        let counted = (
            of_one.ok_or(NoWatch::TooManyOfOne)?,
            of_all.ok_or(NoWatch::TooMany)?,
        );
        let mut rings = self.rings.lock();
        let rings = rings.as_mut().ok_or(NoWatch::Ending)?;
        let ring = rings.entry(repository.clone());
        let ring = ring.or_insert_with(|| broadcast::Sender::new(KEPT));
        Ok(Watch {
            rings: self.rings.clone(),
            repository: repository.clone(),
            changes: ring.subscribe(),
            _counted: counted,
        })
    }

    /// Tells those who watch the repository, at once.
    pub(crate) fn tell(&self, repository: &RepositoryName, change: Change) {
        let rings = self.rings.lock();
        if let Some(ring) = rings.as_ref().and_then(|rings| rings.get(repository)) {
            // The last one may be about to stop.
            let _ = ring.send(change);
        }
    }

    /// Tells those who watch the repository that something refers to this manifest now.
    pub(crate) fn referred(&self, repository: &RepositoryName, subject: &Digest) {
        // Hosts know images by SHA-256 alone.
        if let Ok(subject) = subject.to_string().parse() {
            self.tell(repository, Change::Referred { subject });
        }
    }

    /// Ends all watches: the registry ends.
    pub(crate) fn end(&self) {
        *self.rings.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    fn change(number: usize) -> Change {
        Change::Referred {
            subject: xebec_format::digest::Digest::of(&number.to_le_bytes()),
        }
    }

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn hosts_hear_of_their_repository_alone() {
        let watchers = Watchers::default();
        let mut one = watchers.watch(&name("a"), HOST).unwrap();
        let mut same = watchers.watch(&name("a"), HOST).unwrap();
        let mut other = watchers.watch(&name("b"), HOST).unwrap();
        watchers.tell(&name("a"), change(1));
        watchers.tell(&name("b"), change(2));
        assert_eq!(one.next().await, Some(change(1)));
        assert_eq!(same.next().await, Some(change(1)));
        assert_eq!(other.next().await, Some(change(2)));
        watchers.end();
        assert_eq!(one.next().await, None);
        assert_eq!(watchers.watch(&name("a"), HOST).err(), Some(NoWatch::Ending));
    }

    #[tokio::test]
    async fn a_slow_host_is_told_that_it_missed_something() {
        let watchers = Watchers::default();
        let mut slow = watchers.watch(&name("a"), HOST).unwrap();
        for number in 0..=KEPT {
            watchers.tell(&name("a"), change(number));
        }
        assert_eq!(slow.next().await, Some(Change::Missed));
        assert_eq!(slow.next().await, Some(change(1)));
    }

    #[tokio::test]
    async fn what_nobody_watches_is_forgotten_and_one_client_has_its_share() {
        let watchers = Watchers::default();
        watchers.limit(8, 6);
        let other = "10.0.0.1".parse().unwrap();
        let refused = |name_: &str, client| watchers.watch(&name(name_), client).err();
        let mut watches: Vec<_> = (0..3)
            .map(|number| watchers.watch(&name(&format!("a{number}")), HOST).unwrap())
            .collect();
        assert_eq!(refused("b", HOST), Some(NoWatch::TooManyOfOne));
        watches.push(watchers.watch(&name("a0"), other).unwrap());
        assert_eq!(refused("b", other), Some(NoWatch::TooMany));
        let known = || watchers.rings.lock().as_ref().map(HashMap::len);
        assert_eq!(known(), Some(3));
        drop(watches.remove(0));
        assert_eq!(known(), Some(3), "another host watches it");
        watches.truncate(1);
        assert_eq!(known(), Some(1));
        watchers.tell(&name("a1"), change(1));
        assert_eq!(watches[0].next().await, Some(change(1)));
        drop(watches);
        assert_eq!(known(), Some(0));
    }
}
