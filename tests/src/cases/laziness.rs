//! Layers that are lazy, layers that are not and say so, and bytes that are never fetched twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Fault, When};

use crate::lab::{self, Lab, contents, expect_contents};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("laziness/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("required", required),
        case("first-use", first_use),
        case("one-zstd-frame", one_zstd_frame),
        case("complete", complete),
        case("files-are-shared", files_are_shared),
        case("files-are-copied", files_are_copied),
        case("fetches-are-shared", fetches_are_shared),
        case("indexes-are-shared", indexes_are_shared),
    ]
}

/// Without an index, laziness can be required and is refused, with the way to it.
fn required(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(41, 2 << 20);
    let names = lab.push(&lab::image(&[&[("file", &file)]], Compression::Gzip(1))?, "app");
    let refused = lab.try_mount("root", &names.tag, &["--require-lazy"])?;
    refused.expect(5, &["cannot start lazily", "xebec index --push"])?;
    let blobs = lab
        .registry
        .log()
        .iter()
        .map(|request| request.bytes_sent)
        .sum::<u64>();
    ensure!(blobs < 1 << 20, "{blobs} bytes were fetched all the same");
    lab.xebec("builder", &["index", "--push", &names.tag])?
        .expect(0, &[])?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    Ok(Outcome::Passed(format!("refused: {}", refused.err.trim())))
}

/// Without an index and without the condition: a notice, the right contents, and a second start that fetches nothing.
fn first_use(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (contents(42, 2 << 20), contents(43, 100_000));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push(&image, "app");
    let mnt = lab.mount_point("mnt")?;
    let place = mnt.to_string_lossy().into_owned();
    let first = lab.xebec("root", &["mount", "--json", &names.tag, &place])?;
    first.expect(0, &["not lazy", "xebec index --push"])?;
    let told: Value = serde_json::from_str(&first.out).context("not JSON")?;
    ensure!(told.get("lazy") == Some(&Value::Bool(false)), "{told}");
    expect_contents(&mnt.join("one"), &one)?;
    expect_contents(&mnt.join("two"), &two)?;
    lab.umount("root", &mnt)?;
    lab.stop("root")?;
    lab.registry.clear_log();
    for reference in [&names.tag, &names.digest] {
        let second = lab.xebec("root", &["mount", "--json", "--require-lazy", reference, &place])?;
        second.expect(0, &[])?;
        ensure!(!second.err.contains("not lazy"), "{second:?}");
        let told: Value = serde_json::from_str(&second.out).context("not JSON")?;
        ensure!(told.get("lazy") == Some(&Value::Bool(true)), "{told}");
        expect_contents(&mnt.join("one"), &one)?;
        expect_contents(&mnt.join("two"), &two)?;
        lab.umount("root", &mnt)?;
    }
    let layers: Vec<String> = image
        .layers
        .iter()
        .map(|layer| layer.digest.to_string())
        .collect();
    let fetched = lab.registry.log();
    let again = fetched
        .iter()
        .filter(|request| layers.iter().any(|layer| request.head.path.contains(layer)));
    ensure!(again.count() == 0, "a layer was fetched again");
    Ok(Outcome::Passed(first.err.trim().to_owned()))
}

/// A layer of one zstd frame cannot be lazy whatever its index says; it says so, and is right.
fn one_zstd_frame(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let mut random = fastrand::Rng::with_seed(44);
    let mut file = vec![0; 96 << 20];
    random.fill(&mut file[..1 << 20]);
    let names = lab.push(&lab::image(&[&[("file", &file)]], Compression::Zstd)?, "app");
    let indexed = lab.xebec("builder", &["index", "--push", &names.tag])?;
    indexed.expect(0, &["NOT LAZY"])?;
    let refused = lab.try_mount("root", &names.tag, &["--require-lazy"])?;
    refused.expect(5, &["cannot start lazily"])?;
    let mnt = lab.mount("root", &names.tag, &[])?;
    expect_contents(&mnt.join("file"), &file)?;
    lab.umount("root", &mnt)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    Ok(Outcome::Passed(refused.err.trim().to_owned()))
}

