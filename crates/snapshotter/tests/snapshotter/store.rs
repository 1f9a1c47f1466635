//! The store against a model, with a crash after any operation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use xebec_snapshotter::ErrorKind;
use xebec_snapshotter::api::Kind;
use xebec_snapshotter::record::Record;
use xebec_snapshotter::store::{Most, New, Store};
use xebec_snapshotter::usage::Usage;

#[derive(Clone, Debug)]
enum Operation {
    Create {
        key: u8,
        parent: Option<u8>,
        view: bool,
        fails: bool,
    },
    Commit {
        key: u8,
        name: u8,
        parent: Option<u8>,
    },
    Label {
        key: u8,
        value: u8,
    },
    Remove {
        key: u8,
    },
    /// The process dies; what it had written is there, and its lock is gone.
    Crash,
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0..8_u8;
    let parent = || proptest::option::weighted(0.7, 0..8_u8);
    prop_oneof![
        4 => (key(), parent(), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(key, parent, view, fails)| Operation::Create { key, parent, view, fails }),
        4 => (key(), key(), proptest::option::weighted(0.3, 0..8_u8))
            .prop_map(|(key, name, parent)| Operation::Commit { key, name, parent }),
        1 => (key(), any::<u8>()).prop_map(|(key, value)| Operation::Label { key, value }),
        3 => key().prop_map(|key| Operation::Remove { key }),
        1 => Just(Operation::Crash),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Snapshot {
    id: u64,
    kind: Kind,
    parent: String,
    labels: HashMap<String, String>,
}

/// The snapshots that should be there.
#[derive(Default)]
struct Model {
    snapshots: BTreeMap<String, Snapshot>,
    ids: BTreeSet<u64>,
}

impl Model {
    fn has_children(&self, key: &str) -> bool {
        self.snapshots.values().any(|snapshot| snapshot.parent == key)
    }

    fn create(&self, key: &str, parent: &str) -> Result<(), ErrorKind> {
        if self.snapshots.contains_key(key) {
            return Err(ErrorKind::AlreadyExists);
        }
        match self.snapshots.get(parent) {
            _ if parent.is_empty() => Ok(()),
            None => Err(ErrorKind::NotFound),
            Some(parent) if parent.kind == Kind::Committed => Ok(()),
            Some(_) => Err(ErrorKind::InvalidArgument),
        }
    }

    fn commit(&mut self, key: &str, name: &str, parent: &str) -> Result<(), ErrorKind> {
        if self.snapshots.contains_key(name) {
            return Err(ErrorKind::AlreadyExists);
        }
        let mut active = self.snapshots.get(key).ok_or(ErrorKind::NotFound)?.clone();
        if active.kind != Kind::Active {
            return Err(ErrorKind::FailedPrecondition);
        }
        if active.parent.is_empty() {
            active.parent = parent.to_owned();
        } else if !parent.is_empty() && active.parent != parent {
            return Err(ErrorKind::InvalidArgument);
        }
        if !active.parent.is_empty() {
            let lower = self.snapshots.get(&active.parent).ok_or(ErrorKind::NotFound)?;
            if lower.kind != Kind::Committed {
                return Err(ErrorKind::FailedPrecondition);
            }
        }
        active.kind = Kind::Committed;
        active.labels = labels("committed", name);
        self.snapshots.remove(key);
        self.snapshots.insert(name.to_owned(), active);
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), ErrorKind> {
        if !self.snapshots.contains_key(key) {
            return Err(ErrorKind::NotFound);
        }
        if self.has_children(key) {
            return Err(ErrorKind::FailedPrecondition);
        }
        self.snapshots.remove(key);
        Ok(())
    }
}

fn labels(name: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(name.to_owned(), value.to_owned())])
}

fn name(key: Option<u8>) -> String {
    key.map(|key| format!("k{key}")).unwrap_or_default()
}

fn kind<T>(result: Result<T, xebec_snapshotter::SnapshotError>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind)
}

