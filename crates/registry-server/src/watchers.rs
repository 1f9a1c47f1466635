//! Hosts that watch repositories, and what they are told.
//!
//! Nothing waits for a host: each repository that is watched has a ring of the last changes, and a host that reads too slowly is told
//! that it missed some. What is watched by nobody takes no memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use xebec_native::watch::Change;
use xebec_store::RepositoryName;

use crate::server::clients::{Admitted, Clients};

/// Changes of one repository that a host may be behind.
const KEPT: usize = 64;
/// Watches of all hosts, and of one client: hosts behind one address share that many, and the rest of the requests that a client may have
/// under way stay free for starts.
const MOST: usize = 16_384;
const MOST_OF_ONE: usize = 256;

/// See the module.
pub struct Watchers {
    /// None once the registry ends.
    repositories: Mutex<Option<HashMap<RepositoryName, broadcast::Sender<Change>>>>,
    clients: Arc<Clients>,
    all: Arc<Clients>,
}

impl Default for Watchers {
    fn default() -> Self {
        Self {
            repositories: Mutex::new(Some(HashMap::new())),
            clients: Arc::default(),
            all: Arc::default(),
        }
    }
}

/// What one host hears of a repository, until it is dropped.
pub(crate) struct Watch {
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

impl Watchers {
    /// Begins to watch a repository, for the client at this address. `None` if there are too many watches already, or the
    /// registry ends.
    pub(crate) fn watch(&self, repository: &RepositoryName, client: IpAddr) -> Option<Watch> {
        let counted = (
            self.clients.admit(client, MOST_OF_ONE)?,
            self.all.admit(IpAddr::from([0; 4]), MOST)?,
        );
        let mut repositories = self.repositories.lock();
        let repositories = repositories.as_mut()?;
        let is_new = !repositories.contains_key(repository);
        if is_new {
            repositories.retain(|_, changes| changes.receiver_count() > 0);
        }
        let changes = repositories.entry(repository.clone());
        let changes = changes.or_insert_with(|| broadcast::Sender::new(KEPT));
        Some(Watch {
            changes: changes.subscribe(),
            _counted: counted,
        })
    }

    /// Tells those who watch the repository, at once.
    pub fn tell(&self, repository: &RepositoryName, change: Change) {
        let mut repositories = self.repositories.lock();
        let Some(repositories) = repositories.as_mut() else {
            return;
        };
        let is_heard = repositories
            .get(repository)
            .is_some_and(|changes| changes.send(change).is_ok());
        if !is_heard {
            repositories.remove(repository);
        }
    }

    /// Ends all watches: the registry ends.
    pub(crate) fn end(&self) {
        *self.repositories.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    fn change(number: usize) -> Change {
        Change::Referred {
            subject: Digest::of(&number.to_le_bytes()),
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
        assert!(watchers.watch(&name("a"), HOST).is_none());
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
        let watches: Vec<_> = (0..MOST_OF_ONE)
            .map(|number| watchers.watch(&name(&format!("a{number}")), HOST).unwrap())
            .collect();
        assert!(watchers.watch(&name("b"), HOST).is_none());
        assert!(watchers.watch(&name("b"), "10.0.0.1".parse().unwrap()).is_some());
        drop(watches);
        let _watch = watchers.watch(&name("c"), HOST).unwrap();
        assert_eq!(watchers.repositories.lock().as_ref().unwrap().len(), 1);
        watchers.tell(&name("a1"), change(1));
        assert_eq!(watchers.repositories.lock().as_ref().unwrap().len(), 1);
    }
}
