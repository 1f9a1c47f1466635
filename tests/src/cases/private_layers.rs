//! A private layer that is on a host is shown only to images of repositories that have it: a user who knows its digest, and makes an
//! image that lists it, gets what a pull would give. Tried by each way to start an image, and with what that user's own registry may say.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::Image;
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use super::containerd::cri;
use crate::containerd::{Containerd, Line, Snapshots, listens};
use crate::docker::{Docker, Relay};
use crate::lab::{self, Lab, Names, contents, expect_contents, is_eio, read_cold};
use crate::runner::{Case, Outcome};
use crate::world::World;

const LIMIT: Duration = Duration::from_secs(240);
/// Length of the private file, in bytes: a layer of many spans.
const LENGTH: usize = 8 << 20;
/// The user who may read the owner's registry, where it asks for a login.
const USER: &str = "owner";
const PASSWORD: &str = "0wner-s3cret";

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: name.to_owned(),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("private/commands", commands),
        case("private/other-registries", other_registries),
        case("private/only-readers", only_readers),
        case("private/logout", logout),
        case("private/containerd", containerd),
        case("private/docker", docker),
    ]
}

/// An image with a private file, and the file.
fn owned() -> Result<(Image, Vec<u8>)> {
    let key = contents(77, LENGTH);
    Ok((lab::image(&[&[("key", &key)]], Compression::Gzip(1))?, key))
}

/// Puts an image that lists another's layers into a repository, and nothing of the layers. Gives its name.
fn steal(registry: &FaultyRegistry, repository: &str, image: &Image) -> Result<String> {
    let mut config: Value = serde_json::from_slice(&image.config.bytes)?;
    config["author"] = json!(repository);
    let config = config.to_string();
    let mut manifest: Value = serde_json::from_slice(&image.manifest.bytes)?;
    manifest["config"]["digest"] = json!(Digest::of(config.as_bytes()));
    manifest["config"]["size"] = json!(config.len());
    registry.put_blob(repository, config);
    let bytes = manifest.to_string();
    let digest = Digest::of(bytes.as_bytes()).to_string();
    for name in ["latest", &digest] {
        registry.put_manifest(repository, name, &image.manifest.media_type, bytes.clone());
    }
    Ok(format!("{}/{repository}:latest", registry.host()))
}

/// Requests for an image's layer.
fn asked(registry: &FaultyRegistry, names: &Names, image: &Image) -> usize {
    registry.count(&format!(
        "/v2/{}/blobs/{}",
        names.repository, image.layers[0].digest
    ))
}

/// Nobody who may not read it gets the image by a command.
fn expect_refused(lab: &Lab<'_>, name: &str) -> Result<()> {
    let target = lab.mount_point("stolen")?.display().to_string();
    let commands: [&[&str]; 5] = [
        &["mount", name, &target],
        &["mount", "--require-lazy", name, &target],
        &["pull", name],
        &["pull", "--complete", name],
        &["run", name, "/key"],
    ];
    for words in commands {
        let ended = lab.xebec("root", words)?;
        ensure!(ended.code != 0, "{words:?}: {ended:?}");
        // Not for want of a program in the image.
        ensure!(
            !ended.out.contains("exec") && !ended.err.contains("exec"),
            "{words:?}: {ended:?}"
        );
    }
    Ok(())
}

/// In the same registry, also while it is away; and those who may have the layer start as before, at no request.
fn commands(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (image, key) = owned()?;
    let owner = lab.push_indexed(&image, "owner/app")?;
    let friend = lab.push(&image, "friend/app");
    let thief = steal(&lab.registry, "thief/app", &image)?;
    lab.xebec("root", &["pull", "--complete", &owner.tag])?
        .expect(0, &[])?;
    expect_refused(&lab, &thief)?;

    lab.registry.clear_log();
    let mnt = lab.mount("root", &friend.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("key"), &key)?;
    lab.umount("root", &mnt)?;
    let first = asked(&lab.registry, &friend, &image);
    ensure!(first == 1, "a friend's repository was asked {first} times");
    lab.registry.clear_log();
    for names in [&owner, &friend] {
        let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
        lab.umount("root", &mnt)?;
        let again = asked(&lab.registry, names, &image);
        ensure!(again == 0, "{}: {again} requests of a later start", names.tag);
    }
    // By a daemon that begins with the registry away.
    lab.stop("root")?;
    lab.registry.set_down(true);
    for names in [&owner, &friend] {
        let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
        expect_contents(&mnt.join("key"), &key)?;
        lab.umount("root", &mnt)?;
    }
    expect_refused(&lab, &thief)?;
    Ok(Outcome::Passed(
        "five commands, with the registry and without".to_owned(),
    ))
}

