//! A process that pushes, takes apart, deletes, collects and puts packs together anew is killed: at random, and at each named stage. All that it
//! had acknowledged comes back after that, byte for byte; no object is left that no record names, and none is missing.
//!
//! The process is this program once more. It says on its standard output what was acknowledged, a line each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;
use xebec_dedup::{Deduplicator, Done, Restorer, Settings, Stage, observe_stages};
use xebec_store::{
    Algorithm, CollectOptions, Digest, NewManifest, Reference, ReferenceKind, RepositoryName, Store,
    StoreConfig, StoreError,
};

use crate::common::{gzip, repository, tar, text, zstd};

/// The directory of the store, for the process that is killed.
const CHILD: &str = "XEBEC_DEDUP_TEST_CHILD";
/// At which stage it kills itself, and at which time that it comes there: `3:1`.
const DIE_AT: &str = "XEBEC_DEDUP_TEST_DIE_AT";
/// How often it is killed; `make soak-dedup` has more.
const KILLS: &str = "XEBEC_DEDUP_KILLS";
/// After so many kills all is compared.
const ROUND: usize = 20;
const GRACE: Duration = Duration::from_millis(40);
const TIMEOUT: Duration = Duration::from_secs(2);
/// No more blobs than these wait to be taken apart while others are pushed.
const MOST_WAITING: u64 = 2;
/// So many pairs of images are there before the first is deleted.
const PAIRS: usize = 2;

fn hasty(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.grace = GRACE;
    config.upload_timeout = TIMEOUT;
    config
}

async fn open(root: &Path) -> (Store, Deduplicator) {
    let store = Store::open(&hasty(root)).await.unwrap();
    let settings = Settings {
        least_size: 1,
        level: 1,
        gives_way: false,
        ..Settings::default()
    };
    store.set_restorer(Arc::new(Restorer::new(&settings)));
    let deduplicator = Deduplicator::new(store.clone(), settings, Arc::new(Notify::new()));
    (store, deduplicator)
}

/// A layer of five files, or of one of these: layers come in pairs of an even and an odd number. Another one is in every tenth pair.
fn layer(seed: u64) -> Vec<u8> {
    let pair = seed / 2;
    let own = (0..if seed.is_multiple_of(2) { 5 } else { 1 }).map(|place| 100 + 5 * pair + place);
    let files: Vec<(String, Vec<u8>)> = own
        .chain([pair % 10])
        .map(|file| {
            (
                format!("usr/{file}.txt"),
                text(file, 2000 + 200 * (file as usize % 10)),
            )
        })
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_slice()))
        .collect();
    // Most are not compressed, since taking that apart takes longest.
    match seed % 16 {
        4 => zstd(&tar(&files)),
        9 => gzip(&tar(&files)),
        _ => tar(&files),
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, bytes)
}

/// The layers of an image: one that few have, and one that many have.
fn layers(seed: u64) -> [Vec<u8>; 2] {
    [layer(seed), layer(seed % 5)]
}

fn image(seed: u64) -> NewManifest {
    let layers = layers(seed);
    let references = layers.iter().map(|bytes| Reference {
        kind: ReferenceKind::Layer,
        digest: digest(bytes),
        required: true,
    });
    let content = Bytes::from(format!("image {seed}"));
    NewManifest {
        digest: digest(&content),
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        references: references.collect(),
        content,
        subject: None,
        artifact_type: None,
        annotations: BTreeMap::default(),
        immutable: Vec::new(),
        is_pushed: true,
    }
}

