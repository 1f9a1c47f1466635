//! Registries that send this host elsewhere: to its own services, to metadata servers, into the network behind. Each way in
//! which an answer can name a host that is then asked is tried: redirects, token servers, places of uploads, further pages
//! of lists, `urls` of descriptors.
//!
//! Each test runs in a network of its own, in which one host has addresses of all kinds, and names for them. It may use others'
//! addresses, too, so it does not know its own, and its public one stands for the internet.

mod network;
mod redirects;

use bytes::Bytes;
use xebec_oci::manifest::{Descriptor, ImageManifest};
use xebec_oci::media_type::OCI_MANIFEST;
use xebec_oci::{BlobSource, Platform};
use xebec_testkit::registry::{Fault, When};

use crate::support::{LAYER_TYPE, NAME, manifest_of, put_image, repository, tagged};
use network::{HOST, INTERNET, METADATA, PRIVATE, apart, at, client};

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
