//! Starts from a registry of Xebec, which answers in advance what a start would ask (docs/formats/native-service.md).

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use xebec_testkit::image::Image;

use super::support::{STRAY, Service, expect_recorded, number, strays};
use crate::cases::registry::missing;
use crate::lab::expect_contents;
use crate::registry::OwnRegistry;
use crate::runner::Outcome;
use crate::world::{World, run};

/// How long an image may take to be indexed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pushes an image as anybody does; gives its reference.
pub(super) fn push(
    service: &Service<'_>,
    registry: &OwnRegistry,
    image: &Image,
    version: &str,
) -> Result<String> {
    let layout = service.lab.path(&format!("layout-{version}"));
    image.write_layout(&layout, "latest")?;
    let reference = format!("{}/app:latest", registry.address);
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--dest-tls-verify=false"])
        .arg(format!("oci:{}:latest", layout.display()))
        .arg(format!("docker://{reference}")))?;
    // Not before the registry has indexed it: its artifact would come between two starts.
    let deadline = Instant::now() + PATIENCE;
    let digest = image.manifest.digest;
    let address = format!("http://{}/v2/app/referrers/{digest}", registry.address);
    loop {
        let told = run(Command::new("curl").args(["-sSf", "--noproxy", "*", &address]))?;
        let told: Value = serde_json::from_slice(&told.stdout)?;
        if told["manifests"]
            .as_array()
            .is_some_and(|listed| !listed.is_empty())
        {
            return Ok(reference);
        }
        ensure!(
            Instant::now() < deadline,
            "the image was never indexed: {}",
            registry.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How often a host has asked its registry until it was ready.
fn asked(stats: &Value) -> Result<u64> {
    number(stats, "/network/requests")
}

/// A first start from a registry asks twice, and a later one on the same host once. One that may not use the service asks as ever, and
/// all three show the same files.
pub(super) fn one_request(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "own-registry", "")?;
    let service = Service::new(world)?;
    let lab = &service.lab;
    let reference = push(&service, &registry, &service.image, "1")?;
    let told = service.record("recorder", &[&reference])?;
    ensure!(number(&told, "/pages")? > STRAY, "{told:#}");

    let first = service.start("root", &[&reference])?;
    expect_recorded(&first)?;
    ensure!(asked(&first)? <= 2 + strays(&first)?, "{first:#}");
    lab.xebec("root", &["rmi", &reference])?.expect(0, &[])?;
    let second = service.start("root", &["--require-lazy", &reference])?;
    expect_recorded(&second)?;
    ensure!(
        asked(&second)? <= 1 + strays(&second)?,
        "{second:#}\n{}",
        registry.log()
    );
    ensure!(number(&second, "/runtime_image/missing")? > 0, "{second:#}");
    service.expect_truth("root", &reference)?;
    service.expect_sound("root", &reference)?;
    let warm = service.start("root", &[&reference])?;
    expect_recorded(&warm)?;
    ensure!(number(&warm, "/runtime_image/missing")? == 0, "{warm:#}");

    lab.registries(
        "plain",
        &format!("[registries.\"{}\"]\nnative = false\n", registry.address),
    )?;
    let plain = service.start("plain", &[&reference])?;
    expect_recorded(&plain)?;
    ensure!(asked(&plain)? >= 4, "{plain:#}");
    service.expect_truth("plain", &reference)?;
    Ok(Outcome::Passed(format!(
        "requests: {} at first, {} then, {} plainly; {} bytes at once",
        asked(&first)?,
        asked(&second)?,
        asked(&plain)?,
        number(&second, "/network/bytes")?,
    )))
}

/// The next version of an image, on a host that has the last one: where it may tell what it holds, the tag and one more request bring
/// only what is new. Where it may not, it asks for the pages itself.
pub(super) fn update(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "own-registry", "")?;
    let service = Service::new(world)?;
    let lab = &service.lab;
    let reference = push(&service, &registry, &service.image, "1")?;
    service.record("recorder", &[&reference])?;
    lab.registries(
        "tells",
        &format!("[registries.\"{}\"]\ntell_held = true\n", registry.address),
    )?;
    for root in ["tells", "silent"] {
        expect_recorded(&service.start(root, &[&reference])?)?;
    }
    let next = service.next_version("start/new", b"the next version")?;
    let reference = push(&service, &registry, &next, "2")?;
    service.record("recorder", &[&reference])?;
    let tells = service.start("tells", &[&reference])?;
    let silent = service.start("silent", &[&reference])?;
    for stats in [&tells, &silent] {
        expect_recorded(stats)?;
        // Neither fetches the pages of the layers that both versions have.
        ensure!(number(stats, "/network/bytes")? < 200_000, "{stats:#}");
    }
    ensure!(asked(&tells)? <= 2 + strays(&tells)?, "{tells:#}");
    ensure!(asked(&silent)? <= 3 + strays(&silent)?, "{silent:#}");
    Ok(Outcome::Passed(format!(
        "{} requests and {} bytes where the host tells what it holds; {} and {} where not",
        asked(&tells)?,
        number(&tells, "/network/bytes")?,
        asked(&silent)?,
        number(&silent, "/network/bytes")?,
    )))
}

