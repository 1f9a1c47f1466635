//! Ways to what a registry has: other addresses, TLS, redirects and mirrors.

use std::time::Duration;

use xebec_oci::media_type::OCI_MANIFEST;
use xebec_oci::{Client, ClientConfig, ClientError, Mirror, Reference};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, Place, When};

use crate::support::{NAME, amd64, client, config, put_image, repository, setup_http2, tagged};

#[tokio::test]
async fn reads_over_ipv6() {
    let options = Options {
        ipv6: true,
        redirect_blobs: Some(Duration::from_secs(600)),
        ..Options::default()
    };
    let registry = match FaultyRegistry::with(options) {
        Ok(registry) => registry,
        Err(error) => {
            println!("SKIPPED: no IPv6 loopback ({error:#})");
            return;
        }
    };
    let image = put_image(&registry, 1000);
    assert!(registry.host().starts_with("[::1]:"));
    let resolved = client().resolve(&tagged(&registry), &amd64()).await.unwrap();
    let bytes = client()
        .blob_range(&resolved.repository, &image.layer_digest, 5..9)
        .await
        .unwrap();
    assert_eq!(bytes, image.layer[5..9]);
}

#[tokio::test]
async fn tls_with_own_authority_and_http2() {
    let (registry, image, client) = setup_http2(200_000);
    client.resolve(&tagged(&registry), &amd64()).await.unwrap();
    registry.clear_log();
    let repository = repository(&registry);
    let reads =
        (0..16u64).map(|n| client.blob_range(&repository, &image.layer_digest, n * 1000..n * 1000 + 500));
    for (n, bytes) in futures_util::future::join_all(reads)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(bytes.unwrap(), image.layer[n * 1000..n * 1000 + 500]);
    }
    let log = registry.log();
    assert!(log.iter().all(|request| request.head.http2));
    assert!(
        log.iter()
            .all(|request| request.head.connection == log[0].head.connection)
    );

    // Without the authority the certificate is refused, and that never leads to plain HTTP.
    let error = crate::support::client()
        .resolve(&tagged(&registry), &amd64())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { attempts: 1, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn messages_name_the_file_of_the_settings() {
    let registry = FaultyRegistry::with(Options {
        tls: true,
        ..Options::default()
    })
    .unwrap();
    put_image(&registry, 10);
    let file = "/srv/xebec/registries.toml";
    let mut config = ClientConfig {
        settings_file: file.into(),
        ..config()
    };
    config.budget.attempts = 1;
    let client = Client::new(config).unwrap();
    let error = client.resolve(&tagged(&registry), &amd64()).await.unwrap_err();
    assert!(
        error.to_string().contains(&format!("ca_files in {file}")),
        "{error}"
    );
    // Nobody listens at this host by a name that is not loopback's.
    let elsewhere: Reference = "0.0.0.0:1/app:1".parse().unwrap();
    let error = client.resolve(&elsewhere, &amd64()).await.unwrap_err();
    for part in [
        format!("plain_http = [\"0.0.0.0:1\"] into {file}"),
        "cannot be reached after 1 try (".to_owned(),
    ] {
        assert!(error.to_string().contains(&part), "{error}");
    }
    // Loopback is spoken to without TLS where it has none.
    let reference = tagged(&registry);
    drop(registry);
    let error = client.resolve(&reference, &amd64()).await.unwrap_err();
    assert!(!error.to_string().contains("plain_http"), "{error}");
}

#[tokio::test]
async fn ca_file_without_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, "nothing").unwrap();
    let error = Client::new(ClientConfig {
        ca_files: vec![ca],
        ..config()
    })
    .unwrap_err();
    assert!(matches!(error, ClientError::CaFile { .. }), "{error}");
}

