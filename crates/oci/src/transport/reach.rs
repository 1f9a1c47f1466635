//! Where a registry may send this host.
//!
//! Registries name hosts that are then asked: redirects, token servers, places of uploads. The daemon runs as root in the host's own
//! network and reaches services that nobody outside does: on loopback, metadata servers of clouds, the network behind. So a registry
//! may name hosts that are as far away as it is itself, and farther ones. A registry on the internet may name hosts on the internet,
//! one in a private network also hosts of that network, and only one on this host may name this host.
//!
//! Names are judged by the addresses that are connected to, when that is done, so a name that resolves to something else the
//! next time gains nothing; connections made for one kind of registry are not used for another. Every registry may name the hosts that
//! the user lists under `internal_hosts`. Through a proxy only what a URL itself says can be judged: the proxy resolves names, and it
//! is for the proxy to say what may be reached.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::authority::authority;
use super::names::Names;
use crate::config::is_loopback;
use crate::error::Fault;

/// How near to this host an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// On the internet.
    Internet = 0,
    /// In a network that is not routed on the internet: RFC 1918, RFC 6598, RFC 4193. Also an address of this host's own that is: no
    /// firewall is on the way there.
    Private = 1,
    /// On the same link: RFC 3927, RFC 4291.
    Link = 2,
    /// This host.
    Host = 3,
    /// Addresses that no registry may name: metadata servers of clouds, "any" address (Linux takes it for loopback), multicast.
    Never = 4,
}

/// Servers that give the machine's own credentials to any process on it, where they have no address of the link: of AWS,
/// Google, Oracle, Alibaba and Azure. `169.254.169.254`, which most have, is among them since some clusters relay it.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
/// Names by which clouds resolve theirs, for requests through a proxy.
const METADATA_NAMES: [&str; 3] = ["metadata", "metadata.google.internal", "instance-data"];

impl Reach {
    /// Of an address, as this host has it now.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::of_range(address, is_own)
    }

    fn of_range(address: IpAddr, is_own: impl Fn(IpAddr) -> bool) -> Self {
        let reach = match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        };
        match reach {
            Self::Internet if is_own(address.to_canonical()) => Self::Private,
            reach => reach,
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [first, second, ..] = address.octets();
        if METADATA_V4.contains(&address) || first == 0 || first >= 224 {
            return Self::Never;
        }
        if address.is_loopback() {
            return Self::Host;
        }
        if address.is_link_local() {
            return Self::Link;
        }
        // Shared by the customers of a provider, and what many clusters give to pods.
        let is_shared = first == 100 && (64..128).contains(&second);
        match address.is_private() || is_shared {
            true => Self::Private,
            false => Self::Internet,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if METADATA_V6.contains(&address) || address.is_unspecified() || address.is_multicast() {
            return Self::Never;
        }
        if address.is_loopback() {
            return Self::Host;
        }
        if let Some(embedded) = embedded_v4(address) {
            return Self::of_v4(embedded);
        }
        let first = address.segments()[0];
        match first {
            _ if first & 0xffc0 == 0xfe80 => Self::Link,
            // RFC 4193, and what was in its place before (RFC 3879).
            _ if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Self::Private,
            _ => Self::Internet,
        }
    }

    /// Of what a URL says itself; `None` if it has a name that is to be resolved.
    pub(crate) fn of_url(url: &Url) -> Option<Self> {
        let host = url.host_str()?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(host).parse() {
            return Some(Self::of(address));
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if METADATA_NAMES.contains(&host.as_str()) {
            return Some(Self::Never);
        }
        // RFC 6761: they are loopback, even if a name server says otherwise.
        let is_local = is_loopback(&host) || host.ends_with(".localhost");
        is_local.then_some(Self::Host)
    }

    /// Whether a registry that is this near may name an address that is so near.
    pub(crate) fn may_name(self, address: Self) -> bool {
        address != Self::Never && address <= self.as_namer()
    }

    /// A registry at an address that nobody names is not for that trusted with what is on the host.
    fn as_namer(self) -> Self {
        match self {
            Self::Never => Self::Internet,
            other => other,
        }
    }

    /// How near something is that was reached over both.
    pub(crate) fn and(self, other: Self) -> Self {
        self.as_namer().min(other.as_namer())
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Internet => "on the internet",
            Self::Private => "in a private network",
            Self::Link => "on this host's own link",
            Self::Host => "on this host itself",
            Self::Never => "one that no registry may name",
        })
    }
}

