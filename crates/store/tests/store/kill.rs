//! A process that pushes, deletes, moves and collects is killed at random, again and again. All that it had acknowledged is there after that,
//! byte for byte; and when everything is deleted at last, a collection leaves nothing.
//!
//! The process is this program once more. It says on its standard output what was acknowledged, a line each.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use crate::replicas::{place_in, replica_files, wanted};
use crate::toy::*;
use xebec_placement::Placement;
use xebec_store::*;

const CHILD: &str = "XEBEC_STORE_TEST_CHILD";
/// How often the process is killed; `make soak` has more.
const KILLS: &str = "XEBEC_STORE_KILLS";
const PLACES: [&str; 2] = ["one", "two"];
const GRACE: Duration = Duration::from_millis(40);

fn hasty(root: &Path) -> StoreConfig {
    let mut config = config(root);
    config.grace = GRACE;
    config.upload_timeout = Duration::from_secs(1);
    config.places = PLACES.map(|place| place_in(root, place)).to_vec();
    config
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let length = random.usize(..300_000);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

fn image(seed: u64) -> NewManifest {
    manifest(
        &format!("image {seed}"),
        vec![layer(&bytes(seed)), layer(&bytes(seed % 5))],
    )
}

fn say(line: &str) {
    // In one write, so that a kill leaves no half of it.
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Pushes images, and deletes some again.
async fn push_images(store: Store, worker: u64) {
    let mut random = fastrand::Rng::new();
    let repository = name(&format!("worker{worker}"));
    loop {
        let seed = random.u64(5..1_000_000);
        for bytes in [bytes(seed), bytes(seed % 5)] {
            let found = store.blob(&repository, &digest(&bytes)).await.unwrap();
            if found.is_none() {
                match push(&store, &repository, &bytes).await {
                    // The machine was busy for longer than an upload may rest.
                    Ok(_) | Err(StoreError::UnknownUpload { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        match store
            .put_manifest(&repository, &image(seed), &[tag(&format!("t{seed}"))])
            .await
        {
            Ok(_) => say(&format!("pushed {worker} {seed}")),
            // The machine was busy for longer than the promise.
            Err(StoreError::MissingReferences { .. }) => continue,
            Err(error) => panic!("{error}"),
        }
        if random.bool() {
            say(&format!("deleting {worker} {seed}"));
            store
                .delete_manifest(&repository, &image(seed).digest)
                .await
                .unwrap();
        }
    }
}

/// Begins uploads that nobody finishes.
async fn begin_uploads(store: Store) {
    let repository = name("unfinished");
    loop {
        let id = store.begin_upload(&repository).await.unwrap();
        let _ = store
            .append(&repository, &id, None, body(&[&bytes(fastrand::u64(..))]))
            .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes blobs apart, and keeps most of them by their recipes alone.
async fn take_apart(store: Store) {
    store.release_dedup(1).await.unwrap();
    loop {
        match take_next(&store, fastrand::u8(..4) > 0).await {
            Some(Recording::Recorded(_)) => say("taken apart"),
            Some(_) => {}
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Has copies of blobs, recipes and packs anywhere, and gives blobs other forms.
async fn place_all(store: Store) {
    let wishes = [
        wanted(&["main"]),
        wanted(&["one"]),
        wanted(&["main", "two"]),
        wanted(&["one", "two"]),
        wanted(&["main,one,two(2+1)"]),
    ];
    loop {
        for digest in store.take_unplaced(4, Duration::from_millis(20)).await.unwrap() {
            let Some(standing) = store.standing(&digest).await.unwrap() else {
                continue;
            };
            let recipe = standing.recipe.map(|(recipe, _)| Held::of_recipe(&recipe));
            let mut all = true;
            for held in Held::of_blob(&standing.blob).into_iter().chain(recipe) {
                all &= is_placed(&store, &held, &wishes[fastrand::usize(..wishes.len())]).await;
            }
            if all && store.placed(&digest, standing.seen).await.unwrap() {
                say("placed");
            }
            match fastrand::u8(..8) {
                0 => drop(store.make_intact(&standing.blob).await),
                1 => drop(store.drop_recipe(&digest, None).await.unwrap()),
                _ => {}
            }
        }
        for key in store
            .take_unplaced_packs(2, Duration::from_millis(20))
            .await
            .unwrap()
        {
            if let Some(standing) = store.pack_standing(key).await.unwrap() {
                let wish = &wishes[fastrand::usize(..wishes.len())];
                is_placed(&store, &Held::of_pack(&standing.pack), wish).await;
                store.pack_placed(key, standing.seen).await.unwrap();
            }
        }
        if fastrand::u8(..4) == 0 {
            store.place_anew().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Others move and delete the object, too: then it is looked at again.
async fn is_placed(store: &Store, held: &Held, wish: &BTreeSet<Placement>) -> bool {
    match store.place(held, wish).await {
        Ok(_) => true,
        Err(error @ StoreError::Database { .. }) => panic!("{error}"),
        Err(_) => false,
    }
}

/// Each file of a place is a replica of the records, and each replica a file.
async fn compare_places(test: &TestStore) {
    let store = &test.store;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(store.collect(&CollectOptions::default()).await.unwrap().failed, 0);
    }
    let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
    assert_eq!(
        (
            scrubbed.damaged_replicas,
            scrubbed.damaged.len(),
            scrubbed.missing.len()
        ),
        (0, 0, 0)
    );
    assert_eq!(scrubbed.damaged_pieces, 0);
    for space in store.place_space().await.unwrap() {
        let found = replica_files(test.directory.path(), space.place.as_str()).len() as u64;
        assert_eq!(found, space.replicas, "{}", space.place);
    }
}

#[test]
fn child() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&hasty(Path::new(&root))).await.unwrap();
        with_toy(&store);
        for worker in 0..3 {
            tokio::spawn(push_images(store.clone(), worker));
        }
        tokio::spawn(begin_uploads(store.clone()));
        tokio::spawn(take_apart(store.clone()));
        tokio::spawn(place_all(store.clone()));
        loop {
            store.collect(&CollectOptions::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

/// Runs the process, kills it so long `after` it has said a line that begins with `word`, and returns what it said. Without a word, it may not have
/// said anything yet.
fn run_and_kill(root: &Path, word: Option<&str>, after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture"])
        .env(CHILD, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (send, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mut said: Vec<String> = Vec::new();
    while let Some(word) = word
        && !said.last().is_some_and(|line| line.starts_with(word))
    {
        let line = lines.recv_timeout(Duration::from_secs(60));
        said.push(line.unwrap_or_else(|error| panic!("nothing was {word}: {error}")));
    }
    std::thread::sleep(after);
    assert!(child.try_wait().unwrap().is_none(), "the process ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    said.extend(lines.try_iter());
    said
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let kills: u32 = std::env::var(KILLS).map_or(40, |kills| kills.parse().unwrap());
    let directory = TestDirectory::new();
    // The images that were pushed, and whether each may be deleted.
    let mut images: BTreeMap<(u64, u64), bool> = BTreeMap::new();
    let mut random = fastrand::Rng::new();
    let (mut pushed, mut deleted, mut taken_apart, mut placed) = (0, 0, 0, 0);
    for _ in 0..kills {
        let after = Duration::from_millis(random.u64(..120));
        // A busy machine would else be through with pushes alone when the process is killed.
        let words = [None, Some("pushed"), Some("taken apart"), Some("placed")];
        let word = words[random.usize(..words.len())];
        for line in run_and_kill(directory.path(), word, after) {
            taken_apart += u32::from(line == "taken apart");
            placed += u32::from(line == "placed");
            let words: Vec<&str> = line.split(' ').collect();
            let &[what @ ("pushed" | "deleting"), worker, seed] = words.as_slice() else {
                continue;
            };
            let is_deleted = what == "deleting";
            *(if is_deleted { &mut deleted } else { &mut pushed }) += 1;
            images.insert((worker.parse().unwrap(), seed.parse().unwrap()), is_deleted);
        }
    }
    println!("{pushed} pushed, {deleted} deleted, {taken_apart} taken apart, {placed} placed");
    // A database on a busy machine takes longer for a push than most of the processes live.
    assert!(
        pushed >= kills / 4 && (deleted > 0 || kills < 30),
        "{pushed} images in {kills} runs: nothing was tried"
    );
    assert!(
        taken_apart > 0 || kills < 30,
        "no blob was taken apart in {kills} runs"
    );
    assert!(placed > 0 || kills < 30, "no copy was made in {kills} runs");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let test = TestStore {
            store: Store::open(&hasty(directory.path())).await.unwrap(),
            engine: engine(),
            directory,
        };
        with_toy(&test.store);
        for (&(worker, seed), _) in images.iter().filter(|(_, is_deleted)| !**is_deleted) {
            let repository = name(&format!("worker{worker}"));
            let found = test
                .store
                .tagged_manifest(&repository, &tag(&format!("t{seed}")))
                .await
                .unwrap();
            assert_eq!(found.expect("an acknowledged image").digest, image(seed).digest);
            for wanted in [bytes(seed), bytes(seed % 5)] {
                let blob = test.store.peek_blob(&repository, &digest(&wanted)).await.unwrap();
                assert!(
                    contents(&test.store, &blob.expect("its blob")).await == wanted,
                    "wrong bytes"
                );
            }
        }
        compare_places(&test).await;
        collect_all(&test).await;
        assert_eq!(files(&test), 0, "garbage that no collection takes");
        for place in PLACES {
            assert!(
                replica_files(test.directory.path(), place).is_empty(),
                "garbage on {place}"
            );
        }
    });
}
