//! Power cuts at every step of a fill, an injection, a sync, an eviction and an index write, on a disk that loses what
//! was not synced. After each, in another boot, every claimed page must be right or known to be unverified, and the
//! layer must go on to be filled.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Access, Disk};
use xebec_cache::layer::CachedLayer;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_index::indexer::{DataSink, IndexOptions, MIN_SPACING, index_layer};
use xebec_testkit::disk::CrashingDisk;
use xebec_testkit::tar::TarBuilder;

const ROOT: &str = "/layers";
const BOOT: BootId = BootId([1; 16]);
const NEXT_BOOT: BootId = BootId([2; 16]);
/// Ways in which each step's cut is tried.
const CUTS: u64 = 24;

/// A layer and what its data space must hold.
struct Truth {
    key: LayerKey,
    index: LayerIndex,
    encoded: Vec<u8>,
    data: Vec<u8>,
}

struct Memory(Vec<u8>);

impl DataSink for Memory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset as usize + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

/// A layer of some files, no byte of which is zero, with spans that end inside of pages.
fn truth() -> Truth {
    let mut random = Rng::with_seed(7);
    let mut tar = TarBuilder::new();
    for (name, length) in [("a", 90_001), ("b", 3), ("c", 150_777), ("d", 60_000)] {
        let contents: Vec<u8> = (0..length).map(|_| random.u8(1..)).collect();
        tar.file(name, &contents);
    }
    let options = IndexOptions {
        spacing: MIN_SPACING,
        ..IndexOptions::default()
    };
    let mut data = Memory(Vec::new());
    let index = index_layer(tar.into_bytes().as_slice(), &options, Some(&mut data))
        .unwrap()
        .index;
    let encoded = index.encode();
    data.0.resize(index.data_size as usize, 0);
    let key = LayerKey {
        layer: index.layer,
        index: Digest::of(&encoded),
    };
    assert!(index.spans.len() >= 4, "spans: {}", index.spans.len());
    Truth {
        key,
        index,
        encoded,
        data: data.0,
    }
}

impl Truth {
    fn store(&self, disk: &CrashingDisk, boot: BootId) -> Store {
        Store::on(Arc::new(disk.clone()), Path::new(ROOT), boot).unwrap()
    }

    fn fill(&self, layer: &CachedLayer, spans: impl IntoIterator<Item = usize>) {
        for number in spans {
            let range = &self.index.spans[number].data;
            let bytes = &self.data[range.start as usize..range.end as usize];
            layer.write_span(number, bytes).unwrap();
        }
    }