/// A registry that asks for the owner's login.
fn with_login() -> Options {
    Options {
        access: Access::Basic {
            username: USER.to_owned(),
            password: PASSWORD.to_owned(),
        },
        ..Options::default()
    }
}

/// Makes a file of logins with the owner's, and has commands use it.
fn log_in(lab: &mut Lab<'_>) -> Result<()> {
    let config = lab.path("owner");
    std::fs::create_dir_all(&config)?;
    let auth = json!({"auths": {lab.registry.host(): {"username": USER, "password": PASSWORD}}});
    std::fs::write(config.join("config.json"), auth.to_string())?;
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o700))?;
    lab.environment
        .push(("DOCKER_CONFIG", config.display().to_string()));
    Ok(())
}

/// A daemon that has used a login does not use it any more once its user has logged out, and does again after the next login.
fn logout(world: &World) -> Result<Outcome> {
    let mut lab = Lab::with(world, with_login())?;
    let (image, _) = owned()?;
    let names = lab.push(&image, "app");
    let host = lab.registry.host();
    for _ in 0..2 {
        log_in(&mut lab)?;
        lab.xebec("root", &["pull", &names.tag])?.expect(0, &[])?;
        lab.xebec("root", &["logout", &host])?
            .expect(0, &["logged out"])?;
        lab.xebec("root", &["pull", &names.tag])?.expect(4, &[])?;
    }
    Ok(Outcome::Passed(
        "refused right after each of two logouts".to_owned(),
    ))
}

