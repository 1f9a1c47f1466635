//! Pods as a kubelet starts them, by containerd's CRI service.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::{push_indexed, without_layers};
use super::support::{PORT, SOON};
use crate::containerd::{Containerd, Line, Snapshots, block, http, listens};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

pub(in crate::cases) use crate::containerd::CRI as NAMESPACE;

/// A pod with nginx. Its image is pulled without a layer, beside a pause image that is unpacked. The pod is started, looked into and
/// removed; then its image is removed, and nothing is left.
pub(super) fn run_case(world: &World, line: Line) -> Result<Outcome> {
    let pause = push_pause(world)?;
    let reference = push_indexed(world, "nginx")?;
    let snapshots = Snapshots::start(world)?;
    let empty = snapshots.directories()?;
    let containerd = Containerd::start(world, line, &configuration(world, line, &pause)?)?;

    containerd.tool("cri", &["pull", &pause])?;
    let id = without_layers(world, || containerd.tool("cri", &["pull", &reference]))?;
    ensure!(id.starts_with("sha256:"), "{id}");
    let name = containerd.namespace().to_owned();
    let ids = containerd.tool("cri", &["start", &reference, &name])?;
    let (pod, container) = ids.trim().split_once(' ').context("no ids")?;
    wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))
        .with_context(|| containerd.last_words())?;
    let told = containerd.tool("cri", &["exec", container, "cat", "/etc/os-release"])?;
    ensure!(told.contains("Debian"), "{told}");
    wait_until(SOON, "the snapshotter's usage is known", || {
        let used = containerd.tool("cri", &["usage"])?;
        Ok(used.split_whitespace().next().is_some_and(|bytes| bytes != "0"))
    })?;

    containerd.tool("cri", &["stop", pod])?;
    ensure!(http(PORT).is_none(), "the pod was removed, and answers");

    if line == Line::Two {
        refuses_digest(world, &containerd, &reference)?;
    }
    for image in [&reference, &pause] {
        containerd.tool("cri", &["rmi", image])?;
    }
    wait_until(SOON, "no snapshot is left", || {
        containerd.does(&["--namespace", NAMESPACE, "content", "prune", "references"])?;
        let listed = containerd.does(&["--namespace", NAMESPACE, "snapshots", "ls"])?;
        Ok(listed.lines().count() == 1 && snapshots.directories()? == empty)
    })?;
    Ok(Outcome::Passed(format!("a pod of image {}", id.trim())))
}

/// By its digest nothing was pulled, and its index is only the registry's; CRI has the image by a tag, too. containerd 1.7 does
/// not note how a pod names its image.
fn refuses_digest(world: &World, containerd: &Containerd<'_>, reference: &str) -> Result<()> {
    let name = containerd.namespace().to_owned();
    let listed = containerd.does(&[
        "--namespace",
        NAMESPACE,
        "images",
        "ls",
        &format!("name=={reference}"),
    ])?;
    let digest = listed.split_whitespace().find(|word| word.starts_with("sha256:"));
    let (repository, _) = reference.rsplit_once(':').context("no tag")?;
    let named = format!("{repository}@{}", digest.context("no digest")?);
    let refused = containerd.tool_at(&listens(world), "cri", &["start", &named, &name])?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && told.contains("admitted for"),
        "{named}: {told}"
    );
    Ok(())
}

/// The user who may read the images of the registry that asks, and a line of htpasswd for that user (bcrypt).
pub(in crate::cases) const USER: &str = "robot";
pub(in crate::cases) const PASSWORD: &str = "k3pt-s3cret";
pub(in crate::cases) const WRONG: &str = "wr0ng-s3cret";
pub(in crate::cases) const ENTRY: &str = "robot:$2y$05$abcdefghijklmnopqrstuuJRKP3xle6bSCJQbvmMsWv1/XjWxvzKO";

