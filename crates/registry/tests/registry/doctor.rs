//! `xebec-registry doctor`: each thing that is broken has its line, with the cause and the next step.

use std::path::Path;

use serde_json::Value;
use xebec_registry_server::config::Config;
use xebec_store::{Held, Store, StoreConfig};
use xebec_testkit::registry::FaultyRegistry;
use xebec_testkit::servers;

use crate::commands::{blob, run};

/// The findings of `doctor` for a configuration, each with its thing, its state and its text; and the exit code.
async fn examine(directory: &Path, text: &str) -> (Vec<(String, String, String)>, i32) {
    let file = directory.join("r.toml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let (said, code) = run(&["doctor", "--json", "--patience", "5s", "--config", file]).await;
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(said["well"], code == 0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = said["checks"].as_array().unwrap().iter();
    let checks = checks.map(|check| (text(&check["what"]), text(&check["state"]), text(&check["said"])));
    (checks.collect(), code)
}

fn of<'a>(checks: &'a [(String, String, String)], what: &str) -> (&'a str, &'a str) {
    let found = checks.iter().find(|check| check.0.starts_with(what));
    let (_, state, said) = found.unwrap_or_else(|| panic!("nothing of {what}: {checks:?}"));
    (state, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_is_said_to_work() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let text = format!("[server]\nlisten = [\"127.0.0.1:0\"]\n[storage]\nroot = {root:?}\n");
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!(code, 0, "{checks:?}");
    assert_eq!(of(&checks, "directory").0, "note", "it is not there yet");
    assert!(!root.exists(), "the doctor makes nothing");
    drop(Store::open(&StoreConfig::new(&root)).await.unwrap());
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!(code, 0, "{checks:?}");
    for what in [
        "configuration",
        "directory",
        "clock",
        "database",
        "objects",
        "address",
    ] {
        assert_eq!(of(&checks, what).0, "ok", "{checks:?}");
    }
    let (said, code) = run(&["doctor", "--root", root.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("ok      database records.db: it answers"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_thing_that_is_broken_is_named_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let (checks, code) = examine(directory.path(), "[server]\nlisten = 1").await;
    assert_eq!((code, of(&checks, "configuration").0), (1, "broken"));
    assert!(of(&checks, "configuration").1.contains("r.toml:2:"), "{checks:?}");

    let root = directory.path().join("root");
    std::fs::write(&root, b"a file").unwrap();
    let storage = format!("[storage]\nroot = {root:?}\n");
    let (checks, code) = examine(directory.path(), &storage).await;
    assert_eq!((code, of(&checks, "directory").0), (1, "broken"), "{checks:?}");
    std::fs::remove_file(&root).unwrap();

    drop(Store::open(&StoreConfig::new(&root)).await.unwrap());
    let upstream = FaultyRegistry::start().unwrap();
    let text = format!(
        "{storage}[[upstream]]\nprefix = \"hub\"\nregistry = \"{}\"\npatience = \"1s\"\n",
        upstream.host()
    );
    assert_eq!(of(&examine(directory.path(), &text).await.0, "upstream").0, "ok");
    upstream.set_down(true);
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "upstream").0), (1, "broken"), "{checks:?}");
    assert!(
        of(&checks, "upstream").1.contains("only what is here already"),
        "{checks:?}"
    );

    let text = format!(
        "{storage}[auth.token_service]\nrealm = \"https://a.example/token\"\nservice = \"r\"\nissuer = \"a.example\"\nkeys = {{ file = {:?} }}\n",
        directory.path().join("absent.json")
    );
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!(
        (code, of(&checks, "keys of a.example").0),
        (1, "broken"),
        "{checks:?}"
    );

    std::fs::write(root.join("records.db"), b"no database").unwrap();
    let (checks, code) = examine(directory.path(), &storage).await;
    assert_eq!((code, of(&checks, "database").0), (1, "broken"), "{checks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_has_its_days() {
    let directory = tempfile::tempdir().unwrap();
    let [root, certificate, key] = ["root", "tls.crt", "tls.key"].map(|name| directory.path().join(name));
    let text =
        format!("[storage]\nroot = {root:?}\n[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let write = |year: i32| {
        let pair = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["r.example".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        std::fs::write(&certificate, parameters.self_signed(&pair).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
    };
    write(2099);
    let (checks, _) = examine(directory.path(), &text).await;
    assert_eq!(of(&checks, "certificate").0, "ok", "{checks:?}");
    write(2021);
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "certificate").0), (1, "broken"));
    assert!(
        of(&checks, "certificate").1.contains("days ago; renew it"),
        "{checks:?}"
    );
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "certificate").0), (1, "broken"));
    std::fs::remove_file(&key).unwrap();
    let (checks, _) = examine(directory.path(), &text).await;
    assert!(
        of(&checks, "certificate").1.contains("cannot be read as PEM"),
        "{checks:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_who_can_listen_to_the_database() {
    let Some(programs) = servers::postgres_programs() else {
        use std::io::Write;
        let said = "SKIPPED: a doctor of PostgreSQL: it is not here; `make setup-test` installs it";
        let _ = writeln!(std::io::stderr(), "{said}");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    // It is its own authority.
    let pair = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&pair).unwrap().pem();
    let (place, key) = (directory.path().join("server"), pair.serialize_pem());
    let started = servers::postgres_by_tcp(&programs, &place, Some((&certificate, &key)));
    let (_server, port) = started.unwrap();
    let [root, ca_file] = ["root", "ca.pem"].map(|name| directory.path().join(name));
    std::fs::write(&ca_file, &certificate).unwrap();
    let text = |host: &str, more: &str| {
        format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n[storage]\nroot = {root:?}\n[storage.postgres]\n\
             url = \"postgres://xebec@{host}:{port}/postgres\"\n{more}\n"
        )
    };
    let (checks, code) = examine(directory.path(), &text("localhost", "")).await;
    let (state, said) = of(&checks, "connections to PostgreSQL");
    assert_eq!((code, state), (0, "ok"), "{checks:?}");
    assert!(said.contains("stay on this host"), "{said}");
    let verified = format!("ca_file = {ca_file:?}");
    let (checks, code) = examine(directory.path(), &text("localhost", &verified)).await;
    let (state, said) = of(&checks, "connections to PostgreSQL");
    assert_eq!((code, state), (0, "ok"), "{checks:?}");
    assert!(said.contains("verified"), "{said}");
    let (checks, code) = examine(directory.path(), &text("127.0.0.1", &verified)).await;
    let (state, said) = of(&checks, "database in PostgreSQL");
    assert_eq!((code, state), (1, "broken"), "{checks:?}");
    assert!(said.contains("not valid for name \"127.0.0.1\""), "{said}");
}

