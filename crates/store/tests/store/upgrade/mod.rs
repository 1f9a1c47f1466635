//! Upgrades: a database of each earlier version of the schema is opened by this program. Every record is as it was, a migration counts
//! whole or not at all, and a later database is refused.

mod earlier;
pub(crate) mod raw;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use earlier::*;
use raw::Raw;
use xebec_store::*;

/// The migrations, and the digests of their files. One that was released is never changed: a database that has it would not get the change.
const MIGRATIONS: [(&str, &str); VERSIONS] = [
    (
        "0001.sql",
        "sha256:a31cfbebec7740b7a737592ebe00cbcaa67d625c89c7d1384b462933169e7c14",
    ),
    (
        "0002.sql",
        "sha256:6636399a351faf6d2134708b9cbb08f5b23668dfe2bb9baf17b5a50e8eb21eeb",
    ),
    (
        "0003.sql",
        "sha256:7f54563a1377831be024f3066dcbd412a935e8ca69c7ebda4e3087ce072cc51a",
    ),
    (
        "0004.sql",
        "sha256:fb8a32ce736ed480b5eb25f74f64c384c36a0d07bfcd0cb22ffdf100ab850839",
    ),
    (
        "0005.sql",
        "sha256:5839ab0ba92ec79c5ec6269500d1ed770877d9cc4d1af334c7a7f25e1edf4305",
    ),
    (
        "0006.sql",
        "sha256:6a3155011b1c4641c78dcd65c3f629f1609455a0ceefabbb00241e7773dedfd9",
    ),
];
const VERSIONS: usize = 6;
const CHILD: &str = "XEBEC_STORE_TEST_UPGRADE";

/// Runs what the store does. A connection past it must not wait in there.
fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

/// The same for one store, which is closed after it.
fn with_store(config: &StoreConfig, work: impl AsyncFnOnce(Store)) {
    wait(async { work(Store::open(config).await.unwrap()).await });
}

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/migrations");
    std::fs::read_to_string(path.join(name)).unwrap()
}

#[test]
fn no_migration_is_changed_and_each_has_a_dump() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/migrations");
    let mut found: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let known = MIGRATIONS.map(|(name, _)| name);
    assert_eq!(found, known, "add the new one here, and a dump of its schema");
    for (name, wanted) in MIGRATIONS {
        let digest = digest(file(name).as_bytes()).to_string();
        assert_eq!(
            digest, wanted,
            "{name} has changed: add another migration instead"
        );
    }
    for version in versions() {
        for engine in ["sqlite", "postgres"] {
            let dump = dump(version, engine);
            let made = format!("-- Made by make.py {version} {engine};");
            assert!(dump.starts_with(&made), "{version}, {engine}");
            let last = format!(
                "schema_versions{} VALUES",
                if engine == "sqlite" { "\"" } else { "" }
            );
            assert_eq!(dump.matches(&last).count(), version, "{version}, {engine}");
        }
    }
}

/// A dump has the schema that its migrations make, and no table in it is empty.
#[test]
fn a_dump_is_what_its_migrations_make() {
    for version in versions() {
        let mut dumped = Raw::sqlite();
        dumped.run(&dump(version, "sqlite"));
        let mut made = Raw::sqlite();
        made.run("CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY)");
        MIGRATIONS[..version]
            .iter()
            .for_each(|(name, _)| made.run(&file(name)));
        assert_eq!(dumped.schema(), made.schema(), "{version}");
        for (table, (_, rows)) in dumped.contents() {
            assert!(!rows.is_empty(), "{version}: nothing is in {table}");
        }
    }
}

#[test]
fn records_of_every_earlier_schema_are_as_they_were() {
    let fresh = tempfile::tempdir().unwrap();
    prepare(fresh.path());
    with_store(&config_of(fresh.path()), async |_| ());
    let wanted = Raw::open(fresh.path()).schema();
    for version in versions() {
        let (directory, mut raw) = left_by(version);
        let mut before = raw.contents();
        before.remove("schema_versions");
        drop(raw);
        let store = wait(Store::open(&config_of(directory.path()))).unwrap();
        let mut raw = Raw::open(directory.path());
        assert_eq!(raw.contents_of(&before), before, "{version}");
        assert_eq!(raw.schema(), wanted, "{version}: not as in a new store");
        assert_readable(&store, version);
        assert_eq!(raw.contents_of(&before), before, "{version}: reading wrote");
    }
}

#[test]
fn pushes_pulls_and_collections_go_on_after_an_upgrade() {
    for version in versions() {
        let (directory, raw) = left_by(version);
        drop(raw);
        let mut config = config_of(directory.path());
        config.grace = Duration::ZERO;
        with_store(&config, async |store| {
            go_on(&store).await;
            collect_what_is_left(&store).await;
        });
        let mut raw = Raw::open(directory.path());
        let left = raw.rows("SELECT object FROM garbage UNION ALL SELECT object FROM uploads");
        assert!(left.is_empty(), "{version}: {left:?}");
    }
}

