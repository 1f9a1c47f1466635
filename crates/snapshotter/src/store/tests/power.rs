//! The power goes at any step of any change: what was told to be done is done, and nothing is half done.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use redb::StorageBackend;
use xebec_cache::disk::{Access, Disk, DiskFile};
use xebec_testkit::disk::CrashingDisk;

use super::*;

/// How often the power goes.
const CUTS: u64 = 300;
/// Changes that are made until then at most.
const CHANGES: usize = 12;
const FILE: &str = "/snapshots.redb";

/// A file of a disk whose power goes after some writes.
#[derive(Clone)]
struct Powered {
    file: Arc<dyn DiskFile>,
    left: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Powered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Powered")
    }
}

impl Powered {
    fn step(&self) -> io::Result<()> {
        let has_power = |left: usize| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_power)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the power is gone")),
        }
    }
}

impl StorageBackend for Powered {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step()?;
        self.file.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        self.file.write_all_at(data, offset)
    }
}

fn open(disk: &CrashingDisk, left: usize) -> Result<Store, SnapshotError> {
    let file = disk.open(Path::new(FILE), Access::Create).unwrap();
    let left = Arc::new(AtomicUsize::new(left));
    let open = move || {
        let (file, left) = (file.clone(), left.clone());
        let database = redb::Builder::new().create_with_backend(Powered { file, left });
        database.map_err(SnapshotError::store)
    };
    Store::open_by(open, || false)
}

/// Everything that a store says of its snapshots.
fn state(store: &Store) -> Vec<(String, u64, Kind, Vec<u64>)> {
    let all = all(store).into_iter();
    all.map(|(name, record)| {
        let below = store.chain(&name).unwrap().below;
        (
            name,
            record.id,
            record.kind(),
            below.iter().map(|record| record.id).collect(),
        )
    })
    .collect()
}

/// One change of many that make sense in a row.
fn change(store: &Store, number: usize) -> Result<(), SnapshotError> {
    let name = |number: usize| format!("n{number}");
    match number % 4 {
        0 => create(
            store,
            "k",
            &if number == 0 {
                String::new()
            } else {
                name(number - 4)
            },
        ),
        1 => store.commit("k", &name(number - 1), HashMap::new(), "", Usage::default()),
        2 => create(store, "other", &name(number - 2)),
        _ => store.remove("other").map(|_| ()),
    }
}

#[test]
fn the_power_goes_at_any_moment() {
    let mut random = Rng::with_seed(11);
    let mut torn = 0;
    // The contents of the store after each number of changes.
    let expected: Vec<_> = {
        let whole = CrashingDisk::new();
        let store = open(&whole, usize::MAX).unwrap();
        let after = (0..CHANGES).map(|number| {
            change(&store, number).unwrap();
            state(&store)
        });
        std::iter::once(Vec::new()).chain(after).collect()
    };
    for _ in 0..CUTS {
        let disk = CrashingDisk::new();
        // An empty store is there, as after a start.
        drop(open(&disk, usize::MAX).unwrap());
        disk.sync_directory(Path::new("/")).unwrap();
        let mut done = 0;
        if let Ok(store) = open(&disk, random.usize(..160)) {
            while done < CHANGES && change(&store, done).is_ok() {
                done += 1;
            }
        }
        let after = disk.after_power_cut(&mut random);
        let store = open(&after, usize::MAX).unwrap();
        let found = state(&store);
        let is_under_way = expected.get(done + 1) == Some(&found);
        assert!(
            found == expected[done] || is_under_way,
            "after {done} changes: {found:?}"
        );
        torn += u64::from(done < CHANGES);
        create(&store, "after", "").unwrap();
    }
    assert!(torn > CUTS / 2, "{torn}");
}
