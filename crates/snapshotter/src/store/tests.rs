//! The store on a disk that fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod power;
mod room;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;

/// A disk that may be full.
#[derive(Clone, Debug, Default)]
struct Disk {
    memory: Arc<InMemoryBackend>,
    is_full: Arc<AtomicBool>,
}

impl Disk {
    fn room(&self) -> io::Result<()> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.room()?;
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.memory.write(offset, data)
    }
}

#[test]
fn a_disk_that_was_full_has_room_again() {
    let disk = Disk::default();
    let same = disk.clone();
    let open = move || {
        let database = redb::Builder::new().create_with_backend(same.clone());
        database.map_err(SnapshotError::store)
    };
    let store = Store::open_by(open, || false).unwrap();
    let create = |key: &str| create(&store, key, "").map_err(|error| error.kind);
    create("before").unwrap();
    disk.is_full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(create("meanwhile"), Err(ErrorKind::ResourceExhausted));
    }
    disk.is_full.store(false, Ordering::Relaxed);
    create("after").unwrap();
    assert_eq!(names(&store), ["after", "before"]);
}

fn create(store: &Store, key: &str, parent: &str) -> Result<(), SnapshotError> {
    let new = New {
        key,
        kind: Kind::Active,
        parent,
        labels: HashMap::new(),
        own_labels: HashMap::new(),
        lazy: None,
        base: None,
        id_mapping: None,
    };
    store.create(new, |_| Ok(())).map(|_| ())
}

fn all(store: &Store) -> Vec<(String, Record)> {
    let most = Most {
        records: usize::MAX,
        bytes: usize::MAX,
    };
    store.page("", most, |_, _| true).unwrap().found
}

fn names(store: &Store) -> Vec<String> {
    all(store).into_iter().map(|(name, _)| name).collect()
}