/// `pull --complete` brings everything in and proves it; reading then raises no event and no request.
fn complete(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(45, 5 << 20);
    let names = lab.push_indexed(&lab::image(&[&[("file", &file)]], Compression::Gzip(1))?, "app")?;
    let before = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.xebec("root", &["pull", "--complete", &names.tag])?
        .expect(0, &[])?;
    let checked = lab.check("root", &names.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present == checked.pages,
        "{checked:?}"
    );
    // The mount that was there before, and a new one.
    let after = lab.mount("root", &names.digest, &["--require-lazy"])?;
    let (events, requests) = (lab.counter("root", "events")?, lab.registry.log().len());
    expect_contents(&before.join("file"), &file)?;
    expect_contents(&after.join("file"), &file)?;
    let raised = lab.counter("root", "events")? - events;
    ensure!(raised == 0, "{raised} events for a complete layer");
    ensure!(
        lab.registry.log().len() == requests,
        "requests for a complete layer"
    );
    Ok(Outcome::Passed(format!("{} pages, no event", checked.pages)))
}

/// Files whose contents are proven in one image are not fetched for another, whatever layer they are in.
fn files_are_shared(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let files: Vec<(String, Vec<u8>)> = (0..8)
        .map(|number| (format!("lib/{number}"), contents(50 + number, 400_000)))
        .collect();
    let borrow = |own: &'static str, bytes: &'static [u8]| -> Vec<(&str, &[u8])> {
        let shared = files
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
        std::iter::once((own, bytes)).chain(shared).collect()
    };
    let (one, two) = (
        borrow("own", b"one's own"),
        borrow("own", b"two's own and longer"),
    );
    let first = lab.push_indexed(&lab::image(&[&one], Compression::Gzip(1))?, "first")?;
    let second = lab.push_indexed(&lab::image(&[&two], Compression::Gzip(9))?, "second")?;
    lab.xebec("root", &["pull", "--complete", &first.tag])?
        .expect(0, &[])?;
    for restarted in [false, true] {
        if restarted {
            // A new daemon finds in the background again what layers may share.
            lab.stop("root")?;
            lab.xebec("root", &["pull", &first.tag])?.expect(0, &[])?;
            std::thread::sleep(Duration::from_secs(1));
        }
        let mnt = lab.mount("root", &second.tag, &["--require-lazy"])?;
        let (spans, bytes) = (
            lab.counter("root", "spans")?,
            lab.counter("root", "bytes_fetched")?,
        );
        for (path, wanted) in &files {
            expect_contents(&mnt.join(path), wanted)?;
        }
        let fetched = (
            lab.counter("root", "spans")? - spans,
            lab.counter("root", "bytes_fetched")? - bytes,
        );
        ensure!(
            fetched == (0, 0),
            "spans and bytes fetched: {fetched:?} (restarted: {restarted})"
        );
        if restarted {
            expect_contents(&mnt.join("own"), b"two's own and longer")?;
        }
        lab.umount("root", &mnt)?;
    }
    Ok(Outcome::Passed(
        "8 files of another image read without a fetch".to_owned(),
    ))
}

/// A whole image of which other layers of this host have most files: only the rest is fetched, and the image is proven as ever. A layer
/// whose data is damaged gives nothing wrong.
fn files_are_copied(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let files: Vec<(String, Vec<u8>)> = (0..19)
        .map(|number| (format!("lib/{number:02}"), contents(70 + number, 500_000)))
        .collect();
    let own = contents(99, 400_000);
    let all: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
        .collect();
    let (lower, upper) = all.split_at(10);
    // In other layers, in another order, beside a file of its own.
    let other: Vec<(&str, &[u8])> = std::iter::once(("lib/own", own.as_slice()))
        .chain(all.iter().rev().copied())
        .collect();
    let first = lab.push_indexed(&lab::image(&[lower, upper], Compression::Gzip(1))?, "first")?;
    let image = lab::image(&[&other], Compression::Gzip(9))?;
    let size: usize = image.layers.iter().map(|layer| layer.bytes.len()).sum();
    let second = lab.push_indexed(&image, "second")?;
    let complete = |root: &str, names: &lab::Names| -> Result<u64> {
        let before = lab.counter(root, "network_bytes").unwrap_or(0);
        lab.xebec(root, &["pull", "--complete", &names.tag])?
            .expect(0, &[])?;
        Ok(lab.counter(root, "network_bytes")? - before)
    };
    complete("root", &first)?;
    let fetched = complete("root", &second)?;
    ensure!(
        fetched * 100 <= size as u64 * 12,
        "{fetched} of {size} bytes were fetched"
    );
    let checked = lab.check("root", &second.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present == checked.pages,
        "{checked:?}"
    );
    let mnt = lab.mount("root", &second.tag, &["--require-lazy"])?;
    for (path, wanted) in &other {
        expect_contents(&mnt.join(path), wanted)?;
    }

    // A disk that has lost a page of one of the givers.
    complete("damaged", &first)?;
    damage(&lab.path("damaged").join("layers"))?;
    let healed = complete("damaged", &second)?;
    ensure!(healed > fetched, "the damage was not noticed: {healed} bytes");
    ensure!(
        healed < size as u64 / 2,
        "nothing was copied: {healed} of {size} bytes"
    );
    let mnt = lab.mount("damaged", &second.tag, &["--require-lazy"])?;
    for (path, wanted) in &other {
        expect_contents(&mnt.join(path), wanted)?;
    }
    Ok(Outcome::Passed(format!(
        "{fetched} of {size} bytes with most files here, {healed} with a damaged one"
    )))
}

