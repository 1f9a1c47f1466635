//! Start-up pages that are here before a service is started: by a command, and by the daemon's list.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::native::push;
use super::support::{START, Service, expect_recorded, number, told};
use crate::cases::registry::missing;
use crate::registry::OwnRegistry;
use crate::runner::Outcome;
use crate::world::World;

/// The daemon looks at its list every ten seconds here, and a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// What `prefetch` prints.
fn prefetch(service: &Service<'_>, root: &str, words: &[&str]) -> Result<Value> {
    let ended = service
        .lab
        .xebec(root, &[&["prefetch", "--json"], words].concat())?;
    ended.expect(0, &[])?;
    told(&ended)
}

/// Asks that a start finds all of its pages.
fn expect_nothing_missing(stats: &Value) -> Result<()> {
    expect_recorded(stats)?;
    ensure!(number(stats, "/runtime_image/pages")? > 0, "{stats:#}");
    ensure!(number(stats, "/runtime_image/missing")? == 0, "{stats:#}");
    ensure!(number(stats, "/runtime_image/requests")? == 0, "{stats:#}");
    Ok(())
}

/// Two recorded services; one is prefetched, then both. What is prefetched is not fetched at the start.
pub(super) fn command(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let bare = lab.xebec("bare", &["prefetch", &names.tag])?;
    bare.expect(0, &["no service of it is recorded", "xebec record"])?;
    let one = [&names.tag[..], "0s", START[0]];
    let other = [&names.tag[..], "0s", START[1]];
    service.record("recorder", &one)?;
    service.record("recorder", &other)?;

    // The first recording has pages of its own service only.
    let line = format!("/bin/linger 0s {}", START[0]);
    let of = ["--service", &line, &names.tag];
    let first = prefetch(&service, "root", &of)?;
    ensure!(first["services"].as_array().map(Vec::len) == Some(1), "{first:#}");
    let pages = number(&first, "/services/0/loaded/pages")?;
    ensure!(
        pages > 0 && number(&first, "/services/0/loaded/missing")? == pages,
        "{first:#}"
    );
    ensure!(first["complete"] == false, "{first:#}");
    let stats = service.start("root", &one)?;
    expect_nothing_missing(&stats)?;
    let stats = service.start("root", &other)?;
    expect_recorded(&stats)?;
    ensure!(
        number(&stats, "/runtime_image/missing")? > 0,
        "nobody prefetched it: {stats:#}"
    );

    let both = prefetch(&service, "both", &[&names.tag])?;
    ensure!(both["services"].as_array().map(Vec::len) == Some(2), "{both:#}");
    for words in [&one, &other] {
        expect_nothing_missing(&service.start("both", words)?)?;
    }
    let again = prefetch(&service, "both", &[&names.tag])?;
    ensure!(number(&again, "/services/0/loaded/bytes")? == 0, "{again:#}");
    service.expect_truth("both", &names.tag)?;
    service.expect_sound("both", &names.tag)?;

    let unknown = lab.xebec("both", &["prefetch", "--service", "/bin/ling", &names.tag])?;
    unknown.expect(3, &["/bin/ling", "xebec record"])?;
    lab.xebec("both", &["prefetch", "nowhere.invalid/app"])?
        .expect(4, &["nowhere.invalid"])?;
    Ok(Outcome::Passed(format!(
        "{pages} pages of one service, then both"
    )))
}

/// The whole image, after which no registry is needed.
pub(super) fn complete(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    let whole = prefetch(&service, "root", &["--complete", &names.tag])?;
    ensure!(whole["complete"] == true, "{whole:#}");
    lab.registry.set_down(true);
    let stats = service.start("root", &["--pull", "missing", &names.tag])?;
    expect_nothing_missing(&stats)?;
    ensure!(number(&stats, "/network/bytes")? == 0, "{stats:#}");
    service.expect_truth("root", &names.tag)?;
    Ok(Outcome::Passed("a start without its registry".to_owned()))
}

/// The daemon's list: brought in when the daemon starts, and again when the tag has moved.
pub(super) fn list(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    let listed = |every: &str| format!("[[prefetch]]\nimage = \"{}\"\nevery = \"{every}\"\n", names.tag);
    lab.daemon_settings("root", &listed("9s"))?;
    lab.xebec("root", &["daemon", "start"])?
        .expect(2, &["every", "10 s"])?;
    lab.daemon_settings("root", &listed("10s"))?;
    // Any command starts the daemon.
    lab.xebec("root", &["pull", &names.tag])?.expect(0, &[])?;
    let first = prefetched(&service, 1)?;
    expect_nothing_missing(&service.start("root", &[&names.tag])?)?;

    let next = service.next_version("start/new", b"the next version")?;
    let moved = lab.push_indexed(&next, "app")?;
    ensure!(
        moved.tag == names.tag && moved.digest != names.digest,
        "the tag moves"
    );
    service.record("recorder", &[&names.tag])?;
    // Its recording may have come after the image was brought in; then it is found later.
    let next_digest = moved.digest.rsplit('@').next().context("no digest")?;
    logged(&service, &["prefetched", next_digest, "services=1"])?;
    expect_nothing_missing(&service.start("root", &[&names.tag])?)?;
    Ok(Outcome::Passed(first))
}

/// The same list with a registry that tells what changes: a new version is here long before the next look.
pub(super) fn told_by_registry(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "own-registry", "")?;
    let service = Service::new(world)?;
    let lab = &service.lab;
    let reference = push(&service, &registry, &service.image, "1")?;
    service.record("recorder", &[&reference])?;
    let listed = format!("[[prefetch]]\nimage = \"{reference}\"\nevery = \"1h\"\n");
    lab.daemon_settings("root", &listed)?;
    lab.xebec("root", &["pull", &reference])?.expect(0, &[])?;
    prefetched(&service, 1)?;
    logged(&service, &["its registry tells what changes", &registry.address])?;

    let next = service.next_version("start/new", b"the next version")?;
    let began = Instant::now();
    push(&service, &registry, &next, "2")?;
    service.record("recorder", &[&reference])?;
    let digest = next.manifest.digest.to_string();
    logged(&service, &["prefetched", &digest, "services=1"])?;
    let after = began.elapsed();
    expect_nothing_missing(&service.start("root", &[&reference])?)?;

    Ok(Outcome::Passed(format!(
        "here {:.1} s after the push, with its recording",
        after.as_secs_f64()
    )))
}

/// Waits until the daemon of `root` has logged a line with these words.
fn logged(service: &Service<'_>, words: &[&str]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while service.lab.logged("root", words).is_err() {
        ensure!(
            Instant::now() < deadline,
            "no line with {words:?}: {}",
            service.lab.daemon_log("root")?
        );
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Whether a line of the log says that an image was brought in. One that says that it was not has no manifest.
fn is_prefetched(line: &str) -> bool {
    line.contains("prefetched") && line.contains("manifest=")
}

/// Waits until the daemon of `root` has prefetched so often.
fn prefetched(service: &Service<'_>, times: usize) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = service.lab.daemon_log("root")?;
        let lines: Vec<&str> = log.lines().filter(|line| is_prefetched(line)).collect();
        if let Some(line) = lines.get(times - 1) {
            return Ok((*line).to_owned());
        }
        ensure!(Instant::now() < deadline, "{log}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
