//! Pushing and attaching, to registries with and without the referrers API.

mod native;
mod stopped;

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use xebec_format::digest::Digest;
use xebec_oci::manifest::{Descriptor, ImageManifest};
use xebec_oci::media_type::{OCI_EMPTY, OCI_MANIFEST};
use xebec_oci::{BlobSource, BlobUpload, Client, ClientError, Platform, Repository, Uploads};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{Image, NAME, client, manifest_of, noise, put_image, repository, tagged};

const KIND: &str = "application/vnd.xebec.test.v1+json";

fn artifact(subject: &[u8], kind: &str, note: &str) -> ImageManifest {
    ImageManifest {
        schema_version: 2,
        media_type: Some(OCI_MANIFEST.to_owned()),
        artifact_type: Some(kind.to_owned()),
        config: Descriptor::of(OCI_EMPTY, b"{}"),
        layers: vec![Descriptor::of(OCI_EMPTY, b"{}")],
        subject: Some(Descriptor::of(OCI_MANIFEST, subject)),
        annotations: [("note".to_owned(), note.to_owned())].into(),
    }
}

async fn push_empty(client: &Client, repository: &Repository) {
    client
        .push_blob(repository, BlobSource::Bytes(Bytes::from_static(b"{}")), None)
        .await
        .unwrap();
}

#[tokio::test]
async fn pushes_what_can_be_pulled() {
    let registry = FaultyRegistry::with(Options {
        access: Access::anonymous_tokens(std::time::Duration::from_secs(300)),
        ..Options::default()
    })
    .unwrap();
    let (client, repository) = (client(), repository(&registry));
    let layer = noise(500_000);
    let (config, manifest) = manifest_of(&layer, "amd64");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layer");
    std::fs::write(&file, &layer).unwrap();
    let push = |source: BlobSource| client.push_blob(&repository, source, None);
    assert_eq!(
        push(BlobSource::File(file.clone())).await.unwrap(),
        (Digest::of(&layer), BlobUpload::Sent)
    );
    assert_eq!(push(BlobSource::File(file)).await.unwrap().1, BlobUpload::Existed);
    assert_eq!(
        push(BlobSource::Bytes(config.into())).await.unwrap().1,
        BlobUpload::Sent
    );
    let pushed = client
        .push_manifest(&repository, "v1", OCI_MANIFEST, manifest.clone().into())
        .await
        .unwrap();
    assert_eq!(pushed.digest, Digest::of(&manifest));
    let resolved = client
        .resolve(&tagged(&registry), &Platform::linux("amd64"))
        .await
        .unwrap();
    assert_eq!(resolved.manifest_bytes, manifest);
    assert_eq!(
        client.stats().bytes_sent as usize,
        500_000 + manifest.len() + resolved.config_bytes.len()
    );

    let other = Repository::new(&registry.host(), "other").unwrap();
    let mounted = client
        .push_blob(&other, BlobSource::Bytes(layer.clone().into()), Some(&repository))
        .await
        .unwrap();
    assert_eq!(mounted.1, BlobUpload::Mounted);
    // A registry that looks at both repositories' rights finds both in the token.
    let log = registry.log();
    let token = log.iter().rfind(|request| request.head.path == "/token").unwrap();
    for scope in [
        "repository%3Aother%3Apull%2Cpush",
        "repository%3Ateam%2Fapp%3Apull",
    ] {
        assert!(token.head.query.contains(scope), "{}", token.head.query);
    }
    let sent = client
        .push_blob(&other, BlobSource::Bytes(b"new"[..].into()), Some(&repository))
        .await
        .unwrap();
    assert_eq!(sent.1, BlobUpload::Sent);
}

