//! Copies on several places by rules: made after a push, read when a place is lost, changed while the registry serves, planned before.

mod backup;
mod faults;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use xebec_dedup::{Deduplicator, Done, Restorer};
use xebec_placement::{Placement, Wanted};
use xebec_policy::copies::{CopyRule, CopyRules};
use xebec_registry_server::copies::ByRules;
use xebec_replication::{Placer, Plan, Popularity, Rules, plan};
use xebec_store::{CollectOptions, Digest, Held, ObjectsConfig, PlaceConfig, Store};
use xebec_testkit::compression::Compression;

use crate::deduplication::{blob_path, layer, settings};
use crate::running::Running;

const PLACES: [&str; 3] = ["second", "third", "fourth"];

/// A registry with three more places, whose blobs are taken apart and placed when a test says so.
struct World {
    registry: Running,
    rules: Rules,
    placer: Placer,
    elsewhere: tempfile::TempDir,
}

fn rules(written: &str) -> CopyRules {
    #[derive(serde::Deserialize)]
    struct File {
        copies: Vec<CopyRule>,
    }
    let file: File = toml::from_str(written).unwrap();
    let mut rules = CopyRules::default_for("files@main".parse().unwrap());
    let places: BTreeSet<_> = PLACES
        .iter()
        .chain(&["main"])
        .map(|name| name.parse().unwrap())
        .collect();
    for rule in file.copies {
        rules.add(rule, &places).unwrap();
    }
    rules
}

fn rule(repositories: &str, keep: &[&str]) -> String {
    format!("[[copies]]\nrepositories = {repositories:?}\nkeep = {keep:?}\n")
}

impl World {
    async fn new(written: &str) -> Self {
        let elsewhere = tempfile::tempdir().unwrap();
        let places = PLACES.map(|name| {
            let root = elsewhere.path().join(name);
            std::fs::create_dir(&root).unwrap();
            PlaceConfig {
                name: name.parse().unwrap(),
                root: Some(root),
                objects: ObjectsConfig::Directory,
            }
        });
        let registry = Running::over(
            |config| {
                config.grace = Duration::ZERO;
                config.places = places.to_vec();
            },
            |_| {},
            |registry| {
                let restorer = Restorer::new(&settings());
                registry.store.set_restorer(Arc::new(restorer));
            },
        )
        .await;
        let rules = Rules::new(rules(written));
        let placer = Placer::new(registry.registry.store.clone(), rules.clone());
        Self {
            registry,
            rules,
            placer,
            elsewhere,
        }
    }

    fn store(&self) -> &Store {
        &self.registry.registry.store
    }

