//! Redirects, which lead no nearer than the registry is, by whatever name, through a proxy or from a mirror.

use std::process::Command;

use xebec_oci::config::Mirror;
use xebec_oci::{Client, ClientConfig, Repository};
use xebec_testkit::registry::{Fault, When};

use super::network::{
    At, HOST, INTERNET, KNOWS_ITS_OWN, LINK, METADATA, PRIVATE, apart, apart_with, at, client, proxy, resolve,
};
use crate::support::{NAME, config, put_image, repository};

/// More names than are looked up at a time.
const SILENT: usize = 80;

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
    apart(
        "redirects::redirects_lead_no_nearer_than_the_registry_is",
        async {
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
        },
    );
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

/// The owner of a name lets it resolve to this host as soon as it was checked, or to several addresses.
#[test]
fn names_that_move_gain_nothing() {
    apart("redirects::names_that_move_gain_nothing", async {
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

/// A host that a URL gives as an address or as this host's name is judged before the proxy is asked, which would lead to its own host.
/// Other names are left to the proxy, unless no proxy is used for them.
#[test]
fn through_a_proxy_no_registry_names_what_is_near() {
    let environment = [
        ("HTTPS_PROXY", "http://198.51.100.7:3128"),
        ("NO_PROXY", "private.example"),
    ];
    apart_with(
        "redirects::through_a_proxy_no_registry_names_what_is_near",
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
    apart("redirects::redirects_do_not_give_up_tls", async {
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
    let name = "redirects::a_public_address_of_this_host_is_no_farther_than_its_network";
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
    apart("redirects::a_redirect_target_can_redirect_no_further", async {
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
        "redirects::a_kept_redirect_is_as_weak_as_the_weakest_that_led_there",
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
        "redirects::silent_names_that_one_registry_gives_hold_no_other_name_up",
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
    apart("redirects::mirrors_redirect_no_nearer_than_they_are", async {
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