/// The kubelet pulls by our socket, with a password that is wrong and with the right one; what runs is read lazily with that,
/// by the worker that was there, by the next, and after a restart of the daemon. No log has a password.
pub(super) fn logins(world: &World) -> Result<Outcome> {
    let pause = push_pause(world)?;
    let open = push_indexed(world, "nginx")?;
    let locked = world.lock_registry(ENTRY)?;
    let reference = open.replace(&world.registry, &locked.address);
    let snapshots = Snapshots::start(world)?;
    let images = listens(world);
    snapshots.restart_with(&format!("image_service = {images:?}\n"))?;
    let more = configuration(world, Line::Two, &pause)?;
    let containerd = Containerd::start(world, Line::Two, &more)?;
    let pull = |password: &str| {
        let words = ["pull", &reference, USER, password];
        containerd.tool_at(&snapshots.socket(), "cri", &words)
    };
    let kept = world.path("root/logins.json");
    let keeps = |password: &str| fs::read_to_string(&kept).is_ok_and(|text| text.contains(password));

    containerd.tool("cri", &["pull", &pause])?;
    ensure!(!pull(WRONG)?.status.success(), "pulled with a wrong password");
    ensure!(!keeps(WRONG), "a login that was refused is kept");
    let pulled = pull(PASSWORD)?;
    ensure!(
        pulled.status.success(),
        "{}",
        String::from_utf8_lossy(&pulled.stderr)
    );
    ensure!(keeps(PASSWORD), "the login is not kept");
    ensure!(
        fs::metadata(&kept)?.permissions().mode() & 0o077 == 0,
        "others may read logins"
    );
    // A later one that is refused changes nothing.
    ensure!(!pull(WRONG)?.status.success(), "pulled with a wrong password");
    ensure!(
        keeps(PASSWORD) && !keeps(WRONG),
        "the login that worked is forgotten"
    );

    let name = containerd.namespace().to_owned();
    let mut read = Vec::new();
    let mut reads = |container: &str, files: &str| -> Result<()> {
        let before = blobs(world)?;
        let words = ["exec", container, "sh", "-c", &format!("cat {files} > /dev/null")];
        containerd.tool("cri", &words)?;
        read.push(blobs(world)? - before);
        ensure!(read.last() != Some(&0), "{files} were there already: {read:?}");
        Ok(())
    };
    let start = || -> Result<(String, String)> {
        let ids = containerd.tool("cri", &["start", &reference, &name])?;
        let (pod, container) = ids.trim().split_once(' ').context("no ids")?;
        Ok((pod.to_owned(), container.to_owned()))
    };
    let (pod, container) = start()?;
    reads(&container, "/usr/bin/[a-d]*")?;
    snapshots.kill("worker_pid")?;
    reads(&container, "/usr/bin/[e-o]*")?;
    containerd.tool("cri", &["stop", &pod])?;
    snapshots.stop()?;
    snapshots.begin()?;
    wait_until(SOON, "containerd connects again", || {
        // Where it has no snapshots it would answer without us.
        let mut listed = containerd.ctr(&["--namespace", NAMESPACE, "snapshots", "ls"])?;
        Ok(listed.output()?.status.success())
    })?;
    let (pod, container) = start()?;
    reads(&container, "/usr/bin/[p-z]*")?;
    containerd.tool("cri", &["stop", &pod])?;
    // Nobody pulls with it any more.
    ensure!(keeps(PASSWORD), "the login was forgotten");
    snapshots.restart_with(&format!("image_service = {images:?}\nlogin_age = \"1s\"\n"))?;
    wait_until(SOON, "the login is forgotten", || Ok(!keeps(PASSWORD)))?;
    for log in [world.path("daemon.log"), world.path("c/log")] {
        let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
        ensure!(!text.is_empty(), "{} is empty", log.display());
        for secret in [PASSWORD, WRONG] {
            ensure!(!text.contains(secret), "{} has a password", log.display());
        }
    }
    Ok(Outcome::Passed(format!(
        "{read:?} reads of blobs with a login that was kept"
    )))
}

/// How many times the daemon got a part of a blob from the registry that asks.
pub(in crate::cases) fn blobs(world: &World) -> Result<usize> {
    let access = fs::read(world.path("locked/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_read = |line: &&str| line.contains("/blobs/sha256:") && line.contains("\" 206 ");
    Ok(text.lines().filter(is_read).count())
}

/// Where CRI looks for networks; where there is none it has pods in the host's only.
pub(in crate::cases) const NETWORKS: &str = "networks";

/// The manual's configuration of CRI, and the settings that CRI needs on this host.
pub(in crate::cases) fn configuration(world: &World, line: Line, pause: &str) -> Result<String> {
    let title = match line {
        Line::Two => "# CRI of containerd 2.x\n",
        Line::OneSeven => "# CRI of containerd 1.7\n",
    };
    Ok(block(title)? + &on_this_host(world, line, pause)?)
}

/// The settings that CRI needs on this host: an image for the pods' own process, networks from a directory of the case, and not the right
/// to lower a process's chance of being killed.
pub(in crate::cases) fn on_this_host(world: &World, line: Line, pause: &str) -> Result<String> {
    let networks = world.path(NETWORKS);
    fs::create_dir_all(&networks)?;
    let (images, image, runtime) = match line {
        Line::Two => (
            "io.containerd.cri.v1.images\".pinned_images",
            "sandbox",
            "io.containerd.cri.v1.runtime\"",
        ),
        Line::OneSeven => (
            "io.containerd.grpc.v1.cri\"",
            "sandbox_image",
            "io.containerd.grpc.v1.cri\"",
        ),
    };
    let table = |name: &str| format!("[plugins.\"{name}]\n");
    let mut ours = format!("{}{image} = {pause:?}\n", table(images));
    if runtime != images {
        ours += &table(runtime);
    }
    ours += "restrict_oom_score_adj = true\n";
    ours += &format!("{}conf_dir = {networks:?}\n", table(&format!("{runtime}.cni")));
    Ok(ours)
}

/// An image of one program that waits, for what keeps a pod's namespaces.
pub(in crate::cases) fn push_pause(world: &World) -> Result<String> {
    let program = fs::read(World::go_tool("linger")?)?;
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("linger", Kind::File).mode(0o755), &program);
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .config("Entrypoint", json!(["/linger", "1h"]))
        .build();
    let layout = world.path("pause");
    image.write_layout(&layout, "latest")?;
    world.push(&layout, "pause")
}
