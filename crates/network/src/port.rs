//! Ports that are published: `-p [[ADDRESS:][HOST[-HOST]]:]CONTAINER[-CONTAINER][/tcp|/udp]`, as in docker.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NetworkError;

/// How packets of a port are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// Which port of the host a container's port is published on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPorts {
    /// One that is free.
    Any,
    /// The first free one of these.
    Of(RangeInclusive<u16>),
}

/// One port of a container that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRequest {
    /// The address of the host; by default all.
    pub address: Ipv4Addr,
    /// The port of the host.
    pub host: HostPorts,
    /// The port of the container.
    pub container: u16,
    /// How its packets are carried.
    pub protocol: Protocol,
}

impl PortRequest {
    /// The ports that an argument of `--publish` asks for: a range is as many ports.
    ///
    /// # Errors
    /// [`NetworkError::Port`].
    pub fn parse(text: &str) -> Result<Vec<Self>, NetworkError> {
        let wrong = |reason| NetworkError::Port {
            port: text.to_owned(),
            reason,
        };
        let (ports, protocol) = match text.split_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return Err(wrong("the protocol is tcp or udp")),
        };
        let (address, ports) = match ports.rsplitn(3, ':').collect::<Vec<_>>()[..] {
            [container, host, address] => (Some(address), (Some(host), container)),
            [container, host] => (None, (Some(host), container)),
            [container] => (None, (None, container)),
            _ => return Err(wrong(FORM)),
        };
        let address = match address.map(read_address) {
            None => Ipv4Addr::UNSPECIFIED,
            Some(Some(IpAddr::V4(address))) => address,
            Some(Some(IpAddr::V6(_))) => return Err(wrong("ports are published on IPv4 addresses only")),
            Some(None) => return Err(wrong("what stands before the ports is no address of this host")),
        };
        let container = range(ports.1).ok_or_else(|| wrong(FORM))?;
        let host = ports.0.filter(|host| !host.is_empty());
        let host = host
            .map(|host| range(host).ok_or_else(|| wrong(FORM)))
            .transpose()?;
        let request = |host, container| PortRequest {
            address,
            host,
            container,
            protocol,
        };
        let requests = match host {
            None => container.map(|port| request(HostPorts::Any, port)).collect(),
            // Of several ports of the host, one is for the one of the container.
            Some(host) if container.len() == 1 => vec![request(HostPorts::Of(host), *container.start())],
            Some(host) if host.len() == container.len() => {
                let pairs = host.zip(container);
                pairs
                    .map(|(host, container)| request(HostPorts::Of(host..=host), container))
                    .collect()
            }
            Some(_) => return Err(wrong("the two ranges must have as many ports")),
        };
        Ok(requests)
    }
}

const FORM: &str =
    "write it as 8080:80, 127.0.0.1:8080:80/tcp, 8000-8003:80-83 or 80, with ports from 1 to 65535";

/// The address, IPv6 in brackets.
fn read_address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .then(|| text.parse::<u16>().ok())
            .flatten()
            .filter(|port| *port != 0)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// A port of a container, and the port of the host on which it is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The port of the host.
    pub host_port: u16,
    /// The port of the container.
    pub container_port: u16,
    /// How its packets are carried.
    pub protocol: Protocol,
    /// The address of the host: 0.0.0.0 stands for all.
    #[serde(rename = "hostIP")]
    pub host_ip: Ipv4Addr,
}

impl PortMapping {
    /// Whether one socket cannot have both ports of the host.
    pub(crate) fn collides_with(&self, other: &PortMapping) -> bool {
        let (one, two) = (self.host_ip, other.host_ip);
        self.protocol == other.protocol
            && self.host_port == other.host_port
            && (one == two || one.is_unspecified() || two.is_unspecified())
    }
}

/// As docker shows it: `0.0.0.0:8080->80/tcp`.
impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}->{}/{}",
            self.host_ip, self.host_port, self.container_port, self.protocol
        )
    }
}

