//! An index that lies never reaches who named an image by digest, by no way through what a host shares; and what
//! the image's owner bound or signed is used.

mod false_index;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;

use self::false_index::{FILE, Lie, exchange, pushed_artifact};
use crate::lab::{self, Lab, Names, contents, expect_contents, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
const INDEX_MANIFEST_TYPE: &str = "application/vnd.oci.image.index.v1+json";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("trust/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("digest-never-shows-the-lie", digest_never_shows_the_lie),
        case("lie-is-disproved", lie_is_disproved),
        case(
            "lie-is-disproved-in-the-background",
            lie_is_disproved_in_background,
        ),
        case("lie-about-bytes", lie_about_bytes),
        case("lie-stays-in-its-repository", lie_stays_in_its_repository),
        case("lie-gives-no-files", lie_gives_no_files),
        case("lie-takes-no-files", lie_takes_no_files),
        case("registry-root-never", registry_root_never),
        case("signed", signed),
        case("bound", bound),
        case("lie-is-bound", lie_is_bound),
        case("own-table-of-contents", own_table_of_contents),
    ]
}

/// The test: by tag the index of the registry is used, as documented; by digest, on the same host, never.
fn digest_never_shows_the_lie(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    // By digest first, while nothing is cached.
    let refused = lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?;
    refused.expect(6, &["proven", "signed", "bound", "named by digest"])?;
    // By tag it is believed, and everything that lies comes into the cache.
    let by_tag = lab.mount("root", &lie.liar.tag, &["--require-lazy"])?;
    lie.expect_lie(&by_tag)?;
    lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;
    // After a restart of the daemon, too.
    lab.stop("root")?;
    lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;
    let by_tag = lab.mount("root", &lie.liar.tag, &["--require-lazy"])?;
    lie.expect_lie(&by_tag)?;
    // Without the condition the layer is read whole and the truth is shown, beside the mounted lie.
    let by_digest = lab.mount("root", &lie.liar.digest, &[])?;
    lie.expect_truth(&by_digest)?;
    lie.expect_truth(&lab.mount("root", &lie.liar.digest, &["--require-lazy"])?)?;
    lab.stop("root")?;
    lie.expect_truth(&lab.mount("root", &lie.liar.digest, &["--require-lazy"])?)?;
    // An index that was proven is preferred to one that was only found, by tag too.
    lie.expect_truth(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    Ok(Outcome::Passed(format!(
        "lie by tag, truth by digest; refused: {}",
        refused.err.trim()
    )))
}

/// A proof finds the lie out; from then on nobody is shown it.
fn lie_is_disproved(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    let mnt = lab.mount("root", &lie.liar.tag, &["--require-lazy"])?;
    lie.expect_lie(&mnt)?;
    let alarm = lab.xebec("root", &["check", "--prove", &lie.liar.tag])?;
    alarm.expect(7, &["ALARM"])?;
    lab.logged("root", &["ALARM"])?;
    not_used_again(&lie)?;
    Ok(Outcome::Passed(format!(
        "{} {}",
        alarm.out.trim(),
        alarm.err.trim()
    )))
}

/// The same without being asked for, when an image becomes complete in the background.
fn lie_is_disproved_in_background(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    lab.mount("root", &lie.liar.tag, &["--require-lazy", "--complete"])?;
    lab::wait_until(Duration::from_secs(30), "an alarm in the log", || {
        Ok(lab.daemon_log("root")?.contains("ALARM"))
    })?;
    not_used_again(&lie)?;
    Ok(Outcome::Passed("an alarm, and not used again".to_owned()))
}

fn not_used_again(lie: &Lie<'_>) -> Result<()> {
    let lab = &lie.lab;
    for restarted in [false, true] {
        if restarted {
            lab.stop("root")?;
        }
        for name in [&lie.liar.tag, &lie.liar.digest] {
            lab.try_mount("root", name, &["--require-lazy"])?
                .expect(6, &["ALARM"])?;
        }
    }
    for name in [&lie.liar.tag, &lie.liar.digest] {
        lie.expect_truth(&lab.mount("root", name, &[])?)?;
    }
    Ok(())
}

/// An index may be right about the tree and wrong about where the bytes are: here each byte of `truth` is the one
/// after it in the tar file, with a digest of the span to match.
fn lie_about_bytes(world: &World) -> Result<Outcome> {
    let (truth, other) = (contents(21, FILE), contents(22, FILE));
    let plain = lab::tar(&[("truth", &truth), ("other", &other)]);
    let lie = Lie::with(world, move |index, _| {
        let piece = index.pieces.first_mut().context("no piece")?;
        piece.plain_offset += 1;
        let [span] = index.spans.as_mut_slice() else {
            anyhow::bail!("not one span")
        };
        let mut data = vec![0; usize::try_from(span.data.end - span.data.start)?];
        for piece in &index.pieces {
            let [from, to, length] = [
                piece.plain_offset,
                piece.data_offset - span.data.start,
                piece.length,
            ]
            .map(|number| number as usize);
            data[to..to + length].copy_from_slice(&plain[from..from + length]);
        }
        span.digest = Digest::of(&data);
        Ok(())
    })?;
    let lab = &lie.lab;
    let mnt = lab.mount("root", &lie.liar.tag, &["--require-lazy"])?;
    ensure!(
        read_cold(&mnt.join("truth"))?[..99] == truth[1..100],
        "this test tests nothing"
    );
    lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &["named by digest"])?;
    let alarm = lab.xebec("root", &["check", "--prove", &lie.liar.tag])?;
    alarm.expect(7, &["ALARM"])?;
    not_used_again(&lie)?;
    Ok(Outcome::Passed(alarm.out.trim().to_owned()))
}

