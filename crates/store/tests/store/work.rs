//! How much PostgreSQL reads for a collection, in rows: as much as has changed, however much there is. For SQLite, a test beside the
//! collection counts more exactly.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use crate::upgrade::raw::Raw;
use xebec_store::*;

/// Of an image with three layers, five images a repository, by the database itself: thousands of pushes would take too long.
const FILL: &str = "
    INSERT INTO repositories (id, name, created) SELECT n, 'many/of-' || n, 1 FROM generate_series(1, $IMAGES / 5) n;
    INSERT INTO blobs (digest, size, object, state, changed)
        SELECT 'sha256:' || encode(sha256(('layer ' || n)::bytea), 'hex'), 1, 'no/' || n, 'present', 1
        FROM generate_series(0, $IMAGES * 3 - 1) n;
    INSERT INTO repository_blobs (repository, digest, added)
        SELECT n / 15 + 1, 'sha256:' || encode(sha256(('layer ' || n)::bytea), 'hex'), 1 FROM generate_series(0, $IMAGES * 3 - 1) n;
    INSERT INTO manifest_contents (digest, content)
        SELECT 'sha256:' || encode(sha256(('image ' || n)::bytea), 'hex'), ('image ' || n)::bytea FROM generate_series(0, $IMAGES - 1) n;
    INSERT INTO manifests (repository, digest, media_type, annotations, size, created, pulled)
        SELECT n / 5 + 1, 'sha256:' || encode(sha256(('image ' || n)::bytea), 'hex'), 'x', '{}', 1, 1, 0
        FROM generate_series(0, $IMAGES - 1) n;
    INSERT INTO manifest_references (repository, manifest, kind, digest)
        SELECT n / 15 + 1, 'sha256:' || encode(sha256(('image ' || n / 3)::bytea), 'hex'), 'layer',
        'sha256:' || encode(sha256(('layer ' || n)::bytea), 'hex') FROM generate_series(0, $IMAGES * 3 - 1) n;
";
const CHANGED: u64 = 20;

fn with_store(root: &Path, work: impl AsyncFnOnce(Store)) {
    let mut config = config(root);
    no_grace(&mut config);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { work(Store::open(&config).await.unwrap()).await });
    drop(runtime);
    // The server tells others how much a connection has read when that connection has ended.
    let mut raw = Raw::open(root);
    let others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
        AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    while !raw.rows(others).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Rows that were read so far, by any process.
fn read(root: &Path) -> u64 {
    let sql = "SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables
        WHERE relname <> 'schema_versions'";
    let rows = Raw::open(root).rows(sql);
    rows[0][0].parse().unwrap()
}

async fn collect(store: &Store) -> Collected {
    tokio::time::sleep(Duration::from_millis(3)).await;
    store.collect(&CollectOptions::default()).await.unwrap()
}

/// The rows that a collection reads when nothing has changed, and those that collections read until some images are gone.
fn reads(images: u64) -> (u64, u64) {
    let directory = TestDirectory::new();
    let root = directory.path();
    with_store(root, async |_| ());
    let mut raw = Raw::open(root);
    raw.run(&FILL.replace("$IMAGES", &images.to_string()));
    drop(raw);
    with_store(root, async |store| {
        assert_eq!(collect(&store).await, Collected::default());
    });
    // As the server does by itself in time.
    Raw::open(root).run("VACUUM ANALYZE");
    let before = read(root);
    with_store(root, async |store| {
        assert_eq!(collect(&store).await, Collected::default());
    });
    let idle = read(root) - before;
    with_store(root, async |store| {
        for number in 0..CHANGED {
            let image = number * images / CHANGED;
            let image_digest = digest(format!("image {image}").as_bytes());
            let repository = name(&format!("many/of-{}", image / 5 + 1));
            let deleted = store.delete_manifest(&repository, &image_digest);
            assert!(deleted.await.unwrap());
        }
    });
    let before = read(root);
    with_store(root, async |store| {
        let mut deleted = 0;
        for _ in 0..4 {
            deleted += collect(&store).await.deleted;
        }
        assert_eq!(deleted, CHANGED * 3);
    });
    (idle, read(root) - before)
}

#[test]
fn a_collection_reads_as_many_rows_as_have_changed_however_many_there_are() {
    if std::env::var_os(POSTGRES).is_none() {
        return;
    }
    let (few, changed_of_few) = reads(500);
    let (many, changed_of_many) = reads(5000);
    assert!(many <= few + 100, "{few} rows, and {many} of the large store");
    assert!(
        changed_of_many <= changed_of_few * 3 / 2 + 100,
        "{changed_of_few} rows, and {changed_of_many} of the large store"
    );
}
