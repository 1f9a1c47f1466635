//! A registry that keeps copies on several places by rules: places go away and are lost, rules change, and clients get what was pushed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use super::registry::{missing, said};
use crate::lab::{self, contents, wait_until};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// How long it may take until nothing waits.
const PATIENCE: Duration = Duration::from_secs(90);
const PLACES: [&str; 3] = ["second", "third", "fourth"];
/// The repositories, and the copies that are kept of each at first.
const RULES: [(&str, &[&str]); 2] = [
    ("some", &["intact@main", "files@second"]),
    ("spread", &["files@second,third,fourth(2+1)"]),
];

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "registry/copies".to_owned(),
        limit: Duration::from_secs(300),
        run: Box::new(copies),
    }]
}

struct Own<'a> {
    world: &'a World,
    registry: OwnRegistry,
}

/// The configuration with these rules.
fn configuration(world: &World, rules: &[(&str, &[&str])]) -> String {
    let mut text =
        "[deduplication]\nenabled = true\nleast_size = \"4k\"\nlevel = 1\n[indexing]\nenabled = false\n"
            .to_owned();
    for place in PLACES {
        let directory = world.path(place);
        text += &format!("[[place]]\nname = \"{place}\"\ndirectory = {directory:?}\n");
    }
    for (repository, keep) in rules {
        text += &format!("[[copies]]\nrepositories = \"{repository}/**\"\nkeep = {keep:?}\n");
    }
    text
}

impl<'a> Own<'a> {
    fn start(world: &'a World) -> Result<Self> {
        for place in PLACES {
            fs::create_dir(world.path(place))?;
        }
        let registry = OwnRegistry::start(world, "own", &configuration(world, &RULES))?;
        Ok(Self { world, registry })
    }

    fn file(&self) -> PathBuf {
        self.world.path("own").join("registry.toml")
    }

    /// Runs a command of the program on this registry's data.
    fn command(&self, arguments: &[&str]) -> Result<String> {
        let program = OwnRegistry::program().context("xebec-registry is not built")?;
        said(
            Command::new(program)
                .args(arguments)
                .arg("--config")
                .arg(self.file())
                .arg("--root")
                .arg(self.world.path("own").join("data")),
        )
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.command(arguments)?)?)
    }

    /// Waits until all copies are where the rules want them.
    fn settle(&self) -> Result<()> {
        wait_until(PATIENCE, "all copies are where the rules want them", || {
            let is_apart = self.json(&["space", "--json"])?["waiting"] == 0;
            let is_placed = self.json(&["copies", "--json"])?["waiting"] == 0;
            Ok(is_apart && is_placed && self.plan()?["seconds"] == 0 && self.changes(&self.plan()?) == 0)
        })
        .with_context(|| self.registry.log())
    }

    fn plan(&self) -> Result<Value> {
        self.json(&["copies", "--plan", "--json"])
    }

    /// How many copies a place has. It may have files that a collection has not deleted yet.
    fn copies_on(&self, place: &str) -> Result<u64> {
        let space = self.json(&["copies", "--json"])?;
        let places = space["places"].as_array().context("no places")?;
        let found = places.iter().find(|found| found["place"] == place);
        Ok(found
            .and_then(|found| found["copies"].as_u64())
            .unwrap_or_default())
    }

    /// How many changes a plan has.
    fn changes(&self, plan: &Value) -> u64 {
        let places = plan["places"].as_array().into_iter().flatten();
        let copies: u64 = places
            .flat_map(|place| [&place["made"], &place["dropped"]])
            .filter_map(Value::as_u64)
            .sum();
        let blobs = ["taken_apart", "made_intact", "dropped_intact"];
        copies
            + blobs
                .iter()
                .filter_map(|kind| plan[kind]["blobs"].as_u64())
                .sum::<u64>()
    }

    fn push(&self, repository: &str) -> Result<()> {
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--dest-tls-verify=false"])
            .arg(format!("oci:{}:v1", self.world.path(repository).display()))
            .arg(format!("docker://{}/{repository}/app:v1", self.registry.address)))?;
        Ok(())
    }

    /// skopeo gets the image, and compares all digests.
    fn pull(&self, repository: &str) -> Result<()> {
        let back = self.world.path("back");
        run(Command::new("skopeo")
            .args(["copy", "--quiet", "--src-tls-verify=false"])
            .arg(format!("docker://{}/{repository}/app:v1", self.registry.address))
            .arg(format!("oci:{}:back", back.display())))?;
        fs::remove_dir_all(&back)?;
        Ok(())
    }

    fn pull_all(&self) -> Result<()> {
        RULES.iter().try_for_each(|(repository, _)| self.pull(repository))
    }

    fn objects(&self, place: &str) -> PathBuf {
        self.world.path(place).join("objects")
    }
}

