//! Xebec's own registry: what is pushed to it, or comes through it, is lazy with no further step.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::Image;

use super::registry::missing;
use crate::lab::{self, Lab, contents, expect_contents};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How long an image may take to be indexed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The type of index artifacts.
const INDEX_ARTIFACT: &str = "application/vnd.xebec.index.v1";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry_lazy/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("pushed", pushed),
        case("through", through),
        case("through-immutable", through_immutable),
        case("mirror", mirror),
        case("signed", signed),
    ]
}

/// A registry with these lines in its configuration, at any port.
fn start(world: &World, configuration: &str) -> Result<OwnRegistry> {
    OwnRegistry::start(world, "own-registry", configuration)
}

/// The index artifacts that refer to an image.
fn listed(registry: &OwnRegistry, repository: &str, image: &Image) -> Result<Vec<Value>> {
    let digest = image.manifest.digest;
    let address = format!(
        "http://{}/v2/{repository}/referrers/{digest}?artifactType={INDEX_ARTIFACT}",
        registry.address
    );
    let told = run(Command::new("curl").args(["-sSf", "--noproxy", "*", &address]))?;
    let told: Value = serde_json::from_slice(&told.stdout).context("the list is not JSON")?;
    Ok(told["manifests"].as_array().cloned().unwrap_or_default())
}