    /// Carries out all that the rules say.
    async fn settle(&self) {
        let forms = Arc::new(ByRules::new(self.rules.clone()));
        let deduplicator = Deduplicator::new(self.store().clone(), settings(), Arc::new(Notify::new()));
        let deduplicator = deduplicator.with_forms(forms);
        self.placer.begin().await.unwrap();
        for _ in 0..100 {
            let mut is_done = true;
            while let Some(worked) = self.placer.work_once().await.unwrap() {
                assert!(worked.problem.is_none(), "{:?}", worked.problem);
                is_done = false;
            }
            while let Some((_, done)) = deduplicator.work_once().await.unwrap() {
                assert!(matches!(done, Done::Recorded | Done::Kept(_)), "{done:?}");
                is_done = false;
            }
            if is_done {
                break;
            }
        }
        assert_eq!(self.store().unplaced().await.unwrap(), 0);
        // What nothing names goes, and no blob does: manifests name them.
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            self.store().collect(&CollectOptions::default()).await.unwrap();
        }
    }

    async fn push(&self, repository: &str, layer: &[u8]) -> Digest {
        let config = self.registry.push_blob(repository, b"{}").await;
        let digest = self.registry.push_blob(repository, layer).await;
        let manifest = crate::running::image(&config, &digest, layer.len());
        let answer = self.registry.push_manifest(repository, "v1", &manifest).await;
        assert_eq!(answer.status(), reqwest::StatusCode::CREATED);
        digest
    }

    async fn pull(&self, repository: &str, digest: &Digest) -> Option<Vec<u8>> {
        let answer = self.registry.get(&blob_path(repository, digest)).await;
        match answer.status().is_success() {
            true => answer.bytes().await.ok().map(Into::into),
            false => None,
        }
    }

    /// Where the bytes that were pushed are.
    async fn intact(&self, digest: &Digest) -> Vec<String> {
        let blob = self.store().any_blob(digest).await.unwrap().unwrap();
        match Held::of_blob(&blob) {
            Some(held) => self.placements(&held).await,
            None => Vec::new(),
        }
    }

    /// Where its recipe is, and so is each of its packs.
    async fn apart(&self, digest: &Digest) -> Vec<String> {
        let Some(recipe) = self.store().recipe(digest).await.unwrap() else {
            return Vec::new();
        };
        let placed = self.placements(&Held::of_recipe(&recipe)).await;
        for pack in &recipe.packs {
            let of_pack = self.placements(&Held::of_pack(pack)).await;
            assert!(
                placed.iter().all(|placement| of_pack.contains(placement)),
                "{of_pack:?}"
            );
        }
        placed
    }

    async fn placements(&self, held: &Held) -> Vec<String> {
        let found: BTreeSet<Placement> = self.store().placements(held, &BTreeSet::new()).await.unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    fn objects(&self, place: &str) -> PathBuf {
        match place {
            "main" => self.store().config().root.join("objects"),
            place => self.elsewhere.path().join(place).join("objects"),
        }
    }

    /// Something is done while a place is gone.
    async fn without<T>(&self, place: &str, work: impl AsyncFnOnce() -> T) -> T {
        let aside = self.elsewhere.path().join(format!("aside-{place}"));
        let objects = self.objects(place);
        std::fs::rename(&objects, &aside).unwrap();
        // As an empty disk in its place.
        if place == "main" {
            std::fs::create_dir(&objects).unwrap();
        }
        let done = work().await;
        if place == "main" {
            std::fs::remove_dir_all(&objects).unwrap();
        }
        std::fs::rename(&aside, &objects).unwrap();
        done
    }

    async fn plan(&self, written: &str) -> Plan {
        plan(self.store(), &rules(written), |_| {}).await.unwrap()
    }
}

fn bytes_below(top: &Path) -> u64 {
    let entries = std::fs::read_dir(top).into_iter().flatten().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata().unwrap() {
            folder if folder.is_dir() => bytes_below(&entry.path()),
            _ if entry.file_name() == "place" => 0,
            file => file.len(),
        })
        .sum()
}

/// Modes of DupHunter: n of R intact; and one with shards, any of whose places may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_any_place_loses_nothing_that_the_rules_keep_elsewhere() {
    let written = rule("some/**", &["intact@main", "files@second"])
        + &rule("spread/**", &["files@second,third,fourth(2+1)"])
        + &rule("whole/**", &["intact@main,third,fourth(1+2)"]);
    let world = World::new(&written).await;
    let layers: Vec<Vec<u8>> = (1..=3)
        .map(|seed| layer(seed, 400_000, Compression::Gzip(6)))
        .collect();
    let repositories = ["some/app", "spread/app", "whole/app"];
    let mut digests = Vec::new();
    for (repository, layer) in repositories.iter().zip(&layers) {
        digests.push(world.push(repository, layer).await);
    }
    world.settle().await;
    assert_eq!(world.intact(&digests[0]).await, ["main"]);
    assert_eq!(world.apart(&digests[0]).await, ["second"]);
    assert_eq!(world.intact(&digests[1]).await, Vec::<String>::new());
    assert_eq!(world.apart(&digests[1]).await, ["second,third,fourth(2+1)"]);
    assert_eq!(world.intact(&digests[2]).await, ["main,third,fourth(1+2)"]);
    assert_eq!(world.apart(&digests[2]).await, Vec::<String>::new());
    for place in ["main", "second", "third", "fourth"] {
        world
            .without(place, async || {
                for ((repository, layer), digest) in repositories.iter().zip(&layers).zip(&digests) {
                    let pulled = world.pull(repository, digest).await;
                    assert!(pulled.as_ref() == Some(layer), "{repository} without {place}");
                }
            })
            .await;
    }
}

