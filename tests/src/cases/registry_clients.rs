//! Clients of registries as they are, on `xebec-registry`: push, pull, copy, mount, list, delete, and what refers to an image, as far as
//! each can. skopeo, crane, oras and regctl with what refers to an image are in `registry.rs`, too.

mod cosign;
mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use self::support::{digest, ensure_mounted, ensure_whole, has_manifest, index_artifact, sent, tags};
use super::podman::{buildah, podman};
use super::registry::{layout, missing, said, skopeo_push};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::docker::{Docker, Relay};
use crate::lab::wait_until;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of the layer of [`layout`] that nobody reads.
const NOISE: u64 = 3 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case =
        |name: &str, tools: &'static [&'static str], run: fn(&World, &OwnRegistry) -> Result<String>| Case {
            name: format!("registry_clients/{name}"),
            limit: LIMIT,
            run: Box::new(move |world| with_registry(world, tools, run)),
        };
    vec![
        case("oras-and-regctl", &["skopeo", "oras", "regctl"], oras_and_regctl),
        case(
            "buildah-and-podman",
            &["skopeo", "buildah", "podman", "runc"],
            buildah_and_podman,
        ),
        case("umoci", &["skopeo", "umoci"], umoci),
        case("containerd", &["skopeo", "containerd", "ctr"], containerd),
        case(
            "docker",
            &["skopeo", "dockerd", "docker-client", "containerd"],
            docker,
        ),
        case("cosign", &["skopeo", "cosign"], cosign::cosign),
    ]
}

/// A registry that has the image `team/app:v1`, if the tools are there.
fn with_registry(
    world: &World,
    tools: &[&str],
    body: fn(&World, &OwnRegistry) -> Result<String>,
) -> Result<Outcome> {
    if let Some(skipped) = missing(tools) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "own", "")?;
    skopeo_push(
        &layout(world, true)?,
        &format!("{}/team/app:v1", registry.address),
        &[],
    )?;
    let said = body(world, &registry)?;
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(said))
}

fn oras_and_regctl(world: &World, registry: &OwnRegistry) -> Result<String> {
    oras(world, registry)?;
    regctl(world, registry)?;
    Ok("both push, pull, copy with mounts, list and delete".to_owned())
}

/// Runs a program of the tools, with the case's directory for its home; gives its output.
fn tool(world: &World, name: &str, arguments: &[&str]) -> Result<String> {
    let home = world.path("");
    let mut tool = Command::new(World::tool(name)?);
    said(tool.args(arguments).current_dir(&home).env("HOME", &home))
}

fn oras(world: &World, registry: &OwnRegistry) -> Result<()> {
    let address = &registry.address;
    fs::write(world.path("note.txt"), "a note")?;
    let oras = |arguments: &[&str]| tool(world, "oras", arguments);
    let artifact = format!("{address}/oras/note:1");
    let push = [
        "push",
        "--plain-http",
        "--artifact-type",
        "application/x.note",
        &artifact,
    ];
    let push = [&push[..], &["note.txt:text/plain"]].concat();
    oras(&push)?;
    fs::create_dir(world.path("pulled"))?;
    oras(&["pull", "--plain-http", "--output", "pulled", &artifact])?;
    ensure!(fs::read_to_string(world.path("pulled/note.txt"))? == "a note");
    oras(&["tag", "--plain-http", &artifact, "2"])?;
    ensure!(oras(&["repo", "tags", "--plain-http", &format!("{address}/oras/note")])? == "1\n2");
    ensure!(oras(&["repo", "ls", "--plain-http", address])? == "oras/note\nteam/app");
    // One tag moves, the other one stays.
    fs::write(world.path("note.txt"), "another note")?;
    oras(&push)?;
    for (tag, note) in [("1", "another note"), ("2", "a note")] {
        let tag = format!("{address}/oras/note:{tag}");
        oras(&["pull", "--plain-http", "--output", "pulled", &tag])?;
        ensure!(
            fs::read_to_string(world.path("pulled/note.txt"))? == note,
            "{tag} is not {note:?}"
        );
    }
    oras(&[
        "cp",
        "--from-plain-http",
        "--to-plain-http",
        &format!("{address}/team/app:v1"),
        &format!("{address}/oras/copy:v1"),
    ])?;
    ensure_mounted(registry, "oras/copy")?;
    ensure_whole(world, registry, "oras/copy:v1")?;
    let note = oras(&["resolve", "--plain-http", &artifact])?;
    for tag in ["1", "2"] {
        let tag = format!("{address}/oras/note:{tag}");
        oras(&["manifest", "delete", "--plain-http", "--force", &tag])?;
    }
    ensure!(
        tags(registry, "oras/note")?.is_empty() && !has_manifest(registry, "oras/note", &note)?,
        "the manifest is still there"
    );
    Ok(())
}

