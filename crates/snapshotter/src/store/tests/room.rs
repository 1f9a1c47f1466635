//! The store on a disk that has no room left: what is there can be read and removed.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::*;

/// Size of a block, in bytes.
const BLOCK: u64 = 4096;
/// Blocks that are kept for a full disk: a quarter of what there is in earnest.
const RESERVE: usize = 64;

/// A sparse file on a disk of a few blocks, as file systems have it: a length takes no room, what is written does, and what
/// has room keeps it.
#[derive(Clone, Debug)]
struct Sparse(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    length: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Blocks that the disk has.
    most: usize,
    /// Those that are kept.
    reserve: usize,
}

impl Sparse {
    fn of(most: usize) -> Sparse {
        Sparse(Arc::new(Mutex::new(State {
            length: 0,
            blocks: BTreeMap::new(),
            most,
            reserve: 0,
        })))
    }

    /// As giving up a file does, once.
    fn make_room(&self) -> bool {
        let mut state = self.0.lock();
        let more = std::mem::take(&mut state.reserve);
        state.most += more;
        more > 0
    }
}

/// The blocks of a range: each with where the range begins in it, and which part of the range it has.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = offset + done as u64;
        let at = (place % BLOCK) as usize;
        let part = done..length.min(done + BLOCK as usize - at);
        done = part.end;
        (!part.is_empty()).then_some((place / BLOCK, at, part))
    })
}

impl StorageBackend for Sparse {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        for (block, at, part) in parts(offset, out.len()) {
            match state.blocks.get(&block) {
                Some(bytes) => out[part.clone()].copy_from_slice(&bytes[at..at + part.len()]),
                None => out[part].fill(0),
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.blocks.retain(|block, _| block * BLOCK < length);
        state.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        for (block, at, part) in parts(offset, data.len()) {
            if !state.blocks.contains_key(&block) && state.blocks.len() >= state.most {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let bytes = state.blocks.entry(block);
            let bytes = bytes.or_insert_with(|| vec![0; BLOCK as usize]);
            bytes[at..at + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }
}

fn open(disk: &Sparse) -> Result<Store, SnapshotError> {
    let (disk, more) = (disk.clone(), disk.clone());
    let open = move || {
        let database = redb::Builder::new().create_with_backend(disk.clone());
        database.map_err(SnapshotError::store)
    };
    Store::open_by(open, move || more.make_room())
}

/// However full: of disks of many sizes, each filled to the last block.
#[test]
fn room_can_be_made_on_a_full_disk() {
    let mut filled = 0;
    for most in (8..160).step_by(29) {
        let disk = Sparse::of(most);
        // One that has no room for an empty store cannot hold snapshots.
        let Ok(store) = open(&disk) else { continue };
        let long = "x".repeat(500);
        let full = (0..).map(|number| create(&store, &format!("{number}{long}"), ""));
        let full = full.into_iter().find_map(Result::err).unwrap();
        assert_eq!(full.kind, ErrorKind::ResourceExhausted, "{full}");
        drop(store);
        disk.0.lock().reserve = RESERVE;
        // A daemon that starts on the full disk.
        let store = open(&disk).unwrap();
        let there = names(&store);
        for name in &there {
            store
                .remove(name)
                .map_err(|error| format!("of {most}: {error}"))
                .unwrap();
        }
        assert!(names(&store).is_empty());
        if !there.is_empty() {
            create(&store, "after", "").unwrap();
        }
        filled += there.len();
    }
    assert!(filled > 50, "{filled}");
}
