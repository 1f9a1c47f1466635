//! Which layers a client is about to pull: those of the manifest that it has just read, without those that it has pulled before (DupHunter's ILmap and
//! ULmap). What a client pulled is forgotten after a while: it may have let it go.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};

use xebec_store::Digest;

/// Clients that are remembered, and layers of one.
const MOST_CLIENTS: usize = 4096;
const MOST_LAYERS: usize = 1024;
/// Milliseconds after which a pull counts no longer.
const DAY: u64 = 24 * 3600 * 1000;

/// What clients have pulled lately. Clients and layers are kept as hashes with a secret of this process, 8 bytes each: two that fall together cost
/// a restored blob that comes too late, and nothing else.
pub(crate) struct Expected {
    secret: RandomState,
    clients: HashMap<u64, Client>,
}

#[derive(Default)]
struct Client {
    /// Layers, and when they were pulled.
    layers: HashMap<u64, u64>,
    seen: u64,
}

impl Expected {
    pub(crate) fn new() -> Self {
        Self {
            secret: RandomState::new(),
            clients: HashMap::new(),
        }
    }

    /// A client has pulled a layer.
    pub(crate) fn pulled(&mut self, client: &str, layer: &Digest, now: u64) {
        let layer = self.hash(layer);
        let layers = &mut self.client(client, now).layers;
        if layers.len() >= MOST_LAYERS && !layers.contains_key(&layer) {
            forget_older_half(layers, |when| *when);
        }
        layers.insert(layer, now);
    }

    /// Those of these layers that the client has not pulled lately.
    pub(crate) fn lacking(&mut self, client: &str, layers: Vec<Digest>, now: u64) -> Vec<Digest> {
        let hashes: Vec<u64> = layers.iter().map(|layer| self.hash(layer)).collect();
        let known = &self.client(client, now).layers;
        let is_new = |hash: &u64| known.get(hash).is_none_or(|when| when + DAY <= now);
        let lacking = layers.into_iter().zip(&hashes).filter(|(_, hash)| is_new(hash));
        lacking.map(|(layer, _)| layer).collect()
    }

    fn client(&mut self, client: &str, now: u64) -> &mut Client {
        let client = self.hash(client);
        if self.clients.len() >= MOST_CLIENTS && !self.clients.contains_key(&client) {
            forget_older_half(&mut self.clients, |client| client.seen);
        }
        let client = self.clients.entry(client).or_default();
        client.seen = now;
        client
    }

    fn hash(&self, of: impl Hash) -> u64 {
        self.secret.hash_one(of)
    }
}

/// All at once, so that it costs little for each that comes.
fn forget_older_half<V>(map: &mut HashMap<u64, V>, when: impl Fn(&V) -> u64) {
    let mut times: Vec<u64> = map.values().map(&when).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    let mut left = middle;
    // Many may have the same time.
    map.retain(|_, value| {
        let stays = when(value) >= median && left > 0;
        left -= usize::from(stays);
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use xebec_store::Algorithm;

    fn layers(numbers: std::ops::Range<u32>) -> Vec<Digest> {
        numbers
            .map(|number| Digest::of(Algorithm::Sha256, &number.to_le_bytes()))
            .collect()
    }

    #[test]
    fn what_a_client_has_is_not_expected_again_until_a_day_has_passed() {
        let mut expected = Expected::new();
        for layer in layers(0..3) {
            expected.pulled("anna", &layer, 1000);
        }
        assert_eq!(expected.lacking("anna", layers(0..5), 2000), layers(3..5));
        assert_eq!(expected.lacking("bob", layers(0..5), 2000), layers(0..5));
        assert_eq!(expected.lacking("anna", layers(0..5), 1000 + DAY), layers(0..5));
    }

    #[test]
    fn clients_and_layers_are_bounded() {
        let mut expected = Expected::new();
        for (number, layer) in layers(0..3000).iter().enumerate() {
            expected.pulled("anna", layer, number as u64 / 100);
        }
        assert!(
            expected
                .clients
                .values()
                .all(|client| client.layers.len() <= MOST_LAYERS)
        );
        assert_eq!(expected.lacking("anna", layers(2990..3000), 30), []);
        for client in 0..10_000 {
            expected.lacking(&client.to_string(), Vec::new(), 31);
        }
        assert!(expected.clients.len() <= MOST_CLIENTS);
    }
}
