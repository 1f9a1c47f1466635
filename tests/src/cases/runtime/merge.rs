//! One recording of all there are, and of what starts asked for besides.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xebec_format::runtime_image::PageRun;
use xebec_testkit::registry::{Fault, When};

use super::support::{
    PAGE, Published, START, Service, each_page, expect_recorded, number, problem, push_signed,
};
use crate::runner::Outcome;
use crate::world::World;

/// Two services that were recorded on two hosts become one recording, and a start of either has all it needs by one
/// request, on any host. Nothing else is to be merged then.
pub(super) fn merge(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let one = [&names.tag[..], "0s", START[0]];
    let other = [&names.tag[..], "0s", START[1]];
    let mut single = Vec::new();
    for (root, words) in [("one", one), ("other", other)] {
        single.push(Published::new(lab, "app", &service.record(root, &words)?)?);
    }
    let told = service.record("merger", &["--merge", &names.tag])?;
    ensure!(number(&told, "/services/0/recordings")? == 1, "{told:#}");
    ensure!(
        told["recordings"].as_array().is_some_and(|all| all.len() == 2),
        "{told:#}"
    );
    ensure!(number(&told, "/brought_bytes")? > 0, "it had nothing: {told:#}");
    let merged = Published::new(lab, "app", &told)?;
    ensure!(
        merged.recording.services.len() == 2,
        "{:?}",
        merged.recording.services
    );
    ensure!(merged.recording.zones.len() == 1, "each start asks for one zone");
    for single in &single {
        let alone = single.recording.services.first().context("no service")?;
        let again = merged
            .recording
            .service(&alone.key)
            .context("a service is gone")?;
        ensure!(again.touched == alone.touched, "pages, order and counts stay");
    }
    let mut both: Vec<_> = single.iter().flat_map(Published::touched).collect();
    both.sort_unstable();
    both.dedup();
    ensure!(number(&told, "/pages")? == both.len() as u64, "{told:#}");
    for (page, bytes) in single.iter().flat_map(|single| &single.pages) {
        ensure!(merged.pages.get(page) == Some(bytes), "page {page:?} is another");
    }

    let artifact = told["artifact"].as_str().context("not pushed")?;
    let mut counts = Vec::new();
    for (root, words) in [("start-one", one), ("start-other", other)] {
        let stats = service.start(root, &words)?;
        expect_recorded(&stats)?;
        ensure!(
            stats["runtime_image"]["recording"] == artifact,
            "the newest is used: {stats:#}"
        );
        let missing = number(&stats, "/runtime_image/missing")?;
        ensure!(
            missing == number(&stats, "/runtime_image/pages")? && missing > 0,
            "{stats:#}"
        );
        ensure!(number(&stats, "/runtime_image/requests")? == 1, "{stats:#}");
        service.expect_truth(root, &names.tag)?;
        service.expect_sound(root, &names.tag)?;
        counts.push(missing);
    }
    // The host that merged has it as its own.
    let stats = service.start("merger", &one)?;
    expect_recorded(&stats)?;
    ensure!(number(&stats, "/runtime_image/missing")? == 0, "{stats:#}");
    for root in ["merger", "elsewhere"] {
        lab.xebec(root, &["record", "--merge", &names.tag])?
            .expect(3, &["nothing to merge"])?;
    }
    // Recorded again, it is merged again; without its zone being written twice, it says the same.
    service.record("one", &one)?;
    let again = service.record("merger", &["--merge", "--local", &names.tag])?;
    ensure!(
        again["recordings"].as_array().is_some_and(|all| all.len() == 2),
        "{again:#}"
    );
    ensure!(again["artifact"].is_null(), "{again:#}");
    Ok(Outcome::Passed(format!(
        "{counts:?} pages by one request each, {} in the zone of both",
        number(&told, "/zone_bytes")?
    )))
}

