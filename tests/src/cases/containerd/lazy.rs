//! Images with an index: containerd downloads none of their layers, and everything works.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;
use xebec_testkit::odd::Unpacker;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::support::{compare, downloads, mount_view};
use crate::containerd::{Containerd, Line, Snapshots, http};
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// An image, and how one knows that its service runs.
struct Service {
    image: &'static str,
    /// In place of the image's own entrypoint and arguments.
    arguments: &'static [&'static str],
    ready: Ready,
}

enum Ready {
    /// It answers HTTP on this port.
    Http(u16),
    /// A command in the container says this.
    Says(&'static [&'static str], &'static str),
}

const SERVICES: &[Service] = &[
    Service {
        image: "nginx",
        arguments: &[],
        ready: Ready::Http(super::support::PORT),
    },
    Service {
        image: "redis",
        arguments: &[],
        ready: Ready::Says(&["redis-cli", "ping"], "PONG"),
    },
    Service {
        image: "postgres",
        // `ctr` mounts an empty /run, where its socket would be.
        arguments: &["entrypoint.sh", "postgres", "-c", "unix_socket_directories=/tmp"],
        ready: Ready::Says(&["pg_isready", "--host=127.0.0.1"], "accepting connections"),
    },
    Service {
        image: "python",
        arguments: &[],
        ready: Ready::Http(8081),
    },
];

impl Ready {
    fn is_met(&self, containerd: &Containerd<'_>, container: &str) -> Result<bool> {
        match *self {
            Self::Http(port) => Ok(http(port).is_some()),
            Self::Says(command, word) => {
                let exec = ["tasks", "exec", "--exec-id", "ready", container];
                let output = containerd.ctr(&[&exec, command].concat())?.output()?;
                Ok(String::from_utf8_lossy(&output.stdout).contains(word))
            }
        }
    }
}

/// Pushes an image of `scripts/images` and its indexes, made by a root of their own.
pub(in crate::cases) fn push_indexed(world: &World, image: &str) -> Result<String> {
    let reference = world.push(&World::built_image(image)?, image)?;
    index(world, &reference)?;
    Ok(reference)
}

/// Pushes indexes of an image, made by a root of their own.
pub(in crate::cases) fn index(world: &World, reference: &str) -> Result<()> {
    run(&mut world.xebec_at("builder", &["index", "--push", reference]))?;
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"])).map(|_| ())
}

/// Pushes an image whose lower layers tell themselves what is in them, and are lazy for that, and whose uppermost is not.
pub(super) fn push_mixed(world: &World) -> Result<String> {
    let base = world.push(&World::built_image("estargz")?, "mixed")?;
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("etc/on-top", Kind::File).mode(0o644), b"on top\n");
    let layer = world.path("on-top.tar.gz");
    fs::write(&layer, Compression::Gzip(1).encode(&tar.into_bytes())?)?;
    let mut crane = Command::new(World::tool("crane")?);
    crane.args(["append", "--insecure", "--base", &base, "--new_tag", &base]);
    run(crane.arg("--new_layer").arg(&layer))?;
    Ok(base)
}

/// Pulls an image by a client that says which image it pulls; no layer may be downloaded.
pub(super) fn pull(world: &World, containerd: &Containerd<'_>, line: Line, reference: &str) -> Result<()> {
    without_layers(world, || match line {
        Line::Two => containerd.does(&["images", "pull", "--plain-http", reference]),
        Line::OneSeven => containerd.tool("labels", &["xebec", reference]),
    })
    .map(|_| ())
}

/// Does something, and asks that containerd downloaded no layer meanwhile.
pub(in crate::cases) fn without_layers<T>(world: &World, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = downloads(world)?.len();
    let told = act()?;
    let asked = downloads(world)?.split_off(before);
    // The configuration is a blob, too.
    ensure!(asked.len() == 1, "containerd downloaded {asked:#?}");
    Ok(told)
}