/// Waits until an image has an index artifact.
fn wait_for_index(registry: &OwnRegistry, repository: &str, image: &Image) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while listed(registry, repository, image)?.is_empty() {
        ensure!(
            Instant::now() < deadline,
            "the image was never indexed: {}",
            registry.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Pushes an image as anybody does, with skopeo.
fn push(lab: &Lab<'_>, registry: &OwnRegistry, image: &Image, repository: &str) -> Result<String> {
    let layout = lab.path(&format!("layout-{repository}"));
    image.write_layout(&layout, "latest")?;
    let reference = format!("{}/{repository}:latest", registry.address);
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--dest-tls-verify=false"])
        .arg(format!("oci:{}:latest", layout.display()))
        .arg(format!("docker://{reference}")))?;
    Ok(reference)
}

/// An image is pushed with skopeo and starts lazily; its artifact is the one that `xebec index --push` makes.
fn pushed(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = start(world, "")?;
    let lab = Lab::new(world)?;
    let (one, two) = (contents(71, 3 << 20), contents(72, 100_000));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    let reference = push(&lab, &registry, &image, "app")?;
    wait_for_index(&registry, "app", &image)?;
    let mnt = lab.mount("root", &reference, &["--require-lazy"])?;
    expect_contents(&mnt.join("one"), &one)?;
    expect_contents(&mnt.join("two"), &two)?;
    let before = listed(&registry, "app", &image)?;
    lab.xebec("builder", &["index", "--push", &reference])?
        .expect(0, &[])?;
    let after = listed(&registry, "app", &image)?;
    ensure!(
        before == after,
        "xebec index --push made another artifact: {before:?}, {after:?}"
    );
    Ok(Outcome::Passed(format!("one artifact, {}", before.len())))
}

/// An image of another registry is pulled through, and the second host starts it lazily while that registry is down.
fn through(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let upstream = format!(
        "[[upstream]]\nprefix = \"hub\"\nregistry = \"{}\"\n",
        lab.registry.host()
    );
    let registry = start(world, &upstream)?;
    let file = contents(73, 3 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    lab.push(&image, "app");
    let reference = format!("{}/hub/app:latest", registry.address);
    let mnt = lab.mount("first", &reference, &[])?;
    expect_contents(&mnt.join("file"), &file)?;
    wait_for_index(&registry, "hub/app", &image)?;
    lab.registry.set_down(true);
    let mnt = lab.mount("second", &reference, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    lab.registry.set_down(false);
    Ok(Outcome::Passed("lazy while its upstream is down".to_owned()))
}

/// Tags that the configuration of the registry makes immutable stay as they came from the upstream, and others follow it.
fn through_immutable(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let configuration = format!(
        "[[upstream]]\nprefix = \"hub\"\nregistry = \"{}\"\ntag_ttl = \"0s\"\n\
         [[immutable]]\nrepositories = \"hub/**\"\ntags = [\"v*\"]\n",
        lab.registry.host()
    );
    let registry = start(world, &configuration)?;
    let pulled = |tag: &str| -> Result<Vec<u8>> {
        let address = format!("http://{}/v2/hub/app/manifests/{tag}", registry.address);
        Ok(run(Command::new("curl").args(["-sSf", "--noproxy", "*", &address]))?.stdout)
    };
    let put = |text: &str| -> Result<Vec<u8>> {
        let image = lab::image(&[&[("file", text.as_bytes())]], Compression::Gzip(1))?;
        lab.push(&image, "app");
        let (bytes, media_type) = (&image.manifest.bytes, image.manifest.media_type.as_str());
        for tag in ["v1", "moving"] {
            lab.registry.put_manifest("app", tag, media_type, bytes.clone());
        }
        Ok(bytes.to_vec())
    };
    let first = put("first")?;
    ensure!(
        pulled("v1")? == first && pulled("moving")? == first,
        "other bytes than the upstream's"
    );
    let second = put("second")?;
    let deadline = Instant::now() + PATIENCE;
    while pulled("moving")? != second {
        ensure!(
            Instant::now() < deadline,
            "a tag does not follow its upstream: {}",
            registry.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(pulled("v1")? == first, "an immutable tag follows its upstream");
    Ok(Outcome::Passed("one tag stays, one moves".to_owned()))
}

/// A host that has the registry as its mirror starts an image of another registry lazily under its own name.
fn mirror(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let host = lab.registry.host();
    let upstream = format!("[[upstream]]\nprefix = \"hub\"\nregistry = \"{host}\"\n");
    let registry = start(world, &upstream)?;
    let file = contents(74, 3 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push(&image, "app");
    let settings = format!(
        "[[mirrors.\"{host}\"]]\nurl = \"http://{}\"\nresolve_tags = true\n",
        registry.address
    );
    for root in ["first", "second"] {
        lab.registries(root, &settings)?;
    }
    lab.mount("first", &names.tag, &[])?;
    wait_for_index(&registry, "hub/app", &image)?;
    let mnt = lab.mount("second", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    let blobs = lab.registry.log();
    let blobs = blobs
        .iter()
        .filter(|request| request.head.method == "GET" && request.head.path.contains("/blobs/"));
    let fetched = blobs.count();
    ensure!(
        fetched == image.blobs().count(),
        "each blob is fetched once from the registry itself, not {fetched} times"
    );
    Ok(Outcome::Passed(format!(
        "{fetched} blobs came from the registry itself, for two hosts"
    )))
}

/// A host that trusts the registry's key starts an image that is named by digest.
fn signed(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let lab = Lab::new(world)?;
    let key = lab.make_key("registry")?;
    // Hosts call it by its address, which it has only once it listens.
    let port = free_port()?;
    let settings = format!("[indexing]\nsign_key = \"{key}\"\nname = \"127.0.0.1:{port}\"\n");
    let registry = OwnRegistry::start_at(world, "own-registry", &settings, port)?;
    let file = contents(75, 3 << 20);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    push(&lab, &registry, &image, "app")?;
    wait_for_index(&registry, "app", &image)?;
    let reference = format!("{}/app@{}", registry.address, image.manifest.digest);
    lab.try_mount("stranger", &reference, &["--require-lazy"])?
        .expect(6, &["sign"])?;
    let public = lab.path("registry.pub");
    let trust = format!(
        "[[key]]\nname = \"registry\"\nfile = \"{}\"\nrepositories = [\"{}/**\"]\n",
        public.display(),
        registry.address
    );
    lab.trust("root", &trust)?;
    let mnt = lab.mount("root", &reference, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &file)?;
    Ok(Outcome::Passed("named by digest, and lazy".to_owned()))
}

/// A port that nobody has in this namespace.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}
