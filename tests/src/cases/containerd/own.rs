//! A namespace has an image's layers by one name, and another name comes to them without anybody saying so: containers are
//! shown what their own image's name vouches for, or are not started.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::lazy::{pull, push_indexed};
use crate::containerd::{Containerd, Line, Snapshots};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// A part of the message when a container is not started.
const REFUSED: &str = "admitted for";

/// By tag, then by digest, and by another repository's tag, all in one namespace.
pub(super) fn run_case(world: &World, line: Line) -> Result<Outcome> {
    let reference = push_indexed(world, "nginx")?;
    let other = world.push(&World::built_image("nginx")?, "other")?;
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, line, "")?;
    pull(world, &containerd, line, &reference)?;
    let named = by_digest(&containerd, &reference)?;
    let make = |name: &str| ["images", "pull", "--plain-http", name].map(str::to_owned);
    for name in [&named, &other] {
        let before = containerd.snapshots()?;
        match line {
            Line::Two => containerd.does(&make(name).each_ref().map(String::as_str))?,
            Line::OneSeven => containerd.tool("labels", &["xebec", name])?,
        };
        ensure!(
            containerd.snapshots()? == before,
            "{name} came with layers of its own"
        );
    }
    start(&containerd, &reference, "tag")?;
    // Nowhere but on this host.
    let tagged = tag(&containerd, &reference)?;
    for (name, container) in [(&named, "digest"), (&other, "other"), (&tagged, "tagged")] {
        let refused = containerd.refuses(&["run", "--detach", "--net-host", name, container])?;
        ensure!(
            refused.contains(REFUSED) && refused.contains(&reference) && refused.contains(&named),
            "{refused}"
        );
        forget(&containerd, container)?;
    }

    // Nobody can be asked: only who needs nobody's word is started.
    let hidden = world.path("c/sock.hidden");
    snapshots.restart_elsewhere(&hidden)?;
    let refused = said(&containerd, &["tasks", "start", "--detach", "tag"])?;
    ensure!(
        refused.contains("sock.hidden") && refused.contains("address"),
        "{refused}"
    );
    snapshots.restart_with("")?;
    let told = said(&containerd, &["tasks", "start", "--detach", "tag"])?;
    ensure!(told.is_empty(), "{told}");
    containerd.end("tag")?;

    // Once proven, any name will do, and containerd is not needed for it.
    run(&mut world.xebec(&["check", "--prove", &named]))?;
    start(&containerd, &tagged, "tagged")?;
    forget(&containerd, "tagged")?;
    start(&containerd, &named, "digest")?;
    snapshots.restart_elsewhere(&hidden)?;
    let told = said(&containerd, &["tasks", "start", "--detach", "digest"])?;
    ensure!(told.is_empty(), "{told}");
    containerd.end("digest")?;
    forget(&containerd, "digest")?;

    // Or it is proven when it is needed.
    let third = push_indexed(world, "redis")?;
    snapshots.restart_with("unproven = \"prove\"\n")?;
    said(&containerd, &["snapshots", "ls"])?;
    pull(world, &containerd, line, &third)?;
    let third_tagged = tag(&containerd, &third)?;
    start(&containerd, &third_tagged, "tagged")?;
    forget(&containerd, "tagged")?;
    let third_named = by_digest(&containerd, &third)?;
    match line {
        Line::Two => containerd.does(&make(&third_named).each_ref().map(String::as_str))?,
        Line::OneSeven => containerd.tool("labels", &["xebec", &third_named])?,
    };
    start(&containerd, &third_named, "proven")?;
    Ok(Outcome::Passed(format!("{named} and {other} beside {reference}")))
}

/// The name by digest of an image that is there.
fn by_digest(containerd: &Containerd<'_>, reference: &str) -> Result<String> {
    let listed = containerd.does(&["images", "ls", &format!("name=={reference}")])?;
    let digest = listed.split_whitespace().find(|word| word.starts_with("sha256:"));
    let (name, _) = reference.rsplit_once(':').context("no tag")?;
    Ok(format!("{name}@{}", digest.context("no digest")?))
}