/// Pages that starts on this host asked for come in, and pages that none of them touched go, both only once it is published.
pub(super) fn profiles(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let words = [&names.tag[..], "0s", START[1]];
    let single = Published::new(lab, "app", &service.record("root", &words)?)?;
    let keep = Profiles::new(&service, "root", &single)?;
    // The first file of the upper layer begins at its first page. No start read the last pages of the one that was recorded.
    let last: Vec<(u16, u64)> = single.touched().into_iter().rev().take(100).collect();
    ensure!(last.iter().all(|(layer, _)| *layer == 1), "{last:?}");
    for number in 0..3 {
        keep.write(number, &[(7, 3), (900 - number, 1)], |page| !last.contains(&page))?;
    }
    keep.damage()?;

    let refused = When::any().method("PUT").path("/manifests/");
    let forbidden = Fault::Status {
        code: 403,
        retry_after: None,
    };
    lab.registry.inject(refused, forbidden);
    let ended = lab.xebec("root", &["record", "--merge", &names.tag])?;
    ensure!(ended.code == 4, "{ended:?}");
    ensure!(
        keep.count()? == 4,
        "profiles are gone, and nothing has what they said"
    );
    lab.registry.clear_faults();

    let told = service.record("root", &["--merge", "--limit", "4", &names.tag])?;
    for (pointer, wanted) in [("added", 4), ("left_out", 2), ("dropped", 100), ("profiles", 3)] {
        let found = number(&told, &format!("/services/0/{pointer}"))?;
        ensure!(found == wanted, "{pointer}: {told:#}");
    }
    ensure!(
        keep.count()? == 1,
        "what was folded is forgotten, and nothing else"
    );
    let merged = Published::new(lab, "app", &told)?;
    let big = service.file("rest/big")?;
    for page in 7..10usize {
        let wanted = big.get(page * PAGE..(page + 1) * PAGE);
        let found = merged.pages.get(&(1, page as u64)).map(Vec::as_slice);
        ensure!(found == wanted, "page {page} is not that of the file");
    }
    let touched = merged.touched();
    ensure!(
        last.iter().all(|page| !touched.contains(page)),
        "what nobody touched is there"
    );
    ensure!(
        touched.len() == single.touched().len() - 100 + 4,
        "{} pages",
        touched.len()
    );

    // Somebody reads what was dropped after all: lazily.
    let stats = service.start("start", &words)?;
    ensure!(number(&stats, "/runtime_image/requests")? == 1, "{stats:#}");
    ensure!(number(&stats, "/upper_requests")? > 0, "{stats:#}");
    ensure!(number(&stats, "/fills/failures")? == 0, "{stats:#}");
    service.expect_truth("start", &names.tag)?;
    service.expect_sound("start", &names.tag)?;
    // And what was dropped does not come back with the recording that had it.
    service.record("root", &[&names.tag])?;
    let again = service.record("root", &["--merge", &names.tag])?;
    let again = Published::new(lab, "app", &again)?;
    let key = &merged.recording.services.first().context("no service")?.key;
    let pages = |published: &Published| -> Result<u64> {
        let service = published.recording.service(key).context("a service is gone")?;
        Ok(service.touched.iter().map(|seen| u64::from(seen.run.pages)).sum())
    };
    ensure!(pages(&again)? == pages(&merged)?, "pages came back");
    Ok(Outcome::Passed(format!(
        "{} pages, 4 more, 100 fewer",
        single.touched().len()
    )))
}

/// A host that keeps an older recording finds the merged one after a start, and takes it at the next.
pub(super) fn reaches_others(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    // Longer than the daemon waits before it looks.
    let words = [&names.tag[..], "7s", START[0]];
    let single = service.record("recorder", &words)?;
    let used = |expected: &Value| -> Result<()> {
        let stats = service.start("host", &words)?;
        // The pages that a program that sleeps for long touches of itself differ too much to be counted.
        ensure!(problem(&stats)?.is_none(), "{stats:#}");
        let recording = &stats["runtime_image"]["recording"];
        ensure!(recording == expected, "{expected} is not used: {stats:#}");
        Ok(())
    };
    used(&single["artifact"])?;
    service.record("recorder", &[&names.tag, "0s", START[1]])?;
    let merged = service.record("recorder", &["--merge", &names.tag])?;
    used(&single["artifact"])?;
    let image = names.digest.rsplit("sha256:").next().context("no digest")?;
    let looked = lab.path("host/runtime").join(image).join("looked");
    let file = fs::File::options().write(true).open(&looked)?;
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600))?;
    used(&single["artifact"])?;
    used(&merged["artifact"])?;
    Ok(Outcome::Passed(
        "found in the background, used at the next start".to_owned(),
    ))
}

/// A service that nobody recorded is made of what a start of it learned.
pub(super) fn learned(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let words = ["--learn", "--probe", "log:ready", &names.tag, "1s", START[1]];
    service.start("root", &words)?;
    let told = service.record("root", &["--merge", &names.tag])?;
    ensure!(told["recordings"] == json!([]), "{told:#}");
    let pages = number(&told, "/services/0/pages")?;
    ensure!(number(&told, "/services/0/added")? == pages, "{told:#}");
    let merged = Published::new(lab, "app", &told)?;
    let b = service.file("start/b")?;
    ensure!(
        merged.pages_of(b) == b.len() / PAGE,
        "{} of b",
        merged.pages_of(b)
    );
    for path in ["rest/big", "rest/more", "start/a"] {
        let foreign = merged.pages_of(service.file(path)?);
        ensure!(foreign == 0, "{foreign} pages of {path}, which nobody read");
    }
    let stats = service.start("other", &[&names.tag, "1s", START[1]])?;
    expect_recorded(&stats)?;
    ensure!(
        stats["runtime_image"]["recording"] == told["artifact"],
        "{stats:#}"
    );
    ensure!(number(&stats, "/runtime_image/requests")? == 1, "{stats:#}");
    lab.xebec("root", &["record", "--merge", &names.tag])?
        .expect(3, &["nothing to merge"])?;
    Ok(Outcome::Passed(format!("{pages} pages learned by one start")))
}

