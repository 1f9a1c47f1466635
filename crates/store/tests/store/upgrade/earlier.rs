//! The stores that earlier programs left: the dumps beside this file, and what is to be read from them. make.py says how they were made.

use std::path::Path;

use super::raw::Raw;
use super::{VERSIONS, wait};
use crate::common::*;
use xebec_store::*;

pub(super) const CONFIG: &[u8] = br#"{"architecture":"amd64","os":"linux"}"#;
pub(super) const ONE: &[u8] = b"the bytes of one";
pub(super) const TWO: &[u8] = b"the bytes of two";
pub(super) const WIDE: &[u8] = b"the bytes of wide";
pub(super) const LOOSE: &[u8] = b"the bytes of loose";
pub(super) const CONDEMNED: &[u8] = b"the bytes of condemned";
pub(super) const DAMAGED: &[u8] = b"the bytes of damaged";
/// The objects of the condemned blob's recipe, its pack, and a draft.
const PACK: &[u8] = b"a pack with one chunk";
const RECIPE: &[u8] = b"a recipe for the blob that is condemned";
const DRAFT: &[u8] = b"a draft";
/// The mark of a place, and the objects there: a copy of a blob, and a damaged shard of another one.
const ON_ONE: [(&str, &[u8]); 3] = [
    ("place", b"11/11111111111111111111111111111111"),
    ("0f/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", ONE),
    ("10/10101010101010101010101010101010", b"a shirt"),
];
/// The bytes of an upload that was under way.
pub(super) const BEGUN: &[u8] = b"begun so";
/// When the first of it was written.
const BEGIN: u64 = 1_780_000_000_000;

/// A store's directory and database as a program of that schema left them.
pub(super) fn left_by(version: usize) -> (tempfile::TempDir, Raw) {
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let mut raw = Raw::open(directory.path());
    raw.run(&dump(version, raw.engine()));
    // A session of its own: the dump has changed settings of this one.
    raw = Raw::open(directory.path());
    let objects = [CONFIG, ONE, TWO, DAMAGED, WIDE, LOOSE, CONDEMNED, BEGUN];
    // Versions before the fifth knew of no packs and recipes.
    let later = [(12, PACK), (13, RECIPE), (14, DRAFT)];
    let later = later.into_iter().filter(|_| version >= 5);
    for (number, content) in (1..).zip(objects).chain(later) {
        let path = directory.path().join("objects").join(key(number));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    // Versions before the sixth knew no other places.
    for (key, content) in ON_ONE.into_iter().filter(|_| version >= 6) {
        let path = directory.path().join("one/objects").join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    (directory, raw)
}

pub(super) fn dump(version: usize, engine: &str) -> String {
    let name = format!("tests/store/upgrade/{version:04}.{engine}.sql");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; each version of the schema has a dump, which make.py makes",
            path.display()
        )
    })
}

fn key(number: u8) -> String {
    let name = format!("{number:02x}").repeat(16);
    format!("{}/{name}", &name[..2])
}

/// Objects are files here, also where the other tests use a bucket.
pub(super) fn config_of(root: &Path) -> StoreConfig {
    let mut config = config(root);
    config.objects = ObjectsConfig::Directory;
    config.places = vec![PlaceConfig {
        name: "one".parse().unwrap(),
        root: Some(root.join("one")),
        objects: ObjectsConfig::Directory,
    }];
    config
}

pub(super) fn wide() -> Digest {
    Digest::of(Algorithm::Sha512, WIDE)
}

fn tag_at(text: &str, digest: &Digest, [created, updated, pulled]: [u64; 3]) -> TagRecord {
    let at = |seconds: u64| BEGIN + 1000 * seconds;
    TagRecord {
        name: tag(text),
        digest: digest.clone(),
        created: at(created),
        updated: at(updated),
        pulled: if pulled == 0 { 0 } else { at(pulled) },
    }
}

async fn tags(store: &Store, repository: &str) -> Vec<TagRecord> {
    let page = store.tags(&name(repository), 9, None).await.unwrap().unwrap();
    page.items
}

async fn manifest_of(store: &Store, repository: &str, text: &str) -> Manifest {
    let found = store.tagged_manifest(&name(repository), &tag(text)).await;
    let found = found.unwrap().unwrap();
    assert_eq!(digest(&found.content), found.digest);
    found
}

/// Reads everything that was written, by what the store offers.
pub(super) fn assert_readable(store: &Store, version: usize) {
    wait(async {
        let nginx = name("library/nginx");
        let listed = store.repositories(9, None).await.unwrap().items;
        assert_eq!(listed, [nginx.clone(), name("team/app")]);
        let image = manifest_of(store, "library/nginx", "1.29").await;
        let index = manifest_of(store, "library/nginx", "latest").await;
        let second = manifest_of(store, "team/app", "v1").await;
        let expected = [
            tag_at("1.29", &image.digest, [4, 4, 67]),
            tag_at("latest", &index.digest, [5, 5, 0]),
        ];
        assert_eq!(tags(store, "library/nginx").await, expected);
        let expected = [tag_at("v1", &second.digest, [66, 67, 0])];
        assert_eq!(tags(store, "team/app").await, expected);
        assert_eq!((image.created, image.pulled), (BEGIN + 4000, BEGIN + 67_000));
        assert_eq!(index.media_type, "application/vnd.oci.image.index.v1+json");
        let mut layers = store.references(&nginx, &image.digest).await.unwrap();
        layers.sort();
        let mut expected = vec![
            (ReferenceKind::Config, digest(CONFIG)),
            (ReferenceKind::Layer, digest(ONE)),
            (ReferenceKind::Layer, digest(TWO)),
            (ReferenceKind::Layer, wide()),
        ];
        expected.sort();
        assert_eq!(layers, expected);
        let mut children = store.references(&nginx, &index.digest).await.unwrap();
        children.sort();
        let mut expected = [&image, &second].map(|one| (ReferenceKind::Manifest, one.digest.clone()));
        expected.sort();
        assert_eq!(children, expected);
        assert_referrer(store, &nginx, &index.digest).await;
        assert_blobs(store, &nginx).await;
        assert_copies(store, version).await;
        assert_younger(store, &nginx, &second.digest, version).await;
    });
}

