//! A reader gets the right bytes or an error, whatever a registry does; an error that is gone is forgotten.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Access, Fault, Options, When};

use crate::lab::{self, Lab, contents, expect_contents, is_eio, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Size of the files that are read: several spans.
const FILE: usize = 3 << 20;
/// Most requests that one failing read may cost. Each of its spans is tried four times quickly and then about four times in three
/// seconds, for the six seconds of these tests. A read raises up to two more events (a smaller range, the page alone), which get a second
/// each. Three spans, and as much again for what is read ahead.
const MOST_REQUESTS: usize = 6 * 18;
/// Longest that a failing read may take: six seconds and two events of a second each, and slack for a busy machine.
const LONGEST: Duration = Duration::from_secs(25);
/// How often a registry that knows no ranges may send the bytes of a layer in all to one reader who reads it in order. That is once for
/// the first reader, and again as much for requests that were under way before that was known.
const MOST_TIMES_WHOLE: f64 = 3.0;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("faults/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    let mut cases = vec![
        case("wrong-bytes-tar", |world| wrong_bytes(world, Compression::Tar)),
        case("wrong-bytes-gzip", |world| {
            wrong_bytes(world, Compression::Gzip(0))
        }),
        case("garbled-gzip", garbled),
        case("disk-full", disk_full),
        case("whole-blobs-only", whole_blobs_only),
        case("token-expires", token_expires),
        case("redirect-expires", redirect_expires),
        case("no-referrers-api", no_referrers_api),
        case("nothing-listens", nothing_listens),
        case("connections-reset", connections_reset),
    ];
    cases.extend(misbehaviours().into_iter().map(|(name, fault)| Case {
        name: format!("faults/registry-{name}"),
        limit: LIMIT,
        run: Box::new(move |world| misbehaves(world, &fault)),
    }));
    cases
}

/// The registry sends other bytes for a span: the reader gets an error, the log says what happened, nothing wrong
/// is kept, and once the registry is right again so is the reader.
fn wrong_bytes(world: &World, compression: Compression) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (contents(1, 100_000), contents(2, FILE));
    let image = lab::image(&[&[("one", &one), ("two", &two)]], compression)?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    // The same length, so that only a digest can tell: in the middle of `two`, every byte is another.
    let layer = image.layers.first().context("no layer")?;
    let mut wrong = layer.bytes.clone();
    let middle = wrong.len() / 2;
    wrong[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 1);
    lab.registry.put_blob_as("app", layer.digest, wrong);

    let failed = read_cold(&mnt.join("two"));
    ensure!(is_eio(&failed)?, "wrong bytes reached a reader");
    let said = lab.logged("root", &["wrong bytes", &layer.digest.to_string(), "span "])?;
    let digests = said.matches("sha256:").count();
    ensure!(digests >= 3, "not the blob and both digests: {said}");
    let checked = lab.check("root", &names.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present < checked.pages,
        "{checked:?}"
    );
    expect_contents(&mnt.join("one"), &one)?;

    lab.registry.put_blob_as("app", layer.digest, layer.bytes.clone());
    expect_contents(&mnt.join("two"), &two)?;
    let after = lab.check("root", &names.tag)?;
    ensure!(after.wrong == 0 && after.present > checked.present, "{after:?}");
    Ok(Outcome::Passed(format!(
        "EIO, then right; the log: {}",
        said.trim()
    )))
}

