//! Stores for tests, and short ways to use them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::upgrade::raw::Raw;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use xebec_store::*;

/// Where a PostgreSQL is, if the tests are to use it: as libpq takes it, without a database.
pub(crate) const POSTGRES: &str = "XEBEC_STORE_TEST_POSTGRES";
/// Where an S3 server is, if the tests are to use it.
pub(crate) const S3: &str = "XEBEC_STORE_TEST_S3";
/// The directory in which that keeps its bucket.
pub(crate) const S3_DIRECTORY: &str = "XEBEC_STORE_TEST_S3_DIRECTORY";
pub(crate) const S3_KEY: &str = "xebec";
pub(crate) const S3_SECRET: &str = "for tests only";
pub(crate) const BUCKET: &str = "blobs";

/// A store of its own, gone with this.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) engine: &'static str,
    pub(crate) directory: TestDirectory,
}

/// The directory of a store. With it goes its database, of which each has three hundred files.
pub(crate) struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        Self(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // Of a test that fails, everything goes with the server.
        if !std::thread::panicking() {
            ask_server(self.path(), |name| {
                format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)")
            });
        }
    }
}

/// The engines that the environment names, over a directory, which gives the database and the prefix their names.
pub(crate) fn config(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    let name = root
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_start_matches('.');
    if let Ok(server) = std::env::var(POSTGRES) {
        let url = format!("{server} dbname='{name}'");
        config.database = DatabaseConfig::Postgres {
            url,
            tls: PostgresTls::default(),
        };
    }
    if let Ok(endpoint) = std::env::var(S3) {
        config.objects = ObjectsConfig::S3 {
            endpoint: Some(endpoint),
            public_endpoint: None,
            bucket: BUCKET.to_owned(),
            prefix: name.to_owned(),
            region: "us-east-1".to_owned(),
            access_key: Some(S3_KEY.to_owned()),
            secret_key: Some(S3_SECRET.to_owned()),
        };
    }
    config
}

/// Makes what `config` needs and a store does not make itself.
pub(crate) fn prepare(root: &Path) {
    ask_server(root, |name| format!("CREATE DATABASE \"{name}\""));
}

/// Asks the server of the databases, if there is one, for something about the database of this directory.
fn ask_server(root: &Path, sql: impl Fn(&str) -> String) {
    let Ok(server) = std::env::var(POSTGRES) else {
        return;
    };
    let name = root.file_name().unwrap().to_str().unwrap();
    let sql = sql(name.trim_start_matches('.'));
    // The client waits, which a task must not.
    let asking = std::thread::spawn(move || {
        let url = format!("{server} dbname=postgres");
        let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
        client.batch_execute(&sql).unwrap();
    });
    asking.join().unwrap();
}

pub(crate) fn engine() -> &'static str {
    match (
        std::env::var_os(POSTGRES).is_some(),
        std::env::var_os(S3).is_some(),
    ) {
        (false, false) => "SQLite and a directory",
        (true, false) => "PostgreSQL and a directory",
        (false, true) => "SQLite and S3",
        (true, true) => "PostgreSQL and S3",
    }
}

/// A store over the engines that the environment names.
pub(crate) async fn engines(change: impl Fn(&mut StoreConfig)) -> Vec<TestStore> {
    let directory = TestDirectory::new();
    let mut config = config(directory.path());
    change(&mut config);
    vec![TestStore {
        store: Store::open(&config).await.unwrap(),
        engine: engine(),
        directory,
    }]
}

pub(crate) fn no_grace(config: &mut StoreConfig) {
    config.grace = Duration::ZERO;
}

pub(crate) fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

pub(crate) fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, bytes)
}

pub(crate) fn body(
    pieces: &[&[u8]],
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + use<> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces)
}

pub(crate) async fn push(store: &Store, repository: &RepositoryName, bytes: &[u8]) -> Result<Blob> {
    let id = store.begin_upload(repository).await?;
    match store.append(repository, &id, None, body(&[bytes])).await {
        Ok(_) => {}
        Err(AppendError::Store(error)) => return Err(error),
        Err(error) => panic!("{error}"),
    }
    store.finish_upload(repository, &id, &digest(bytes)).await
}

pub(crate) async fn contents(store: &Store, blob: &Blob) -> Vec<u8> {
    range(store, blob, 0..blob.size).await
}

pub(crate) async fn range(store: &Store, blob: &Blob, range: std::ops::Range<u64>) -> Vec<u8> {
    let reader = store.read(blob, range).await.unwrap();
    let pieces: Vec<Bytes> = reader.map(|piece| piece.unwrap()).collect().await;
    pieces.concat()
}

pub(crate) fn layer(bytes: &[u8]) -> Reference {
    Reference {
        kind: ReferenceKind::Layer,
        digest: digest(bytes),
        required: true,
    }
}

pub(crate) fn child(manifest: &NewManifest) -> Reference {
    Reference {
        kind: ReferenceKind::Manifest,
        digest: manifest.digest.clone(),
        required: true,
    }
}

pub(crate) fn manifest(text: &str, references: Vec<Reference>) -> NewManifest {
    NewManifest {
        digest: digest(text.as_bytes()),
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        content: Bytes::copy_from_slice(text.as_bytes()),
        references,
        subject: None,
        artifact_type: None,
        annotations: BTreeMap::new(),
        immutable: Vec::new(),
        is_pushed: true,
    }
}

pub(crate) fn referring(text: &str, subject: &Digest, artifact_type: &str) -> NewManifest {
    NewManifest {
        subject: Some(subject.clone()),
        artifact_type: Some(artifact_type.to_owned()),
        annotations: [("org.example.made-by".to_owned(), text.to_owned())].into(),
        ..manifest(text, Vec::new())
    }
}