/// The thief's own registry says what the thief likes; a friend's has the layer.
fn other_registries(world: &World) -> Result<Outcome> {
    let mut lab = Lab::with(world, with_login())?;
    let (image, key) = owned()?;
    let owner = lab.push(&image, "app");
    log_in(&mut lab)?;
    // Its pages come in while it is read: some are here, and others are missing.
    lab.xebec("root", &["index", "--push", &owner.tag])?
        .expect(0, &[])?;
    let mnt = lab.mount("root", &owner.tag, &["--require-lazy"])?;
    let few = std::fs::File::open(mnt.join("key"))?;
    std::os::unix::fs::FileExt::read_exact_at(&few, &mut [0; 4096], 0)?;
    lab.environment.clear();

    let layer = image.layers[0].digest;
    let path = format!("/v2/app/blobs/{layer}");
    let elsewhere = format!("http://{}{path}", lab.registry.host());
    let junk = contents(78, image.layers[0].bytes.len());
    type Say<'a> = Box<dyn Fn(&FaultyRegistry) + 'a>;
    let says: [(&str, Say<'_>); 3] = [
        ("nothing", Box::new(|_| ())),
        (
            "yes to all",
            Box::new(|registry| registry.put_blob_as("app", layer, junk.clone())),
        ),
        (
            "the owner's address",
            Box::new(|registry| {
                let fault = Fault::Says {
                    status: 307,
                    headers: vec![("location", elsewhere.clone())],
                };
                registry.inject(When::blob().path(&path), fault);
            }),
        ),
    ];
    lab.registry.clear_log();
    for (what, say) in says {
        let registry = FaultyRegistry::start()?;
        let name = steal(&registry, "app", &image)?;
        say(&registry);
        expect_refused(&lab, &name).map_err(|error| error.context(what))?;
    }
    let log = lab.registry.log();
    let mut to_owner = log
        .iter()
        .filter(|request| request.head.path.contains(&layer.to_string()));
    ensure!(
        to_owner.all(|request| request.head.authorization.is_none()),
        "the owner's login was used: {log:#?}"
    );

    let registry = FaultyRegistry::start()?;
    let friend = steal(&registry, "app", &image)?;
    registry.put_blob_as("app", layer, image.layers[0].bytes.clone());
    lab.registry.clear_log();
    let shown = lab.mount("root", &friend, &["--require-lazy"])?;
    let pieces = registry.count(&path);
    ensure!((1..=4).contains(&pieces), "{pieces} pieces");
    expect_contents(&shown.join("key"), &key)?;
    Ok(Outcome::Passed(format!(
        "three registries that lie, {pieces} pieces of one that does not"
    )))
}

/// Pages are fetched from the repositories only whose images read the layer: not with the login of one that has no view any more,
/// and with it when it has one again.
fn only_readers(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    // No view stays longer than its holder.
    lab.daemon_settings("root", "linger = \"0s\"\n")?;
    let (image, key) = owned()?;
    let owner = lab.push_indexed(&image, "owner/app")?;
    let other = FaultyRegistry::start()?;
    let friend = steal(&other, "app", &image)?;
    let layer = &image.layers[0];
    other.put_blob_as("app", layer.digest, layer.bytes.clone());
    // Proven, so that its index counts for images of others, too, and without its pages.
    lab.xebec("root", &["index", &owner.tag])?.expect(0, &[])?;
    let mnt = lab.mount("root", &owner.tag, &["--require-lazy"])?;
    lab.umount("root", &mnt)?;
    let shown = lab.mount("root", &friend, &["--require-lazy"])?;
    lab.registry.clear_log();
    other.set_down(true);
    let refused = is_eio(&read_cold(&shown.join("key")))?;
    let asked_owner = asked(&lab.registry, &owner, &image);
    ensure!(
        refused && asked_owner == 0,
        "the owner's repository was asked {asked_owner} times for another's reader"
    );
    lab.mount("root", &owner.tag, &["--require-lazy"])?;
    expect_contents(&shown.join("key"), &key)?;
    Ok(Outcome::Passed(
        "refused, and read when the owner's image was mounted".to_owned(),
    ))
}

/// By CRI, which the thief uses with an account of their own, or with none.
fn containerd(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (image, _) = owned()?;
    let owner = lab.push_indexed(&image, "owner/app")?;
    let thief = steal(&lab.registry, "thief/app", &image)?;
    let snapshots = Snapshots::start(world)?;
    lab.xebec("root", &["pull", "--complete", &owner.tag])?
        .expect(0, &[])?;
    let images = listens(world);
    snapshots.restart_with(&format!("image_service = {images:?}\n"))?;
    let pause = cri::push_pause(world)?;
    let more = cri::configuration(world, Line::Two, &pause)?;
    let containerd = Containerd::start(world, Line::Two, &more)?;
    let accounts: [&[&str]; 2] = [&[], &[USER, PASSWORD]];
    for account in accounts {
        for socket in [containerd.socket(), snapshots.socket()] {
            let words = [&["pull", &thief], account].concat();
            let ended = containerd.tool_at(&socket, "cri", &words)?;
            ensure!(!ended.status.success(), "pulled with {account:?}: {ended:?}");
        }
    }
    let ended = containerd.xebec(&["ctr-pull", &thief]).output()?;
    ensure!(!ended.status.success(), "{ended:?}");
    snapshots.has_only(&snapshots.directories()?)?;
    lab.registry.clear_log();
    containerd.tool("cri", &["pull", &owner.tag])?;
    let fetched = asked(&lab.registry, &owner, &image);
    ensure!(fetched == 0, "the owner's own layer was fetched {fetched} times");
    Ok(Outcome::Passed("CRI by both sockets, and ctr-pull".to_owned()))
}

/// By Docker, whose registry says that it has nothing, or all.
fn docker(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (image, _) = owned()?;
    let owner = lab.push_indexed(&image, "owner/app")?;
    let own = FaultyRegistry::start()?;
    let thieves = [
        steal(&lab.registry, "thief/app", &image)?,
        steal(&own, "thief/app", &image)?,
    ];
    let layer = &image.layers[0];
    own.put_blob_as("thief/app", layer.digest, contents(78, layer.bytes.len()));
    let _snapshots = Snapshots::start(world)?;
    lab.xebec("root", &["pull", "--complete", &owner.tag])?
        .expect(0, &[])?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let _relay = Relay::start(world, &containerd)?;
    let docker = Docker::start(world, &containerd, &Relay::link(world), false)?;
    for thief in &thieves {
        for words in [&["pull", thief][..], &["run", "--network", "host", thief, "/key"]] {
            let ended = docker.ask(words)?;
            ensure!(
                ended.code != 0 && !ended.err.contains("exec"),
                "{words:?}: {ended:?}"
            );
        }
    }
    lab.registry.clear_log();
    docker.does(&["pull", &owner.tag])?;
    let fetched = asked(&lab.registry, &owner, &image);
    ensure!(fetched == 0, "the owner's own layer was fetched {fetched} times");
    Ok(Outcome::Passed(
        "two images that are not pulled, and the owner's".to_owned(),
    ))
}