/// The next version of an image, of which one file has changed, starts by what the registry predicts before any host has run it. Once it is
/// recorded, the recording counts.
pub(super) fn predicted(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "own-registry", "")?;
    let service = Service::new(world)?;
    let lab = &service.lab;
    let reference = push(&service, &registry, &service.image, "1")?;
    service.record("recorder", &[&reference])?;
    let changed: Vec<u8> = service
        .file("start/b")?
        .iter()
        .rev()
        .take(600_000)
        .copied()
        .collect();
    let next = service.next_version("start/b", &changed)?;
    push(&service, &registry, &next, "2")?;
    let predicted = predicted_of(&registry, &next)?;
    let told = lab.xebec("looking", &["inspect", "--runtime-image", &reference])?;
    told.expect(0, &["predicted"])?;

    let first = service.start("root", &[&reference])?;
    expect_recorded(&first)?;
    let loaded = |stats: &Value| stats["runtime_image"]["recording"].clone();
    ensure!(loaded(&first) == predicted, "not by {predicted}: {first:#}");
    ensure!(asked(&first)? <= 2 + strays(&first)?, "{first:#}");
    let mnt = lab.mount("root", &reference, &[])?;
    expect_contents(&mnt.join("start/b"), &changed)?;
    expect_contents(&mnt.join("start/a"), service.file("start/a")?)?;
    lab.umount("root", &mnt)?;
    service.expect_sound("root", &reference)?;

    let recorded = service.record("recorder", &[&reference])?;
    let plainly = format!("[registries.\"{}\"]\nnative = false\n", registry.address);
    lab.registries("plain", &plainly)?;
    let mut starts = Vec::new();
    for root in ["native", "plain"] {
        let stats = service.start(root, &[&reference])?;
        expect_recorded(&stats)?;
        ensure!(
            loaded(&stats) == recorded["artifact"],
            "not by the recording: {recorded:#} {stats:#}"
        );
        starts.push(stats);
    }
    Ok(Outcome::Passed(format!(
        "predicted: {} requests, {} bytes, {} pages, {} beside them; recorded: {} requests, {} bytes, {} pages",
        asked(&first)?,
        number(&first, "/network/bytes")?,
        number(&first, "/runtime_image/injected")?,
        strays(&first)?,
        asked(&starts[0])?,
        number(&starts[0], "/network/bytes")?,
        number(&starts[0], "/runtime_image/injected")?,
    )))
}

/// The artifact that the registry predicts for an image, once it is there.
fn predicted_of(registry: &OwnRegistry, image: &Image) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    let address = format!(
        "http://{}/v2/app/referrers/{}",
        registry.address, image.manifest.digest
    );
    loop {
        let told = run(Command::new("curl").args(["-sSf", "--noproxy", "*", &address]))?;
        let told: Value = serde_json::from_slice(&told.stdout)?;
        let listed = told["manifests"].as_array().into_iter().flatten();
        let mut predicted =
            listed.filter(|listed| !listed["annotations"]["dev.xebec.predicted-from"].is_null());
        if let Some(predicted) = predicted.next() {
            return Ok(predicted["digest"].clone());
        }
        ensure!(
            Instant::now() < deadline,
            "nothing is predicted: {}",
            registry.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A registry that is killed again and again while a host starts from it: every start shows the right files, or fails as one whose
/// registry is away does, and the next one goes on.
pub(super) fn killed(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let mut registry = OwnRegistry::start(world, "own-registry", "")?;
    let port = registry.address.rsplit(':').next().unwrap_or_default().parse()?;
    let service = Service::new(world)?;
    let lab = &service.lab;
    let reference = push(&service, &registry, &service.image, "1")?;
    service.record("recorder", &[&reference])?;
    let (mut ready, mut failed) = (0, 0);
    for round in 0..6_u64 {
        let root = format!("root-{round}");
        // What it learned of the registry stays, the image goes.
        expect_recorded(&service.start(&root, &[&reference])?)?;
        lab.xebec(&root, &["rmi", &reference])?.expect(0, &[])?;
        let mut start = lab.spawn(&root, &["run", "--rm", &reference])?;
        std::thread::sleep(Duration::from_millis(3 + 9 * round));
        registry.kill()?;
        registry = OwnRegistry::start_at(world, "own-registry", "", port)?;
        match start.wait()?.success() {
            true => ready += 1,
            false => failed += 1,
        }
        service.start(&root, &[&reference])?;
        service.expect_truth(&root, &reference)?;
        service.expect_sound(&root, &reference)?;
    }
    Ok(Outcome::Passed(format!(
        "{ready} starts went on, {failed} were refused; all that followed were right"
    )))
}
