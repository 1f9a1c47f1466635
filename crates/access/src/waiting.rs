//! Requests that wait for a verification: how many in all, how many of one client, and which of them wait for the same.
//!
//! A client is what the server's limits take for one: an address, or of IPv6 the network of 64 bits that one host may choose its
//! addresses from.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The client that an address belongs to.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

/// How many of each client wait. Requests without an address are of one client.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Lengths>);

#[derive(Debug, Default)]
struct Lengths {
    all: usize,
    of: HashMap<Option<IpAddr>, usize>,
}

impl Queue {
    /// One more of the client that has this address, until what is returned is dropped. `None` if `most` wait in all, or
    /// `most_of_one` of this client.
    pub(crate) fn enter(
        &self,
        address: Option<IpAddr>,
        most: usize,
        most_of_one: usize,
    ) -> Option<Waiting<'_>> {
        let client = address.map(client_of);
        let mut lengths = self.0.lock();
        let own = lengths.of.get(&client).copied().unwrap_or(0);
        if lengths.all >= most || own >= most_of_one {
            return None;
        }
        lengths.all += 1;
        lengths.of.insert(client, own + 1);
        Some(Waiting { queue: self, client })
    }
}

/// Counts one that waits, until it waits no more or its client has gone.
pub(crate) struct Waiting<'a> {
    queue: &'a Queue,
    client: Option<IpAddr>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut lengths = self.queue.0.lock();
        lengths.all -= 1;
        if let Some(own) = lengths.of.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                lengths.of.remove(&self.client);
            }
        }
    }
}

/// Lets those that want the same go one after the other, so that all but the first find what it brought.
#[derive(Debug)]
pub(crate) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> Turns<K> {
    /// Begins to take part; the caller then waits for [`Turn::come`].
    pub(crate) fn take(&self, key: K) -> Turn<'_, K> {
        let gate = Arc::clone(self.0.lock().entry(key).or_default());
        Turn {
            turns: self,
            key,
            gate,
        }
    }
}

/// One of those that want the same.
pub(crate) struct Turn<'a, K: Copy + Eq + Hash> {
    turns: &'a Turns<K>,
    key: K,
    gate: Arc<tokio::sync::Mutex<()>>,
}

impl<K: Copy + Eq + Hash> Turn<'_, K> {
    /// Waits until it is this one's turn, which lasts as long as what is returned.
    pub(crate) async fn come(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.gate.lock().await
    }
}

impl<K: Copy + Eq + Hash> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut gates = self.turns.0.lock();
        // The map's and its own: nobody else takes part, and nobody joins while the map is locked.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.key);
        }
    }
}