/// Whether an address is one of this host's own, on which something may listen: the kernel lets nobody bind another. It does where it
/// was told to (`ip_nonlocal_bind`); then it cannot be told, and none is.
fn is_own(address: IpAddr) -> bool {
    let can_bind = |address| UdpSocket::bind((address, 0)).is_ok();
    // For documentation (RFC 5737, RFC 3849), so nobody's.
    let nobodys: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    address != nobodys && can_bind(address) && !can_bind(nobodys)
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible (RFC 4291), translated (RFC 6052, RFC 8215), 6to4
/// (RFC 3056).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0, 0, 0, 0, 0xffff, 0) => of(g, h),
        (0x64, 0xff9b, 0, 0, 0, 0) | (0x64, 0xff9b, 1, _, _, _) => of(g, h),
        (0x2002, high, low, ..) => of(high, low),
        _ => None,
    }
}

/// How near a server was when it last answered; it counts as being on the internet until then.
#[derive(Debug, Default)]
pub(crate) struct LastReach(AtomicU8);

impl LastReach {
    pub(crate) fn get(&self) -> Reach {
        match self.0.load(Ordering::Relaxed) {
            1 => Reach::Private,
            2 => Reach::Link,
            3 => Reach::Host,
            _ => Reach::Internet,
        }
    }

    pub(crate) fn set(&self, reach: Reach) {
        self.0.store(reach.as_namer() as u8, Ordering::Relaxed);
    }
}

/// How a request comes to its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The user named the server.
    Named,
    /// A registry that is this near named it.
    Told(Reach),
}

/// Refuses a URL that a registry named and that says itself that it leads nearer to this host than the registry is.
///
/// # Errors
/// Why it is not asked.
pub(crate) fn check(way: Way, url: &Url, internal_hosts: &[String]) -> Result<(), Fault> {
    let (Way::Told(by), Some(reach)) = (way, Reach::of_url(url)) else {
        return Ok(());
    };
    if by.may_name(reach) || is_listed(url, internal_hosts) {
        return Ok(());
    }
    Err(Fault::Protocol(refusal(&authority(url), by, reach)))
}

/// Whether the user said that every registry may name this host.
pub(crate) fn is_listed(url: &Url, internal_hosts: &[String]) -> bool {
    let (host, authority) = (url.host_str().unwrap_or_default(), authority(url));
    internal_hosts
        .iter()
        .any(|listed| listed.eq_ignore_ascii_case(host) || listed.eq_ignore_ascii_case(&authority))
}