fn copies(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    for (seed, (repository, _)) in (91..).zip(RULES) {
        let layers: &[&[(&str, &[u8])]] = &[&[("file", &contents(seed, 2 << 20))]];
        lab::image(layers, Compression::Gzip(6))?.write_layout(&world.path(repository), "v1")?;
    }
    let own = Own::start(world)?;
    for (repository, _) in RULES {
        own.push(repository)?;
    }
    own.settle()?;
    own.pull_all()?;
    for place in PLACES {
        let (objects, aside) = (own.objects(place), world.path("aside"));
        fs::rename(&objects, &aside)?;
        let pulled = own.pull_all();
        fs::rename(&aside, &objects)?;
        pulled.with_context(|| format!("while {place} was away"))?;
    }
    lost(&own)?;
    changed(world, &own)?;
    let scrubbed = own.command(&["scrub"])?;
    ensure!(scrubbed.contains("nothing is wrong"), "{scrubbed}");
    ensure!(own.registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(
        "images were pulled whole while each place was away, after one was lost, and after the rules had changed".to_owned(),
    ))
}

/// A place is lost for good, and gets its copies again.
fn lost(own: &Own<'_>) -> Result<()> {
    let before = own.copies_on("third")?;
    ensure!(before > 1, "third has {before} copies");
    // It is there: nothing is forgotten.
    ensure!(
        own.command(&["copies", "--lost", "third"]).is_err(),
        "a sound place was forgotten"
    );
    ensure!(
        own.command(&["copies", "--lost", "unknown"]).is_err(),
        "a place was forgotten that there never was"
    );
    fs::remove_dir_all(own.objects("third"))?;
    own.pull_all()?;
    let said = own.command(&["copies", "--lost", "third"])?;
    ensure!(said.contains("forgot the place third"), "{said}");
    own.settle()?;
    let after = own.copies_on("third")?;
    ensure!(
        after == before,
        "third had {before} copies, and has {after} again"
    );
    let files = files(&own.objects("third"))? as u64;
    ensure!(files >= after, "third has {files} files of {after} copies");
    let second = own.objects("second");
    fs::rename(&second, own.world.path("aside"))?;
    let pulled = own.pull_all();
    fs::rename(own.world.path("aside"), &second)?;
    pulled.context("after the copies of a lost place were made again")
}

/// Other rules, with a plan first.
fn changed(world: &World, own: &Own<'_>) -> Result<()> {
    let rules: [(&str, &[&str]); 2] = [
        ("some", &["chunks@third"]),
        ("spread", &["intact@main", "intact@fourth"]),
    ];
    // A place that the program has not opened is no reason to give up the rules that count.
    let unopened = format!(
        "[[place]]\nname = \"fifth\"\ndirectory = {:?}\n",
        world.path("fifth")
    );
    fs::write(own.file(), configuration(world, &rules) + &unopened)?;
    own.registry.hang_up()?;
    wait_until(PATIENCE, "the registry keeps its rules", || {
        Ok(own.registry.log().contains("other places are configured"))
    })?;
    fs::write(own.file(), configuration(world, &rules))?;
    let plan = own.plan()?;
    ensure!(own.changes(&plan) > 0, "{plan}");
    own.registry.hang_up()?;
    own.settle()?;
    own.pull_all()?;
    // Packs that nothing needs any more go with a collection, a day later.
    for place in ["third", "fourth"] {
        ensure!(own.copies_on(place)? > 0, "{place} has no copies");
    }
    Ok(())
}

fn files(top: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        count += match entry.file_type()?.is_dir() {
            true => files(&entry.path())?,
            false => usize::from(entry.file_name() != "place" && entry.file_name() != ".lock"),
        };
    }
    Ok(count)
}
