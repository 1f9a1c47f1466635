//! `X-Forwarded-For`, a header a line, beside the proxies of the first line: the address is the connection's unless that is a proxy, and
//! else the first from the right that is none, or where the chain ends.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use xebec_access::client_of;
use xebec_registry_server::server::{Network, forwarded};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (first, lines) = text.split_once('\n').unwrap_or((text, ""));
    let proxies: Vec<Network> = first.split(' ').filter_map(|word| word.parse().ok()).collect();
    let is_proxy = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let found = forwarded(peer, lines.lines(), &proxies);
    assert_eq!(forwarded(peer, lines.lines(), &[]), peer);
    assert_eq!(client_of(client_of(found)), client_of(found));
    let hops: Vec<&str> = lines.lines().flat_map(|line| line.split(',')).collect();
    let read = hops
        .iter()
        .rev()
        .map_while(|hop| hop.trim().parse::<IpAddr>().ok());
    let mut chain = vec![peer];
    chain.extend(read.map(|hop| hop.to_canonical()));
    let expected = chain.iter().find(|address| !is_proxy(**address)).or(chain.last());
    assert_eq!(Some(&found), expected);
});