#[tokio::test]
async fn pieces_where_one_is_too_large_and_again_where_it_broke() {
    let registry = FaultyRegistry::with(Options {
        max_upload: 17 << 20,
        ..Options::default()
    })
    .unwrap();
    let blob = noise(1 << 20).repeat(40);
    let (client, repository) = (client(), repository(&registry));
    registry.inject(
        When::any().method("PATCH").skip(1).times(1),
        Fault::Status {
            code: 502,
            retry_after: None,
        },
    );
    let (digest, upload) = client
        .push_blob(&repository, BlobSource::Bytes(blob.clone().into()), None)
        .await
        .unwrap();
    assert_eq!(upload, BlobUpload::Sent);
    assert!(registry.blob(NAME, &digest).unwrap() == blob);
    registry.inject(
        When::any().method("PUT").path("/blobs/").times(2),
        Fault::Reset(0),
    );
    let small = BlobSource::Bytes(noise(1000).into());
    assert_eq!(
        client.push_blob(&repository, small, None).await.unwrap().1,
        BlobUpload::Sent
    );
}

/// Keeps the place of one upload.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    place: Mutex<Option<String>>,
    notes: AtomicUsize,
}

impl Kept {
    fn at(place: &str) -> Self {
        Self {
            place: Mutex::new(Some(place.to_owned())),
            ..Self::default()
        }
    }

    pub(crate) fn notes(&self) -> usize {
        self.notes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.place.lock().is_none()
    }
}

impl Uploads for Kept {
    fn place(&self, _repository: &Repository, _blob: &Digest) -> Option<String> {
        self.place.lock().clone()
    }

    fn goes_on(&self, _repository: &Repository, _blob: &Digest, place: Option<&str>) {
        self.notes.fetch_add(1, Ordering::Relaxed);
        *self.place.lock() = place.map(str::to_owned);
    }
}

/// Pieces of 16 MiB are sent, of which two come before the registry is away.
#[tokio::test]
async fn a_push_that_was_stopped_goes_on_where_it_was() {
    let registry = FaultyRegistry::start().unwrap();
    let (blob, repository) = (noise(1 << 20).repeat(40), repository(&registry));
    let source = || BlobSource::Bytes(blob.clone().into());
    let kept = Kept::default();
    registry.inject(When::any().method("PATCH").skip(2).times(1000), Fault::Reset(0));
    let stopped = client()
        .push_blob_keeping(&repository, source(), None, Some(&kept))
        .await;
    stopped.unwrap_err();
    assert!(!kept.is_over());
    registry.clear_faults();
    registry.clear_log();
    let again = client();
    let (digest, upload) = again
        .push_blob_keeping(&repository, source(), None, Some(&kept))
        .await
        .unwrap();
    assert_eq!(upload, BlobUpload::Sent);
    assert!(registry.blob(NAME, &digest).unwrap() == blob);
    assert_eq!(again.stats().bytes_sent, 8 << 20);
    assert!(kept.is_over());
    // A blob of one piece is sent in one request, and nothing is kept of it.
    let before = kept.notes();
    let small = BlobSource::Bytes(noise(1000).into());
    again
        .push_blob_keeping(&repository, small, None, Some(&kept))
        .await
        .unwrap();
    assert_eq!(kept.notes(), before);
}

#[tokio::test]
async fn a_push_begins_anew_where_its_upload_is_gone_or_another_one() {
    let registry = FaultyRegistry::start().unwrap();
    let (blob, repository) = (noise(1 << 20).repeat(20), repository(&registry));
    let url = |path: &str| format!("http://{}/v2/{NAME}/blobs/uploads/{path}", registry.host());
    // One of other bytes, as if the file had been another one.
    let kept = Kept::default();
    registry.inject(When::any().method("PATCH").skip(1).times(1000), Fault::Reset(0));
    let other = BlobSource::Bytes(noise(3 << 20).repeat(8).into());
    let stopped = client()
        .push_blob_keeping(&repository, other, None, Some(&kept))
        .await;
    stopped.unwrap_err();
    registry.clear_faults();
    for kept in [
        Kept::at(&url("77?state=x")),
        Kept::at("ftp://nowhere/"),
        Kept::at("no place"),
        kept,
    ] {
        assert!(!kept.is_over());
        let source = BlobSource::Bytes(blob.clone().into());
        let pushed = client()
            .push_blob_keeping(&repository, source, None, Some(&kept))
            .await
            .unwrap();
        assert_eq!(pushed.1, BlobUpload::Sent);
        assert!(registry.blob(NAME, &pushed.0).unwrap() == blob);
        assert!(kept.is_over());
        registry.remove_blob(NAME, &pushed.0);
    }
}

