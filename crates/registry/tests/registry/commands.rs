//! The program's commands beside `serve`, as an operator runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use xebec_store::{
    Algorithm, Blob, Digest, NewManifest, NewPack, NewRecipe, Recording, Reference, ReferenceKind,
    RepositoryName, Store, StoreConfig,
};
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::running::Running;

/// The program with these arguments, and nothing of the environment that it would read.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xebec-registry"));
    for name in ["CONFIG", "ROOT", "LISTEN"] {
        command.env_remove(format!("XEBEC_REGISTRY_{name}"));
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The standard output of the program with these arguments, and its exit code.
pub(crate) async fn run(arguments: &[&str]) -> (String, i32) {
    let mut command = program(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    said(&output.await.unwrap())
}

fn said(output: &Output) -> (String, i32) {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code().unwrap_or(-1);
    if code == 1 {
        text.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    (text, code)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) async fn blob(store: &Store, repository: &RepositoryName, bytes: &[u8]) -> Blob {
    let id = store.begin_upload(repository).await.unwrap();
    let body = futures_util::stream::iter([Ok(bytes::Bytes::copy_from_slice(bytes))]);
    store.append(repository, &id, None, body).await.unwrap();
    let digest = Digest::of(Algorithm::Sha256, bytes);
    store.finish_upload(repository, &id, &digest).await.unwrap()
}

fn object(root: &Path, blob: &Blob) -> PathBuf {
    root.join("objects").join(blob.object.as_ref().unwrap())
}

/// Other bytes where an object is, without changing what is linked to it.
fn damage(path: &Path) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, b"wr0ng").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_names_what_is_damaged_and_a_push_mends_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    let name: RepositoryName = "team/app".parse().unwrap();
    let wrong = blob(&store, &name, b"right").await;
    let lost = blob(&store, &name, b"lost").await;
    blob(&store, &name, b"sound").await;
    let scrub = ["scrub", "--json", "--root", text(&root)];
    let (clean, code) = run(&scrub).await;
    assert_eq!((code, json(&clean)["blobs"].as_u64()), (0, Some(3)), "{clean}");
    damage(&object(&root, &wrong));
    std::fs::remove_file(object(&root, &lost)).unwrap();
    let (found, code) = run(&scrub).await;
    assert_eq!(code, 3, "{found}");
    let found = json(&found);
    let digests = [&found["damaged"][0]["digest"], &found["damaged"][1]["digest"]];
    assert_eq!(digests, [&wrong.digest.to_string(), &lost.digest.to_string()]);
    assert_eq!(
        (&found["damaged"][0]["missing"], &found["damaged"][1]["missing"]),
        (&false.into(), &true.into())
    );
    let (report, code) = run(&["scrub", "--rate", "1g", "--root", text(&root)]).await;
    assert_eq!(code, 3);
    assert!(
        report.contains(&format!("{}  has wrong bytes", wrong.digest)),
        "{report}"
    );
    assert!(
        report.contains("push an image that has it to team/app again"),
        "{report}"
    );
    blob(&store, &name, b"right").await;
    blob(&store, &name, b"lost").await;
    let (report, code) = run(&["scrub", "--root", text(&root)]).await;
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("nothing is wrong"), "{report}");
    let (error, code) = run(&["scrub", "--rate", "much", "--root", text(&root)]).await;
    assert_eq!(code, 2, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_fetches_again_what_came_from_an_upstream() {
    let upstream = FaultyRegistry::start().unwrap();
    upstream.put_blob("app", b"right".to_vec());
    let directory = tempfile::tempdir().unwrap();
    let (root, config) = (directory.path().join("root"), directory.path().join("r.toml"));
    let settings = format!(
        "[storage]\nroot = {root:?}\n[[upstream]]\nprefix = \"hub\"\nregistry = \"{}\"\nplain_http = true\npatience = \"2s\"\n",
        upstream.host()
    );
    std::fs::write(&config, settings).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    let mut settings = UpstreamSettings::new("hub", &upstream.host());
    settings.plain_http = true;
    let upstreams = Upstreams::new(&[settings], &store, &Arc::new(Notify::new()), |_| None).unwrap();
    let name: RepositoryName = "hub/app".parse().unwrap();
    let digest = Digest::of(Algorithm::Sha256, b"right");
    let blob = upstreams.of(&name).unwrap().bring(&name, &digest).await.unwrap();
    damage(&object(&root, &blob));
    upstream.set_down(true);
    let (report, code) = run(&["scrub", "--config", text(&config)]).await;
    assert_eq!(code, 3, "{report}");
    assert!(report.contains("its upstream did not give it again"), "{report}");
    upstream.set_down(false);
    let (report, code) = run(&["scrub", "--config", text(&config), "--no-mend"]).await;
    assert_eq!(code, 3, "{report}");
    let (report, code) = run(&["scrub", "--config", text(&config)]).await;
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("has given it again"), "{report}");
    let mended = store.peek_blob(&name, &digest).await.unwrap().unwrap();
    assert_eq!(std::fs::read(object(&root, &mended)).unwrap(), b"right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_taken_while_the_registry_serves_and_restored_whole() {
    let registry = Running::start().await;
    registry.push_image("team/app", "v1", b"layer").await;
    let directory = tempfile::tempdir().unwrap();
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    let root = registry.registry.store.config().root.clone();
    let take = ["backup", text(&backup), "--json", "--root", text(&root)];
    let (report, code) = run(&take).await;
    assert_eq!((code, json(&report)["blobs"].as_u64()), (0, Some(2)), "{report}");
    registry.push_image("team/app", "v2", b"another").await;
    let (report, code) = run(&take).await;
    let report = json(&report);
    assert_eq!(
        (code, report["blobs"].as_u64(), report["kept"].as_u64()),
        (0, Some(3), Some(2))
    );
    let restore = ["restore", text(&backup), "--root", text(&restored)];
    let (report, code) = run(&restore).await;
    assert_eq!(code, 0, "{report}");
    assert!(
        report.contains("1 repositories, 2 manifests, 3 blobs"),
        "{report}"
    );
    assert_eq!(run(&["scrub", "--root", text(&restored)]).await.1, 0);
    let (error, code) = run(&restore).await;
    assert_eq!(code, 1);
    assert!(error.contains("is not empty"), "{error}");
    let (error, code) = run(&["backup", text(&root), "--root", text(&root)]).await;
    assert_eq!(code, 1);
    assert!(error.contains("belongs to this store itself"), "{error}");
    let (error, code) = run(&["restore", text(directory.path()), "--root", text(&root)]).await;
    assert_eq!(code, 1);
    assert!(error.contains("has no backup"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_named_and_not_restored() {
    let directory = tempfile::tempdir().unwrap();
    let [root, backup, restored] = ["root", "backup", "restored"].map(|name| directory.path().join(name));
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    let name: RepositoryName = "a".parse().unwrap();
    let wrong = blob(&store, &name, b"right").await;
    let mut image = manifest("{}");
    image.references.push(Reference {
        kind: ReferenceKind::Layer,
        digest: wrong.digest.clone(),
        required: true,
    });
    store
        .put_manifest(&name, &image, &["v1".parse().unwrap()])
        .await
        .unwrap();
    assert_eq!(run(&["backup", text(&backup), "--root", text(&root)]).await.1, 0);
    let path = object(&backup, &wrong);
    damage(&path);
    let (report, code) = run(&["restore", text(&backup), "--root", text(&restored), "--json"]).await;
    assert_eq!(code, 3, "{report}");
    assert_eq!(json(&report)["damaged"][0], wrong.digest.to_string());
    assert!(!restored.join("records.db").exists());
    let rest = directory.path().join("rest");
    let without = [
        "restore",
        text(&backup),
        "--without-damaged",
        "--root",
        text(&rest),
    ];
    let (report, code) = run(&without).await;
    assert_eq!(code, 3, "{report}");
    for words in [
        &wrong.digest.to_string(),
        "has wrong bytes",
        "a@sha256:",
        "(v1)",
        "1 more are damaged",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let (report, code) = run(&["scrub", "--root", text(&rest)]).await;
    assert!(
        code == 3 && report.contains(&wrong.digest.to_string()),
        "{report}"
    );
    std::fs::remove_dir_all(&rest).unwrap();
    let (report, code) = run(&[&without[..], &["--json"]].concat()).await;
    let report = json(&report);
    assert_eq!((code, report["restored"].as_bool()), (3, Some(true)));
    assert_eq!(report["damaged"][0], wrong.digest.to_string());
    assert_eq!(report["left_out"][0]["named_by"][0]["tags"][0], "v1");
    // The object from elsewhere makes it whole, and the same command goes on.
    std::fs::copy(object(&root, &wrong), &path).unwrap();
    let (report, code) = run(&["restore", text(&backup), "--root", text(&restored)]).await;
    assert_eq!(code, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_killed_is_restored_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    let name: RepositoryName = "a".parse().unwrap();
    for number in 0..200_u32 {
        blob(&store, &name, &number.to_le_bytes()).await;
    }
    let mut broken_off = 0;
    for nth in 0..12_u64 {
        let backup = directory.path().join(format!("backup{nth}"));
        let mut child = program(&["backup", text(&backup), "--root", text(&root)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(15 * nth)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let restored = directory.path().join(format!("restored{nth}"));
        let restore = ["restore", text(&backup), "--root", text(&restored), "--json"];
        let (report, code) = run(&restore).await;
        match code {
            0 => assert_eq!(json(&report)["blobs"], 200),
            1 => {
                assert!(
                    report.contains("broken off") || report.contains("has no backup"),
                    "{report}"
                );
                broken_off += 1;
                assert_eq!(run(&["backup", text(&backup), "--root", text(&root)]).await.1, 0);
                let (report, code) = run(&restore).await;
                assert_eq!((code, json(&report)["blobs"].as_u64()), (0, Some(200)));
            }
            _ => panic!("{report}"),
        }
    }
    assert!(broken_off > 0, "no backup was killed in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_on_a_full_disk_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (root, small) = (directory.path().join("root"), directory.path().join("small"));
    std::fs::create_dir(&small).unwrap();
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    blob(&store, &"a".parse().unwrap(), &vec![7; 4 << 20]).await;
    let script = "mount -t tmpfs -o size=1m small \"$1\" || exit 77; exec \"$0\" backup \"$1\" --root \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]);
    command
        .arg(env!("CARGO_BIN_EXE_xebec-registry"))
        .arg(&small)
        .arg(&root);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap();
    // unshare(1) ends with 1, too, if it may not.
    let has_begun = |output: &Output| {
        matches!(output.status.code(), Some(0 | 1 | 3)) && !output.stderr.starts_with(b"unshare")
    };
    let Some(output) = output.ok().filter(has_begun) else {
        eprintln!("SKIPPED: a file system of its own needs root, unshare(1) and mount(8)");
        return;
    };
    let (error, code) = said(&output);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("No space left"), "{error}");
}

/// A manifest that says what it is.
fn manifest(content: &str) -> NewManifest {
    NewManifest {
        digest: Digest::of(Algorithm::Sha256, content.as_bytes()),
        media_type: crate::running::OCI_MANIFEST.to_owned(),
        content: content.to_owned().into(),
        references: Vec::new(),
        subject: None,
        artifact_type: None,
        annotations: std::collections::BTreeMap::new(),
        immutable: Vec::new(),
        is_pushed: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_manifest_is_named_and_mended_by_a_push() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let name: RepositoryName = "a".parse().unwrap();
    let new = manifest("{\"a manifest\": 1}");
    let config = StoreConfig::new(&root);
    let store = Store::open(&config).await.unwrap();
    store.put_manifest(&name, &new, &[]).await.unwrap();
    // Closed, the records are in one file.
    drop(store);
    let path = root.join("records.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let wanted = b"{\"a manifest\": 1}";
    let at = bytes
        .windows(wanted.len())
        .position(|found| found == wanted)
        .unwrap();
    bytes[at + wanted.len() - 2] = b'2';
    std::fs::write(&path, bytes).unwrap();
    let (report, code) = run(&["scrub", "--root", text(&root)]).await;
    assert_eq!(code, 3, "{report}");
    assert!(
        report.contains(&format!("{}  is a manifest", new.digest)),
        "{report}"
    );
    let store = Store::open(&config).await.unwrap();
    store.put_manifest(&name, &new, &[]).await.unwrap();
    assert_eq!(run(&["scrub", "--root", text(&root)]).await.1, 0);
}

/// No blob is damaged by it, and yet the disk has lost bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_says_that_a_pack_is_damaged_whose_blob_is_intact() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let store = Store::open(&StoreConfig::new(&root)).await.unwrap();
    let blob = blob(&store, &"team/app".parse().unwrap(), b"intact").await;
    let pack = store.put_draft(vec!["pack".into()]).await.unwrap();
    let recipe = NewRecipe {
        blob,
        recipe: store.put_draft(vec!["recipe".into()]).await.unwrap(),
        checksum: Digest::of(Algorithm::Sha256, b"recipe"),
        plain: 6,
        packs: vec![NewPack {
            draft: pack.clone(),
            checksum: Digest::of(Algorithm::Sha256, b"pack"),
            plain: 6,
            chunks: vec![[1; 32]],
        }],
        uses: Vec::new(),
        form: None,
    };
    let recorded = store.record_recipe(&recipe).await.unwrap();
    assert!(matches!(recorded, Recording::Recorded(_)), "{recorded:?}");
    let (report, code) = run(&["scrub", "--root", text(&root)]).await;
    assert_eq!(code, 0, "{report}");
    damage(&root.join("objects").join(&pack.object));
    let (report, code) = run(&["scrub", "--root", text(&root)]).await;
    assert_eq!(code, 3, "{report}");
    assert!(report.contains("1 packs or recipes have wrong bytes"), "{report}");
    assert!(report.contains("1 are not as they should be"), "{report}");
}