/// The key of the object of a blob that is intact.
pub(crate) fn key(blob: &Blob) -> &str {
    blob.object.as_deref().unwrap()
}

/// Where the object of that key is a file.
pub(crate) fn object(root: &Path, key: &str) -> PathBuf {
    objects(root).join(key)
}

fn objects(root: &Path) -> PathBuf {
    match std::env::var_os(S3_DIRECTORY) {
        Some(bucket) => {
            let name = root
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .trim_start_matches('.');
            Path::new(&bucket).join(BUCKET).join(name)
        }
        None => root.join("objects"),
    }
}

/// The files of objects that are there.
pub(crate) fn files(test: &TestStore) -> usize {
    files_below(&objects(test.directory.path()))
}

/// The files of objects of the bucket below a prefix.
pub(crate) fn files_of_prefix(prefix: &str) -> usize {
    let bucket = std::env::var_os(S3_DIRECTORY).unwrap();
    files_below(&Path::new(&bucket).join(BUCKET).join(prefix))
}

fn files_below(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let entries = entries
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => files_below(&entry.path()),
        false => 1,
    });
    counts.sum()
}

/// Waits until what is done in the background has left so many files: a minute, since servers of objects may have many clients.
pub(crate) async fn files_become(test: &TestStore, wanted: usize) {
    for _ in 0..6000 {
        if files(test) == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} files, {wanted} wanted", files(test));
}

/// Records that nothing needs and at which no collection would look.
const FORGOTTEN: [&str; 9] = [
    "SELECT repository, digest FROM repository_blobs WHERE unchecked = 0
     AND NOT EXISTS (SELECT 1 FROM manifest_references WHERE manifest_references.repository = repository_blobs.repository
         AND manifest_references.digest = repository_blobs.digest)",
    "SELECT digest FROM blobs WHERE unchecked = 0
     AND NOT EXISTS (SELECT 1 FROM repository_blobs WHERE repository_blobs.digest = blobs.digest)",
    "SELECT name FROM repositories WHERE unchecked = 0
     AND NOT EXISTS (SELECT 1 FROM manifests WHERE repository = id)
     AND NOT EXISTS (SELECT 1 FROM repository_blobs WHERE repository = id)
     AND NOT EXISTS (SELECT 1 FROM uploads WHERE repository = repositories.id)",
    "SELECT id FROM packs WHERE unchecked = 0
     AND (state <> 'present' OR NOT EXISTS (SELECT 1 FROM recipe_packs WHERE recipe_packs.pack = packs.id))",
    "SELECT digest FROM recipes WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.digest = recipes.digest)",
    // Nor is a blob without an object and a recipe, or a condemned pack that a recipe needs.
    "SELECT digest FROM blobs WHERE object LIKE 'none:%'
     AND NOT EXISTS (SELECT 1 FROM recipes WHERE recipes.digest = blobs.digest)
     UNION ALL SELECT recipe FROM recipe_packs JOIN packs ON packs.id = pack WHERE packs.state <> 'present'",
    // Each object has one record.
    "SELECT object FROM (SELECT object FROM blobs UNION ALL SELECT object FROM uploads UNION ALL SELECT object FROM drafts
         UNION ALL SELECT object FROM packs UNION ALL SELECT object FROM recipes UNION ALL SELECT object FROM garbage
         UNION ALL SELECT key FROM replicas) AS every
     GROUP BY object HAVING COUNT(*) > 1",
    // Each replica is of an object, on a place that the store uses.
    "SELECT key FROM replicas WHERE NOT EXISTS (SELECT 1 FROM (SELECT object FROM blobs UNION ALL SELECT object FROM packs
         UNION ALL SELECT object FROM recipes) AS every WHERE every.object = replicas.object)
     OR (place <> 'main' AND NOT EXISTS (SELECT 1 FROM places WHERE places.name = replicas.place))",
    // What is away has a replica.
    "SELECT object FROM (SELECT object FROM blobs UNION ALL SELECT object FROM packs UNION ALL SELECT object FROM recipes) AS every
     WHERE object LIKE 'away:%' AND NOT EXISTS (SELECT 1 FROM replicas WHERE replicas.object = every.object)",
];

/// Asserts that there is no record that all collections would pass over although nothing needs it.
pub(crate) fn assert_nothing_forgotten(root: &Path) {
    let root = root.to_owned();
    // The client waits, which a task must not.
    let looking = std::thread::spawn(move || {
        let mut raw = Raw::open(&root);
        for sql in FORGOTTEN {
            let found = raw.rows(sql);
            assert!(found.is_empty(), "no collection looks at {found:?}");
        }
    });
    looking.join().unwrap();
}

/// Deletes all manifests, and collects until nothing is left to do.
pub(crate) async fn collect_all(test: &TestStore) {
    assert_nothing_forgotten(test.directory.path());
    let store = &test.store;
    for repository in store.repositories(1000, None).await.unwrap().items {
        for found in store.manifests(&repository, 100_000, None).await.unwrap().items {
            store.delete_manifest(&repository, &found.digest).await.unwrap();
        }
    }
    // A test with a longer one leaves no upload.
    let upload_timeout = store.config().upload_timeout;
    let is_short = upload_timeout < Duration::from_secs(10);
    let pause = store
        .config()
        .grace
        .max(if is_short { upload_timeout } else { Duration::ZERO });
    for _ in 0..5 {
        tokio::time::sleep(pause + Duration::from_millis(3)).await;
        let collected = store.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!(collected.failed, 0);
    }
    assert_eq!(store.usage("").await.unwrap(), Usage::default());
}