async fn assert_referrer(store: &Store, nginx: &RepositoryName, subject: &Digest) {
    let found = store.referrers(nginx, subject, None, 9, None).await.unwrap();
    let [signature] = found.items.as_slice() else {
        panic!("{found:?}");
    };
    let artifact_type = signature.artifact_type.as_deref();
    assert_eq!(artifact_type, Some("application/vnd.example.signature"));
    let note = "von Hand, “signed” — it's \\ \"this\"";
    let annotations = [("org.example.note", note), ("org.example.empty", "")];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(signature.annotations, annotations.into());
}

async fn assert_blobs(store: &Store, nginx: &RepositoryName) {
    let all = [(digest(CONFIG), CONFIG), (digest(ONE), ONE), (digest(TWO), TWO)];
    for (digest, bytes) in all.into_iter().chain([(wide(), WIDE)]) {
        let blob = store.peek_blob(nginx, &digest).await.unwrap().unwrap();
        assert_eq!(contents(store, &blob).await, bytes);
    }
    let damaged = store.peek_blob(nginx, &digest(DAMAGED)).await.unwrap();
    assert_eq!(damaged, None, "it is marked as damaged");
    let is_loose = store.peek_blob(&name("team/app"), &digest(LOOSE)).await.unwrap();
    assert!(is_loose.is_some());
    let condemned = store.any_blob(&digest(CONDEMNED)).await.unwrap();
    assert!(condemned.is_some());
    let begun = store.upload(&name("empty/one"), &upload()).await.unwrap();
    assert_eq!(begun, Some(BEGUN.len() as u64));
    let usage = store.usage("").await.unwrap();
    assert_eq!((usage.blobs, usage.manifests), (6, 4));
    assert_eq!(usage.uploads, 8 + (5 << 20) + 7);
}

pub(super) fn upload() -> UploadId {
    "1".repeat(32).parse().unwrap()
}

/// Copies on another place count, and the damaged ones do not.
async fn assert_copies(store: &Store, version: usize) {
    let spaces = store.place_space().await.unwrap();
    let found: Vec<_> = spaces
        .iter()
        .map(|space| (space.place.as_str(), space.replicas, space.damaged))
        .collect();
    let wanted = if version >= 6 {
        vec![("one", 2, 1)]
    } else {
        Vec::new()
    };
    assert_eq!(found, wanted);
    let one = store.standing(&digest(ONE)).await.unwrap().unwrap();
    let wanted = if version >= 6 {
        "intact@main intact@one"
    } else {
        ""
    };
    assert_eq!(
        (one.wanted.to_string().as_str(), one.seen),
        (wanted, if version >= 6 { 0 } else { 1 })
    );
    let held = Held::of_blob(&one.blob).unwrap();
    assert_eq!(
        store
            .placements(&held, &std::collections::BTreeSet::new())
            .await
            .unwrap()
            .len(),
        if version >= 6 { 2 } else { 1 }
    );
}

/// The facts that later schemas state of earlier records.
async fn assert_younger(store: &Store, nginx: &RepositoryName, second: &Digest, version: usize) {
    for held in store.holdings(nginx, 9, None).await.unwrap().items {
        // Versions before the third did not note whether a repository got a blob by a push.
        let is_copy = version >= 3 && held.digest == *second;
        assert_eq!(held.pushed, if is_copy { 0 } else { held.created });
    }
    let problems = store.indexing_problems(9).await.unwrap();
    let waiting = store.indexing_waits().await.unwrap();
    let outcome = store.layer_outcome(&digest(ONE)).await.unwrap();
    if version == 1 {
        assert_eq!((problems.len(), waiting, outcome), (0, 5, None));
        return;
    }
    let made = LayerOutcome::Made(r#"{"diff_id":"sha256:00"}"#.to_owned());
    assert_eq!((waiting, outcome), (3, Some(made)));
    let problem = IndexingProblem {
        repository: nginx.clone(),
        manifest: second.clone(),
        problem: "layer 1 is no tar file".to_owned(),
    };
    assert_eq!(problems, [problem]);
    let why = LayerOutcome::Problem("it is no tar file".to_owned());
    assert_eq!(store.layer_outcome(&digest(DAMAGED)).await.unwrap(), Some(why));
}

/// All that were ever released.
pub(super) fn versions() -> std::ops::RangeInclusive<usize> {
    1..=VERSIONS
}