fn refusal(host: &str, by: Reach, reach: Reach) -> String {
    format!(
        "the registry, which is {}, sends this host to {host}, whose address is {reach}; if that is right, list {host} under \
         internal_hosts in registries.toml",
        by.as_namer()
    )
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct OutOfReach(pub(crate) String);

/// Resolves names that registries of some reach gave, to what they may name.
pub(crate) struct Within {
    names: Arc<Names>,
    by: Reach,
}

impl Within {
    pub(crate) fn new(names: Arc<Names>, by: Reach) -> Self {
        Self { names, by }
    }
}

impl Resolve for Within {
    fn resolve(&self, name: Name) -> Resolving {
        let by = self.by;
        let host = name.as_str().to_owned();
        let found = self.names.resolve(name);
        Box::pin(async move {
            let mut nearest = Reach::Internet;
            let all: Vec<_> = found.await?.collect();
            let may = all.iter().copied().filter(|address| {
                let reach = Reach::of(address.ip());
                nearest = nearest.max(reach);
                by.may_name(reach)
            });
            let may: Vec<_> = may.collect();
            if may.is_empty() && !all.is_empty() {
                return Err(OutOfReach(refusal(&host, by, nearest)).into());
            }
            let may: Addrs = Box::new(may.into_iter());
            Ok(may)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(address: &str) -> Reach {
        Reach::of(address.parse().unwrap())
    }

    #[test]
    fn addresses() {
        for (address, expected) in [
            ("198.51.100.7", Reach::Internet),
            ("172.32.0.1", Reach::Internet),
            ("100.128.0.1", Reach::Internet),
            ("2001:db8::1", Reach::Internet),
            ("10.1.2.3", Reach::Private),
            ("172.31.255.255", Reach::Private),
            ("192.168.0.1", Reach::Private),
            ("100.64.0.1", Reach::Private),
            ("fd12::1", Reach::Private),
            ("fec0::1", Reach::Private),
            ("169.254.1.1", Reach::Link),
            ("fe80::1", Reach::Link),
            ("127.0.0.1", Reach::Host),
            ("127.255.0.9", Reach::Host),
            ("::1", Reach::Host),
            ("0.0.0.0", Reach::Never),
            ("0.1.2.3", Reach::Never),
            ("::", Reach::Never),
            ("169.254.169.254", Reach::Never),
            ("100.100.100.200", Reach::Never),
            ("168.63.129.16", Reach::Never),
            ("fd00:ec2::254", Reach::Never),
            ("224.0.0.1", Reach::Never),
            ("255.255.255.255", Reach::Never),
            ("ff02::1", Reach::Never),
            // IPv4 in IPv6.
            ("::ffff:127.0.0.1", Reach::Host),
            ("::ffff:10.0.0.1", Reach::Private),
            ("::ffff:169.254.169.254", Reach::Never),
            ("::ffff:0:127.0.0.1", Reach::Host),
            ("::127.0.0.1", Reach::Host),
            ("64:ff9b::169.254.169.254", Reach::Never),
            ("64:ff9b:1::127.0.0.1", Reach::Host),
            ("2002:7f00:1::", Reach::Host),
            ("2002:c633:6407::", Reach::Internet),
            ("::ffff:198.51.100.7", Reach::Internet),
        ] {
            assert_eq!(reach(address), expected, "{address}");
        }
    }

    /// A service that listens on this host's public address is behind the firewalls that are outside of this host.
    #[test]
    fn own_public_addresses_are_no_strangers() {
        let own = ["198.51.100.7", "2001:db8::7", "10.0.0.7", "127.0.0.1"].map(|own| own.parse().unwrap());
        let reach =
            |address: &str| Reach::of_range(address.parse().unwrap(), |address| own.contains(&address));
        for (address, expected) in [
            ("198.51.100.7", Reach::Private),
            ("::ffff:198.51.100.7", Reach::Private),
            ("2001:db8::7", Reach::Private),
            ("198.51.100.8", Reach::Internet),
            ("2001:db8::8", Reach::Internet),
            ("10.0.0.7", Reach::Private),
            ("127.0.0.1", Reach::Host),
        ] {
            assert_eq!(reach(address), expected, "{address}");
        }
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(198, 51, 100, 1).into()));
        // The one by which this host would go out, if it has any.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        match socket
            .connect("198.51.100.1:9")
            .and_then(|()| socket.local_addr())
        {
            Ok(own) => assert!(is_own(own.ip()), "{own}"),
            Err(error) => println!("SKIPPED: this host has no way out: {error}"),
        }
    }

    #[test]
    fn urls_in_every_spelling() {
        for (url, expected) in [
            ("http://127.0.0.1:80/", Some(Reach::Host)),
            // As the URL standard reads them.
            ("http://2130706433/", Some(Reach::Host)),
            ("http://0x7f.1/", Some(Reach::Host)),
            ("http://0177.0.0.1/", Some(Reach::Host)),
            ("http://[::ffff:7f00:1]:8080/", Some(Reach::Host)),
            ("http://localhost/", Some(Reach::Host)),
            ("http://LOCALHOST./", Some(Reach::Host)),
            ("http://a.localhost/", Some(Reach::Host)),
            ("http://user@127.0.0.1/", Some(Reach::Host)),
            ("http://metadata.google.internal/", Some(Reach::Never)),
            ("http://0/", Some(Reach::Never)),
            ("https://registry.example/", None),
            ("https://127.0.0.1.example/", None),
        ] {
            assert_eq!(Reach::of_url(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn nothing_nearer_than_the_registry_is_named() {
        let all = [
            Reach::Internet,
            Reach::Private,
            Reach::Link,
            Reach::Host,
            Reach::Never,
        ];
        let named = |by: Reach| all.iter().filter(|reach| by.may_name(**reach)).count();
        assert_eq!(all.map(named), [1, 2, 3, 4, 1]);
        assert_eq!(Reach::Host.and(Reach::Internet), Reach::Internet);
        assert_eq!(Reach::Never.and(Reach::Host), Reach::Internet);
        let last = LastReach::default();
        for reach in all {
            last.set(reach);
            assert_eq!(last.get(), reach.as_namer());
        }
    }

    #[test]
    fn listed_hosts_may_be_named() {
        let url = "http://127.0.0.1:9000/x".parse().unwrap();
        let told = Way::Told(Reach::Internet);
        let listed = |host: &str| check(told, &url, &[host.to_owned()]).is_ok();
        assert!(check(told, &url, &[]).is_err());
        assert!(listed("127.0.0.1") && listed("127.0.0.1:9000"));
        assert!(!listed("127.0.0.1:9001") && !listed("9000"));
        assert!(check(Way::Named, &url, &[]).is_ok());
        assert!(check(Way::Told(Reach::Host), &url, &[]).is_ok());
    }
}