/// The same image in another repository has nothing to do with what is attached in this one.
fn lie_stays_in_its_repository(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    let bare = lab.push(&lie.image, "elsewhere/app");
    let honest = lab.push_indexed(&lie.image, "honest/app")?;
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    let refused = lab.try_mount("root", &bare.tag, &["--require-lazy"])?;
    ensure!([5, 6].contains(&refused.code), "{refused:?}");
    lie.expect_truth(&lab.mount("root", &honest.tag, &["--require-lazy"])?)?;
    lie.expect_truth(&lab.mount("root", &bare.tag, &[])?)?;
    Ok(Outcome::Passed(
        "refused where nothing is attached, true where the truth is".to_owned(),
    ))
}

/// A lying index cannot pass off one content as another to other images: it claims that `truth`'s digest belongs to
/// other bytes, and another image has a file of that digest.
fn lie_gives_no_files(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    let victim = lab::image(&[&[("mine", &lie.truth)]], Compression::Gzip(1))?;
    let victim = lab.push_indexed(&victim, "victim")?;
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    let completed = lab.xebec("root", &["pull", "--complete", &lie.liar.tag])?;
    completed.expect(7, &["ALARM"])?;
    for restarted in [false, true] {
        if restarted {
            lab.stop("root")?;
        }
        let mnt = lab.mount("root", &victim.tag, &["--require-lazy"])?;
        expect_contents(&mnt.join("mine"), &lie.truth)?;
        lab.umount("root", &mnt)?;
    }
    Ok(Outcome::Passed(format!(
        "the victim reads right; pull of the liar: {}",
        completed.err.trim()
    )))
}

/// A lying index cannot have its image shown what it has not: claims about digests count for its own image alone.
fn lie_takes_no_files(world: &World) -> Result<Outcome> {
    let secret = contents(23, FILE);
    let claimed = Digest::of(&secret);
    let lie = Lie::with(world, move |index, digests| {
        digests[..32].copy_from_slice(claimed.as_bytes());
        exchange(index)
    })?;
    let lab = &lie.lab;
    // Another image with that content is complete and proven here.
    let victim = lab::image(&[&[("secret", &secret)]], Compression::Gzip(1))?;
    let victim = lab.push_indexed(&victim, "victim")?;
    lab.xebec("root", &["pull", "--complete", &victim.tag])?
        .expect(0, &[])?;
    lab.mount("root", &lie.liar.tag, &["--require-lazy"])?;
    // The contents under its tag are its own affair; by digest nothing of it is believed, and the victim is whole.
    lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &[])?;
    lie.expect_truth(&lab.mount("root", &lie.liar.digest, &[])?)?;
    let mnt = lab.mount("root", &victim.digest, &["--require-lazy"])?;
    expect_contents(&mnt.join("secret"), &secret)?;
    let checked = lab.check("root", &victim.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present == checked.pages,
        "{checked:?}"
    );
    Ok(Outcome::Passed(
        "nothing of it by digest; the other image is whole".to_owned(),
    ))
}

