//! Much at once: 300 clients that pull beside 50 that push, and a repository with 100,000 tags. The clients are `registryload`
//! (tests/gotools), which `make bench-registry` measures with, too.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::registry::{missing, said};
use crate::http::Client;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// The memory that the registry may take with 300 pulls and 50 pushes.
const MOST_MEMORY_MIB: u64 = 128;
const PULLED: usize = 32 << 20;
const PUSHED: usize = 4 << 20;
/// A push that waits for all pulls takes longer.
const LONGEST_PUSH_MS: f64 = 20_000.0;
const TAGS: usize = 100_000;
/// A start that reads all tags takes longer than this more than one without any, and a page that walks them longer than that.
const START: Duration = Duration::from_millis(500);
const PAGE: Duration = Duration::from_millis(250);
/// A page has so many entries at most.
const PAGE_ENTRIES: usize = 1000;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry/{name}"),
        limit: Duration::from_secs(180),
        run: Box::new(run),
    };
    vec![
        case("crowd", crowd),
        case("hundred-thousand-tags", hundred_thousand_tags),
    ]
}

/// Runs the clients; gives what they report.
fn load(arguments: &[&str], address: &str) -> Result<Value> {
    let output = run(Command::new(World::go_tool("registryload")?)
        .args(arguments)
        .arg(address))?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(found["failed"] == 0, "{found}");
    Ok(found)
}

fn crowd(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "crowd", "")?;
    let path = push_blob(&registry.address, &vec![7; PULLED])?;
    let size = PUSHED.to_string();
    let found = load(
        &[
            "crowd", "-pulls", "300", "-pushes", "50", "-size", &size, "-path", &path,
        ],
        &registry.address,
    )?;
    let memory = registry.peak_memory()?;
    ensure!(memory <= MOST_MEMORY_MIB, "{memory} MiB; {found}");
    let longest = found["push_ms"]["highest"].as_f64().context("no pushes")?;
    ensure!(longest < LONGEST_PUSH_MS, "a push took {longest:.0} ms; {found}");
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(format!(
        "{memory} MiB at most with 300 pulls and 50 pushes; {} requests, a push took {longest:.0} ms at most",
        found["requests"]
    )))
}

/// Pushes a blob, and says where it is.
fn push_blob(address: &str, bytes: &[u8]) -> Result<String> {
    let digest = xebec_format::digest::Digest::of(bytes);
    let place = format!("/v2/crowd/blobs/uploads/?digest={digest}");
    let answer = Client::new(address).ask("POST", &place, "", bytes)?;
    ensure!(answer.status == 201, "{answer:?}");
    Ok(format!("/v2/crowd/blobs/{digest}"))
}

fn hundred_thousand_tags(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let configuration = "[indexing]\nenabled = false\n";
    let begun = Instant::now();
    let registry = OwnRegistry::start(world, "large", configuration)?;
    let empty = begun.elapsed();
    let tags = TAGS.to_string();
    let fill = [
        "fill",
        "-tags",
        &tags,
        "-each",
        "50",
        "-repositories",
        "1500",
        "-clients",
        "16",
    ];
    load(&fill, &registry.address)?;
    ensure!(registry.end()?, "the registry did not end well");
    let begun = Instant::now();
    let registry = OwnRegistry::start(world, "large", configuration)?;
    let full = begun.elapsed();
    ensure!(
        full < empty + START,
        "a start takes {full:?}, of an empty one {empty:?}"
    );
    let last = format!("tag-{:06}", TAGS - PAGE_ENTRIES / 2);
    let mut slowest = Duration::ZERO;
    for (path, list, least) in [
        ("/v2/large/tags/list".to_owned(), "tags", PAGE_ENTRIES),
        (format!("/v2/large/tags/list?last={last}"), "tags", 1),
        ("/v2/_catalog".to_owned(), "repositories", PAGE_ENTRIES),
        (
            "/v2/_catalog?last=many/repository-001000".to_owned(),
            "repositories",
            1,
        ),
        (
            format!("/v2/large/referrers/{}", subject(&registry)?),
            "manifests",
            PAGE_ENTRIES,
        ),
    ] {
        let mut client = Client::new(&registry.address);
        // Of three, so that a machine that does something else for a moment makes none slow.
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let begun = Instant::now();
            let answer = client.ask("GET", &path, "", b"")?;
            fastest = fastest.min(begun.elapsed());
            let found: Value = serde_json::from_slice(&answer.body)?;
            let entries = found[list].as_array().context("no list")?.len();
            ensure!(
                (least..=PAGE_ENTRIES).contains(&entries),
                "{path}: {entries} entries"
            );
        }
        ensure!(fastest < PAGE, "{path} takes {fastest:?}");
        slowest = slowest.max(fastest);
    }
    let size = fs::metadata(world.path("large/data/records.db"))?.len() >> 20;
    Ok(Outcome::Passed(format!(
        "{size} MiB of records; a start takes {} ms, of an empty registry {}; the slowest page {} ms",
        full.as_millis(),
        empty.as_millis(),
        slowest.as_millis()
    )))
}

/// The digest of the manifest to which all manifests of the large repository refer.
fn subject(registry: &OwnRegistry) -> Result<String> {
    let place = format!("http://{}/v2/large/manifests/subject", registry.address);
    let head = said(Command::new("curl").args(["--silent", "--fail", "--head", &place]))?;
    let digest = head
        .lines()
        .find_map(|line| line.strip_prefix("docker-content-digest: "));
    Ok(digest.context("no digest")?.trim().to_owned())
}
