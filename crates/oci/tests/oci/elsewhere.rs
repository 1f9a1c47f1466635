//! Registries that send this host elsewhere: to its own services, to metadata servers, into the network behind. Each way in
//! which an answer can name a host that is then asked is tried: redirects, token servers, places of uploads, further pages
//! of lists, `urls` of descriptors.
//!
//! Each test runs in a network of its own, in which one host has addresses of all kinds, and names for them. It may use others'
//! addresses, too, so it does not know its own, and its public one stands for the internet.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use bytes::Bytes;
use xebec_oci::config::Mirror;
use xebec_oci::manifest::{Descriptor, ImageManifest};
use xebec_oci::media_type::OCI_MANIFEST;
use xebec_oci::{BlobSource, Client, ClientConfig, Platform, Repository};
use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};

use crate::support::{LAYER_TYPE, NAME, config, manifest_of, put_image, repository, tagged};

/// Set in the process that has its own network.
const APART: &str = "XEBEC_TEST_APART";
const INTERNET: &str = "198.51.100.7";
const PRIVATE: &str = "10.9.8.7";
const LINK: &str = "169.254.7.7";
const METADATA: &str = "169.254.169.254";
const HOST: &str = "127.0.0.1";
/// More names than are looked up at a time.
const SILENT: usize = 80;
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
const KNOWS_ITS_OWN: &str = "XEBEC_TEST_OWN";
const SETUP: &str = "ip link set lo up && \
                     { [ -n \"$XEBEC_TEST_OWN\" ] || echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; } && for a in 198.51.100.7 10.9.8.7 169.254.7.7 169.254.169.254; do \
                     ip address add $a/32 dev lo; done && mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// Runs `test` in a network of its own.
fn apart(name: &str, test: impl Future<Output = ()>) {
    apart_with(name, &[], test);
}

/// The same with these variables in the environment.
fn apart_with(name: &str, environment: &[(&str, &str)], test: impl Future<Output = ()>) {
    if std::env::var_os(APART).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        return runtime.unwrap().block_on(test);
    }
    // As libtest knows the test; asked for by another name, none would run, and none would fail.
    let name = format!("elsewhere::{name}");
    let runs = std::thread::current().name().map(str::to_owned);
    assert!(runs.is_none_or(|runs| runs == name || runs == "main"));
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    let lines = NAMES.map(|(name, address)| format!("{address} {name}\n"));
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{}", lines.concat())).unwrap();
    let can = Command::new("unshare")
        .args(["--net", "--mount", "true"])
        .status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no network namespace can be made here");
        return;
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", SETUP])
        .args([&hosts, &std::env::current_exe().unwrap()])
        .args(["--exact", &name, "--nocapture"])
        .env(APART, "1")
        .env_remove("HTTP_PROXY")
        .env_remove("HTTPS_PROXY")
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .env_remove("ALL_PROXY")
        .env_remove("all_proxy")
        .envs(environment.iter().copied())
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed in its own network");
}

/// A registry at an address, and the authority of its certificate, if it speaks TLS.
struct At {
    registry: FaultyRegistry,
    ca: Option<(tempfile::TempDir, PathBuf)>,
}

fn at(address: &str, tls: bool) -> At {
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
    fn url(&self, host: &str, path: &str) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        let bracketed = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        format!("{scheme}://{bracketed}:{}{path}", self.port())
    }

    fn was_asked(&self) -> bool {
        !self.registry.log().is_empty()
    }
}