/// An upload that was under way ends, a damaged blob is mended, and an image comes that has blobs from before.
async fn go_on(store: &Store) {
    let (app, begun) = (name("team/app"), name("empty/one"));
    let whole = [BEGUN, b" and ended"].concat();
    let rest = body(&[b" and ended"]);
    store.append(&begun, &upload(), Some(8), rest).await.unwrap();
    let blob = store.finish_upload(&begun, &upload(), &digest(&whole)).await;
    assert_eq!(contents(store, &blob.unwrap()).await, whole);
    push(store, &app, DAMAGED).await.unwrap();
    push(store, &app, b"new").await.unwrap();
    let nginx = name("library/nginx");
    let mounted = store.mount(&app, &digest(ONE), Some(&nginx)).await.unwrap();
    assert!(mounted.is_some());
    let layers = vec![layer(b"new"), layer(ONE), layer(DAMAGED)];
    let new = manifest("new", layers);
    store.put_manifest(&app, &new, &[tag("v2")]).await.unwrap();
    let found = store.tagged_manifest(&app, &tag("v2")).await.unwrap();
    assert_eq!(found.unwrap().content, new.content);
}

/// The loose blobs and manifests go, and nothing else.
async fn collect_what_is_left(store: &Store) {
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let collected = store.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!(collected.failed, 0);
    }
    for bytes in [LOOSE, CONDEMNED, b"begun so and ended"] {
        assert_eq!(store.any_blob(&digest(bytes)).await.unwrap(), None);
    }
    let nginx = name("library/nginx");
    let kept = [CONFIG, ONE, TWO, DAMAGED].map(|bytes| (digest(bytes), bytes));
    for (digest, bytes) in kept.into_iter().chain([(wide(), WIDE)]) {
        let blob = store.peek_blob(&nginx, &digest).await.unwrap().unwrap();
        assert_eq!(contents(store, &blob).await, bytes);
    }
    let listed = store.repositories(9, None).await.unwrap().items;
    assert_eq!(listed, [nginx, name("team/app")]);
}

/// Puts an obstacle before a migration: here before the last thing that it does.
fn put_obstacle(raw: &mut Raw, version: usize) {
    let sql = match raw {
        Raw::Sqlite(_) => format!(
            "CREATE TRIGGER obstacle BEFORE INSERT ON schema_versions WHEN NEW.version = {version}
             BEGIN SELECT RAISE(ABORT, 'an obstacle'); END"
        ),
        Raw::Postgres(_) => {
            format!("ALTER TABLE schema_versions ADD CONSTRAINT obstacle CHECK (version <> {version})")
        }
    };
    raw.run(&sql);
}

fn remove_obstacle(raw: &mut Raw) {
    let sql = match raw {
        Raw::Sqlite(_) => "DROP TRIGGER obstacle",
        Raw::Postgres(_) => "ALTER TABLE schema_versions DROP CONSTRAINT obstacle",
    };
    raw.run(sql);
}

#[test]
fn a_migration_that_fails_leaves_the_old_version_whole_and_the_next_start_finishes_it() {
    for version in versions() {
        for fails in version + 1..=VERSIONS {
            let (directory, mut raw) = left_by(version);
            let (before, schema) = (raw.contents(), raw.schema());
            put_obstacle(&mut raw, fails);
            let failed = wait(Store::open(&config_of(directory.path())));
            let said = failed.err().expect("there is an obstacle").to_string();
            assert!(said.contains("bring the schema up to date"), "{said}");
            assert!(said.contains("obstacle"), "{said}");
            remove_obstacle(&mut raw);
            assert_eq!(raw.contents(), before, "{version}, {fails}");
            assert_eq!(raw.schema(), schema, "{version}, {fails}");
            let store = wait(Store::open(&config_of(directory.path()))).unwrap();
            assert_readable(&store, version);
        }
    }
}

#[test]
fn child() {
    if let Some(root) = std::env::var_os(CHILD) {
        let _ = wait(Store::open(&config_of(std::path::Path::new(&root))));
    }
}

/// Has a process that migrates stop at the last thing of the last migration, and wait there until this is dropped.
fn hold(raw: &mut Raw, root: &std::path::Path) -> Option<Raw> {
    match raw {
        Raw::Sqlite(_) => {
            raw.run(&format!(
                "CREATE VIEW endless AS WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted)
                 SELECT COUNT(*) AS n FROM counted;
                 CREATE TRIGGER obstacle BEFORE INSERT ON schema_versions WHEN NEW.version = {VERSIONS}
                 BEGIN SELECT n FROM endless; END"
            ));
            None
        }
        Raw::Postgres(_) => {
            let mut other = Raw::open(root);
            other.run(&format!("BEGIN; INSERT INTO schema_versions VALUES ({VERSIONS})"));
            Some(other)
        }
    }
}