/// Gives an image a name in a repository that there is not.
fn tag(containerd: &Containerd<'_>, reference: &str) -> Result<String> {
    let (registry, _) = reference.split_once('/').context("no registry")?;
    let name = format!("{registry}/nowhere:1");
    containerd.does(&["images", "tag", "--force", reference, &name])?;
    Ok(name)
}

/// Starts a container and ends it.
fn start(containerd: &Containerd<'_>, reference: &str, container: &str) -> Result<()> {
    containerd.does(&["run", "--detach", "--net-host", reference, container])?;
    containerd.end(container)
}

/// The message of a refusal, once containerd has noticed that the daemon was restarted, which takes it some seconds.
fn said(containerd: &Containerd<'_>, arguments: &[&str]) -> Result<String> {
    let mut told = String::new();
    wait_until(super::support::SOON, "containerd connects again", || {
        let output = containerd.ctr(arguments)?.output()?;
        told = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(!told.contains("connection error") && !told.contains("transport"))
    })?;
    Ok(told)
}

/// Removes a container that may not be there.
fn forget(containerd: &Containerd<'_>, container: &str) -> Result<()> {
    containerd.ctr(&["containers", "rm", container])?.output()?;
    Ok(())
}

/// A tag moves to an image of the same chain in other blobs. A namespace that pulls it afterwards is shown that one, and the
/// container of the earlier pull goes on with the first.
pub(super) fn moved_tag(world: &World) -> Result<Outcome> {
    let snapshots = Snapshots::start(world)?;
    let containerd = Containerd::start(world, Line::Two, "")?;
    let elsewhere = format!("{}-other", containerd.namespace());
    let namespaces = [containerd.namespace(), &elsewhere];
    for (level, namespace) in [1, 9].into_iter().zip(namespaces) {
        let reference = push_compressed(world, level)?;
        let within = ["--namespace", namespace];
        let make = ["images", "pull", "--plain-http", &reference];
        containerd.does(&[&within[..], &make].concat())?;
        let make = ["run", "--detach", &reference, "one"];
        containerd.does(&[&within[..], &make].concat())?;
    }
    let shown = || -> Result<Vec<String>> {
        let status = world.daemon_status()?;
        let views = status["views"].as_array().context("no views")?;
        let of = |namespace: &str| {
            let begins = format!("\"{namespace}/");
            let mut held = views
                .iter()
                .filter(|view| view["holders"].to_string().contains(&begins));
            let view = held
                .next()
                .with_context(|| format!("{namespace} is shown nothing: {status}"))?;
            ensure!(held.next().is_none(), "{namespace} holds two views: {status}");
            Ok(view["view"].to_string())
        };
        namespaces.into_iter().map(of).collect()
    };
    let first = shown()?;
    ensure!(first[0] != first[1], "both are shown {first:?}");
    containerd.end("one")?;
    containerd.does(&["tasks", "start", "--detach", "one"])?;
    ensure!(shown()? == first, "{first:?} were shown, and now {:?}", shown());
    containerd.end("one")?;
    containerd.does(&["--namespace", &elsewhere, "tasks", "rm", "--force", "one"])?;
    drop(snapshots);
    Ok(Outcome::Passed("each namespace is shown its own".to_owned()))
}

/// An image of one program that waits, with its indexes, compressed at some level.
fn push_compressed(world: &World, level: u32) -> Result<String> {
    let program = fs::read(World::go_tool("linger")?)?;
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("linger", Kind::File).mode(0o755), &program);
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(level))?
        .config("Entrypoint", json!(["/linger", "1h"]))
        .build();
    let layout = world.path(&format!("level-{level}"));
    image.write_layout(&layout, "latest")?;
    let reference = world.push(&layout, "moved")?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"]))?;
    Ok(reference)
}