/// Writes over the middle of the largest data file of a cache.
fn damage(layers: &Path) -> Result<()> {
    let mut files = Vec::new();
    for layer in fs::read_dir(layers)? {
        let layer = layer?.path();
        for index in fs::read_dir(&layer).into_iter().flatten() {
            let data = index?.path().join("data");
            files.extend(fs::metadata(&data).map(|status| (status.len(), data)));
        }
    }
    let (length, data) = files.into_iter().max().context("no data file")?;
    let file = fs::OpenOptions::new().write(true).open(data)?;
    file.write_all_at(&[0x5a; 4096], (length / 2) & !0xfff)?;
    Ok(())
}

/// A reader and a `pull --complete` of the same image, for longer than the daemon takes to forget what no view uses,
/// fetch every byte once between them.
fn fetches_are_shared(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(60, 24 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let size: usize = image.layers.iter().map(|layer| layer.bytes.len()).sum();
    let names = lab.push_indexed(&image, "app")?;
    lab.registry.clear_log();
    let slow = Fault::Trickle {
        bytes_per_second: 1 << 20,
    };
    lab.registry.inject(When::blob().range(true), slow);
    let mut pull = lab.spawn("root", &["pull", "--complete", &names.tag])?;
    std::thread::sleep(Duration::from_millis(2500));
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    ensure!(pull.wait()?.success(), "pull --complete failed");
    let log = lab.registry.log();
    let sent = log.iter().map(|request| request.bytes_sent).sum::<u64>();
    let times = sent as f64 / size as f64;
    ensure!(times < 1.2, "{times:.2} times the layer was fetched");
    Ok(Outcome::Passed(format!("{times:.2} times the layer was fetched")))
}

/// The index of a layer that two images have is fetched once.
fn indexes_are_shared(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let base = contents(48, 2 << 20);
    let mut fetched: Vec<BTreeSet<String>> = Vec::new();
    let mut layers = Vec::new();
    for (repository, seed) in [("app", 49), ("other", 50)] {
        let file = contents(seed, 100_000);
        let image = lab::image(&[&[("base", &base)], &[("file", &file)]], Compression::Gzip(1))?;
        layers.push(image.layers.iter().map(|layer| layer.digest.to_string()).next());
        let names = lab.push_indexed(&image, repository)?;
        let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
        let log = lab.registry.log().into_iter();
        let blobs = log.filter_map(|request| Some(request.head.path.split_once("/blobs/")?.1.to_owned()));
        fetched.push(blobs.collect());
        expect_contents(&mnt.join("base"), &base)?;
        expect_contents(&mnt.join("file"), &file)?;
    }
    let [first, second] = &fetched[..] else {
        bail!("{fetched:?}");
    };
    // A configuration and an index of each layer; then of the new layer only, and of the other one a piece that shows that the
    // second repository has it.
    ensure!(first.len() == 3, "{first:?}");
    ensure!(second.len() == 3 && first.is_disjoint(second), "{second:?}");
    let shown = layers.last().and_then(Option::as_ref);
    ensure!(shown.is_some_and(|base| second.contains(base)), "{second:?}");
    Ok(Outcome::Passed(format!(
        "{} blobs, then {}",
        first.len(),
        second.len()
    )))
}