/// A registry with a place that has a blob, and what its configuration says.
async fn with_place(directory: &Path) -> (String, std::path::PathBuf) {
    let [root, second] = ["root", "second"].map(|name| directory.join(name));
    std::fs::create_dir(&second).unwrap();
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[storage]\nroot = {root:?}\n[[place]]\nname = \"second\"\ndirectory = {second:?}\n"
    );
    let file = directory.join("r.toml");
    std::fs::write(&file, &text).unwrap();
    let config = Config::read(&file).unwrap();
    let store = Store::open(&config.store).await.unwrap();
    let blob = blob(&store, &"team/app".parse().unwrap(), b"layer").await;
    // Nothing has used it: the doctor does not either.
    let (checks, code) = examine(directory, &text).await;
    assert_eq!((code, of(&checks, "place second").0), (0, "note"), "{checks:?}");
    assert!(!second.join("objects").exists());
    let wanted = ["main", "second"].map(|place| place.parse().unwrap()).into();
    store
        .place(&Held::of_blob(&blob).unwrap(), &wanted)
        .await
        .unwrap();
    (text, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_place_for_copies_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let (text, second) = with_place(directory.path()).await;
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "place second").0), (0, "ok"), "{checks:?}");
    assert!(
        of(&checks, "room of place second").1.contains("are free"),
        "{checks:?}"
    );
    assert!(!second.join("objects/do/doctor").exists(), "it leaves nothing");
    // It takes in nothing.
    let (objects, tried) = (second.join("objects"), second.join("objects/do"));
    std::fs::remove_dir(&tried).unwrap();
    std::fs::write(&tried, b"no directory").unwrap();
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "place second").0), (1, "broken"), "{checks:?}");
    std::fs::remove_file(&tried).unwrap();
    // Another one's disk is mounted there.
    let mark = std::fs::read(objects.join("place")).unwrap();
    std::fs::write(objects.join("place"), b"another").unwrap();
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "place second").0), (1, "broken"), "{checks:?}");
    assert!(
        of(&checks, "place second").1.contains("another registry"),
        "{checks:?}"
    );
    // Nothing is.
    std::fs::write(objects.join("place"), mark).unwrap();
    std::fs::rename(&second, directory.path().join("aside")).unwrap();
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "place second").0), (1, "broken"), "{checks:?}");
    assert!(
        of(&checks, "place second").1.contains("mount or make it"),
        "{checks:?}"
    );
}

/// To open a pipe that nobody writes to hangs, as a disk of another host does.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_hangs_is_named_and_holds_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (text, second) = with_place(directory.path()).await;
    let mark = second.join("objects/place");
    std::fs::remove_file(&mark).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &mark, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let (checks, code) = examine(directory.path(), &text).await;
    assert_eq!((code, of(&checks, "place second").0), (1, "broken"), "{checks:?}");
    assert!(
        of(&checks, "place second")
            .1
            .contains("does not answer within 5 s"),
        "{checks:?}"
    );
    assert_eq!(of(&checks, "address").0, "ok", "{checks:?}");
}