/// `registry-root = "never"`: what is only found is not believed by tag either.
fn registry_root_never(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    // Seen and cached first under the default.
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    let rule = format!(
        "[[registry]]\nprefix = \"{}\"\nregistry-root = \"never\"\n",
        lab.registry.host()
    );
    lab.trust("root", &rule)?;
    let refused = lab.try_mount("root", &lie.liar.tag, &["--require-lazy"])?;
    refused.expect(6, &["trust.toml", "never"])?;
    lie.expect_truth(&lab.mount("root", &lie.liar.tag, &[])?)?;
    lab.trust("fresh", "registry-root = \"never\"\n")?;
    lab.try_mount("fresh", &lie.liar.tag, &["--require-lazy"])?
        .expect(6, &["trust.toml"])?;
    lab.trust("broken", "registry-rot = \"never\"\n")?;
    lab.try_mount("broken", &lie.liar.tag, &[])?
        .expect(6, &["registry-rot"])?;
    Ok(Outcome::Passed(format!("refused: {}", refused.err.trim())))
}

/// A signature by a key that `trust.toml` lists suffices for a digest; any other does not. It goes before a lie that
/// is attached beside it.
fn signed(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    // Seen and cached before there was a signature.
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    let key = lab.make_key("ours")?;
    lab.make_key("theirs")?;
    pushed_artifact(lab, &lie.liar, &["--push", "--sign", &key])?;
    let unlisted = lab.try_mount("plain", &lie.liar.digest, &["--require-lazy"])?;
    unlisted.expect(6, &[])?;
    lab.trust_key("wrong", "theirs")?;
    let wrong = lab.try_mount("wrong", &lie.liar.digest, &["--require-lazy"])?;
    wrong.expect(6, &["theirs"])?;
    for root in ["right", "root"] {
        lab.trust_key(root, "ours")?;
        lab.registry.clear_log();
        let mnt = lab.mount(root, &lie.liar.digest, &["--require-lazy"])?;
        let whole = lab.registry.log().iter().any(|request| {
            request
                .head
                .path
                .contains(&lie.image.layers[0].digest.to_string())
                && request.head.range.is_none()
        });
        ensure!(!whole, "the layer was read whole");
        lie.expect_truth(&mnt)?;
        lie.expect_truth(&lab.mount(root, &lie.liar.tag, &["--require-lazy"])?)?;
    }
    // A key taken out of the file stops counting at once.
    lab.trust("right", "")?;
    lab.try_mount("right", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &[])?;
    Ok(Outcome::Passed(format!(
        "lazy by digest; with a wrong key: {}",
        wrong.err.trim()
    )))
}

/// An image index that names image and indexes suffices for its digest, and goes before a lie attached beside it.
fn bound(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    let ended = lab.xebec("builder", &["index", "--bind", "--json", &lie.liar.tag])?;
    ended.expect(0, &[])?;
    let published: Value = serde_json::from_str(&ended.out)?;
    let digest = published
        .get("bound")
        .and_then(Value::as_str)
        .context("nothing bound")?;
    let bound = format!("{}/{}@{digest}", lab.registry.host(), lie.liar.repository);
    for root in ["root", "fresh"] {
        lie.expect_truth(&lab.mount(root, &bound, &["--require-lazy"])?)?;
        lie.expect_truth(&lab.mount(root, &lie.liar.tag, &["--require-lazy"])?)?;
        // The manifest's own digest does not cover the indexes.
        lab.try_mount(root, &lie.liar.digest, &["--require-lazy"])?
            .expect(6, &[])?;
        lab.stop(root)?;
        lie.expect_truth(&lab.mount(root, &bound, &["--require-lazy"])?)?;
    }
    Ok(Outcome::Passed(
        "lazy by the image index's digest and by its tag".to_owned(),
    ))
}