/// A registry, or a proxy before it, that takes no pieces.
#[tokio::test]
async fn a_registry_that_takes_no_pieces_gets_all_at_once() {
    let registry = FaultyRegistry::start().unwrap();
    let (blob, repository) = (noise(1 << 20).repeat(20), repository(&registry));
    registry.inject(
        When::any().method("PATCH").times(1000),
        Fault::Status {
            code: 405,
            retry_after: None,
        },
    );
    let kept = Kept::default();
    let source = BlobSource::Bytes(blob.clone().into());
    let pushed = client()
        .push_blob_keeping(&repository, source, None, Some(&kept))
        .await
        .unwrap();
    assert!(registry.blob(NAME, &pushed.0).unwrap() == blob);
    assert!(kept.is_over());
}

#[tokio::test]
async fn a_file_that_is_not_there() {
    let registry = FaultyRegistry::start().unwrap();
    let source = BlobSource::File("/nonexistent/layer".into());
    let error = client()
        .push_blob(&repository(&registry), source, None)
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Source { .. }), "{error}");
}

#[tokio::test]
async fn referrers_with_and_without_the_api() {
    for referrers_api in [true, false] {
        let options = Options {
            referrers_api,
            referrers_page: 2,
            ..Options::default()
        };
        let registry = FaultyRegistry::with(options).unwrap();
        let image = put_image(&registry, 1000);
        let (client, repository) = (client(), repository(&registry));
        let list = |kind: Option<&'static str>| client.referrers(&repository, &image.manifest_digest, kind);
        assert!(list(None).await.unwrap().is_empty());
        push_empty(&client, &repository).await;
        for n in 0..5 {
            let kind = if n == 4 { "application/other" } else { KIND };
            let pushed = client
                .attach(&repository, &artifact(&image.manifest, kind, &n.to_string()))
                .await
                .unwrap();
            assert_eq!(pushed.subject_noted, referrers_api);
        }
        // The same again changes nothing.
        client
            .attach(&repository, &artifact(&image.manifest, KIND, "0"))
            .await
            .unwrap();
        assert_eq!(list(None).await.unwrap().len(), 5, "API {referrers_api}");
        // One request for all of them says which is which.
        let count = |kind: &str, list: &[Descriptor]| {
            let of_kind = |entry: &&Descriptor| entry.artifact_type.as_deref() == Some(kind);
            list.iter().filter(of_kind).count()
        };
        let all = list(None).await.unwrap();
        assert_eq!(
            (count(KIND, &all), count("application/other", &all)),
            (4, 1),
            "API {referrers_api}"
        );
        let of_kind = list(Some(KIND)).await.unwrap();
        let mut notes: Vec<&str> = of_kind
            .iter()
            .map(|entry| entry.annotations["note"].as_str())
            .collect();
        notes.sort_unstable();
        assert_eq!(notes, ["0", "1", "2", "3"], "API {referrers_api}");
        assert!(
            of_kind
                .iter()
                .all(|entry| entry.artifact_type.as_deref() == Some(KIND))
        );
    }
}

/// The numbers of requests for lists of referrers, by the API and by tag, since the registry's log was cleared.
fn asked_for_lists(registry: &FaultyRegistry) -> (usize, usize) {
    let asked = (
        registry.count("/referrers/"),
        registry.count("/manifests/sha256-"),
    );
    registry.clear_log();
    asked
}

