//! `roots.json`: what it keeps, what counts where, that damage costs facts and never trust, and that writers
//! at the same time lose nothing of each other.

use std::fs;
use std::thread;

use proptest::prelude::*;
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_trust::{Binding, Listing, Policy, RECORD_FILE, Record, RepositoryName, Root};
use xebec_trust::{MAX_RECORD, Naming};

use crate::support::repository;

fn pair() -> (Digest, Digest) {
    (Digest::of(b"layer"), Digest::of(b"index"))
}

fn binding(number: u32) -> Binding {
    Binding::TableOfContents {
        manifest: Digest::of(&number.to_le_bytes()),
    }
}

/// A record that is too large is not read in part either.
#[test]
fn a_record_is_as_large_as_it_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    let written = Record::update(directory.path(), layer, index, Record::set_proven).unwrap();
    let path = directory.path().join(RECORD_FILE);
    let mut bytes = fs::read(&path).unwrap();
    for (size, expected) in [(MAX_RECORD, written), (MAX_RECORD + 1, Record::new(layer, index))] {
        bytes.resize(size, b' ');
        fs::write(&path, &bytes).unwrap();
        assert_eq!(Record::load(directory.path(), layer, index), expected, "{size}");
    }
}

#[test]
fn a_record_is_written_and_read() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    let (image, manifest) = (repository("r.example.com/app"), Digest::of(b"manifest"));
    assert_eq!(
        Record::load(directory.path(), layer, index),
        Record::new(layer, index)
    );
    let written = Record::update(directory.path(), layer, index, |record| {
        record.set_proven();
        record.add_binding(Binding::TableOfContents { manifest });
        record.add_binding(Binding::TableOfContents { manifest });
        record.add_listing(Listing::new(&image));
    });
    let written = written.unwrap();
    assert_eq!(Record::load(directory.path(), layer, index), written);
    let roots = written.roots(&image, &[manifest]);
    assert!(roots.is_proven() && roots.is_bound() && roots.is_in_registry());
    let text = fs::read_to_string(directory.path().join(RECORD_FILE)).unwrap();
    assert_eq!(
        text.matches("table-of-contents").count(),
        1,
        "the same fact twice is one fact\n{text}"
    );
    // Nothing else is left, and nobody else can write it.
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["roots.json", "roots.json.lock"]);
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(directory.path().join(RECORD_FILE))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_listing_counts_only_where_it_was_seen() {
    let (layer, index) = pair();
    let (here, there) = (
        repository("r.example.com/app"),
        repository("evil.example.com/app"),
    );
    let beside = repository("r.example.com/app/beside");
    let mut record = Record::new(layer, index);
    record.add_listing(Listing::new(&here));
    let policy = Policy::default();
    let roots = |image: &RepositoryName| record.roots(image, &[Digest::of(b"manifest")]);
    let admits = |image: &RepositoryName| policy.admits(image, Naming::Tag, &roots(image)).ok();
    for other in [&there, &beside] {
        assert_eq!(admits(other), None, "another repository listed it");
    }
    assert_eq!(admits(&here), Some(Root::Registry));
    let by_digest = policy.admits(&here, Naming::Digest, &roots(&here));
    assert!(by_digest.unwrap_err().to_string().contains("named by digest"));
}

#[test]
fn a_disproof_outweighs_everything_until_a_proof() {
    let (layer, index) = pair();
    let (image, manifest) = (repository("r.example.com/app"), Digest::of(b"manifest"));
    let mut record = Record::new(layer, index);
    record.add_binding(Binding::TableOfContents { manifest });
    record.set_proven();
    record.set_disproved("file /bin/sh has other contents");
    assert!(!record.is_proven());
    for naming in [Naming::Tag, Naming::Digest] {
        let refusal = Policy::default()
            .admits(&image, naming, &record.roots(&image, &[manifest]))
            .unwrap_err();
        assert!(refusal.is_alarm());
        assert!(refusal.to_string().contains("/bin/sh"), "{refusal}");
    }
    record.set_proven();
    let roots = record.roots(&image, &[manifest]);
    assert_eq!(
        Policy::default().admits(&image, Naming::Digest, &roots).unwrap(),
        Root::Bound
    );
}

#[test]
fn damage_counts_as_no_facts() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    let mut record = Record::new(layer, index);
    record.set_proven();
    let good = serde_json::to_value(&record).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        value.to_string().into_bytes()
    };
    assert_eq!(Record::parse(&with(&|_| {}), layer, index).unwrap(), record);
    let damaged: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"{}".to_vec(),
        with(&|v| v["version"] = json!(2)),
        with(&|v| v["layer"] = json!(index)),
        with(&|v| v["index"] = json!(layer)),
        with(&|v| v["unknown"] = json!(1)),
        with(&|v| v["proven"]["unknown"] = json!(1)),
        with(&|v| v["disproved"] = json!({ "at": 1, "why": "" })),
        with(&|v| v["bound"] = json!([{ "at": 1, "fact": { "by": "magic" } }])),
        with(&|v| *v = json!([])),
        good.to_string().into_bytes()[..40].to_vec(),
        vec![0; 4096],
        vec![b' '; MAX_RECORD + 1],
    ];
    for bytes in damaged {
        assert!(
            Record::parse(&bytes, layer, index).is_err(),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
        fs::write(directory.path().join(RECORD_FILE), &bytes).unwrap();
        let loaded = Record::load(directory.path(), layer, index);
        assert_eq!(loaded, Record::new(layer, index));
    }
    // A proof by a method that later turned out to be wrong.
    let old = Record::parse(&with(&|v| v["proven"]["method"] = json!(0)), layer, index).unwrap();
    assert!(!old.is_proven());
    // A damaged record can be written again.
    let written = Record::update(directory.path(), layer, index, Record::set_proven).unwrap();
    assert!(written.is_proven() && Record::load(directory.path(), layer, index).is_proven());
}

