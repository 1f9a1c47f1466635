//! Holds the ports of the host that a container publishes.
//!
//! Published ports are rules of the firewall, which takes any two rules for one port, and lets any program
//! listen there besides. So each port is also held by a socket of the supervisor: the kernel gives it to one
//! process only. A supervisor that was killed holds nothing, and its container may run on; so the ports of
//! other attachments are compared as well.
//!
//! A TCP socket is bound and does not listen: a client that connects before the firewall leads to the container is refused at once, and
//! tries again, instead of waiting for an answer. The firewall leads every later connection past it.

use std::io;
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::port::{HostPorts, PortMapping, PortRequest, Protocol};
use crate::{NetworkError, attachment::Attachment};

/// Most ports that a container publishes: each is a descriptor, of which a process has 1,024, and rules that
/// every packet is compared with.
const MOST: usize = 500;

/// Ports of the host. Dropped, they are free again.
#[derive(Debug, Default)]
pub(crate) struct HeldPorts {
    sockets: Vec<Socket>,
    mappings: Vec<PortMapping>,
}

#[derive(Debug)]
enum Socket {
    Tcp(#[allow(dead_code, reason = "it is held")] OwnedFd),
    Udp(#[allow(dead_code, reason = "it is held")] UdpSocket),
}

impl HeldPorts {
    /// Takes a port for each request, beside those that are held already. `others` are the attachments of other
    /// containers.
    pub(crate) fn take(
        &mut self,
        requests: &[PortRequest],
        others: &[Attachment],
    ) -> Result<(), NetworkError> {
        let count = self.mappings.len() + requests.len();
        if count > MOST {
            return Err(NetworkError::TooManyPorts(count));
        }
        for request in requests {
            let (socket, mapping) = take_one(request, others, &self.mappings)?;
            self.sockets.push(socket);
            self.mappings.push(mapping);
        }
        Ok(())
    }

    pub(crate) fn mappings(&self) -> &[PortMapping] {
        &self.mappings
    }
}

/// `own` are the ports that the same container has already.
fn take_one(
    request: &PortRequest,
    others: &[Attachment],
    own: &[PortMapping],
) -> Result<(Socket, PortMapping), NetworkError> {
    let (ports, is_range) = match &request.host {
        // Port 0 asks the kernel for a free one.
        HostPorts::Any => (0..=0, false),
        HostPorts::Of(range) => (range.clone(), range.len() > 1),
    };
    let mut last = None;
    for port in ports.clone() {
        match take_port(request, port, others, own) {
            Ok(taken) => return Ok(taken),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) if !is_range => Err(error),
        _ => Err(NetworkError::PortTaken {
            port: shown(request, &ports),
            reason: "all of them are taken; choose others".to_owned(),
        }),
    }
}

fn take_port(
    request: &PortRequest,
    port: u16,
    others: &[Attachment],
    own: &[PortMapping],
) -> Result<(Socket, PortMapping), NetworkError> {
    let taken = |reason: String| NetworkError::PortTaken {
        port: shown(request, &(port..=port)),
        reason,
    };
    let address = SocketAddrV4::new(request.address, port);
    let bound = match request.protocol {
        Protocol::Tcp => hold_tcp(address).map(|(socket, port)| (Socket::Tcp(socket), port)),
        Protocol::Udp => UdpSocket::bind(address).and_then(|socket| {
            let port = socket.local_addr()?.port();
            Ok((Socket::Udp(socket), port))
        }),
    };
    let mapping = |host_port| PortMapping {
        host_port,
        container_port: request.container,
        protocol: request.protocol,
        host_ip: request.address,
    };
    let owner = |mapping: &PortMapping| {
        if own.iter().any(|port| port.collides_with(mapping)) {
            let twice = "this command publishes it twice; leave one --publish out, or choose another port";
            return Some(twice.to_owned());
        }
        let other = others
            .iter()
            .find(|other| other.ports.iter().any(|port| port.collides_with(mapping)));
        other.map(|other| format!("container {} publishes it; choose another port", other.container))
    };
    match bound {
        Ok((socket, port)) => {
            let mapping = mapping(port);
            match owner(&mapping) {
                Some(reason) => Err(taken(reason)),
                None => Ok((socket, mapping)),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let program = "a program listens there (`ss -lnp` shows which); stop it, or choose another port";
            Err(taken(owner(&mapping(port)).unwrap_or_else(|| program.to_owned())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            Err(taken("this host does not have that address".to_owned()))
        }
        Err(error) => Err(taken(error.to_string())),
    }
}

/// A socket that has a TCP port for itself, and the port.
fn hold_tcp(address: SocketAddrV4) -> io::Result<(OwnedFd, u16)> {
    // Whether somebody listens there. Connections that ended a moment ago are no reason to refuse the port.
    let port = TcpListener::bind(address)?.local_addr()?.port();
    let address = SocketAddrV4::new(*address.ip(), port);
    let bound = |is_shared: bool| -> io::Result<OwnedFd> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_reuseaddr(&socket, is_shared)?;
        bind(&socket, &address)?;
        Ok(socket)
    };
    // Alone if such connections let it: then no program can listen there, whatever it asks for.
    let socket = bound(false).or_else(|_| bound(true))?;
    Ok((socket, port))
}

fn shown(request: &PortRequest, ports: &RangeInclusive<u16>) -> String {
    let protocol = request.protocol;
    match ports.len() {
        1 => format!("{}:{}/{protocol}", request.address, ports.start()),
        _ => format!("{}:{}-{}/{protocol}", request.address, ports.start(), ports.end()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn requests(text: &str) -> Vec<PortRequest> {
        PortRequest::parse(text).unwrap()
    }

    fn take(text: &str) -> Result<HeldPorts, NetworkError> {
        let mut held = HeldPorts::default();
        held.take(&requests(text), &[])?;
        Ok(held)
    }

    #[test]
    fn a_port_is_held_until_it_is_dropped() {
        for protocol in ["tcp", "udp"] {
            let held = take(&format!("127.0.0.1::80/{protocol}")).unwrap();
            let port = held.mappings()[0].host_port;
            assert_ne!(port, 0);
            let again = format!("127.0.0.1:{port}:81/{protocol}");
            let error = take(&again).unwrap_err().to_string();
            assert!(
                error.contains(&port.to_string()) && error.contains("choose another"),
                "{error}"
            );
            drop(held);
            assert_eq!(take(&again).unwrap().mappings()[0].host_port, port);
        }
    }

    /// Nobody waits for an answer that does not come.
    #[test]
    fn a_held_port_refuses_connections_and_cannot_be_taken() {
        let held = take("127.0.0.1::80").unwrap();
        let address = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, held.mappings()[0].host_port);
        let error = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = TcpListener::bind(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_first_free_port_of_a_range_is_taken() {
        let held = take("127.0.0.1::80").unwrap();
        let port = held.mappings()[0].host_port.min(u16::MAX - 1);
        let range = format!("127.0.0.1:{port}-{}:80", port + 1);
        match take(&range) {
            Ok(other) => assert_eq!(other.mappings()[0].host_port, port + 1),
            // Somebody else has the second.
            Err(error) => assert!(error.to_string().contains("all of them")),
        }
    }

    #[test]
    fn a_port_of_another_attachment_is_refused_with_its_container() {
        let held = take("127.0.0.1::80").unwrap();
        let mapping = held.mappings()[0].clone();
        drop(held);
        let other = Attachment {
            container: "web".to_owned(),
            ports: vec![PortMapping {
                host_ip: std::net::Ipv4Addr::UNSPECIFIED,
                ..mapping.clone()
            }],
            ..Attachment::default()
        };
        let wanted = requests(&format!("127.0.0.1:{}:80", mapping.host_port));
        let error = HeldPorts::default()
            .take(&wanted, &[other])
            .unwrap_err()
            .to_string();
        assert!(error.contains("container web"), "{error}");
    }

    #[test]
    fn a_port_that_one_container_asks_for_twice_is_refused_as_such() {
        let free = take("127.0.0.1::80").unwrap();
        let port = free.mappings()[0].host_port;
        drop(free);
        let mut wanted = requests(&format!("127.0.0.1:{port}:80"));
        wanted.extend(requests(&format!("127.0.0.1:{port}:81")));
        let error = HeldPorts::default().take(&wanted, &[]).unwrap_err().to_string();
        assert!(error.contains("this command publishes it twice"), "{error}");
        // UDP has ports of its own.
        let mut wanted = requests(&format!("127.0.0.1:{port}:80"));
        wanted.extend(requests(&format!("127.0.0.1:{port}:80/udp")));
        assert!(HeldPorts::default().take(&wanted, &[]).is_ok());
    }

    #[test]
    fn too_many_ports_and_addresses_of_others_are_refused() {
        assert!(matches!(
            take("127.0.0.1::1000-1999"),
            Err(NetworkError::TooManyPorts(1000))
        ));
        let error = take("192.0.2.1:0".replace(":0", "::80").as_str())
            .unwrap_err()
            .to_string();
        assert!(error.contains("does not have that address"), "{error}");
    }
}
