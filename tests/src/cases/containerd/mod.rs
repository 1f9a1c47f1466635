//! The snapshotter under containerd's own tests and under containerd itself, both lines that are in use.

mod blobs;
mod boot;
mod building;
pub(super) mod cri;
mod ctr_pull;
pub(super) mod full;
mod layers;
pub(super) mod lazy;
mod lies;
mod limits;
mod many;
mod own;
mod plain;
mod restarts;
mod services;
mod suite;
pub(super) mod user_namespaces;
pub(super) mod user_pods;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::odd::Unpacker;

use self::restarts::Loss;
use crate::containerd::{Containerd, Line, http};
use crate::lab::wait_until;
use crate::runner::{Case, Outcome};
use crate::tree;
use crate::truth;
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Where nginx listens in our image of it.
pub(super) const PORT: u16 = 8080;
/// Longest that a service may take until it answers.
pub(super) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("containerd/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    let mut cases = suite::cases();
    cases.push(Case {
        limit: layers::LIMIT,
        ..case("layers", layers::run_case)
    });
    cases.extend([
        case("plain-2", |world| plain::run_case(world, Line::Two)),
        case("plain-1.7", |world| plain::run_case(world, Line::OneSeven)),
        case("cri-2", |world| cri::run_case(world, Line::Two)),
        case("cri-1.7", |world| cri::run_case(world, Line::OneSeven)),
        case("logins", cri::logins),
        case("lazy-2", |world| lazy::run_case(world, Line::Two)),
        case("lazy-1.7", |world| lazy::run_case(world, Line::OneSeven)),
        case("changes", lazy::changes),
        case("by-digest", lazy::by_digest),
        case("own-image-2", |world| own::run_case(world, Line::Two)),
        case("own-image-1.7", |world| own::run_case(world, Line::OneSeven)),
        case("moved-tag", own::moved_tag),
        case("lies", lies::run_case),
        case("dead-registry", limits::dead_registry),
        case("many-labels", limits::many_labels),
        case("killed", restarts::killed),
        case("restarts", restarts::in_any_order),
        case("socket-renewed-name-removed", |world| {
            restarts::socket_renewed(world, Loss::NameRemoved)
        }),
        case("socket-renewed-directory-replaced", |world| {
            restarts::socket_renewed(world, Loss::DirectoryReplaced)
        }),
        case("socket-renewed-other-socket", |world| {
            restarts::socket_renewed(world, Loss::OtherSocket)
        }),
        case("blobs", blobs::run_case),
        case("building", building::run_case),
        case("ctr-pull", ctr_pull::run_case),
        case("ctr-pull-broken-off", ctr_pull::broken_off),
        case("user-namespaces", user_namespaces::run_case),
        case("user-namespaces-of-pods", user_pods::run_case),
        case("boot", boot::run_case),
        case("services", services::run_case),
        case("many", many::run_case),
        case("full-of-bytes", full::of_bytes),
        case("full-of-files", full::of_files),
        case("nerdctl", |_| {
            cannot_be_had("nerdctl", "nothing stands in for it")
        }),
        case("crictl", |_| {
            cannot_be_had("crictl", "a client of ours makes its calls (cri-2, cri-1.7)")
        }),
    ]);
    cases
}

/// A Go program that is not available as a program.
fn cannot_be_had(program: &str, instead: &str) -> Result<Outcome> {
    Ok(Outcome::Skipped(format!(
        "the Go proxy refuses {program}'s module, and neither Debian 12, PyPI nor npm has a package of it; {instead}"
    )))
}

/// Starts a container in the network of the case and waits until it answers.
fn start_web(containerd: &Containerd<'_>, reference: &str, name: &str) -> Result<()> {
    containerd.does(&["run", "--detach", "--net-host", reference, name])?;
    wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))
        .with_context(|| containerd.last_words())?;
    let answer = http(PORT).context("no answer")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// The blobs that containerd asked the registry for.
fn downloads(world: &World) -> Result<Vec<String>> {
    let access = fs::read(world.path("registry/access"))?;
    let text = String::from_utf8_lossy(&access).into_owned();
    let is_download = |line: &&str| {
        line.contains("\"GET /v2/") && line.contains("/blobs/sha256:") && line.contains("\"containerd/")
    };
    Ok(text.lines().filter(is_download).map(str::to_owned).collect())
}

/// Mounts a snapshot to be read, by a view of it that is called "check".
fn mount_view(world: &World, containerd: &Containerd<'_>, snapshot: &str) -> Result<PathBuf> {
    containerd.view(&[], "check", snapshot)?;
    let place = world.path("check");
    fs::create_dir(&place)?;
    let mount = containerd.does(&["snapshots", "mounts", &place.to_string_lossy(), "check"])?;
    run(Command::new("sh").args(["-c", &mount]))?;
    Ok(place)
}

/// Compares the image, as `ctr` mounts it from our snapshots, with what containerd's own code unpacks.
fn compare(world: &World, containerd: &Containerd<'_>, image: &str, reference: &str) -> Result<()> {
    let place = world.path("image");
    fs::create_dir(&place)?;
    containerd.does(&["images", "mount", reference, &place.to_string_lossy()])?;
    let found = {
        let tree = tree::read(&place)?;
        let truth = truth::unpack(world, &World::built_image(image)?, Unpacker::Containerd)?;
        let mut found = truth::differences(&tree, &truth, Unpacker::Containerd);
        // overlayfs does not count the directories in a directory.
        let is_directory = |path: &Vec<u8>| {
            let node = truth.tree.nodes.get(path);
            node.is_some_and(|node| node.mode & 0o170_000 == 0o040_000)
        };
        found.retain(|difference| difference.field != "links" || !is_directory(&difference.path));
        found
    };
    ensure!(
        found.is_empty(),
        "{} differences, the first: {}",
        found.len(),
        found.first().context("none")?
    );
    containerd.does(&["images", "unmount", "--rm", &place.to_string_lossy()])?;
    Ok(())
}
