//! cosign signs images in the registry, with a key and without a public log, and finds its signatures again. Its signatures count for
//! `xebec`, and those that `xebec` makes count for it (docs/trust.md).

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::said;
use super::support::{digest, ensure_mounted, ensure_whole, index_artifact, tags};
use crate::lab::{Lab, wait_until};
use crate::registry::OwnRegistry;
use crate::world::{World, run, run_failing};

/// Of every key that cosign makes here.
const PASSWORD: &str = "a password";
/// How cosign signs without telling a public log.
const SIGN: [&str; 5] = ["sign", "--yes", "--tlog-upload=false", "--key", "cosign.key"];
/// How it verifies what no public log knows.
const VERIFY: [&str; 4] = ["verify", "--insecure-ignore-tlog=true", "--key", "cosign.pub"];

/// cosign in the case's directory, which is its home, too.
struct Cosign<'a>(&'a World);

impl Cosign<'_> {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut cosign = Command::new(World::tool("cosign")?);
        cosign
            .args(arguments)
            .current_dir(self.0.path(""))
            .env("HOME", self.0.path(""))
            .env("COSIGN_PASSWORD", PASSWORD)
            // It asks the network for roots that a key does not need. A proxy that is not there refuses at once.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1");
        Ok(cosign)
    }

    fn does(&self, arguments: &[&[&str]]) -> Result<String> {
        said(&mut self.command(&arguments.concat())?)
    }

    fn refuses(&self, arguments: &[&[&str]], reason: &str) -> Result<()> {
        let error = run_failing(&mut self.command(&arguments.concat())?)?;
        ensure!(error.contains(reason), "{reason:?} is not why: {error}");
        Ok(())
    }
}

pub(super) fn cosign(world: &World, registry: &OwnRegistry) -> Result<String> {
    let cosign = Cosign(world);
    for prefix in ["cosign", "other"] {
        cosign.does(&[&["generate-key-pair", "--output-key-prefix", prefix]])?;
    }
    images(world, &cosign, registry)?;
    indexes(world, &cosign, registry)?;
    Ok("signs, verifies, attests, attaches, lists, copies and cleans; signs indexes for xebec, and verifies xebec's".to_owned())
}