/// An image is named by its digest where a tag has admitted its index, which nobody but the registry vouches for: it is
/// downloaded and unpacked, beside the lazy one.
pub(super) fn by_digest(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    let layers = reference_unpackers::layer_blobs(&World::built_image("nginx")?)?.len();
    pull(world, &containerd, Line::Two, &reference)?;
    let listed = containerd.does(&["images", "ls"])?;
    let digest = listed.split_whitespace().find(|word| word.starts_with("sha256:"));
    let (name, _) = reference.rsplit_once(':').context("no tag")?;
    let named = format!("{name}@{}", digest.context("no digest")?);
    let other = format!("{}-other", containerd.namespace());
    let before = downloads(world)?.len();
    containerd.does(&["--namespace", &other, "images", "pull", "--plain-http", &named])?;
    let asked = downloads(world)?.len() - before;
    ensure!(
        asked == layers,
        "{asked} blobs for {layers} layers that no index may speak for"
    );
    super::support::start_web(&containerd, &reference, "web")?;
    containerd.end("web")?;
    // An image that nobody vouches for any more is not started again. No image is started while the policy cannot be read.
    let trust = world.path("root/trust.toml");
    for text in ["registry-root = \"never\"\n", "registry-root = = 1\n"] {
        fs::write(&trust, text)?;
        let refused = containerd.refuses(&["tasks", "start", "--detach", "web"])?;
        ensure!(refused.contains("trust.toml"), "{refused}");
    }
    fs::remove_file(&trust)?;
    containerd.does(&["tasks", "start", "--detach", "web"])?;
    containerd.end("web")?;
    containerd.does(&["containers", "rm", "web"])?;
    containerd.does(&["images", "rm", "--sync", &reference])?;
    containerd.does(&["--namespace", &other, "images", "rm", "--sync", &named])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!("{asked} blobs by digest, none by tag")))
}

/// Four services, one after the other: pulled without a layer, started, looked into, removed; then nothing is left.
pub(super) fn run_case(world: &World, line: Line) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let empty = snapshots.directories()?;
    let containerd = Containerd::start(world, line, "")?;
    let mut images = Vec::new();
    for Service {
        image,
        arguments,
        ready,
    } in SERVICES
    {
        let reference = push_indexed(world, image)?;
        pull(world, &containerd, line, &reference)?;
        let log = world.path(&format!("{image}.log"));
        let log_uri = format!("file://{}", log.display());
        let net = ["run", "--detach", "--net-host", "--log-uri", &log_uri];
        containerd.does(&[&net, &[&*reference, *image][..], *arguments].concat())?;
        wait_until(super::support::SOON, &format!("{image} is ready"), || {
            ready.is_met(&containerd, image)
        })
        .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        images.push(reference);
    }
    for (Service { image, .. }, reference) in SERVICES.iter().zip(&images) {
        containerd.end(image)?;
        containerd.does(&["containers", "rm", image])?;
        containerd.does(&["images", "rm", "--sync", reference])?;
    }
    containerd.collect()?;
    containerd.has_none()?;
    snapshots.has_only(&empty)?;
    Ok(Outcome::Passed(format!(
        "{} services, no layer downloaded",
        SERVICES.len()
    )))
}

/// Changes in a container on a lazy image are what containerd sees as such: a diff has them and nothing else, a commit
/// keeps them; and the image is what an independent unpack makes of it.
pub(super) fn changes(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let reference = push_indexed(world, "nginx")?;
    pull(world, &containerd, Line::Two, &reference)?;
    compare(world, &containerd, "nginx", &reference)?;
    super::support::start_web(&containerd, &reference, "web")?;
    let write = "echo made > /made; rm -r /etc/nginx; mkdir /etc/nginx; rm /etc/os-release; mv /srv/site/index.html /srv";
    containerd.does(&["tasks", "exec", "--exec-id", "two", "web", "sh", "-c", write])?;
    containerd.end("web")?;

    let layer = world.path("layer.tar");
    let diff = containerd.ctr(&["snapshots", "diff", "web"])?.output()?;
    ensure!(diff.status.success(), "{diff:?}");
    fs::write(&layer, &diff.stdout)?;
    let listed = run(Command::new("tar")
        .args(["--list", "--gzip", "--file"])
        .arg(&layer))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in [
        "made",
        "etc/.wh.os-release",
        "srv/index.html",
        "srv/site/.wh.index.html",
    ] {
        ensure!(
            listed.lines().any(|line| line == name),
            "{name} is missing:\n{listed}"
        );
    }
    ensure!(!listed.contains("usr/"), "more than was changed:\n{listed}");

    containerd.does(&["snapshots", "commit", "saved", "web"])?;
    containerd.does(&["containers", "rm", "web"])?;
    let place = mount_view(world, &containerd, "saved")?;
    ensure!(
        fs::read(place.join("made"))? == b"made\n",
        "not what was committed"
    );
    ensure!(
        !place.join("etc/os-release").exists(),
        "what was removed is there"
    );
    ensure!(
        place.join("srv/index.html").exists(),
        "what was moved is not there"
    );
    run(Command::new("umount").arg(&place))?;
    for name in ["check", "saved"] {
        containerd.does(&["snapshots", "rm", name])?;
    }
    containerd.does(&["images", "rm", "--sync", &reference])?;
    snapshots.has_only(&[])?;
    Ok(Outcome::Passed(format!(
        "equal to {:?}; a diff of {} entries",
        Unpacker::Containerd,
        listed.lines().count()
    )))
}