/// The ports of a container for people, as docker and podman show them: ports in a row are one range,
/// `0.0.0.0:8000-8002->80-82/tcp`.
pub fn shown_ports(ports: &[PortMapping]) -> String {
    let mut sorted: Vec<&PortMapping> = ports.iter().collect();
    sorted.sort_by_key(|port| (port.host_ip, port.protocol, port.host_port));
    let follows = |one: &PortMapping, next: &PortMapping| {
        let (host, container) = (one.host_port.checked_add(1), one.container_port.checked_add(1));
        (one.host_ip, one.protocol) == (next.host_ip, next.protocol)
            && host == Some(next.host_port)
            && container == Some(next.container_port)
    };
    let rows = sorted.chunk_by(|one, next| follows(one, next));
    let shown = rows.filter_map(|row| match row {
        [] => None,
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!(
            "{}:{}-{}->{}-{}/{}",
            first.host_ip,
            first.host_port,
            last.host_port,
            first.container_port,
            last.container_port,
            first.protocol
        )),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Ports in an image's `ExposedPorts` and in `--expose`: `80`, `80/tcp`, `8000-8003/udp`.
impl Protocol {
    /// The ports that such a text names.
    pub fn exposed(text: &str) -> Option<Vec<(u16, Protocol)>> {
        let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = protocol.parse().ok()?;
        Some(range(ports)?.map(|port| (port, protocol)).collect())
    }
}

impl FromStr for Protocol {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "tcp" => Ok(Protocol::Tcp),
            "udp" => Ok(Protocol::Udp),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_in_a_row_are_shown_as_a_range() {
        let mapping = |host_port, container_port| PortMapping {
            host_port,
            container_port,
            protocol: Protocol::Tcp,
            host_ip: Ipv4Addr::UNSPECIFIED,
        };
        let same =
            |ports: &[u16]| -> Vec<PortMapping> { ports.iter().map(|&port| mapping(port, port)).collect() };
        assert_eq!(shown_ports(&[]), "");
        assert_eq!(shown_ports(&[mapping(8080, 80)]), "0.0.0.0:8080->80/tcp");
        assert_eq!(
            shown_ports(&same(&[8001, 8000, 8002])),
            "0.0.0.0:8000-8002->8000-8002/tcp"
        );
        assert_eq!(
            shown_ports(&[mapping(9000, 80), mapping(9001, 81), mapping(9002, 90)]),
            "0.0.0.0:9000-9001->80-81/tcp, 0.0.0.0:9002->90/tcp"
        );
        let mut mixed = same(&[53, 54, 65_535]);
        mixed[1].protocol = Protocol::Udp;
        mixed[2].host_ip = Ipv4Addr::LOCALHOST;
        assert_eq!(
            shown_ports(&mixed),
            "0.0.0.0:53->53/tcp, 0.0.0.0:54->54/udp, 127.0.0.1:65535->65535/tcp"
        );
    }

    fn shown(text: &str) -> Vec<String> {
        let requests = PortRequest::parse(text).unwrap();
        let show = |one: PortRequest| {
            let host = match one.host {
                HostPorts::Any => "any".to_owned(),
                HostPorts::Of(range) => format!("{}-{}", range.start(), range.end()),
            };
            format!("{} {host} {} {}", one.address, one.container, one.protocol)
        };
        requests.into_iter().map(show).collect()
    }

    #[test]
    fn ports_are_read_as_docker_reads_them() {
        for (text, wanted) in [
            ("80", &["0.0.0.0 any 80 tcp"][..]),
            ("8080:80", &["0.0.0.0 8080-8080 80 tcp"]),
            ("8080:53/udp", &["0.0.0.0 8080-8080 53 udp"]),
            ("127.0.0.1:8080:80/tcp", &["127.0.0.1 8080-8080 80 tcp"]),
            ("127.0.0.1::80", &["127.0.0.1 any 80 tcp"]),
            (":80", &["0.0.0.0 any 80 tcp"]),
            ("8000-8010:80", &["0.0.0.0 8000-8010 80 tcp"]),
            ("81-82:80-81", &["0.0.0.0 81-81 80 tcp", "0.0.0.0 82-82 81 tcp"]),
            ("7000-7001", &["0.0.0.0 any 7000 tcp", "0.0.0.0 any 7001 tcp"]),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_wrong_port_says_why() {
        for (text, why) in [
            ("", "write it as"),
            ("80:", "write it as"),
            ("x:80", "write it as"),
            ("0:80", "write it as"),
            ("65536:80", "write it as"),
            ("+80", "write it as"),
            ("82-81:80-81", "write it as"),
            ("81-83:80-81", "as many"),
            ("80/sctp", "tcp or udp"),
            ("80/", "tcp or udp"),
            ("host:8080:80", "no address"),
            ("[::1]:8080:80", "IPv4"),
            ("1:2:3:4", "no address"),
        ] {
            let error = PortRequest::parse(text).unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains(&format!("{text:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn exposed_ports_of_images() {
        assert_eq!(Protocol::exposed("80/tcp"), Some(vec![(80, Protocol::Tcp)]));
        assert_eq!(
            Protocol::exposed("53-54/udp"),
            Some(vec![(53, Protocol::Udp), (54, Protocol::Udp)])
        );
        assert_eq!(Protocol::exposed("80"), Some(vec![(80, Protocol::Tcp)]));
        assert!(Protocol::exposed("80/sctp").is_none() && Protocol::exposed("").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_ports_or_an_error(text in "[0-9:./\\-a-z\\[\\]é]{0,24}") {
            let _ = PortRequest::parse(&text);
        }

        #[test]
        fn what_is_written_is_read(
            address in proptest::option::of(any::<u32>()), host in 1_u16.., container in 1_u16.., more in 0_u16..40,
            udp in any::<bool>(),
        ) {
            let host = host.min(u16::MAX - more);
            let container = container.min(u16::MAX - more);
            let address = address.map(Ipv4Addr::from_bits);
            let begin = address.map(|address| format!("{address}:")).unwrap_or_default();
            let end = if udp { "/udp" } else { "" };
            let text = format!("{begin}{host}-{}:{container}-{}{end}", host + more, container + more);
            let requests = PortRequest::parse(&text).unwrap();
            prop_assert_eq!(requests.len(), usize::from(more) + 1);
            for (index, request) in requests.iter().enumerate() {
                let index = u16::try_from(index).unwrap();
                prop_assert_eq!(&request.host, &HostPorts::Of(host + index..=host + index));
                prop_assert_eq!(request.container, container + index);
                prop_assert_eq!(request.address, address.unwrap_or(Ipv4Addr::UNSPECIFIED));
                prop_assert_eq!(request.protocol == Protocol::Udp, udp);
            }
        }
    }
}