fn say(line: &str) {
    // In one write, so that a kill leaves no half of it.
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

async fn push_layer(store: &Store, name: &RepositoryName, bytes: &[u8]) -> Result<(), StoreError> {
    if store.blob(name, &digest(bytes)).await?.is_some() {
        return Ok(());
    }
    let id = store.begin_upload(name).await?;
    let body = stream::iter([Ok::<_, std::io::Error>(Bytes::copy_from_slice(bytes))]);
    if store.append(name, &id, None, body).await.is_ok() {
        store.finish_upload(name, &id, &digest(bytes)).await?;
    }
    Ok(())
}

async fn push_image(store: &Store, seed: u64) {
    let name = repository();
    loop {
        for bytes in layers(seed) {
            match push_layer(store, &name, &bytes).await {
                // The machine was busy for longer than an upload may rest.
                Ok(()) | Err(StoreError::UnknownUpload { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        say(&format!("pushing {seed}"));
        match store.put_manifest(&name, &image(seed), &[]).await {
            Ok(_) => return say(&format!("pushed {seed}")),
            // The machine was busy for longer than the promise.
            Err(StoreError::MissingReferences { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Pushes pairs of images. Most of the first ones are deleted again, when they were taken apart: then a part of their packs is needed.
async fn push_images(store: Store) {
    let mut random = fastrand::Rng::new();
    let mut pairs = VecDeque::new();
    loop {
        while store.space().await.unwrap().waiting > MOST_WAITING {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let pair = random.u64(5..1_000_000_000);
        pairs.push_back(pair);
        push_image(&store, 2 * pair).await;
        push_image(&store, 2 * pair + 1).await;
        let old = (pairs.len() > PAIRS).then(|| pairs.pop_front()).flatten();
        for seed in old.map(|old| [2 * old, 2 * old + 1]).into_iter().flatten() {
            if random.u8(..4) > 2 * (seed % 2) as u8 {
                say(&format!("deleting {seed}"));
                store
                    .delete_manifest(&repository(), &image(seed).digest)
                    .await
                    .unwrap();
            }
        }
    }
}

async fn work(deduplicator: Arc<Deduplicator>) {
    let mut is_put_off = false;
    loop {
        match deduplicator.work_once().await.unwrap() {
            Some((_, Done::Recorded)) => say("taken apart"),
            Some((_, Done::Kept(why))) => panic!("{why}"),
            Some((_, done)) => is_put_off |= matches!(done, Done::Later(_)),
            // At once, and not after half a minute. The other one may be at work on a blob of these, as another node may be.
            None if std::mem::take(&mut is_put_off) => drop(deduplicator.release().await.unwrap()),
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

async fn repack(deduplicator: Arc<Deduplicator>) {
    loop {
        match deduplicator.repack_once().await.unwrap() {
            Some(_) => say("repacked"),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Where this process ends, and how often it still passes there.
static END: OnceLock<(Stage, AtomicU32)> = OnceLock::new();

fn pass(stage: Stage) {
    if let Some((end, passes)) = END.get()
        && *end == stage
        && passes.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // Not one instruction more of this thread's work.
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn child() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    if let Ok(value) = std::env::var(DIE_AT) {
        let (stage, times) = value.split_once(':').unwrap();
        let stage = Stage::ALL[stage.parse::<usize>().unwrap()];
        END.set((stage, AtomicU32::new(times.parse().unwrap()))).unwrap();
        observe_stages(pass);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (store, deduplicator) = open(Path::new(&root)).await;
        deduplicator.release().await.unwrap();
        deduplicator.drop_leftovers().await.unwrap();
        let deduplicator = Arc::new(deduplicator);
        for _ in 0..2 {
            tokio::spawn(push_images(store.clone()));
            tokio::spawn(work(deduplicator.clone()));
        }
        tokio::spawn(repack(deduplicator));
        loop {
            store.collect(&CollectOptions::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// How a process ends.
#[derive(Clone, Copy)]
enum End {
    /// So long after it has acknowledged something.
    After(Duration),
    /// So long after it was started.
    Early(Duration),
    /// When it comes to a stage for the n-th time.
    At(usize, u32),
}

/// Runs the process, kills it, and returns what it said.
fn run_and_kill(root: &Path, end: End) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child", "--nocapture"]);
    command.env(CHILD, root).stdout(Stdio::piped());
    if let End::At(stage, times) = end {
        command.env(DIE_AT, format!("{stage}:{times}"));
    }
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (send, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mut said: Vec<String> = Vec::new();
    match end {
        End::After(time) => {
            while !said.last().is_some_and(|line| line.starts_with("pushed")) {
                let line = lines.recv_timeout(Duration::from_secs(60));
                said.push(line.expect("the process does nothing"));
            }
            std::thread::sleep(time);
        }
        End::Early(time) => std::thread::sleep(time),
        End::At(stage, _) => wait_for_its_end(&mut child, stage),
    }
    if !matches!(end, End::At(..)) {
        assert!(child.try_wait().unwrap().is_none(), "the process ended by itself");
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "{status}"
    );
    reader.join().unwrap();
    said.extend(lines.try_iter());
    said
}

fn wait_for_its_end(child: &mut Child, stage: usize) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it never comes to {:?}", Stage::ALL[stage]);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

async fn contents(store: &Store, digest: &Digest) -> Vec<u8> {
    let blob = store.peek_blob(&repository(), digest).await.unwrap();
    let blob = blob.unwrap_or_else(|| panic!("{digest} is not here"));
    let mut stream = store.read(&blob, 0..blob.size).await.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

/// The paths of all objects that are there.
fn files(root: &Path) -> BTreeSet<PathBuf> {
    let folders = std::fs::read_dir(root.join("objects"))
        .unwrap()
        .map(|folder| folder.unwrap().path());
    let files = folders
        .filter(|folder| folder.is_dir())
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// The paths of all objects that blobs with these digests need.
async fn named(store: &Store, root: &Path, digests: &BTreeSet<Digest>) -> BTreeSet<PathBuf> {
    let mut keys = Vec::new();
    for digest in digests {
        let blob = store.any_blob(digest).await.unwrap().unwrap();
        keys.extend(blob.object);
        if let Some(recipe) = store.recipe(digest).await.unwrap() {
            keys.push(recipe.object);
            keys.extend(recipe.packs.into_iter().map(|pack| pack.object));
        }
    }
    keys.iter().map(|key| root.join("objects").join(key)).collect()
}

/// The images that there should be: true, or may be: false, because a push or a deletion was begun.
type Images = BTreeMap<u64, bool>;

/// Compares all images that should be there. Those of which it was not known are, or are not, after this.
async fn compare(store: &Store, images: &mut Images) -> BTreeSet<Digest> {
    let mut digests = BTreeSet::new();
    let mut known = BTreeMap::new();
    for (&seed, is_there) in images.iter_mut() {
        let manifest = store.manifest(&repository(), &image(seed).digest).await.unwrap();
        assert!(
            manifest.is_some() || !*is_there,
            "image {seed} was acknowledged and is gone"
        );
        *is_there = manifest.is_some();
        if *is_there {
            for bytes in layers(seed) {
                known.insert(digest(&bytes), bytes);
            }
        }
    }
    images.retain(|_, is_there| *is_there);
    for (digest, bytes) in known {
        assert!(contents(store, &digest).await == bytes, "wrong bytes");
        digests.insert(digest);
    }
    digests
}

/// Collects until nothing is left to collect.
async fn collect(store: &Store) {
    for _ in 0..6 {
        tokio::time::sleep(GRACE + Duration::from_millis(5)).await;
        assert_eq!(store.collect(&CollectOptions::default()).await.unwrap().failed, 0);
    }
}

/// All is there after kills, and nothing else. Then most images are deleted.
async fn check(root: &Path, images: &mut Images, random: &mut fastrand::Rng) {
    let (store, deduplicator) = open(root).await;
    compare(&store, images).await;
    deduplicator.release().await.unwrap();
    deduplicator.drop_leftovers().await.unwrap();
    while let Some((_, done)) = deduplicator.work_once().await.unwrap() {
        assert!(matches!(done, Done::Recorded), "{done:?}");
    }
    while deduplicator.repack_once().await.unwrap().is_some() {}
    // Drafts and uploads of processes that were killed are given up.
    tokio::time::sleep(TIMEOUT).await;
    collect(&store).await;
    let digests = compare(&store, images).await;
    for digest in &digests {
        assert_eq!(
            store.any_blob(digest).await.unwrap().unwrap().object,
            None,
            "nobody took it apart"
        );
    }
    let (files, named) = (files(root), named(&store, root, &digests).await);
    let (extra, missing) = (files.difference(&named).count(), named.difference(&files).count());
    assert_eq!(
        (extra, missing),
        (0, 0),
        "files that nothing needs, and needed ones that are not there"
    );
    let scrubbed = store.scrub(&Default::default(), |_| {}).await.unwrap();
    assert!(scrubbed.damaged.is_empty() && scrubbed.missing.is_empty() && scrubbed.unreadable.is_empty());
    assert_eq!(scrubbed.restored, digests.len() as u64);
    let gone: Vec<u64> = images.keys().copied().filter(|_| random.u8(..4) > 0).collect();
    for seed in gone {
        store
            .delete_manifest(&repository(), &image(seed).digest)
            .await
            .unwrap();
        images.remove(&seed);
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let kills: usize = std::env::var(KILLS).map_or(20, |kills| kills.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut images = Images::new();
    let mut random = fastrand::Rng::new();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for kill in 1..=kills {
        let end = match kill % 2 {
            0 => End::At(kill / 2 % Stage::ALL.len(), 1 + random.u32(..3)),
            _ if random.u8(..4) == 0 => End::Early(Duration::from_millis(random.u64(..100))),
            _ => End::After(Duration::from_millis(random.u64(..200))),
        };
        for line in run_and_kill(directory.path(), end) {
            let (what, seed) = line.rsplit_once(' ').unwrap_or_default();
            if matches!(what, "pushing" | "pushed" | "deleting") {
                images.insert(seed.parse().unwrap(), what == "pushed");
            }
            let what = ["pushed", "deleting", "taken apart", "repacked"]
                .into_iter()
                .find(|word| line.starts_with(word));
            *counts.entry(what.unwrap_or_default().to_owned()).or_default() += 1;
        }
        if kill % ROUND == 0 || kill == kills {
            runtime.block_on(check(directory.path(), &mut images, &mut random));
        }
    }
    eprintln!("{kills} kills: {counts:?}");
    for what in ["pushed", "deleting", "taken apart", "repacked"] {
        assert!(counts.contains_key(what) || kills < 20, "nothing was {what}");
    }
    runtime.block_on(async {
        let (store, _) = open(directory.path()).await;
        for seed in images.keys() {
            store
                .delete_manifest(&repository(), &image(*seed).digest)
                .await
                .unwrap();
        }
        collect(&store).await;
    });
    assert_eq!(
        files(directory.path()),
        BTreeSet::new(),
        "garbage that no collection takes"
    );
}