/// A client that trusts all of them, has a login for the first, and lets registries name these hosts.
fn client(all: &[&At], internal_hosts: &[String], directory: &std::path::Path) -> Client {
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

fn redirect(to: String) -> Fault {
    Fault::Says {
        status: 307,
        headers: vec![("location", to)],
    }
}

/// Reads a blob that `registry` says is at `to`; the error if it is not had.
async fn read_at(registry: &At, others: &[&At], internal_hosts: &[String], to: String) -> Result<(), String> {
    let image = put_image(&registry.registry, 1000);
    registry.registry.clear_faults();
    registry.registry.inject(When::blob(), redirect(to));
    let directory = tempfile::tempdir().unwrap();
    let all: Vec<&At> = [registry].into_iter().chain(others.iter().copied()).collect();
    let client = client(&all, internal_hosts, directory.path());
    let repository = repository(&registry.registry);
    let read = client.blob_range(&repository, &image.layer_digest, 0..10);
    read.await.map(drop).map_err(|error| error.to_string())
}

#[test]
fn redirects_lead_no_nearer_than_the_registry_is() {
    apart("redirects_lead_no_nearer_than_the_registry_is", async {
        // From, to (address of the server, name or address in the URL), whether that may be.
        for (from, server, host, may) in [
            (INTERNET, INTERNET, INTERNET, true),
            (INTERNET, INTERNET, "internet.example", true),
            (INTERNET, PRIVATE, PRIVATE, false),
            (INTERNET, PRIVATE, "private.example", false),
            (INTERNET, LINK, "link.example", false),
            (INTERNET, METADATA, METADATA, false),
            (INTERNET, METADATA, "metadata.example", false),
            (INTERNET, HOST, HOST, false),
            (INTERNET, HOST, "localhost", false),
            (INTERNET, HOST, "host.example", false),
            (INTERNET, "::1", "::1", false),
            (INTERNET, "::1", "host6.example", false),
            (INTERNET, HOST, "::ffff:127.0.0.1", false),
            (PRIVATE, PRIVATE, "private.example", true),
            (PRIVATE, INTERNET, "internet.example", true),
            (PRIVATE, LINK, LINK, false),
            (PRIVATE, HOST, "host.example", false),
            (PRIVATE, METADATA, METADATA, false),
            (LINK, PRIVATE, "private.example", true),
            (LINK, HOST, HOST, false),
            (HOST, HOST, "host.example", true),
            (HOST, PRIVATE, PRIVATE, true),
            (HOST, METADATA, METADATA, false),
        ] {
            let (registry, other) = (at(from, true), at(server, true));
            put_image(&other.registry, 1000);
            let digest = put_image(&registry.registry, 1000).layer_digest;
            let to = other.url(host, &format!("/v2/{NAME}/blobs/{digest}"));
            let read = read_at(&registry, &[&other], &[], to.clone()).await;
            assert_eq!(read.is_ok(), may, "{from} to {to}: {read:?}");
            assert_eq!(other.was_asked(), may, "{from} to {to}");
            let bare = other.url(host, "").replace("https://", "");
            match read {
                Err(said) => assert!(
                    said.contains("internal_hosts") && (said.contains(host) || host.contains("ffff")),
                    "{said}"
                ),
                Ok(()) => continue,
            }
            // The user knows better, except of addresses in other spellings than the listed one.
            let read = read_at(&registry, &[&other], &[bare], to.clone()).await;
            let fails_anyhow = host.contains("ffff");
            assert_eq!(read.is_ok(), !fails_anyhow, "{from} to {to}, listed: {read:?}");
            let log = other.registry.log();
            assert!(log.iter().all(|request| request.head.authorization.is_none()));
        }
    });
}

/// The same by a client that may have connections, and each time of another blob: where one is, is remembered.
async fn read_on(client: &Client, registry: &At, size: usize, to: String) -> Result<(), String> {
    let image = put_image(&registry.registry, size);
    registry.registry.clear_faults();
    registry.registry.inject(When::blob(), redirect(to));
    let repository = repository(&registry.registry);
    let read = client.blob_range(&repository, &image.layer_digest, 0..10);
    read.await.map(drop).map_err(|error| error.to_string())
}

/// Lets a name resolve to these from now on, in the network of the test.
fn resolve(name: &str, addresses: &[&str]) {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap();
    assert!(hosts.contains("internet.example"), "this is the host's own file");
    let others = hosts.lines().filter(|line| !line.ends_with(name));
    let own = addresses.iter().map(|address| format!("{address} {name}"));
    let lines: Vec<String> = others.map(str::to_owned).chain(own).collect();
    std::fs::write("/etc/hosts", lines.join("\n") + "\n").unwrap();
}

/// The owner of a name lets it resolve to this host as soon as it was checked, or to several addresses.
#[test]
fn names_that_move_gain_nothing() {
    apart("names_that_move_gain_nothing", async {
        const NAME: &str = "host.example";
        let (registry, far) = (at(INTERNET, true), at(INTERNET, true));
        let (within, near) = (at(HOST, true), at(HOST, true));
        let directory = tempfile::tempdir().unwrap();
        let client = client(&[&registry, &far, &within, &near], &[], directory.path());
        resolve(NAME, &[INTERNET]);
        let path = |at: &At, size: usize| {
            let digest = put_image(&at.registry, size).layer_digest;
            at.url(NAME, &format!("/v2/{}/blobs/{digest}", crate::support::NAME))
        };
        let read = read_on(&client, &registry, 1000, path(&far, 1000)).await;
        assert!(read.is_ok() && far.was_asked(), "{read:?}");
        resolve(NAME, &[HOST]);
        let said = read_on(&client, &registry, 1100, path(&near, 1100)).await;
        assert!(said.unwrap_err().contains("internal_hosts"));
        assert!(!near.was_asked(), "the name had moved");
        // A registry of this host may; one that may not has no use of the connection that there is then.
        let read = read_on(&client, &within, 1200, path(&near, 1200)).await;
        assert!(read.is_ok() && near.was_asked(), "{read:?}");
        let asked = near.registry.log().len();
        let said = read_on(&client, &registry, 1300, path(&near, 1300)).await;
        assert!(said.unwrap_err().contains("internal_hosts"));
        assert_eq!(
            near.registry.log().len(),
            asked,
            "by a connection of another registry"
        );
        // Of several addresses the ones that may not be named are not tried, wherever they stand.
        for addresses in [[INTERNET, HOST], [HOST, INTERNET]] {
            resolve(NAME, &addresses);
            let size = 1400 + near.registry.log().len();
            assert!(
                read_on(&client, &registry, size, path(&near, size))
                    .await
                    .is_err()
            );
            assert_eq!(near.registry.log().len(), asked, "{addresses:?}");
            let size = 1500 + far.registry.log().len();
            let read = read_on(&client, &registry, size, path(&far, size)).await;
            assert!(read.is_ok(), "{addresses:?}: {read:?}");
        }
    });
}

/// Where the proxy of the tests is.
const PROXY: &str = "198.51.100.7:3128";

/// A proxy that leads to these servers only; gives where it was asked to lead to.
async fn proxy(servers: Vec<String>) -> std::sync::Arc<parking_lot::Mutex<Vec<String>>> {
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

/// A host that a URL gives as an address or as this host's name is judged before the proxy is asked, which would lead to its own host.
/// Other names are left to the proxy, unless no proxy is used for them.
#[test]
fn through_a_proxy_no_registry_names_what_is_near() {
    let environment = [
        ("HTTPS_PROXY", "http://198.51.100.7:3128"),
        ("NO_PROXY", "private.example"),
    ];
    apart_with(
        "through_a_proxy_no_registry_names_what_is_near",
        &environment,
        async {
            // One in a private network, too, counts as being on the internet: the proxy may be anywhere.
            let registries = [INTERNET, PRIVATE].map(|from| (from, at(from, true)));
            let hosts = registries.iter().map(|(_, registry)| registry.registry.host());
            let asked = proxy(hosts.map(|host| host.to_owned()).collect()).await;
            for (from, registry) in &registries {
                let (near, private) = (at(HOST, true), at(PRIVATE, true));
                let directory = tempfile::tempdir().unwrap();
                let client = client(&[registry, &near, &private], &[], directory.path());
                let tos = [
                    (near.url(HOST, "/x"), false),
                    (near.url("localhost", "/x"), false),
                    (near.url("a.localhost", "/x"), false),
                    (near.url("::1", "/x"), false),
                    (near.url("::ffff:127.0.0.1", "/x"), false),
                    (near.url(METADATA, "/x"), false),
                    (near.url("metadata.google.internal", "/x"), false),
                    (private.url(PRIVATE, "/x"), false),
                    (private.url("private.example", "/x"), false),
                    (near.url("host.example", "/x"), true),
                ];
                for (number, (to, is_for_proxy)) in tos.into_iter().enumerate() {
                    asked.lock().clear();
                    let said = read_on(&client, registry, 2000 + number, to.clone())
                        .await
                        .unwrap_err();
                    assert_eq!(
                        said.contains("internal_hosts"),
                        !is_for_proxy,
                        "{from} to {to}: {said}"
                    );
                    let name = to.split('/').nth(2).unwrap().to_owned();
                    let asked = asked.lock().clone();
                    assert_eq!(asked.contains(&name), is_for_proxy, "{from} to {to}: {asked:?}");
                }
                assert!(!near.was_asked() && !private.was_asked(), "past the proxy");
                assert!(registry.was_asked());
            }
        },
    );
}

#[test]
fn redirects_do_not_give_up_tls() {
    apart("redirects_do_not_give_up_tls", async {
        for from in [INTERNET, PRIVATE] {
            for (server, host) in [
                (HOST, HOST),
                (HOST, "localhost"),
                (PRIVATE, PRIVATE),
                (INTERNET, INTERNET),
            ] {
                let (registry, other) = (at(from, true), at(server, false));
                let read = read_at(&registry, &[&other], &[], other.url(host, "/x")).await;
                let said = read.unwrap_err();
                assert!(
                    said.contains("plain_http") || said.contains("internal_hosts"),
                    "{said}"
                );
                assert!(!other.was_asked(), "{from} to {host}");
            }
        }
    });
}

/// No firewall is on the way to it.
#[test]
fn a_public_address_of_this_host_is_no_farther_than_its_network() {
    let name = "a_public_address_of_this_host_is_no_farther_than_its_network";
    apart_with(name, &[(KNOWS_ITS_OWN, "1")], async {
        for (from, server, host, may) in [
            (PRIVATE, INTERNET, INTERNET, true),
            (INTERNET, PRIVATE, PRIVATE, true),
            (INTERNET, PRIVATE, "private.example", true),
            (INTERNET, LINK, "link.example", false),
            (INTERNET, HOST, HOST, false),
        ] {
            let (registry, other) = (at(from, true), at(server, true));
            put_image(&other.registry, 1000);
            let image = put_image(&registry.registry, 1000);
            let blob = format!("/v2/{NAME}/blobs/{}", image.layer_digest);
            let read = read_at(&registry, &[&other], &[], other.url(host, &blob)).await;
            assert_eq!(read.is_ok(), may, "{from} to {host}: {read:?}");
            assert_eq!(other.was_asked(), may, "{from} to {host}");
        }
    });
}

#[test]
fn a_redirect_target_can_redirect_no_further() {
    apart("a_redirect_target_can_redirect_no_further", async {
        let (registry, far, near) = (at(PRIVATE, true), at(INTERNET, true), at(PRIVATE, true));
        far.registry
            .inject(When::any(), redirect(near.url("private.example", "/x")));
        let to = far.url("internet.example", "/y");
        let said = read_at(&registry, &[&far, &near], &[], to).await.unwrap_err();
        assert!(said.contains("private.example"), "{said}");
        assert!(far.was_asked() && !near.was_asked());
    });
}

#[test]
fn a_kept_redirect_is_as_weak_as_the_weakest_that_led_there() {
    apart(
        "a_kept_redirect_is_as_weak_as_the_weakest_that_led_there",
        async {
            let (registry, far, moves) = (at(PRIVATE, true), at(INTERNET, true), at("0.0.0.0", true));
            let image = put_image(&registry.registry, 1000);
            put_image(&moves.registry, 1000);
            let blob = format!("/v2/{NAME}/blobs/{}", image.layer_digest);
            far.registry
                .inject(When::any(), redirect(moves.url("moves.example", &blob)));
            registry
                .registry
                .inject(When::blob(), redirect(far.url("internet.example", "/y")));
            let directory = tempfile::tempdir().unwrap();
            let client = client(&[&registry, &far, &moves], &[], directory.path());
            let repository = repository(&registry.registry);
            let read = client.blob_range(&repository, &image.layer_digest, 0..10);
            read.await.unwrap();
            // The owner of the name lets it resolve to an address behind this host now.
            let hosts = std::fs::read_to_string("/etc/hosts").unwrap();
            let moved = hosts.replace(
                &format!("{INTERNET} moves.example"),
                &format!("{PRIVATE} moves.example"),
            );
            assert_ne!(hosts, moved);
            std::fs::write("/etc/hosts", moved).unwrap();
            let read = client.blob_range(&repository, &image.layer_digest, 10..20);
            read.await.unwrap();
            // The connection of the first time, which leads to the internet, is good still; a new one would lead there.
            let log = moves.registry.log();
            let connections: Vec<u64> = log.iter().map(|request| request.head.connection).collect();
            assert_eq!(connections, [connections[0]; 2]);
        },
    );
}

#[test]
fn silent_names_that_one_registry_gives_hold_no_other_name_up() {
    apart(
        "silent_names_that_one_registry_gives_hold_no_other_name_up",
        async {
            let _silent = std::net::UdpSocket::bind("127.0.0.1:53").unwrap();
            let directory = tempfile::tempdir().unwrap();
            let resolv = directory.path().join("resolv.conf");
            std::fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n").unwrap();
            let mount = Command::new("mount")
                .arg("--bind")
                .args([resolv.as_path(), "/etc/resolv.conf".as_ref()])
                .status();
            assert!(mount.unwrap().success());
            let (hostile, registry, other) = (at(INTERNET, true), at(INTERNET, true), at(INTERNET, true));
            let image = put_image(&registry.registry, 1000);
            put_image(&other.registry, 1000);
            let all = [&hostile, &registry, &other];
            let mut asking = Vec::new();
            for number in 0..SILENT {
                let blob = hostile
                    .registry
                    .put_blob(NAME, format!("blob {number}").into_bytes());
                let to = hostile.url(&format!("silent{number}.example"), "/x");
                hostile
                    .registry
                    .inject(When::blob().path(&blob.to_string()), redirect(to));
                // Each client asks a few things of a registry at a time.
                let (client, repository) =
                    (client(&all, &[], directory.path()), repository(&hostile.registry));
                asking.push(tokio::spawn(async move {
                    client.blob_range(&repository, &blob, 0..5).await
                }));
            }
            let client = client(&all, &[], directory.path());
            while hostile.registry.log().len() < SILENT {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            // A name that the user gave, and one that another registry gives.
            let by_name = Repository::new(
                &registry.url("internet.example", "").replace("https://", ""),
                NAME,
            );
            let by_name = by_name.unwrap();
            let to = other.url(
                "internet.example",
                &format!("/v2/{NAME}/blobs/{}", image.layer_digest),
            );
            registry.registry.inject(When::blob().times(1), redirect(to));
            let read = client.blob_range(&by_name, &image.layer_digest, 0..10).await;
            read.unwrap();
            assert!(other.was_asked());
            for one in asking {
                one.abort();
            }
        },
    );
}

#[test]
fn mirrors_redirect_no_nearer_than_they_are() {
    apart("mirrors_redirect_no_nearer_than_they_are", async {
        let (registry, mirror, near) = (at(HOST, true), at(INTERNET, true), at(HOST, true));
        let image = put_image(&registry.registry, 1000);
        mirror
            .registry
            .inject(When::any(), redirect(near.url("host.example", "/x")));
        let ca_files = [&registry, &mirror, &near].map(|at| at.ca.as_ref().unwrap().1.clone());
        let list = vec![Mirror {
            url: mirror.url(INTERNET, ""),
            resolve_tags: true,
        }];
        let client = Client::new(ClientConfig {
            ca_files: ca_files.to_vec(),
            mirrors: [(registry.registry.host(), list)].into(),
            ..config()
        })
        .unwrap();
        let repository = repository(&registry.registry);
        let read = client.blob_range(&repository, &image.layer_digest, 0..10);
        // The registry itself has it.
        read.await.unwrap();
        assert!(mirror.was_asked() && !near.was_asked());
    });
}

#[test]
fn token_servers_are_no_nearer_than_the_registry() {
    apart("token_servers_are_no_nearer_than_the_registry", async {
        for (from, server, host, tls, may) in [
            (INTERNET, INTERNET, "internet.example", true, true),
            (INTERNET, INTERNET, INTERNET, false, false),
            (INTERNET, HOST, HOST, true, false),
            (INTERNET, HOST, HOST, false, false),
            (INTERNET, HOST, "localhost", false, false),
            (INTERNET, HOST, "host.example", true, false),
            (INTERNET, METADATA, METADATA, false, false),
            (INTERNET, PRIVATE, "private.example", true, false),
            (PRIVATE, PRIVATE, "private.example", true, true),
            (PRIVATE, PRIVATE, "private.example", false, false),
            (PRIVATE, HOST, HOST, true, false),
            (HOST, HOST, "localhost", false, true),
        ] {
            let (registry, other) = (at(from, true), at(server, tls));
            let image = put_image(&registry.registry, 1000);
            let realm = other.url(host, "/token");
            let wanted = format!("Bearer realm=\"{realm}\",service=\"x\"");
            let wants = Fault::Says {
                status: 401,
                headers: vec![("www-authenticate", wanted)],
            };
            registry.registry.inject(When::blob(), wants);
            let directory = tempfile::tempdir().unwrap();
            let client = client(&[&registry, &other], &[], directory.path());
            let repository = repository(&registry.registry);
            let read = client.blob_range(&repository, &image.layer_digest, 0..10);
            // The registry does not accept the token that the client gets.
            let said = read.await.unwrap_err().to_string();
            assert_eq!(other.was_asked(), may, "{from} to {realm}: {said}");
            let is_refused = said.contains("internal_hosts") || said.contains("plain_http");
            assert_eq!(is_refused, !may, "{from} to {realm}: {said}");
        }
    });
}

#[test]
fn uploads_go_no_nearer_than_the_registry_is() {
    apart("uploads_go_no_nearer_than_the_registry_is", async {
        for (server, host, may) in [
            (HOST, "host.example", false),
            (HOST, HOST, false),
            (INTERNET, "internet.example", true),
        ] {
            let (registry, other) = (at(INTERNET, true), at(server, true));
            let takes = Fault::Says {
                status: 202,
                headers: vec![("location", other.url(host, "/take"))],
            };
            registry.registry.inject(When::any().method("POST"), takes);
            let directory = tempfile::tempdir().unwrap();
            let client = client(&[&registry, &other], &[], directory.path());
            let source = BlobSource::Bytes(Bytes::from_static(b"what is pushed"));
            let said = client
                .push_blob(&repository(&registry.registry), source, None)
                .await;
            assert_eq!(other.was_asked(), may, "{host}: {said:?}");
            let log = other.registry.log();
            assert!(log.iter().all(|request| request.head.authorization.is_none()));
            assert_eq!(said.unwrap_err().to_string().contains("internal_hosts"), !may);
        }
    });
}

#[test]
fn lists_go_on_where_they_began() {
    apart("lists_go_on_where_they_began", async {
        let (registry, other) = (at(INTERNET, true), at(INTERNET, true));
        let image = put_image(&registry.registry, 1000);
        for to in [
            other.url(INTERNET, "/next"),
            other.url("internet.example", "/next"),
        ] {
            let page = Fault::Page {
                link: format!("<{to}>; rel=\"next\""),
            };
            registry.registry.clear_faults();
            registry.registry.inject(When::any().path("/referrers/"), page);
            let directory = tempfile::tempdir().unwrap();
            let client = client(&[&registry, &other], &[], directory.path());
            let repository = repository(&registry.registry);
            let list = client.referrers(&repository, &image.manifest_digest, None);
            let said = list.await.unwrap_err().to_string();
            assert!(said.contains("elsewhere"), "{said}");
            assert!(!other.was_asked());
        }
    });
}

#[test]
fn what_descriptors_say_of_other_places_is_not_asked() {
    apart("what_descriptors_say_of_other_places_is_not_asked", async {
        let (registry, other) = (at(INTERNET, true), at(INTERNET, true));
        let layer = b"not there".to_vec();
        let (config, _) = manifest_of(&layer, "amd64");
        registry.registry.put_blob(NAME, config.clone());
        let foreign = LAYER_TYPE.replace("layer.v1", "layer.nondistributable.v1");
        let manifest = ImageManifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config: Descriptor {
                urls: vec![other.url(INTERNET, "/config")],
                ..Descriptor::of("application/vnd.oci.image.config.v1+json", &config)
            },
            layers: vec![Descriptor {
                urls: vec![other.url(INTERNET, "/layer")],
                ..Descriptor::of(&foreign, &layer)
            }],
            subject: None,
            annotations: Default::default(),
        };
        let bytes = serde_json::to_vec(&manifest).unwrap();
        registry.registry.put_manifest(NAME, "v1", OCI_MANIFEST, bytes);
        let directory = tempfile::tempdir().unwrap();
        let client = client(&[&registry, &other], &[], directory.path());
        let resolved = client
            .resolve(&tagged(&registry.registry), &Platform::linux("amd64"))
            .await
            .unwrap();
        let layer = &resolved.manifest.layers[0];
        assert_eq!(layer.urls.len(), 1);
        let (repository, digest) = (repository(&registry.registry), layer.digest);
        client.blob(&repository, layer, 1000).await.unwrap_err();
        client.blob_range(&repository, &digest, 0..5).await.unwrap_err();
        client
            .blob_stream(&repository, &digest, layer.size, 0)
            .await
            .unwrap_err();
        assert!(!other.was_asked());
    });
}