fn regctl(world: &World, registry: &OwnRegistry) -> Result<()> {
    let address = &registry.address;
    let regctl = |arguments: &[&str]| tool(world, "regctl", arguments);
    regctl(&["registry", "set", "--tls", "disabled", address])?;
    let copy = format!("{address}/regctl/copy");
    regctl(&[
        "image",
        "copy",
        "--referrers",
        "--digest-tags",
        &format!("{address}/team/app:v1"),
        &format!("{copy}:v1"),
    ])?;
    ensure_mounted(registry, "regctl/copy")?;
    regctl(&["image", "export", &format!("{copy}:v1"), "exported.tar"])?;
    regctl(&["image", "import", &format!("{copy}:back"), "exported.tar"])?;
    ensure!(regctl(&["tag", "ls", &copy])? == "back\nv1");
    let repositories = regctl(&["repo", "ls", address])?;
    let listed = ["oras/copy", "regctl/copy", "team/app"].map(|name| repositories.contains(name));
    ensure!(listed == [true; 3], "{repositories}");
    regctl(&["tag", "delete", &format!("{copy}:back")])?;
    ensure!(
        tags(registry, "regctl/copy")? == ["v1"],
        "the tag is still there, or the other one is not"
    );
    let wanted = digest(registry, "team/app:v1")?;
    ensure!(regctl(&["image", "digest", &format!("{copy}:v1")])? == wanted);
    regctl(&["manifest", "delete", &format!("{copy}@{wanted}")])?;
    ensure!(
        tags(registry, "regctl/copy")?.is_empty() && !has_manifest(registry, "regctl/copy", &wanted)?,
        "the manifest is still there"
    );
    Ok(())
}

/// An image is built upon, pushed, pulled and run.
fn buildah_and_podman(world: &World, registry: &OwnRegistry) -> Result<String> {
    let name = |name: &str| format!("{}/{name}", registry.address);
    let from = ["from", "--tls-verify=false", "--quiet", &name("team/app:v1")];
    let container = String::from_utf8(buildah(world, &from)?.stdout)?;
    fs::write(world.path("built"), "by buildah\n")?;
    let file = world.path("built").display().to_string();
    buildah(world, &["copy", "--quiet", container.trim(), &file, "/etc/built"])?;
    buildah(world, &["commit", "--quiet", container.trim(), "built"])?;
    buildah(
        world,
        &[
            "push",
            "--quiet",
            "--tls-verify=false",
            "built",
            &format!("docker://{}", name("team/built:1")),
        ],
    )?;
    ensure_mounted(registry, "team/built")?;
    podman(world, &["pull", &name("team/built:1")])?;
    let ran = podman(
        world,
        &["run", &name("team/built:1"), "/bin/busybox", "cat", "/etc/built"],
    )?;
    ensure!(ran.stdout == b"by buildah\n", "{ran:?}");
    podman(world, &["push", &name("team/built:1"), &name("podman/copy:1")])?;
    ensure!(tags(registry, "podman/copy")? == ["1"]);
    ensure_whole(world, registry, "podman/copy:1")?;
    Ok("buildah builds and pushes, podman pulls, runs and pushes".to_owned())
}