#[tokio::test]
async fn a_registry_without_the_api_is_asked_by_tag() {
    let registry = without_the_api();
    let (one, two) = (put_image(&registry, 1000), put_image(&registry, 2000));
    let repository = repository(&registry);
    let list = async |client: &Client, image: &Image| {
        let listed = client.referrers(&repository, &image.manifest_digest, None).await;
        listed.unwrap().len()
    };
    let writer = client();
    push_empty(&writer, &repository).await;
    writer
        .attach(&repository, &artifact(&one.manifest, KIND, "1"))
        .await
        .unwrap();
    let reader = client();
    registry.clear_log();
    // Where there is no list, nothing is learned.
    assert_eq!(list(&reader, &two).await, 0);
    assert_eq!(asked_for_lists(&registry), (1, 1));
    assert_eq!(list(&reader, &one).await, 1);
    assert_eq!(asked_for_lists(&registry), (1, 1));
    // Clones know it, too.
    assert_eq!(list(&reader.clone(), &one).await, 1);
    assert_eq!(asked_for_lists(&registry), (0, 1));
    // A list that is not under the tag may be in the API by now.
    assert_eq!(list(&reader, &two).await, 0);
    assert_eq!(asked_for_lists(&registry), (1, 1));
    // A list that cannot be read hides none that the API has.
    let damaged = Fault::Answer {
        status: 200,
        content_type: "application/vnd.oci.image.index.v1+json",
        body: "{".to_owned(),
    };
    registry.inject(When::any().path("/manifests/sha256-").times(1), damaged);
    assert!(
        reader
            .referrers(&repository, &two.manifest_digest, None)
            .await
            .is_err()
    );
    assert_eq!(asked_for_lists(&registry), (1, 1));
    // It is: the registry was upgraded. From then on the API is asked.
    let empty = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    let upgraded = Fault::Answer {
        status: 200,
        content_type: "application/vnd.oci.image.index.v1+json",
        body: empty.to_owned(),
    };
    registry.inject(When::any().path("/referrers/"), upgraded);
    assert_eq!(list(&reader, &two).await, 0);
    assert_eq!(asked_for_lists(&registry), (1, 1));
    assert_eq!(list(&reader, &one).await, 0, "the API's list counts");
    assert_eq!(asked_for_lists(&registry), (1, 0));
}

fn without_the_api() -> FaultyRegistry {
    FaultyRegistry::with(Options {
        referrers_api: false,
        ..Options::default()
    })
    .unwrap()
}

#[tokio::test]
async fn only_clear_answers_are_remembered() {
    let registry = without_the_api();
    let image = put_image(&registry, 1000);
    let repository = repository(&registry);
    push_empty(&client(), &repository).await;
    client()
        .attach(&repository, &artifact(&image.manifest, KIND, "1"))
        .await
        .unwrap();
    let error = |code: &str| format!(r#"{{"errors":[{{"code":"{code}","message":"m"}}]}}"#);
    let page = "404 page not found".to_owned();
    for (status, body, is_clear) in [
        (404, page.clone(), true),
        (405, page.clone(), true),
        (404, error("UNSUPPORTED"), true),
        (404, error("MANIFEST_UNKNOWN"), false),
        (404, error("NAME_UNKNOWN"), false),
        (400, page.clone(), false),
        (501, page, false),
    ] {
        registry.clear_faults();
        let fault = Fault::Answer {
            status,
            content_type: "text/plain",
            body: body.clone(),
        };
        registry.inject(When::any().path("/referrers/"), fault);
        let reader = client();
        for expected in [1, usize::from(!is_clear)] {
            registry.clear_log();
            let listed = reader.referrers(&repository, &image.manifest_digest, None).await;
            assert_eq!(listed.unwrap().len(), 1, "{status} {body}");
            assert_eq!(asked_for_lists(&registry).0, expected, "{status} {body}");
        }
    }
}

#[tokio::test]
async fn writers_of_one_list_do_not_lose_each_other() {
    let registry = without_the_api();
    let image = put_image(&registry, 1000);
    let repository = repository(&registry);
    push_empty(&client(), &repository).await;
    let writers = (0..4).map(|n| {
        let (client, repository) = (client(), repository.clone());
        let artifact = artifact(&image.manifest, KIND, &n.to_string());
        async move { client.attach(&repository, &artifact).await.map(|_| ()) }
    });
    let results = futures_util::future::join_all(writers).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let found = client()
        .referrers(&repository, &image.manifest_digest, None)
        .await
        .unwrap();
    assert_eq!(found.len(), 4);
}

#[tokio::test]
async fn a_web_page_instead_of_the_api() {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, 1000);
    registry.inject(When::any().path("/referrers/"), Fault::Html);
    let found = client()
        .referrers(&repository(&registry), &image.manifest_digest, None)
        .await
        .unwrap();
    assert!(found.is_empty());
    assert_eq!(registry.count("/manifests/sha256-"), 1);
}
