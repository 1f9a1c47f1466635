//! IPv4 subnets.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::NetworkError;

/// Longest and shortest prefix of a network's subnet: room for a gateway and a container, and not more than
/// the largest private range.
const PREFIXES: std::ops::RangeInclusive<u8> = 8..=30;

/// A range of addresses that begin alike, as `10.4.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subnet {
    first: u32,
    prefix: u8,
}

impl Subnet {
    /// The subnet of that length which has this address.
    pub(crate) fn around(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        let first = address.to_bits() & mask(prefix);
        Subnet { first, prefix }
    }

    /// The subnets of which Xebec takes the first free one for a network: 10.4.0.0/24 to 10.255.255.0/24.
    /// nerdctl begins there, too; Docker takes 172.16.0.0/12, and podman 10.88.0.0/16.
    pub(crate) fn candidates() -> impl Iterator<Item = Subnet> {
        (4..=255_u8)
            .flat_map(|second| (0..=255_u8).map(move |third| Ipv4Addr::new(10, second, third, 0)))
            .map(|address| Subnet::around(address, 24))
    }

    /// Whether the address is one of it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.first
    }

    /// Whether they have an address in common.
    pub fn overlaps(self, other: Subnet) -> bool {
        let shorter = self.prefix.min(other.prefix);
        self.first & mask(shorter) == other.first & mask(shorter)
    }

    /// The use of its addresses, if no host of a network may have them.
    fn other_use(self) -> Option<&'static str> {
        let overlaps =
            |&&(address, prefix, _): &&(Ipv4Addr, u8, &str)| self.overlaps(Subnet::around(address, prefix));
        OTHER_USES.iter().find(overlaps).map(|(_, _, use_)| *use_)
    }

    /// The first address that a host can have: by default the gateway's.
    pub(crate) fn first_host(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first | 1)
    }

    /// Whether an address can be a host's: it is neither the subnet's own nor its broadcast address.
    pub(crate) fn has_host(self, address: Ipv4Addr) -> bool {
        let last = self.first | !mask(self.prefix);
        self.contains(address) && address.to_bits() != self.first && address.to_bits() != last
    }

    pub(crate) fn is_everything(self) -> bool {
        self.prefix == 0
    }
}

/// Addresses that no host of a network has (RFC 6890), and what they are.
const OTHER_USES: [(Ipv4Addr, u8, &str); 5] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this host's own"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "for loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "of one link only"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "for multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.prefix)
    }
}

impl FromStr for Subnet {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = |reason: String| NetworkError::Subnet {
            subnet: text.to_owned(),
            reason,
        };
        let form = || wrong("write it as 10.9.0.0/24".to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(form)?;
        if address.contains(':') {
            return Err(wrong(
                "networks that Xebec makes have IPv4 addresses; for IPv6 write a .conflist of your own"
                    .to_owned(),
            ));
        }
        let address: Ipv4Addr = address.parse().map_err(|_| form())?;
        let prefix: u8 = prefix.parse().map_err(|_| form())?;
        if !PREFIXES.contains(&prefix) {
            return Err(wrong("the number after '/' must be from 8 to 30".to_owned()));
        }
        let subnet = Subnet::around(address, prefix);
        if subnet.first != address.to_bits() {
            return Err(wrong(format!("it begins at {subnet}; write that")));
        }
        match subnet.other_use() {
            Some(use_) => Err(wrong(format!(
                "these addresses are {use_}; take private ones, as 10.9.0.0/24"
            ))),
            None => Ok(subnet),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn subnets_are_read_and_wrong_ones_say_why() {
        let subnet: Subnet = "10.9.0.0/24".parse().unwrap();
        assert_eq!(subnet.to_string(), "10.9.0.0/24");
        assert_eq!(subnet.first_host(), Ipv4Addr::new(10, 9, 0, 1));
        for (text, why) in [
            ("10.9.0.0", "write it as"),
            ("10.9.0.0/x", "write it as"),
            ("ten/24", "write it as"),
            ("10.9.0.0/31", "8 to 30"),
            ("0.0.0.0/0", "8 to 30"),
            ("10.9.0.7/24", "10.9.0.0/24"),
            ("fd00::/64", "IPv4"),
            ("127.0.0.0/8", "loopback"),
            ("127.1.0.0/16", "loopback"),
            ("0.0.0.0/8", "this host's own"),
            ("169.254.7.0/24", "one link"),
            ("224.0.0.0/24", "multicast"),
            ("255.255.255.0/24", "reserved"),
        ] {
            let error = text.parse::<Subnet>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn hosts_are_between_the_ends() {
        let subnet: Subnet = "10.9.0.0/30".parse().unwrap();
        let has = |last| subnet.has_host(Ipv4Addr::new(10, 9, 0, last));
        assert!(!has(0) && has(1) && has(2) && !has(3) && !has(4));
    }

    proptest! {
        #[test]
        fn overlapping_is_having_an_address_in_common(
            one in any::<u32>(), one_prefix in 0_u8..=32, two in any::<u32>(), two_prefix in 0_u8..=32,
        ) {
            let one = Subnet::around(Ipv4Addr::from_bits(one), one_prefix);
            let two = Subnet::around(Ipv4Addr::from_bits(two), two_prefix);
            // Of two subnets that overlap one begins in the other.
            let begins = |a: Subnet, b: Subnet| a.contains(Ipv4Addr::from_bits(b.first));
            prop_assert_eq!(one.overlaps(two), begins(one, two) || begins(two, one));
            prop_assert_eq!(one.overlaps(two), two.overlaps(one));
        }
    }
}
