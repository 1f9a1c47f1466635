//! What refers to an image in a store. The tests of the crate `registry` have this file, too.

use std::collections::BTreeMap;

use xebec_artifact::artifact::{ARTIFACT_TYPE, Artifact};
use xebec_oci::Manifest;
use xebec_store::{Digest, Store};
use xebec_testkit::image::Image;

/// The artifacts of a type that refer to an image, with their digests and annotations.
pub(crate) async fn referring(
    store: &Store,
    repository: &str,
    image: &Image,
    artifact_type: &str,
) -> Vec<(Digest, BTreeMap<String, String>, Manifest)> {
    let (repository, subject) = (
        repository.parse().unwrap(),
        image.manifest.digest.to_string().parse().unwrap(),
    );
    let page = store.referrers(&repository, &subject, Some(artifact_type), 10, None);
    let mut found = Vec::new();
    for item in page.await.unwrap().items {
        let manifest = store.manifest(&repository, &item.digest).await;
        let content = manifest.unwrap().unwrap().content;
        let manifest = Manifest::parse(&content, None).unwrap();
        found.push((item.digest, item.annotations, manifest));
    }
    found
}

/// The artifacts that list indexes of an image.
pub(crate) async fn listed(store: &Store, repository: &str, image: &Image) -> Vec<Artifact> {
    let found = referring(store, repository, image, ARTIFACT_TYPE).await;
    let artifacts = found
        .into_iter()
        .map(|(_, _, manifest)| Artifact::decode(manifest, image.manifest.digest).unwrap());
    artifacts.collect()
}