#[tokio::test]
async fn redirects_are_kept_without_leaking_the_proof() {
    let registry = FaultyRegistry::with(Options {
        access: Access::anonymous_tokens(Duration::from_secs(300)),
        redirect_blobs: Some(Duration::from_secs(600)),
        ..Options::default()
    })
    .unwrap();
    let image = put_image(&registry, 100_000);
    let (client, repository) = (client(), repository(&registry));
    let read = |start: u64| client.blob_range(&repository, &image.layer_digest, start..start + 100);
    for n in 0..5 {
        assert_eq!(
            read(n * 100).await.unwrap(),
            image.layer[n as usize * 100..n as usize * 100 + 100]
        );
    }
    let at = |place: Place| registry.log().iter().filter(|r| r.head.place == place).count();
    assert_eq!(at(Place::Cdn), 5);
    // 401, token, redirect: once for all five.
    assert_eq!(at(Place::Registry), 3, "{:#?}", registry.log());
    assert!(
        registry
            .log()
            .iter()
            .all(|r| r.head.place == Place::Registry || r.head.authorization.is_none())
    );
    // The signature ends: asked for anew, without a failed try.
    registry.expire_redirects();
    assert_eq!(read(0).await.unwrap(), image.layer[..100]);
    assert_eq!(client.stats().retries, 0);
    assert_eq!(at(Place::Registry), 4);
}

#[tokio::test]
async fn short_lived_redirects_are_not_kept() {
    let registry = FaultyRegistry::with(Options {
        redirect_blobs: Some(Duration::from_secs(5)),
        ..Options::default()
    })
    .unwrap();
    let image = put_image(&registry, 1000);
    let client = client();
    for _ in 0..3 {
        client
            .blob_range(&repository(&registry), &image.layer_digest, 0..10)
            .await
            .unwrap();
    }
    assert_eq!(registry.log().len(), 6);
}

#[tokio::test]
async fn mirrors_first_then_the_registry() {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, 1000);
    let mirror = FaultyRegistry::start().unwrap();
    mirror.put_blob(NAME, image.layer.clone());
    let with_mirror = |resolve_tags| {
        let list = vec![Mirror {
            url: format!("http://{}", mirror.host()),
            resolve_tags,
        }];
        Client::new(ClientConfig {
            mirrors: [(registry.host(), list)].into(),
            ..config()
        })
        .unwrap()
    };
    let client = with_mirror(false);
    client.resolve(&tagged(&registry), &amd64()).await.unwrap();
    assert_eq!(
        mirror.count("/manifests/v1"),
        0,
        "a mirror is not asked what a tag means"
    );
    assert_eq!(mirror.count("/blobs/"), 1, "it lacks the config");
    registry.clear_log();
    let bytes = client
        .blob_range(&repository(&registry), &image.layer_digest, 0..10)
        .await
        .unwrap();
    assert_eq!(bytes, image.layer[..10]);
    assert_eq!(registry.log().len(), 0);
    let query = mirror.log().last().unwrap().head.query.clone();
    assert!(query.starts_with("ns=127.0.0.1"), "{query}");

    // A mirror that lies about a digest is passed over.
    mirror.put_manifest(NAME, "v1", OCI_MANIFEST, &b"{}"[..]);
    mirror.inject(When::manifest(), Fault::WrongBytes);
    let by_digest: Reference = format!("{}/{NAME}@{}", registry.host(), image.manifest_digest)
        .parse()
        .unwrap();
    client.resolve(&by_digest, &amd64()).await.unwrap();

    // A mirror that is down costs one try, and then none for a while.
    mirror.set_down(true);
    let before = client.stats().requests;
    for _ in 0..3 {
        client
            .blob_range(&repository(&registry), &image.layer_digest, 0..10)
            .await
            .unwrap();
    }
    assert!(client.stats().requests - before <= 4);
    assert_eq!(client.stats().retries, 0);
    mirror.set_down(false);
    mirror.clear_faults();

    // One that may resolve tags is asked, and believed.
    let error = with_mirror(true)
        .resolve(&tagged(&registry), &amd64())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Manifest { .. } | ClientError::WrongDigest { .. }
        ),
        "{error}"
    );
}