    /// Pages of a runtime image, right or wrong.
    fn inject(&self, layer: &CachedLayer, pages: Range<u64>, is_right: bool) {
        let range = (pages.start * PAGE_SIZE) as usize..(pages.end * PAGE_SIZE) as usize;
        let mut bytes = self.data[range].to_vec();
        if !is_right {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        layer.inject(&[(pages.start, &bytes)]).unwrap();
    }

    /// Pages that are claimed, not known to be unverified, and hold something else.
    fn mismatches(&self, layer: &CachedLayer) -> u64 {
        let unverified = layer.unverified(0..layer.presence().pages());
        let unverified: Vec<u64> = unverified.into_iter().flatten().collect();
        let pages = layer
            .presence()
            .held(0..layer.presence().pages())
            .into_iter()
            .flatten();
        let is_wrong = |page: &u64| {
            let mut bytes = [0; PAGE_SIZE as usize];
            layer.read_at(&mut bytes, page * PAGE_SIZE).unwrap();
            let at = (page * PAGE_SIZE) as usize;
            bytes != self.data[at..at + PAGE_SIZE as usize]
        };
        let believed = pages.filter(|page| !unverified.contains(page));
        believed.filter(is_wrong).count() as u64
    }

    /// Everything that is done to a layer in its life.
    fn live(&self, disk: &CrashingDisk) {
        let store = self.store(disk, BOOT);
        let spans = self.index.spans.len();
        // It is used before it is on the disk.
        assert!(store.add_soon(self.key, &self.encoded).unwrap());
        let layer = store.open_layer(self.key, &self.encoded).unwrap();
        self.fill(&layer, [1, 0]);
        layer.sync(|| Ok(())).unwrap();
        self.fill(&layer, [spans - 1]);
        store.sync_new(self.key).unwrap();
        assert!(!store.add_soon(self.key, &self.encoded).unwrap());
        // Parts go while others were not synced yet, come again, and go again when all is there.
        layer.punch(3..20).unwrap();
        layer.sync(|| Ok(())).unwrap();
        self.fill(&layer, 0..spans);
        assert!(layer.is_complete());
        layer.sync(|| Ok(())).unwrap();
        layer.punch(0..9).unwrap();
        layer.punch(30..50).unwrap();
        drop(layer);
        // Another process of the same boot goes on.
        let layer = store.open_layer(self.key, &self.encoded).unwrap();
        let missing = layer.missing_spans(0..self.index.data_size);
        self.fill(&layer, missing);
        layer.sync(|| Ok(())).unwrap();
        drop(layer);
        self.live_with_injections(disk, &store);
        self.damage_index(disk);
        store.add(self.key, &self.encoded).unwrap();
        store.remove(self.key).unwrap();
        // Again, whole: as a layer without an index arrives.
        let staged = store.stage(&self.key.layer).unwrap();
        staged.keep_file("index", &self.encoded).unwrap();
        staged.data().write_all_at(&self.data, 0).unwrap();
        staged.claim_all(&self.index).unwrap();
        staged.publish(self.key, self.index.data_size).unwrap();
        let layer = store.open_layer(self.key, &self.encoded).unwrap();
        assert!(layer.is_complete());
        layer.sync(|| Ok(())).unwrap();
        drop(layer);
        store.remove(self.key).unwrap();
        assert!(store.list().unwrap().is_empty());
    }

    /// Does to a layer what runtime images do in its life.
    fn live_with_injections(&self, disk: &CrashingDisk, store: &Store) {
        let open = || store.open_layer(self.key, &self.encoded).unwrap();
        let layer = open();
        let pages = layer.presence().pages();
        // Some pages become durable before the first injection.
        layer.punch(10..pages).unwrap();
        self.inject(&layer, 8..20, false);
        layer.sync(|| Ok(())).unwrap();
        self.inject(&layer, 18..25, true);
        layer.inject_zeros(25..30).unwrap();
        // Compared while durable, and not synced before the next injections and evictions.
        let spans = layer.unverified_spans(12 * PAGE_SIZE..14 * PAGE_SIZE);
        self.fill(&layer, spans);
        layer.punch(15..17).unwrap();
        self.inject(&layer, 16..17, false);
        layer.sync(|| Ok(())).unwrap();
        drop(layer);
        let layer = open();
        layer.punch(5..12).unwrap();
        self.inject(&layer, 0..pages, false);
        layer.sync(|| Ok(())).unwrap();
        assert!(layer.is_complete() && layer.has_unverified());
        // Like a file that rots: every page is unverified, until the next sync.
        let file = store.folder(self.key).join("unverified");
        drop(layer);
        let damaged = disk.open(&file, Access::Write).unwrap();
        damaged.set_length(0).unwrap();
        damaged.sync_data().unwrap();
        let layer = open();
        layer.sync(|| Ok(())).unwrap();
        self.check(&layer);
        assert!(!layer.take_mismatches().is_empty());
        layer.sync(|| Ok(())).unwrap();
    }

    /// Writes the spans of unverified pages, which compares them.
    fn check(&self, layer: &CachedLayer) {
        let spans = layer.unverified_spans(0..self.index.data_size);
        self.fill(layer, spans);
        assert!(!layer.has_unverified());
    }

    /// A byte of the index turns, as on a disk that rots.
    fn damage_index(&self, disk: &CrashingDisk) {
        let path = Path::new(ROOT).join(self.key.folder()).join("index");
        let file = disk.open(&path, Access::Write).unwrap();
        file.write_all_at(&[0xff], 40).unwrap();
        file.sync_data().unwrap();
    }

    /// Checks that the store finds no wrong page after the cut, and can fill the layer so that a further power cut leaves none
    /// either. Returns the pages that were wrong, and whether everything survived that cut.
    fn go_on(&self, disk: &CrashingDisk, boot: BootId, random: &mut Rng) -> (u64, bool) {
        let store = self.store(disk, boot);
        store.clean();
        store.add(self.key, &self.encoded).unwrap();
        let layer = store.open_layer(self.key, &self.encoded).unwrap();
        let mismatches = self.mismatches(&layer);
        if mismatches > 0 {
            return (mismatches, false);
        }
        let missing = layer.missing_spans(0..self.index.data_size);
        self.fill(&layer, missing);
        assert!(layer.is_complete());
        self.check(&layer);
        layer.sync(|| Ok(())).unwrap();
        drop((layer, store));
        let after = disk.after_power_cut(random);
        let store = self.store(&after, BootId([3; 16]));
        match store.look(self.key) {
            Ok(layer) => (
                self.mismatches(&layer),
                layer.is_complete() && !layer.has_unverified(),
            ),
            Err(_) => (0, false),
        }
    }
}

/// Tries every cut of a life up to one that lied; gives how many steps the life had, how many states were tried, and whether the
/// last one lied.
fn cut_everywhere(truth: &Truth, disk: &CrashingDisk) -> (usize, u64, bool) {
    disk.record();
    truth.live(disk);
    let steps = disk.steps();
    let mut states = 0;
    for (number, step) in steps.iter().enumerate() {
        for cut in 0..CUTS {
            let mut random = Rng::with_seed(number as u64 * 1000 + cut);
            let after = step.after_power_cut(&mut random);
            states += 1;
            let (mismatches, survived) = truth.go_on(&after, NEXT_BOOT, &mut random);
            if mismatches > 0 || !survived {
                return (steps.len(), states, true);
            }
        }
    }
    (steps.len(), states, false)
}

#[test]
fn a_power_cut_at_any_step_leaves_no_lie() {
    let truth = truth();
    let (steps, states, has_lied) = cut_everywhere(&truth, &CrashingDisk::new());
    println!("{steps} steps, {states} states after a power cut");
    assert!(steps > 100, "{steps}");
    assert!(!has_lied, "state {states} has wrong or lost bytes");
}

#[test]
fn a_kill_at_any_step_leaves_no_lie() {
    let truth = truth();
    let disk = CrashingDisk::new();
    disk.record();
    truth.live(&disk);
    for (number, step) in disk.steps().iter().enumerate() {
        let mut random = Rng::with_seed(number as u64);
        // Names that the killed process had no time to sync may be lost in the power cut that follows.
        let (mismatches, _) = truth.go_on(&step.after_kill(), BOOT, &mut random);
        assert_eq!(mismatches, 0, "step {number}");
    }
}

/// What the killed process wrote about the pages that it was evicting may not be on the disk, though its successor reads it.
#[test]
fn an_eviction_after_one_that_a_kill_cut_short_leaves_no_lie() {
    let truth = truth();
    let disk = CrashingDisk::new();
    let store = truth.store(&disk, BOOT);
    store.add(truth.key, &truth.encoded).unwrap();
    let layer = store.open_layer(truth.key, &truth.encoded).unwrap();
    truth.fill(&layer, 0..truth.index.spans.len());
    layer.sync(|| Ok(())).unwrap();
    disk.record();
    layer.punch(3..20).unwrap();
    let steps = disk.steps();
    assert!(steps.len() > 2, "{}", steps.len());
    for (number, step) in steps.iter().enumerate() {
        let killed = step.after_kill();
        let store = truth.store(&killed, BOOT);
        let layer = store.open_layer(truth.key, &truth.encoded).unwrap();
        layer.punch(3..20).unwrap();
        for cut in 0..CUTS {
            let after = killed.after_power_cut(&mut Rng::with_seed(number as u64 * 1000 + cut));
            let layer = truth.store(&after, NEXT_BOOT).look(truth.key).unwrap();
            assert_eq!(truth.mismatches(&layer), 0, "step {number}, cut {cut}");
        }
    }
}

/// A cache that claimed pages before their data was synced is found out.
#[test]
fn claiming_before_the_data_is_synced_is_noticed() {
    let disk = CrashingDisk::new();
    disk.ignore_syncs_of("data");
    let (_, states, has_lied) = cut_everywhere(&truth(), &disk);
    println!("state {states} has wrong bytes: {has_lied}");
    assert!(has_lied);
}

/// A cache that punched holes before the claims were gone from the disk is found out.
#[test]
fn punching_before_the_claims_are_gone_is_noticed() {
    let disk = CrashingDisk::new();
    disk.ignore_syncs_of("durable");
    let (_, states, has_lied) = cut_everywhere(&truth(), &disk);
    println!("state {states} has wrong bytes: {has_lied}");
    assert!(has_lied);
}

/// A cache that let injected pages become durable before it was certain that they are known as unverified is found
/// out.
#[test]
fn forgetting_what_is_unverified_is_noticed() {
    let disk = CrashingDisk::new();
    disk.ignore_syncs_of("unverified");
    let (_, states, has_lied) = cut_everywhere(&truth(), &disk);
    println!("state {states} has wrong bytes: {has_lied}");
    assert!(has_lied);
}

/// Counts states after a power cut in which injected pages are believed to be there, and those of them in which the disk does not
/// say which image injected them. The note of that is written before, and synced by the layer's sync only if `notes` says so.
fn cut_with_notes(notes: bool) -> (u64, u64) {
    let truth = truth();
    let disk = CrashingDisk::new();
    let store = truth.store(&disk, BOOT);
    store.add(truth.key, &truth.encoded).unwrap();
    let layer = store.open_layer(truth.key, &truth.encoded).unwrap();
    let folder = store.folder(truth.key);
    let note = |disk: &CrashingDisk, access| disk.open(&folder.join("note"), access);
    disk.record();
    for who in 1..=3u8 {
        let pages = u64::from(who) * 4;
        // Another value each time, as each injecting image is added to the earlier ones.
        note(&disk, Access::Create)
            .unwrap()
            .write_all_at(&[who], 0)
            .unwrap();
        truth.inject(&layer, pages..pages + 4, true);
        let sync = || {
            if notes {
                note(&disk, Access::Write)?.sync_data()?;
                disk.sync_directory(&folder)?;
            }
            Ok(())
        };
        layer.sync(sync).unwrap();
    }
    let (mut states, mut unknown) = (0, 0);
    for (number, step) in disk.steps().iter().enumerate() {
        for cut in 0..CUTS {
            let after = step.after_power_cut(&mut Rng::with_seed(number as u64 * 1000 + cut));
            // Its data file may have come without its length, and is made anew then.
            let Ok(layer) = truth.store(&after, NEXT_BOOT).look(truth.key) else {
                continue;
            };
            let last = layer.unverified(0..layer.presence().pages()).pop();
            let Some(last) = last else { continue };
            states += 1;
            let mut who = [0];
            let read = note(&after, Access::Read).and_then(|file| file.read_exact_at(&mut who, 0));
            let is_known = read.is_ok() && u64::from(who[0]) * 4 + 4 >= last.end;
            unknown += u64::from(!is_known);
        }
    }
    (states, unknown)
}

#[test]
fn the_source_of_injected_pages_is_on_the_disk_before_they_count() {
    let (states, unknown) = cut_with_notes(true);
    assert!(states > 100, "{states}");
    assert_eq!(unknown, 0, "of {states}");
}

/// A cache that did not ask for it is found out.
#[test]
fn forgetting_the_source_of_injected_pages_is_noticed() {
    let (states, unknown) = cut_with_notes(false);
    println!("{unknown} of {states} states in which nobody knows who injected what is there");
    assert!(unknown > 0);
}

/// A new layer may go with the power until it is synced, and not afterwards.
#[test]
fn a_layer_that_was_synced_stays() {
    let truth = truth();
    let disk = CrashingDisk::new();
    let store = truth.store(&disk, BOOT);
    assert!(store.add_soon(truth.key, &truth.encoded).unwrap());
    let stays = |seed| {
        let after = disk.after_power_cut(&mut Rng::with_seed(seed));
        let store = truth.store(&after, NEXT_BOOT);
        store.index_bytes(truth.key).is_ok()
    };
    assert!(!(0..CUTS * 10).all(stays), "it stays without being synced");
    store.sync_new(truth.key).unwrap();
    assert!((0..CUTS * 10).all(stays));
}

/// The removal of a layer does not wait until the layer is synced.
#[test]
fn a_layer_that_is_gone_need_not_be_synced() {
    let truth = truth();
    let store = truth.store(&CrashingDisk::new(), BOOT);
    assert!(store.add_soon(truth.key, &truth.encoded).unwrap());
    store.remove(truth.key).unwrap();
    store.sync_new(truth.key).unwrap();
}

/// A data file that lost its length or its name is made anew, and an index that is torn is replaced.
#[test]
fn damage_heals() {
    let truth = truth();
    let folder = Path::new(ROOT).join(truth.key.folder());
    let damages: [fn(&CrashingDisk, &Path); 4] = [
        |disk, folder| disk.remove_file(&folder.join("data")).unwrap(),
        |disk, folder| {
            let data = disk.open(&folder.join("data"), Access::Write).unwrap();
            data.set_length(5000).unwrap();
        },
        |disk, folder| {
            let index = disk.open(&folder.join("index"), Access::Write).unwrap();
            index.set_length(100).unwrap();
        },
        |disk, folder| disk.remove_file(&folder.join("index")).unwrap(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let disk = CrashingDisk::new();
        let store = truth.store(&disk, BOOT);
        store.add(truth.key, &truth.encoded).unwrap();
        let layer = store.open_layer(truth.key, &truth.encoded).unwrap();
        truth.fill(&layer, 0..truth.index.spans.len());
        layer.sync(|| Ok(())).unwrap();
        drop(layer);
        damage(&disk, &folder);
        let mut random = Rng::with_seed(number as u64);
        let outcome = truth.go_on(&disk, BOOT, &mut random);
        assert_eq!(outcome, (0, true), "damage {number}");
    }
}
