//! How much one client may have under way, so that it cannot keep the others out.
//!
//! [`client_of`] says which addresses are one client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use hyper::HeaderMap;
use parking_lot::Mutex;
use xebec_access::client_of;

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text is no range of addresses.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no address or range of addresses: write 10.1.2.3, 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| wrong())?,
            None => most,
        };
        match bits <= most {
            true => Ok(Self { address, bits }),
            false => Err(wrong()),
        }
    }
}

impl Network {
    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(own) & mask == u32::from(other) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(own) & mask == u128::from(other) & mask
            }
            _ => false,
        }
    }
}

/// The address that a request comes from: the other end of the connection, or what a proxy in front of this registry says of it.
pub(crate) fn origin(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let values = headers.get_all("x-forwarded-for").into_iter();
    forwarded(peer, values.filter_map(|value| value.to_str().ok()), proxies)
}

/// The same by the values of `X-Forwarded-For`. Only proxies that the configuration names are believed, from the nearest on.
pub fn forwarded<'a>(peer: IpAddr, values: impl Iterator<Item = &'a str>, proxies: &[Network]) -> IpAddr {
    let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    let mut address = peer.to_canonical();
    let hops: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    for hop in hops.iter().rev() {
        if !is_proxy(address) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(hop) => address = hop.to_canonical(),
            Err(_) => break,
        }
    }
    address
}

/// How much each client has under way.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Clients {
    /// One more for this client, until what is returned is dropped. None if it has `most`.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Admitted> {
        let key = client_of(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(key).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Admitted {
            clients: self.clone(),
            key,
        })
    }
}

/// One thing that a client has under way.
#[derive(Debug)]
pub(crate) struct Admitted {
    clients: Arc<Clients>,
    key: IpAddr,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.clients.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        assert!(network("10.0.0.0/8").contains(address("10.255.0.1")));
        assert!(network("10.0.0.0/8").contains(address("::ffff:10.1.2.3")));
        assert!(!network("10.0.0.0/8").contains(address("11.0.0.1")));
        assert!(network("0.0.0.0/0").contains(address("1.2.3.4")));
        assert!(network("fd00::/8").contains(address("fd12::1")));
        assert!(!network("::/0").contains(address("1.2.3.4")));
        assert!(network("1.2.3.4").contains(address("1.2.3.4")));
        for wrong in ["", "a", "1.2.3.4/33", "1.2.3.4/-1", "::/129", "1.2.3.4/"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_proxies_that_are_named_are_believed() {
        let proxies = [network("10.0.0.0/8")];
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "9.9.9.9, 1.2.3.4, 10.0.0.2".parse().unwrap());
        assert_eq!(
            origin(address("10.0.0.1"), &headers, &proxies),
            address("1.2.3.4")
        );
        assert_eq!(origin(address("5.6.7.8"), &headers, &proxies), address("5.6.7.8"));
        headers.insert("x-forwarded-for", "nonsense".parse().unwrap());
        assert_eq!(
            origin(address("10.0.0.1"), &headers, &proxies),
            address("10.0.0.1")
        );
    }

    #[test]
    fn one_client_has_so_much_and_the_others_are_free() {
        let clients = Arc::new(Clients::default());
        let (one, same, other) = (address("fd00::1"), address("fd00::2"), address("fd00:0:0:1::1"));
        let first = clients.admit(one, 2).unwrap();
        let _second = clients.admit(same, 2).unwrap();
        assert!(clients.admit(one, 2).is_none());
        assert!(clients.admit(other, 2).is_some());
        drop(first);
        assert!(clients.admit(one, 2).is_some());
        assert_eq!(clients.counts.lock().len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,40}", value in "[ -~]{0,40}") {
            let _ = text.parse::<Network>().map(|network| network.contains(address("::1")));
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", value.parse().unwrap());
            origin(address("1.1.1.1"), &headers, &[network("0.0.0.0/0")]);
        }
    }
}