#[test]
fn facts_are_bounded_and_fit_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    let longest = |number: u32| {
        let name = format!("{}{number:05}.example.com/{}", "h".repeat(235), "r".repeat(250));
        repository(&name)
    };
    Record::update(directory.path(), layer, index, |record| {
        record.set_disproved(&"\u{1F4A5}".repeat(10_000));
        for number in 0..5000u32 {
            record.add_binding(Binding::ImageIndex {
                image_index: Digest::of(&number.to_le_bytes()),
                manifest: layer,
                artifact: index,
            });
            record.add_listing(Listing::new(&longest(number)));
        }
    })
    .unwrap();
    let size = fs::metadata(directory.path().join(RECORD_FILE)).unwrap().len() as usize;
    assert!(size < MAX_RECORD, "{size}");
    let record = Record::load(directory.path(), layer, index);
    let why = record.why_disproved().unwrap();
    assert!(!why.is_empty() && why.chars().all(|c| c == '\u{1F4A5}'), "{why}");
    assert!(record.roots(&longest(4999), &[]).is_in_registry());
    assert!(!record.roots(&longest(0), &[]).is_in_registry());
}

#[test]
fn a_layer_is_shown_to_the_images_of_its_readers() {
    let (layer, index) = pair();
    let mut record = Record::new(layer, index);
    let (one, other, elsewhere) = (
        repository("r.example.com/team/app"),
        repository("r.example.com/team"),
        repository("x.example.com/team/app"),
    );
    assert_eq!(record.is_reader(&one), None, "nobody knows");
    assert!(!record.has_reader_at("r.example.com"));
    record.add_reader(&one);
    assert_eq!(record.is_reader(&one), Some(true));
    assert_eq!(record.is_reader(&other), Some(false));
    assert_eq!(record.is_reader(&elsewhere), Some(false));
    assert!(record.has_reader_at("r.example.com"));
    assert!(!record.has_reader_at("x.example.com") && !record.has_reader_at("r.example"));
    record.add_reader(&elsewhere);
    assert!(record.has_reader_at("x.example.com"));
    assert_eq!(record.is_reader(&one), Some(true));
    // It vouches for nothing.
    assert!(!record.roots(&one, &[]).is_in_registry());
}

#[test]
fn a_lot_is_drawn_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    let draw = || {
        let mut lot = None;
        Record::update(directory.path(), layer, index, |record| lot = Some(record.lot())).unwrap();
        lot.unwrap()
    };
    let drawn = draw();
    assert_eq!(drawn, draw());
    let others: std::collections::BTreeSet<u64> = (0..4).map(|_| Record::new(layer, index).lot()).collect();
    assert_eq!(others.len(), 4, "of the same layer: {others:?}");
}

#[test]
fn a_sync_tells_of_every_failure_but_a_missing_record() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    Record::sync(directory.path()).unwrap();
    Record::begin(directory.path(), layer, index, Record::set_proven).unwrap();
    Record::begin_sync(directory.path());
    Record::sync(directory.path()).unwrap();
    assert!(Record::load(directory.path(), layer, index).is_proven());
    // A device that cannot be synced.
    let path = directory.path().join(RECORD_FILE);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    let error = Record::sync(directory.path()).unwrap_err().to_string();
    assert!(error.contains("sync") && error.contains(RECORD_FILE), "{error}");
    // Nothing can be below a file.
    let below = directory.path().join("roots.json.lock");
    assert!(Record::sync(&below).is_err());
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (layer, index) = pair();
    thread::scope(|scope| {
        for writer in 0..8u32 {
            let path = directory.path();
            scope.spawn(move || {
                for number in 0..10 {
                    let fact = binding(writer * 10 + number);
                    Record::update(path, layer, index, |record| record.add_binding(fact)).unwrap();
                }
            });
        }
        for _ in 0..200 {
            // A reader sees whole files only; a damaged one would count as empty, but facts only ever grow
            // here.
            let path = directory.path().join(RECORD_FILE);
            if let Ok(bytes) = fs::read(&path) {
                Record::parse(&bytes, layer, index).unwrap();
            }
        }
    });
    let record = Record::load(directory.path(), layer, index);
    let image = repository("r.example.com/app");
    for number in 0..80u32 {
        let manifest = Digest::of(&number.to_le_bytes());
        assert!(
            record.roots(&image, &[manifest]).is_bound(),
            "fact {number} was lost"
        );
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (layer, index) = pair();
        prop_assert!(Record::parse(&bytes, layer, index).is_err());
    }
}
