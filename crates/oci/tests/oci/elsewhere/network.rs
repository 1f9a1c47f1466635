//! A network of a test's own, in which one host has addresses of all kinds and names for them: registries at them, and a proxy.

use std::net::IpAddr;
use std::path::PathBuf;

use xebec_oci::{Client, ClientConfig};
use xebec_testkit::registry::{FaultyRegistry, Options};

use crate::support::config;
use crate::support::own_network::OwnNetwork;

/// Set in the process that has its own network.
const APART: &str = "XEBEC_TEST_APART";
pub(super) const INTERNET: &str = "198.51.100.7";
pub(super) const PRIVATE: &str = "10.9.8.7";
pub(super) const LINK: &str = "169.254.7.7";
pub(super) const METADATA: &str = "169.254.169.254";
pub(super) const HOST: &str = "127.0.0.1";
/// Names, and what they resolve to.
const NAMES: [(&str, &str); 7] = [
    ("internet.example", INTERNET),
    ("private.example", PRIVATE),
    ("link.example", LINK),
    ("metadata.example", METADATA),
    ("host.example", HOST),
    ("host6.example", "::1"),
    ("moves.example", INTERNET),
];
/// Set where the host is to know its own addresses.
pub(super) const KNOWS_ITS_OWN: &str = "XEBEC_TEST_OWN";
const SETUP: &str = "ip link set lo up && \
                     { [ -n \"$XEBEC_TEST_OWN\" ] || echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; } && for a in 198.51.100.7 10.9.8.7 169.254.7.7 169.254.169.254; do \
                     ip address add $a/32 dev lo; done && mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// Runs `test` in a network of its own.
pub(super) fn apart(name: &str, test: impl Future<Output = ()>) {
    apart_with(name, &[], test);
}

/// The same with these variables in the environment.
pub(super) fn apart_with(name: &str, environment: &[(&str, &str)], test: impl Future<Output = ()>) {
    let lines = NAMES.map(|(name, address)| format!("{address} {name}\n"));
    let own = OwnNetwork {
        marker: APART,
        setup: SETUP,
        contents: &format!("127.0.0.1 localhost\n{}", lines.concat()),
        environment,
    };
    own.run(&format!("elsewhere::{name}"), test);
}

/// A registry at an address, and the authority of its certificate, if it speaks TLS.
pub(super) struct At {
    pub(super) registry: FaultyRegistry,
    pub(super) ca: Option<(tempfile::TempDir, PathBuf)>,
}

pub(super) fn at(address: &str, tls: bool) -> At {
    let address: IpAddr = address.parse().unwrap();
    let registry = FaultyRegistry::with(Options {
        tls,
        address: Some(address),
        names: NAMES.map(|(name, _)| name.to_owned()).to_vec(),
        ..Options::default()
    })
    .unwrap();
    let ca = registry.ca_pem().map(|pem| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, pem).unwrap();
        (directory, path)
    });
    At { registry, ca }
}

impl At {
    fn port(&self) -> String {
        let host = self.registry.host();
        host.rsplit_once(':').unwrap().1.to_owned()
    }

    /// Its URL by another name or address.
    pub(super) fn url(&self, host: &str, path: &str) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let bracketed = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        format!("{scheme}://{bracketed}:{}{path}", self.port())
    }

    pub(super) fn was_asked(&self) -> bool {
        !self.registry.log().is_empty()
    }
}

/// A client that trusts all of them, has a login for the first, and lets registries name these hosts.
pub(super) fn client(all: &[&At], internal_hosts: &[String], directory: &std::path::Path) -> Client {
    let json = format!(
        r#"{{"auths": {{"{}": {{"auth": "dXNlcjpwYXNz"}}}}}}"#,
        all[0].registry.host()
    );
    let file = directory.join("config.json");
    std::fs::write(&file, json).unwrap();
    let ca_files = all.iter().filter_map(|at| Some(at.ca.as_ref()?.1.clone()));
    Client::new(ClientConfig {
        docker_config: Some(file),
        ca_files: ca_files.collect(),
        internal_hosts: internal_hosts.to_vec(),
        ..config()
    })
    .unwrap()
}

/// Lets a name resolve to these from now on, in the network of the test.
pub(super) fn resolve(name: &str, addresses: &[&str]) {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap();
    assert!(hosts.contains("internet.example"), "this is the host's own file");
    let others = hosts.lines().filter(|line| !line.ends_with(name));
    let own = addresses.iter().map(|address| format!("{address} {name}"));
    let lines: Vec<String> = others.map(str::to_owned).chain(own).collect();
    std::fs::write("/etc/hosts", lines.join("\n") + "\n").unwrap();
}

/// Where the proxy of the tests is.
const PROXY: &str = "198.51.100.7:3128";

/// A proxy that leads to these servers only; gives where it was asked to lead to.
pub(super) async fn proxy(servers: Vec<String>) -> std::sync::Arc<parking_lot::Mutex<Vec<String>>> {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
    let asked = std::sync::Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let noted = asked.clone();
    let listener = tokio::net::TcpListener::bind(PROXY).await.unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (noted, servers) = (noted.clone(), servers.clone());
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut line = String::new();
                client.read_line(&mut line).await.unwrap();
                let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
                while client.read_line(&mut line).await.is_ok_and(|length| length > 2) {}
                noted.lock().push(target.clone());
                if !servers.contains(&target) {
                    let refused = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
                    return client.write_all(refused).await.unwrap();
                }
                let mut server = tokio::net::TcpStream::connect(&target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    asked
}