/// umoci changes what skopeo has pulled; what is pushed back is what umoci says, and the layers that were there are not sent again.
fn umoci(world: &World, registry: &OwnRegistry) -> Result<String> {
    let copy = |from: &str, to: &str| {
        run(Command::new("skopeo").args([
            "copy",
            "--quiet",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            from,
            to,
        ]))
    };
    let (pulled, bundle) = (world.path("pulled"), world.path("bundle"));
    let own = format!("oci:{}:v1", pulled.display());
    let image = format!("{}:v1", pulled.display());
    copy(&format!("docker://{}/team/app:v1", registry.address), &own)?;
    run(Command::new("umoci")
        .args(["unpack", "--image", &image])
        .arg(&bundle))?;
    fs::write(bundle.join("rootfs/etc/said"), "by umoci\n")?;
    run(Command::new("umoci")
        .args(["repack", "--image", &image])
        .arg(&bundle))?;
    copy(&own, &format!("docker://{}/team/app:v2", registry.address))?;
    let again = world.path("again");
    copy(
        &format!("docker://{}/team/app:v2", registry.address),
        &format!("oci:{}:v2", again.display()),
    )?;
    let unpacked = world.path("unpacked");
    run(Command::new("umoci")
        .args(["unpack", "--image", &format!("{}:v2", again.display())])
        .arg(&unpacked))?;
    ensure!(fs::read_to_string(unpacked.join("rootfs/etc/said"))? == "by umoci\n");
    let sent = |line: &&str| line.contains("method=PATCH path=/v2/team/app/");
    // Of the first push a configuration and two layers, of the second a configuration and one.
    let sent = registry.log().lines().filter(sent).count();
    ensure!(sent == 5, "{sent} blobs were sent");
    Ok(format!("{sent} blobs were sent for two images"))
}

fn containerd(world: &World, registry: &OwnRegistry) -> Result<String> {
    let containerd = Containerd::start_with(world, Line::Two, "")?;
    let images = |arguments: &[&str]| containerd.does(&[&["images"][..], arguments].concat());
    let (name, copy) = (
        format!("{}/team/app:v1", registry.address),
        format!("{}/ctr/copy:v1", registry.address),
    );
    let (pull, push) = (
        ["pull", "--local", "--plain-http", "--snapshotter", "native"],
        ["push", "--plain-http"],
    );
    images(&[&pull[..], &[&name]].concat())?;
    images(&["tag", &name, &copy])?;
    images(&[&push[..], &[&copy]].concat())?;
    ensure!(digest(registry, "ctr/copy:v1")? == digest(registry, "team/app:v1")?);
    images(&["rm", "--sync", &name, &copy])?;
    images(&[&pull[..], &[&copy]].concat())?;
    ensure!(images(&["ls", "--quiet"])?.trim() == copy);
    Ok("ctr pulls and pushes".to_owned())
}

/// The engine has nothing but the registry: what is pulled is lazy by the registry's own index, and what is pushed is whole.
fn docker(world: &World, registry: &OwnRegistry) -> Result<String> {
    let name = format!("{}/team/app:v1", registry.address);
    wait_until(Duration::from_secs(60), "the image has an index", || {
        Ok(index_artifact(registry, "team/app:v1")?.is_some())
    })?;
    let _snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let _relay = Relay::start(world, &containerd)?;
    let docker = Docker::start(world, &containerd, &Relay::link(world), false)?;
    docker.does(&["pull", "--quiet", &name])?;
    let cat = [
        "run",
        "--rm",
        "--network",
        "host",
        &name,
        "/bin/busybox",
        "cat",
        "/etc/said",
    ];
    ensure!(docker.does(&cat)? == "of the image");
    let sent = sent(registry, "team/app");
    ensure!(
        sent < NOISE,
        "{sent} bytes were sent of an image that should be lazy"
    );
    let copy = format!("{}/docker/copy:v1", registry.address);
    docker.does(&["tag", &name, &copy])?;
    docker.does(&["push", "--quiet", &copy])?;
    ensure!(digest(registry, "docker/copy:v1")? == digest(registry, "team/app:v1")?);
    docker.does(&["rmi", "--force", &name, &copy])?;
    docker.does(&["pull", "--quiet", &copy])?;
    ensure_whole(world, registry, "docker/copy:v1")?;
    Ok(format!(
        "pulls lazily and runs, with {sent} bytes of blobs; pushes"
    ))
}