/// A user who may move a tag may let it name an image index that binds a lie. That says nothing about the image's own digest,
/// nor about another image index that binds the truth, also when the registry is away.
fn lie_is_bound(world: &World) -> Result<Outcome> {
    let lie = Lie::new(world)?;
    let lab = &lie.lab;
    let host = lab.registry.host();
    // The image index that binds the truth, in a tag of its own.
    let honest = Names {
        tag: format!("{host}/app:honest"),
        ..lab.push(&lie.image, "app")
    };
    let manifest = &lie.image.manifest;
    lab.registry
        .put_manifest("app", "honest", &manifest.media_type, manifest.bytes.clone());
    let ended = lab.xebec("builder", &["index", "--bind", "--json", &honest.tag])?;
    ended.expect(0, &[])?;
    let published: Value = serde_json::from_str(&ended.out)?;
    let field = |name: &str| {
        published
            .get(name)
            .and_then(Value::as_str)
            .context("not published")
    };
    let (true_artifact, true_index) = (field("artifact")?, field("bound")?);
    // The same, but with the artifact that lies.
    let index = lab
        .registry
        .manifest("app", true_index)
        .context("no image index")?;
    let mut index: Value = serde_json::from_slice(&index)?;
    for entry in index
        .get_mut("manifests")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if entry.get("digest").and_then(Value::as_str) == Some(true_artifact) {
            entry["digest"] = lie.artifact.0.to_string().into();
            entry["size"] = lie.artifact.1.into();
        }
    }
    let bytes = serde_json::to_vec(&index)?;
    let lying = Digest::of(&bytes).to_string();
    for name in ["latest", &lying] {
        lab.registry
            .put_manifest("app", name, INDEX_MANIFEST_TYPE, bytes.clone());
    }
    let by = |digest: &str| format!("{host}/app@{digest}");
    // Named so, the name itself covers the lie.
    lie.expect_lie(&lab.mount("root", &by(&lying), &["--require-lazy"])?)?;
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    for (root, restarted) in [("root", false), ("root", true)] {
        if restarted {
            lab.stop(root)?;
        }
        lab.try_mount(root, &lie.liar.digest, &["--require-lazy"])?
            .expect(6, &["named by digest"])?;
    }
    lie.expect_truth(&lab.mount("root", &by(true_index), &["--require-lazy"])?)?;
    lie.expect_truth(&lab.mount("root", &honest.tag, &["--require-lazy"])?)?;
    // The last one used is false; another tag does not lead over its image index, although no registry is asked.
    lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy"])?)?;
    for policy in ["missing", "never"] {
        lie.expect_truth(&lab.mount("root", &honest.tag, &["--require-lazy", "--pull", policy])?)?;
        lie.expect_lie(&lab.mount("root", &lie.liar.tag, &["--require-lazy", "--pull", policy])?)?;
    }
    // Then the registry goes away.
    lab.registry.set_down(true);
    lie.expect_truth(&lab.mount("root", &honest.tag, &["--require-lazy"])?)?;
    lie.expect_truth(&lab.mount("root", &by(true_index), &["--require-lazy"])?)?;
    lab.try_mount("root", &lie.liar.digest, &["--require-lazy"])?
        .expect(6, &[])?;
    Ok(Outcome::Passed(
        "shown by the name that covers it, by no other digest".to_owned(),
    ))
}

/// eStargz and zstd:chunked carry their own table, which the manifest binds: lazy by digest with no index of ours.
fn own_table_of_contents(world: &World) -> Result<Outcome> {
    let mut done = Vec::new();
    let mut missing = Vec::new();
    for name in ["estargz", "zstd-chunked"] {
        let layout = match World::built_image(name) {
            Ok(layout) => layout,
            Err(error) => {
                missing.push(error.to_string());
                continue;
            }
        };
        let tag = world.push(&layout, &format!("test/{name}"))?;
        let lab = Lab::new(world)?;
        let pulled = lab.xebec(name, &["inspect", "--json", &tag])?;
        pulled.expect(0, &[])?;
        let info: Value = serde_json::from_str(&pulled.out)?;
        let manifest = info
            .pointer("/0/manifest")
            .and_then(Value::as_str)
            .context("no manifest")?;
        let by_digest = tag.replace(":latest", &format!("@{manifest}"));
        let mnt = lab.mount(name, &by_digest, &["--require-lazy"])?;
        ensure!(fs::read_dir(&mnt)?.next().is_some(), "{name} is empty");
        done.push(name);
    }
    if done.is_empty() {
        return Ok(Outcome::Skipped(missing.join("; ")));
    }
    Ok(Outcome::Passed(format!(
        "lazy by digest: {done:?}; missing: {missing:?}"
    )))
}
