//! Subnets and names that the host's own network uses, so that a new network collides with nothing.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

use crate::resolver::servers;
use crate::subnet::Subnet;

/// Which addresses and names of interfaces are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Subnets that the host has routes to, and addresses that it needs, each with what it is.
    taken: Vec<(Subnet, String)>,
    interfaces: BTreeSet<String>,
}

impl Host {
    /// Asks the kernel. A file that cannot be read counts as empty: on a host without IPv4 there is no `/proc/net/route`.
    pub(crate) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Host::from_texts(
            &read("/proc/net/route"),
            &read("/proc/net/dev"),
            &read("/etc/resolv.conf"),
        )
    }

    /// From `/proc/net/route`, `/proc/net/dev` and `/etc/resolv.conf`.
    pub(crate) fn from_texts(routes: &str, interfaces: &str, resolver: &str) -> Self {
        let mut taken = parse_routes(routes);
        // A name server behind the default route would be cut off by a network with its address.
        let servers = servers(resolver).into_iter();
        let servers = servers.filter_map(|address| address.parse::<Ipv4Addr>().ok());
        taken.extend(servers.map(|address| {
            let what = format!("the address of this host's name server {address}");
            (Subnet::around(address, 32), what)
        }));
        Host {
            taken,
            interfaces: parse_interfaces(interfaces),
        }
    }

    /// The route or address of the host that a subnet collides with, in words.
    pub(crate) fn collision(&self, subnet: Subnet) -> Option<&str> {
        let found = self.taken.iter().find(|(taken, _)| taken.overlaps(subnet));
        found.map(|(_, what)| what.as_str())
    }

    pub(crate) fn has_interface(&self, name: &str) -> bool {
        self.interfaces.contains(name)
    }
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, addresses as the numbers that they are in memory.
fn parse_routes(text: &str) -> Vec<(Subnet, String)> {
    let mut routes = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let address = |index: usize| {
            let number = u32::from_str_radix(fields.get(index)?, 16).ok()?;
            Some(Ipv4Addr::from(number.to_ne_bytes()))
        };
        let (Some(interface), Some(destination), Some(gateway), Some(mask)) =
            (fields.first(), address(1), address(2), address(7))
        else {
            continue;
        };
        let prefix = u8::try_from(mask.to_bits().leading_ones()).unwrap_or(32);
        let subnet = Subnet::around(destination, prefix);
        if !subnet.is_everything() {
            let what = format!("{subnet}, to which this host has a route by {interface}");
            routes.push((subnet, what));
        }
        if !gateway.is_unspecified() {
            let what = format!("this host's gateway {gateway}");
            routes.push((Subnet::around(gateway, 32), what));
        }
    }
    routes
}

fn parse_interfaces(text: &str) -> BTreeSet<String> {
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        tun0\t0000040A\t00000000\t0001\t0\t0\t0\t0000FEFF\t0\t0\t0\n\
        broken\n";
    const INTERFACES: &str = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\n  eth0: 1 2\nxebec0:       1\n";

    #[test]
    fn routes_gateways_and_name_servers_are_taken() {
        let host = Host::from_texts(
            ROUTES,
            INTERFACES,
            "search a\nnameserver 10.6.0.2\nnameserver 10.7.0.2 # the office's\nnameserver fe80::1\n",
        );
        let collision = |subnet: &str| host.collision(subnet.parse().unwrap()).map(str::to_owned);
        assert!(collision("192.168.1.128/25").unwrap().contains("eth0"));
        assert!(
            collision("192.168.0.0/16")
                .unwrap()
                .contains("gateway 192.168.1.1")
        );
        assert!(collision("10.4.7.0/24").unwrap().contains("10.4.0.0/15"));
        assert!(collision("10.5.255.0/24").is_some());
        for subnet in ["10.6.0.0/24", "10.7.0.0/24"] {
            assert!(collision(subnet).unwrap().contains("name server"), "{subnet}");
        }
        assert_eq!(collision("10.6.1.0/24"), None, "the default route takes nothing");
        assert!(host.has_interface("xebec0") && host.has_interface("lo") && !host.has_interface("xebec1"));
    }

    #[test]
    fn the_first_free_subnet_is_after_those_that_are_taken() {
        let host = Host::from_texts(ROUTES, "", "");
        let free = Subnet::candidates().find(|subnet| host.collision(*subnet).is_none());
        assert_eq!(free.unwrap().to_string(), "10.6.0.0/24");
    }

    #[test]
    fn odd_tables_are_no_failure() {
        for text in ["", "\n", "a\nb c d", "Iface\neth0 zz zz 0 0 0 0 zz"] {
            assert!(Host::from_texts(text, text, text).taken.is_empty());
        }
    }
}