fn run(operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let file = |life: usize| -> PathBuf { directory.path().join(format!("{life}.redb")) };
    let mut life = 0;
    let mut store = Store::open(&file(life), || false).unwrap();
    let mut model = Model::default();
    for operation in operations {
        match operation {
            Operation::Create {
                key,
                parent,
                view,
                fails,
            } => {
                let (key, parent) = (name(Some(key)), name(parent));
                let kind_made = if view { Kind::View } else { Kind::Active };
                let new = New {
                    key: &key,
                    kind: kind_made,
                    parent: &parent,
                    labels: labels("made", &key),
                    own_labels: HashMap::new(),
                    lazy: None,
                    base: None,
                    id_mapping: None,
                };
                let expected = match model.create(&key, &parent) {
                    Ok(()) if fails => Err(ErrorKind::ResourceExhausted),
                    expected => expected,
                };
                let made = kind(store.create(new, |_| match fails {
                    true => Err(xebec_snapshotter::SnapshotError::new(
                        ErrorKind::ResourceExhausted,
                        "full",
                    )),
                    false => Ok(()),
                }));
                prop_assert_eq!(made.as_ref().map(|_| ()).map_err(|kind| *kind), expected);
                if let Ok(chain) = made {
                    let id = chain.record.id;
                    prop_assert!(model.ids.insert(id), "id {} was used before", id);
                    let labels = labels("made", &key);
                    let snapshot = Snapshot {
                        id,
                        kind: kind_made,
                        parent,
                        labels,
                    };
                    model.snapshots.insert(key, snapshot);
                }
            }
            Operation::Commit {
                key,
                name: to,
                parent,
            } => {
                let (key, to, parent) = (name(Some(key)), name(Some(to)), name(parent));
                let usage = Usage { bytes: 1, inodes: 2 };
                let done = kind(store.commit(&key, &to, labels("committed", &to), &parent, usage));
                prop_assert_eq!(done, model.commit(&key, &to, &parent));
            }
            Operation::Label { key, value } => {
                let key = name(Some(key));
                let new = labels("value", &value.to_string());
                let done = kind(store.update(&key, |record| record.set_labels(new.clone())));
                match model.snapshots.get_mut(&key) {
                    Some(snapshot) => snapshot.labels = new,
                    None => prop_assert_eq!(done.map(|_| ()), Err(ErrorKind::NotFound)),
                }
            }
            Operation::Remove { key } => {
                let key = name(Some(key));
                let done = kind(store.remove(&key)).map(|_| ());
                prop_assert_eq!(done, model.remove(&key));
            }
            Operation::Crash => {
                std::fs::copy(file(life), file(life + 1)).unwrap();
                life += 1;
                store = Store::open(&file(life), || false).unwrap();
            }
        }
        check(&store, &model)?;
    }
    Ok(())
}

/// Every snapshot, by pages of three.
fn all(store: &Store) -> Vec<(String, Record)> {
    let most = Most {
        records: 3,
        bytes: usize::MAX,
    };
    let mut all = Vec::new();
    let mut next = Some(String::new());
    while let Some(after) = next {
        let page = store.page(&after, most, |_, _| true).unwrap();
        assert!(page.found.len() <= 3);
        all.extend(page.found);
        next = page.after;
    }
    all
}

fn check(store: &Store, model: &Model) -> Result<(), TestCaseError> {
    let listed = all(store).into_iter().map(|(name, record)| {
        let snapshot = Snapshot {
            id: record.id,
            kind: record.kind(),
            parent: record.parent.clone(),
            labels: record.labels.clone(),
        };
        (name, snapshot)
    });
    let listed: BTreeMap<String, Snapshot> = listed.collect();
    prop_assert_eq!(&listed, &model.snapshots);
    let mut outlines = BTreeSet::new();
    store
        .outlines(|outline| {
            outlines.insert((outline.id, outline.kind() as i32));
        })
        .unwrap();
    let expected = listed
        .values()
        .map(|snapshot| (snapshot.id, snapshot.kind as i32));
    prop_assert_eq!(outlines, expected.collect());
    for (name, snapshot) in &model.snapshots {
        let mut expected = Vec::new();
        let mut parent = &snapshot.parent;
        while let Some(lower) = model.snapshots.get(parent) {
            expected.push(lower.id);
            parent = &lower.parent;
        }
        let below: Vec<u64> = store
            .chain(name)
            .unwrap()
            .below
            .iter()
            .map(|record| record.id)
            .collect();
        prop_assert_eq!(below, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_model_does(operations in proptest::collection::vec(operation(), 1..60)) {
        run(operations)?;
    }
}

#[test]
fn a_store_of_another_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store");
    std::fs::write(&file, "no database at all").unwrap();
    assert!(Store::open(&file, || false).is_err());
    std::fs::remove_file(&file).unwrap();
    drop(Store::open(&file, || false).unwrap());
    {
        let later = redb::Database::open(&file).unwrap();
        let change = later.begin_write().unwrap();
        let numbers: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("numbers");
        change.open_table(numbers).unwrap().insert("version", 2).unwrap();
        change.commit().unwrap();
    }
    let error = Store::open(&file, || false).unwrap_err();
    assert!(error.to_string().contains("is of version 2"), "{error}");
}