/// Recordings that cannot be merged are refused with a reason.
pub(super) fn refusals(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let key = lab.make_key("ours")?;
    let names = push_signed(&service, &key)?;
    let refused = |root: &str, words: &[&str], code: i32, said: &[&str]| -> Result<()> {
        let ended = lab.xebec(root, &[&["record", "--merge"], words].concat())?;
        ended.expect(code, said).with_context(|| format!("{words:?}"))
    };
    for words in [
        &["--probe", "exit"][..],
        &["--repeat", "2"],
        &["--env", "A=B"],
        &["--key-env", "A"],
    ] {
        let words = [words, &[&names.tag[..]]].concat();
        refused("root", &words, 2, &["--merge", "cannot be used with"])?;
    }
    refused(
        "root",
        &[&names.tag, "sh"],
        2,
        &["--merge", "leave out what follows the image"],
    )?;
    refused("root", &["--limit", "much", &names.tag], 2, &["much", "20%"])?;
    lab.xebec("root", &["record", "--limit", "5", &names.tag])?
        .expect(2, &["--merge"])?;
    refused("root", &[&names.tag], 3, &["no service", "xebec record"])?;
    refused(
        "root",
        &["--sign", "/nowhere/key", &names.tag],
        125,
        &["/nowhere/key"],
    )?;

    // Not signed: an image named by digest does not admit it, so it is not merged for that.
    service.record("recorder", &[&names.tag])?;
    refused("root", &[&names.tag], 3, &["nothing to merge"])?;
    lab.trust_key("strict", "ours")?;
    refused(
        "strict",
        &[&names.digest],
        6,
        &["1 of its recordings may not be used"],
    )?;
    service.record("recorder", &["--sign", &key, &names.tag, "0s", START[0]])?;
    refused(
        "strict",
        &[&names.digest],
        3,
        &["1 of its recordings may not be used", "nothing to merge"],
    )?;
    service.record("recorder", &["--sign", &key, &names.tag, "0s", START[1]])?;
    let told = service.record("strict", &["--merge", "--sign", &key, &names.digest])?;
    ensure!(
        told["services"].as_array().is_some_and(|all| all.len() == 2),
        "{told:#}"
    );
    lab.trust_key("other", "ours")?;
    let stats = service.start("other", &[&names.digest, "0s", START[0]])?;
    expect_recorded(&stats)?;
    ensure!(
        stats["runtime_image"]["recording"] == told["artifact"],
        "{stats:#}"
    );
    Ok(Outcome::Passed(
        "refused with reasons; signed ones are merged".to_owned(),
    ))
}

/// Profiles of a root, written as a daemon would.
struct Profiles<'a> {
    folder: PathBuf,
    single: &'a Published,
}

impl<'a> Profiles<'a> {
    fn new(service: &Service<'_>, root: &str, single: &'a Published) -> Result<Self> {
        let image = single.recording.image.to_string();
        let hex = image
            .strip_prefix("sha256:")
            .context("a digest of another kind")?;
        let folder = service.lab.path(root).join("runtime").join(hex).join("profiles");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, single })
    }

    /// A start that read these pages of the upper layer lazily (first page and count), and recorded pages.
    fn write(&self, number: u64, missed: &[(u64, u32)], touched: impl Fn((u16, u64)) -> bool) -> Result<()> {
        let recording = &self.single.recording;
        let service = recording.services.first().context("no service")?;
        let layers = recording.layers.iter();
        let layers: Vec<Value> = layers
            .map(|layer| json!([layer.layer, layer.index, layer.data_size]))
            .collect();
        let runs = service.touched.iter().map(|seen| seen.run);
        let pages = runs
            .flat_map(|run: PageRun| each_page(&run))
            .filter(|page| touched(*page));
        let mut runs: Vec<PageRun> = Vec::new();
        for (layer, first) in pages {
            let pages = 1;
            PageRun { layer, first, pages }.push_onto(&mut runs);
        }
        let runs: Vec<Value> = runs
            .iter()
            .map(|run| json!([run.layer, run.first, run.pages]))
            .collect();
        let missed: Vec<Value> = missed
            .iter()
            .map(|(first, pages)| json!([1, first, pages]))
            .collect();
        // Later than the recording, wherever its clock was.
        let started = service.recorded + 10 + number;
        let profile = json!({
            "version": 1,
            "image": recording.image,
            "layers": layers,
            "argv": service.key.argv,
            "env": service.key.env,
            "started": started,
            "missed": missed,
            "touched": runs,
        });
        fs::write(
            self.folder.join(format!("{started}-aa-{number}.json")),
            profile.to_string(),
        )?;
        Ok(())
    }

    /// One that nobody can use.
    fn damage(&self) -> Result<()> {
        Ok(fs::write(self.folder.join("1-aa-9.json"), "{\"version\": 1")?)
    }

    fn count(&self) -> Result<usize> {
        Ok(fs::read_dir(&self.folder)?.count())
    }
}
