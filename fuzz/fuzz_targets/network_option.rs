//! Options of the command line for a network: no port is zero; a subnet reads the same once printed; a name for `/etc/hosts` makes one
//! line.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use xebec_network::{HostEntry, HostPorts, PortRequest, Subnet, host_lines};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(requests) = PortRequest::parse(text) {
        assert!(!requests.is_empty());
        for request in requests {
            assert_ne!(request.container, 0);
            if let HostPorts::Of(ports) = request.host {
                assert!(*ports.start() > 0 && !ports.is_empty());
            }
        }
    }
    if let Ok(subnet) = text.parse::<Subnet>() {
        assert_eq!(subnet.to_string().parse::<Subnet>().expect("read again"), subnet);
    }
    if let Ok(entry) = text.parse::<HostEntry>() {
        let lines = host_lines(&[entry], Some(IpAddr::V4(Ipv4Addr::LOCALHOST))).expect("the host is known");
        assert!(lines.ends_with('\n') && lines.lines().count() == 1, "{lines:?}");
        assert_eq!(lines.split_ascii_whitespace().count(), 2, "{lines:?}");
    }
});