/// An image is signed, and what says something of it is found, copied with it, and removed.
fn images(world: &World, cosign: &Cosign<'_>, registry: &OwnRegistry) -> Result<()> {
    let of = |repository: &str| -> Result<String> {
        let digest = digest(registry, "team/app:v1")?;
        Ok(format!("{}/{repository}@{digest}", registry.address))
    };
    let (image, copy) = (of("team/app")?, of("cosign/copy")?);
    let other_key = [
        "verify",
        "--insecure-ignore-tlog=true",
        "--key",
        "other.pub",
        &image,
    ];
    cosign.refuses(&[&VERIFY, &[&image]], "no signatures found")?;
    cosign.does(&[&SIGN, &[&image]])?;
    let verified = cosign.does(&[&VERIFY, &[&image]])?;
    let digest = image.split_once('@').context("no digest")?.1;
    ensure!(verified.contains(digest), "{verified}");
    cosign.refuses(&[&other_key], "no matching signatures")?;

    fs::write(world.path("predicate.json"), r#"{"seen": "by cosign"}"#)?;
    let attest = ["attest", "--yes", "--tlog-upload=false", "--key", "cosign.key"];
    let of_type = ["--type", "https://example.com/seen/v1"];
    cosign.does(&[&attest, &of_type, &["--predicate", "predicate.json", &image]])?;
    let verify = ["verify-attestation", "--insecure-ignore-tlog=true", "--key"];
    cosign.does(&[&verify, &["cosign.pub"], &of_type, &[&image]])?;
    cosign.refuses(
        &[&verify, &["other.pub"], &of_type, &[&image]],
        "no matching attestations",
    )?;

    let signature = format!("{}/team/app:{}.sig", registry.address, digest.replace(':', "-"));
    ensure!(cosign.does(&[&["triangulate", &image]])? == signature);
    let tree = cosign.does(&[&["tree", &image]])?;
    let attestation = signature.replace(".sig", ".att");
    ensure!(tree.contains(&signature) && tree.contains(&attestation), "{tree}");

    let to = copy.replace(&format!("@{digest}"), ":v1");
    cosign.does(&[&["copy", &image, &to]])?;
    ensure_mounted(registry, "cosign/copy")?;
    ensure_whole(world, registry, "cosign/copy:v1")?;
    cosign.does(&[&VERIFY, &[&copy]])?;
    cosign.does(&[&verify, &["cosign.pub"], &of_type, &[&copy]])?;
    let attached = tags(registry, "team/app")?;
    // It copies the image under the tag `sha256-HEX`, too.
    let copied = tags(registry, "cosign/copy")?;
    ensure!(
        attached.len() == 3 && attached.iter().all(|tag| copied.contains(tag)),
        "{attached:?}, {copied:?}"
    );

    cosign.does(&[&["clean", "--force", "--type", "all", &image]])?;
    ensure!(
        tags(registry, "team/app")? == ["v1"],
        "something is still attached"
    );
    cosign.refuses(&[&VERIFY, &[&image]], "no signatures found")?;
    cosign.does(&[&VERIFY, &[&copy]])?;
    attach(world, cosign, &image)?;
    cosign.does(&[&VERIFY, &[&image]])?;
    Ok(())
}

/// A signature that was made elsewhere is attached.
fn attach(world: &World, cosign: &Cosign<'_>, image: &str) -> Result<()> {
    let payload = cosign.does(&[&["generate", image]])?;
    fs::write(world.path("payload.json"), payload)?;
    let key = ["--yes", "--tlog-upload=false", "--key", "cosign.key"];
    let to = ["--output-signature", "payload.sig", "payload.json"];
    cosign.does(&[&["sign-blob"], &key, &to])?;
    let attached = ["--payload", "payload.json", "--signature", "payload.sig", image];
    cosign.does(&[&["attach", "signature"], &attached])?;
    Ok(())
}

/// A signature by cosign of the index that the registry made suffices to start the image by its digest; and cosign takes one that
/// `xebec index --sign` made with the same key.
fn indexes(world: &World, cosign: &Cosign<'_>, registry: &OwnRegistry) -> Result<()> {
    let mut lab = Lab::new(world)?;
    lab.environment.push(("COSIGN_PASSWORD", PASSWORD.to_owned()));
    let repository = format!("{}/team/app", registry.address);
    let image = format!("{repository}@{}", digest(registry, "team/app:v1")?);
    let mut index = None;
    wait_until(Duration::from_secs(60), "the image has an index", || {
        index = index_artifact(registry, "team/app:v1")?;
        Ok(index.is_some())
    })?;
    let index = format!("{repository}@{}", index.context("no index")?);
    let trust = |key: &str| {
        let file = world.path(key).display().to_string();
        format!("[[key]]\nname = \"ci\"\nfile = {file:?}\nrepositories = [\"{repository}\"]\n")
    };
    for (root, key) in [("root", "cosign.pub"), ("stranger", "other.pub")] {
        lab.trust(root, &trust(key))?;
        lab.try_mount(root, &image, &["--require-lazy"])?
            .expect(6, &["sign"])?;
    }
    cosign.does(&[&SIGN, &[&index]])?;
    let mounted = lab.mount("root", &image, &["--require-lazy"])?;
    ensure!(fs::read(mounted.join("etc/said"))? == b"of the image\n");
    lab.try_mount("stranger", &image, &["--require-lazy"])?
        .expect(6, &["sign"])?;

    cosign.does(&[&["clean", "--force", "--type", "all", &index]])?;
    cosign.refuses(&[&VERIFY, &[&index]], "no signatures found")?;
    let key = world.path("cosign.key").display().to_string();
    lab.xebec("builder", &["index", "--sign", &key, &image])?
        .expect(0, &[])?;
    run(&mut cosign.command(&[&VERIFY[..], &[&index]].concat())?)?;
    Ok(())
}