/// S-mode: intact only while it is popular.
#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_intact_while_it_is_popular() {
    let written = rule("team/**", &["chunks@second"])
        + "popular = { pulls = 3, within = \"1s\", keep = [\"intact@main\"] }\n";
    let world = World::new(&written).await;
    let layer = layer(1, 300_000, Compression::Gzip(6));
    let digest = world.push("team/app", &layer).await;
    world.settle().await;
    assert_eq!(world.intact(&digest).await, Vec::<String>::new());
    assert_eq!(world.apart(&digest).await, ["second"]);
    let popularity = Popularity::new(world.store().clone(), world.rules.clone());
    for pull in 1..=3 {
        let is_popular = popularity.pulled("team/app", &digest).await.unwrap();
        assert_eq!(is_popular, pull == 3);
    }
    world.settle().await;
    assert_eq!(world.intact(&digest).await, ["main"]);
    assert_eq!(world.apart(&digest).await, ["second"]);
    assert!(world.pull("team/app", &digest).await == Some(layer.clone()));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(world.placer.forget_unpopular().await.unwrap(), 1);
    world.settle().await;
    assert_eq!(world.intact(&digest).await, Vec::<String>::new());
    assert!(world.pull("team/app", &digest).await == Some(layer));
}

/// Each set of rules after each other one: the plan says before what changes, and no pull gets wrong bytes.
#[tokio::test(flavor = "multi_thread")]
async fn rules_change_while_it_serves_and_the_plan_has_said_what_changes() {
    let sets: [&[&str]; 6] = [
        &["intact@main"],
        &["files@main", "files@third"],
        &["chunks@second"],
        &["intact@second", "chunks@third"],
        &["files@second,third,fourth(2+1)"],
        &["intact@main", "intact@fourth"],
    ];
    let world = World::new(&rule("**", sets[0])).await;
    let (one, two) = (
        layer(1, 300_000, Compression::Gzip(6)),
        layer(2, 500_000, Compression::Gzip(6)),
    );
    let digests = [world.push("a/app", &one).await, world.push("b/app", &two).await];
    world.settle().await;
    for keep in sets
        .iter()
        .chain([&sets[3], &sets[1], &sets[5], &sets[2], &sets[0]])
    {
        let written = rule("**", keep);
        let planned = world.plan(&written).await;
        let before: Vec<u64> = PLACES
            .iter()
            .map(|place| bytes_below(&world.objects(place)))
            .collect();
        world.rules.set(rules(&written));
        world.settle().await;
        assert!(
            world.pull("a/app", &digests[0]).await == Some(one.clone()),
            "{keep:?}"
        );
        assert!(
            world.pull("b/app", &digests[1]).await == Some(two.clone()),
            "{keep:?}"
        );
        assert!(world.plan(&written).await.is_nothing(), "{keep:?}");
        let wanted: Wanted = world.rules.get().of("a/app").clone();
        for digest in &digests {
            let all = |placements: &BTreeSet<Placement>| -> Vec<String> {
                placements.iter().map(ToString::to_string).collect()
            };
            assert_eq!(world.intact(digest).await, all(wanted.intact()), "{keep:?}");
            assert_eq!(world.apart(digest).await, all(wanted.apart()), "{keep:?}");
        }
        // What is taken apart has a size that no plan knows.
        if planned.taken_apart.blobs == 0 {
            for (place, before) in PLACES.iter().zip(before) {
                let change = planned
                    .places
                    .get(&place.parse().unwrap())
                    .copied()
                    .unwrap_or_default();
                let after = bytes_below(&world.objects(place));
                assert_eq!(
                    before + change.made_bytes - change.dropped_bytes,
                    after,
                    "{place} {keep:?}"
                );
            }
        }
    }
    // Without rules, everything is as without places.
    world
        .rules
        .set(CopyRules::default_for("files@main".parse().unwrap()));
    world.settle().await;
    for place in PLACES {
        assert_eq!(bytes_below(&world.objects(place)), 0, "{place}");
    }
    assert!(world.pull("a/app", &digests[0]).await == Some(one));
}

/// Rules that named no other place are undone as well.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_are_gone_are_undone() {
    let world = World::new(&rule("**", &["intact@main"])).await;
    let digest = world
        .push("team/app", &layer(1, 300_000, Compression::Gzip(6)))
        .await;
    world.settle().await;
    assert!(world.apart(&digest).await.is_empty());
    world
        .rules
        .set(CopyRules::default_for("files@main".parse().unwrap()));
    assert!(world.placer.is_needed().await.unwrap());
    world.settle().await;
    assert_eq!(world.apart(&digest).await, ["main"]);
    assert!(world.intact(&digest).await.is_empty());
}
