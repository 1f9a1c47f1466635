//! The `/etc/resolv.conf` of a container.
//!
//! It is the host's. In a network of its own a container does not reach the host's loopback interface, so name
//! servers there are of no use to it. On a host with systemd-resolved those behind it take their place. If no
//! name server is left, Xebec says so. It takes no public one, as docker does: the user did not ask to tell a
//! stranger which names are looked up.

use std::fs;
use std::net::IpAddr;

/// Where systemd-resolved lists the name servers that it asks (`systemd-resolved.service(8)`).
const BEHIND: &str = "/run/systemd/resolve/resolv.conf";

/// Settings of the user in place of the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolverOptions {
    /// Name servers.
    pub servers: Vec<IpAddr>,
    /// Domains in which short names are looked up; "." for none.
    pub search: Vec<String>,
    /// Options, as in `resolv.conf(5)`.
    pub options: Vec<String>,
}

/// The file of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Its contents.
    pub text: String,
    /// A warning for the user about the file.
    pub warning: Option<&'static str>,
}

impl Resolver {
    /// That of a container on the host's network (`is_own` is false), or in one of its own.
    pub fn of_host(options: &ResolverOptions, is_own: bool) -> Self {
        let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let behind = || fs::read_to_string(BEHIND).unwrap_or_default();
        Resolver::compose(&host, behind, options, is_own)
    }

    fn compose(host: &str, behind: impl FnOnce() -> String, options: &ResolverOptions, is_own: bool) -> Self {
        let ResolverOptions {
            servers: wanted,
            search,
            options: flags,
        } = options;
        let named = servers(host);
        let usable: Vec<String> = match () {
            () if !wanted.is_empty() => wanted.iter().map(IpAddr::to_string).collect(),
            () if !is_own => named.clone(),
            () => match reachable(&named) {
                found if found.is_empty() && !named.is_empty() => reachable(&servers(&behind())),
                found => found,
            },
        };
        let warning = (is_own && usable.is_empty()).then_some(NO_SERVER);
        if usable == named && search.is_empty() && flags.is_empty() {
            let text = host.to_owned();
            return Resolver { text, warning };
        }
        let is_replaced = |line: &&str| match line.split_ascii_whitespace().next() {
            Some("nameserver") => true,
            Some("search" | "domain") => !search.is_empty(),
            Some("options") => !flags.is_empty(),
            _ => false,
        };
        let mut text: String = host
            .lines()
            .filter(|line| !is_replaced(line))
            .map(|line| format!("{line}\n"))
            .collect();
        let search: Vec<&str> = search
            .iter()
            .map(String::as_str)
            .filter(|domain| *domain != ".")
            .collect();
        if !search.is_empty() {
            text += &format!("search {}\n", search.join(" "));
        }
        if !flags.is_empty() {
            text += &format!("options {}\n", flags.join(" "));
        }
        for server in usable {
            text += &format!("nameserver {server}\n");
        }
        Resolver { text, warning }
    }
}

const NO_SERVER: &str = "the container looks up no names beyond its network: this host's /etc/resolv.conf names no name server \
    that a container in a network of its own reaches; give one with --dns ADDRESS";

/// The name servers of a `resolv.conf`.
pub(crate) fn servers(text: &str) -> Vec<String> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some("nameserver") {
            servers.extend(words.next().map(str::to_owned));
        }
    }
    servers
}

/// Those that are reached from a network with IPv4 addresses.
fn reachable(servers: &[String]) -> Vec<String> {
    let is_reachable = |server: &&String| match server.parse() {
        Ok(IpAddr::V4(address)) => !address.is_loopback() && !address.is_unspecified(),
        Ok(IpAddr::V6(_)) | Err(_) => false,
    };
    servers.iter().filter(is_reachable).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "# the host's\nsearch example.com\nnameserver 192.0.2.53\noptions ndots:2\n";
    const STUB: &str = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n";

    fn composed(host: &str, behind: &str, options: &ResolverOptions, is_own: bool) -> Resolver {
        Resolver::compose(host, || behind.to_owned(), options, is_own)
    }

    #[test]
    fn the_hosts_file_is_taken_as_it_is_where_it_can_be() {
        let none = ResolverOptions::default();
        for is_own in [false, true] {
            let of_host = composed(HOST, "", &none, is_own);
            assert_eq!(
                of_host,
                Resolver {
                    text: HOST.to_owned(),
                    warning: None
                }
            );
        }
        assert_eq!(
            composed(STUB, "", &none, false).text,
            STUB,
            "on the host's network it works"
        );
    }

    #[test]
    fn servers_on_loopback_are_replaced_by_those_behind_them() {
        let none = ResolverOptions::default();
        let found = composed(
            STUB,
            "nameserver 192.0.2.1\nnameserver fe80::1%eth0\n",
            &none,
            true,
        );
        assert_eq!(
            found.text,
            "options edns0 trust-ad\nsearch .\nnameserver 192.0.2.1\n"
        );
        assert_eq!(found.warning, None);
        for (host, behind) in [(STUB, ""), (STUB, STUB), ("", ""), ("nameserver ::1\n", "")] {
            let found = composed(host, behind, &none, true);
            assert!(
                found.warning.is_some() && !found.text.contains("nameserver"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_the_user_asks_for_takes_the_place_of_the_hosts() {
        let options = ResolverOptions {
            servers: [[192, 0, 2, 9]].map(IpAddr::from).to_vec(),
            search: vec!["a.example".into(), "b.example".into()],
            options: vec!["ndots:1".into()],
        };
        for is_own in [false, true] {
            let found = composed(HOST, "", &options, is_own);
            let wanted = "# the host's\nsearch a.example b.example\noptions ndots:1\nnameserver 192.0.2.9\n";
            assert_eq!(
                found,
                Resolver {
                    text: wanted.to_owned(),
                    warning: None
                }
            );
        }
        let none = ResolverOptions {
            search: vec![".".into()],
            ..ResolverOptions::default()
        };
        assert!(!composed(HOST, "", &none, true).text.contains("search"));
    }
}