/// Whether somebody is in the middle of it.
fn is_held(raw: &mut Raw) -> bool {
    match raw {
        Raw::Sqlite(connection) => {
            connection.busy_timeout(Duration::ZERO).unwrap();
            let begun = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
            begun.is_err()
        }
        Raw::Postgres(_) => {
            let waiting = "SELECT pid FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            !raw.rows(waiting).is_empty()
        }
    }
}

#[test]
fn a_migration_that_is_killed_leaves_the_old_version_whole_and_the_next_start_finishes_it() {
    for version in 1..VERSIONS {
        let (directory, mut raw) = left_by(version);
        let (before, schema) = (raw.contents(), raw.schema());
        let held = hold(&mut raw, directory.path());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "upgrade::child"])
            .env(CHILD, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !is_held(&mut raw) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody migrates");
            std::thread::sleep(Duration::from_millis(5));
        }
        // To the obstacle it has a few statements left.
        std::thread::sleep(Duration::from_millis(100));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(held);
        if matches!(raw, Raw::Sqlite(_)) {
            raw.run("DROP TRIGGER obstacle; DROP VIEW endless");
        }
        assert_eq!(raw.contents(), before, "{version}");
        assert_eq!(raw.schema(), schema, "{version}");
        let store = wait(Store::open(&config_of(directory.path()))).unwrap();
        assert_readable(&store, version);
    }
}

#[test]
fn nodes_that_start_together_migrate_once() {
    let (directory, raw) = left_by(1);
    drop(raw);
    let config = config_of(directory.path());
    wait(async {
        let openings: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn({
                    let config = config.clone();
                    async move { Store::open(&config).await }
                })
            })
            .collect();
        for opening in openings {
            opening.await.unwrap().unwrap();
        }
    });
    let applied = Raw::open(directory.path()).rows("SELECT version FROM schema_versions");
    assert_eq!(applied.len(), VERSIONS);
}

/// Backups are of embedded records, without what is under way.
#[test]
fn a_backup_of_every_earlier_program_is_restored() {
    if std::env::var_os(POSTGRES).is_some() {
        return;
    }
    for version in versions() {
        let (backup, mut raw) = left_by(version);
        raw.run("DELETE FROM uploads; DELETE FROM garbage");
        drop(raw);
        let to = tempfile::tempdir().unwrap();
        let restored = wait(Store::restore(to.path(), backup.path(), |_| ())).unwrap();
        assert_eq!((restored.blobs, restored.manifests), (7, 4), "{version}");
        with_store(&config_of(to.path()), async |store| {
            let nginx = name("library/nginx");
            let blob = store.peek_blob(&nginx, &wide()).await.unwrap().unwrap();
            assert_eq!(contents(&store, &blob).await, WIDE);
            let listed = store.repositories(9, None).await.unwrap().items;
            assert_eq!(listed, [nginx, name("team/app")]);
        });
    }
}

/// A program that knows the third schema notes nowhere that what it deletes is to be looked at.
#[test]
fn what_an_older_program_deletes_beside_this_one_goes_after_a_scrub() {
    let (directory, mut raw) = left_by(VERSIONS);
    let mut config = config_of(directory.path());
    config.grace = Duration::ZERO;
    let store = wait(Store::open(&config)).unwrap();
    let collect = || {
        wait(async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_millis(3)).await;
                store.collect(&CollectOptions::default()).await.unwrap();
            }
        });
    };
    let is_here = || wait(store.any_blob(&digest(TWO))).unwrap().is_some();
    collect();
    let image = wait(store.tagged_manifest(&name("library/nginx"), &tag("1.29")));
    let image = image.unwrap().unwrap().digest;
    raw.run(&format!(
        "DELETE FROM tags WHERE digest = '{image}'; DELETE FROM manifest_references WHERE manifest = '{image}';
         DELETE FROM manifests WHERE digest = '{image}'"
    ));
    collect();
    assert!(is_here(), "nobody has looked at it");
    wait(store.scrub(&ScrubOptions::default(), |_| ())).unwrap();
    collect();
    assert!(!is_here());
}

#[test]
fn a_database_of_a_later_program_is_refused_and_stays_as_it_is() {
    let (directory, mut raw) = left_by(VERSIONS);
    let later = VERSIONS + 1;
    raw.run(&format!(
        "INSERT INTO schema_versions VALUES ({later});
         CREATE TABLE added (name TEXT); INSERT INTO added VALUES ('not lost');
         ALTER TABLE tags ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'"
    ));
    let (before, schema) = (raw.contents(), raw.schema());
    let refused = wait(Store::open(&config_of(directory.path())));
    let said = refused.err().expect("it is a later one").to_string();
    let wanted = format!(
        "the database has schema {later}, and this program knows {VERSIONS}: use the program that wrote it, or a later one"
    );
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(raw.contents(), before);
    assert_eq!(raw.schema(), schema);
}