/// Compressed bytes that no longer decode.
fn garbled(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(3, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.inject(When::blob().range(true), Fault::WrongBytes);
    ensure!(
        is_eio(&read_cold(&mnt.join("file")))?,
        "wrong bytes reached a reader"
    );
    let checked = lab.check("root", &names.tag)?;
    ensure!((checked.wrong, checked.present) == (0, 0), "{checked:?}");
    lab.registry.clear_faults();
    expect_contents(&mnt.join("file"), &file)?;
    Ok(Outcome::Passed("EIO and nothing cached, then right".to_owned()))
}

/// The cache's file system is full: readers get an error and the log says so; once there is room, all is well.
fn disk_full(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(4, 12 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    lab::mount_small(&lab.path("root"), 32 << 20)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    // The room that is left is less than the file.
    let ballast = lab.path("root").join("ballast");
    let free = rustix::fs::statvfs(lab.path("root"))?;
    let room = usize::try_from(free.f_bavail * free.f_frsize)?;
    std::fs::write(&ballast, vec![1; room - (4 << 20)])?;
    ensure!(
        is_eio(&read_cold(&mnt.join("file")))?,
        "a file was read that has no room"
    );
    let said = lab.logged("root", &["cannot write span", "Make room"])?;
    let checked = lab.check("root", &names.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present < checked.pages,
        "{checked:?}"
    );
    std::fs::remove_file(&ballast)?;
    expect_contents(&mnt.join("file"), &file)?;
    let checked = lab.check("root", &names.tag)?;
    ensure!(checked.wrong == 0, "{checked:?}");
    Ok(Outcome::Passed(format!(
        "EIO, then right; the log: {}",
        said.trim()
    )))
}

fn misbehaviours() -> Vec<(&'static str, Fault)> {
    let status = |code, retry_after: Option<&str>| Fault::Status {
        code,
        retry_after: retry_after.map(str::to_owned),
    };
    vec![
        ("ignores-range", Fault::IgnoreRange),
        ("says-416", status(416, None)),
        ("says-429", status(429, Some("1"))),
        ("says-500", status(500, None)),
        ("says-503", status(503, Some("1"))),
        ("truncates", Fault::Truncate(1000)),
        ("resets", Fault::Reset(5000)),
        ("resets-at-once", Fault::Reset(0)),
        (
            "trickles",
            Fault::Trickle {
                bytes_per_second: 1000,
            },
        ),
        ("hangs", Fault::Hang),
        ("wrong-content-range", Fault::WrongContentRange),
        ("wrong-content-length", Fault::WrongContentLength),
        ("short-ranges", Fault::ShortRange(100_000)),
        ("multipart", Fault::Multipart),
        ("content-encoding", Fault::ContentEncoding),
        ("web-page", Fault::Html),
    ]
}

/// Twice wrong, then right: the reader notices nothing. Always wrong: the reader gets the right bytes or an error,
/// after a bounded number of requests and a bounded time; afterwards it reads well.
fn misbehaves(world: &World, fault: &Fault) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    // In layers of their own, so that reading ahead in one brings nothing of the other.
    let (one, two) = (contents(5, FILE), contents(6, FILE));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;

    lab.registry.clear_log();
    lab.registry
        .inject(When::blob().range(true).times(2), fault.clone());
    expect_contents(&mnt.join("one"), &one)?;
    let healed = lab.registry.count("/blobs/");

    lab.registry.clear_log();
    lab.registry.clear_faults();
    lab.registry.inject(When::blob().range(true), fault.clone());
    let begin = Instant::now();
    let result = read_cold(&mnt.join("two"));
    let failed = is_eio(&result)?;
    let took = begin.elapsed();
    ensure!(took < LONGEST, "the read took {took:?}");
    let log = lab.registry.log();
    let (requests, bytes) = (
        log.len(),
        log.iter().map(|request| request.bytes_sent).sum::<u64>(),
    );
    if let Ok(bytes) = result {
        ensure!(bytes == two, "wrong contents without an error");
    } else {
        ensure!(
            requests <= MOST_REQUESTS,
            "{requests} requests for one failing read"
        );
        lab.logged("root", &["cannot fetch", &lab.registry.host()])?;
    }
    lab.registry.clear_faults();
    expect_contents(&mnt.join("two"), &two)?;
    let checked = lab.check("root", &names.tag)?;
    ensure!(checked.wrong == 0, "{checked:?}");
    let end = if failed { "EIO" } else { "right all the same" };
    Ok(Outcome::Passed(format!(
        "twice: right after {healed} requests; always: {end} after {requests} requests, {:.1} MB, {:.1} s",
        bytes as f64 / 1e6,
        took.as_secs_f64()
    )))
}

/// A registry that answers every range with the whole blob: what arrives is used, so that reading a file in order
/// does not fetch the layer again for each part of it.
fn whole_blobs_only(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(12, 32 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let size: usize = image.layers.iter().map(|layer| layer.bytes.len()).sum();
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.clear_log();
    lab.registry.inject(When::blob().range(true), Fault::IgnoreRange);
    expect_contents(&mnt.join("file"), &file)?;
    let log = lab.registry.log();
    let sent = log.iter().map(|request| request.bytes_sent).sum::<u64>();
    let times = sent as f64 / size as f64;
    let text = format!("{} requests, {times:.1} times the layer", log.len());
    ensure!(times < MOST_TIMES_WHOLE, "{text}");
    // A whole blob that was wrong is not held on to.
    let image = lab::image(&[&[("file", &contents(13, FILE))]], Compression::Gzip(0))?;
    let second = lab.push_indexed(&image, "second")?;
    let mnt = lab.mount("root", &second.tag, &["--require-lazy"])?;
    let layer = image.layers.first().context("no layer")?.digest;
    let right = lab.registry.blob("second", &layer).context("no blob")?;
    let mut wrong = right.to_vec();
    wrong[2 << 20] ^= 1;
    lab.registry.put_blob_as("second", layer, wrong);
    ensure!(
        is_eio(&read_cold(&mnt.join("file")))?,
        "wrong bytes reached a reader"
    );
    lab.registry.put_blob_as("second", layer, right);
    expect_contents(&mnt.join("file"), &contents(13, FILE))?;
    Ok(Outcome::Passed(text))
}

/// Tokens become useless between and during reads.
fn token_expires(world: &World) -> Result<Outcome> {
    let options = Options {
        access: Access::anonymous_tokens(Duration::from_secs(60)),
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let (one, two) = (contents(7, FILE), contents(8, FILE));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let before = lab.registry.tokens_given();
    lab.registry.expire_tokens();
    expect_contents(&mnt.join("one"), &one)?;
    lab.registry
        .inject(When::blob().range(true).times(2), Fault::ExpireTokens);
    expect_contents(&mnt.join("two"), &two)?;
    let given = lab.registry.tokens_given() - before;
    ensure!((1..=8).contains(&given), "{given} tokens");
    Ok(Outcome::Passed(format!("right, with {given} new tokens")))
}

/// URLs that a registry redirected to become useless.
fn redirect_expires(world: &World) -> Result<Outcome> {
    let options = Options {
        redirect_blobs: Some(Duration::from_secs(600)),
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let (one, two) = (contents(9, FILE), contents(10, FILE));
    let image = lab::image(&[&[("one", &one), ("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let file = std::fs::File::open(mnt.join("one"))?;
    let mut head = vec![0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0)?;
    ensure!(
        Some(head.as_slice()) == one.get(..4096),
        "the first page is wrong"
    );
    lab.registry.clear_log();
    lab.registry.expire_redirects();
    expect_contents(&mnt.join("two"), &two)?;
    expect_contents(&mnt.join("one"), &one)?;
    let refused = lab
        .registry
        .log()
        .iter()
        .filter(|request| request.status == 403)
        .count();
    ensure!(refused <= 8, "{refused} requests with an expired URL");
    Ok(Outcome::Passed(format!(
        "right, after {refused} refused requests"
    )))
}

/// A registry without the referrers API: indexes are found by the fallback tag, for every image of a repository.
fn no_referrers_api(world: &World) -> Result<Outcome> {
    let options = Options {
        referrers_api: false,
        ..Options::default()
    };
    let lab = Lab::with(world, options)?;
    let (one, two) = (contents(14, FILE), contents(15, FILE));
    for (repository, file) in [("one", &one), ("two", &two)] {
        let image = lab::image(&[&[("file", file)]], Compression::Gzip(1))?;
        let names = lab.push_indexed(&image, repository)?;
        let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
        expect_contents(&mnt.join("file"), file)?;
    }
    Ok(Outcome::Passed("lazy".to_owned()))
}

/// Nothing listens: the error says so and what to do; an image that is complete here starts all the same.
fn nothing_listens(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(11, FILE);
    let names = lab.push_indexed(&lab::image(&[&[("file", &file)]], Compression::Gzip(1))?, "app")?;
    lab.xebec("root", &["pull", "--complete", &names.tag])?
        .expect(0, &[])?;
    let other = names.tag.replace("/app:", "/unknown:");
    // A port where nothing listens any more.
    let mut lab = lab;
    let host = lab.registry.host();
    lab.registry = xebec_testkit::registry::FaultyRegistry::start()?;
    starts_without(&lab, &names, &other, &host)
}

/// Every connection is reset.
fn connections_reset(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(11, FILE);
    let names = lab.push_indexed(&lab::image(&[&[("file", &file)]], Compression::Gzip(1))?, "app")?;
    lab.xebec("root", &["pull", "--complete", &names.tag])?
        .expect(0, &[])?;
    let other = names.tag.replace("/app:", "/unknown:");
    lab.registry.set_down(true);
    let host = lab.registry.host();
    starts_without(&lab, &names, &other, &host)
}

fn starts_without(lab: &Lab<'_>, names: &lab::Names, unknown: &str, host: &str) -> Result<Outcome> {
    let file = contents(11, FILE);
    lab.stop("root")?;
    let refused = lab.try_mount("root", unknown, &[])?;
    refused.expect(4, &[host])?;
    let fresh = lab.try_mount("fresh", &names.tag, &[])?;
    fresh.expect(4, &[host])?;
    for reference in [&names.digest, &names.tag] {
        let begin = Instant::now();
        let mnt = lab.mount("root", reference, &["--require-lazy"])?;
        expect_contents(&mnt.join("file"), &file)?;
        ensure!(
            begin.elapsed() < LONGEST,
            "{reference} took {:?}",
            begin.elapsed()
        );
        lab.umount("root", &mnt)?;
    }
    Ok(Outcome::Passed(format!(
        "by digest and by tag; unknown: {}",
        refused.err.trim()
    )))
}
