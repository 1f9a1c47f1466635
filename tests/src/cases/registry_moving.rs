//! The contents of a CNCF distribution registry, made by its own program, move into `xebec-registry`: by its directory, and while it
//! runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::registry::{layout, missing, said, skopeo_push};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How long the first run of a mirror that is made by itself may take.
const PATIENCE: Duration = Duration::from_secs(60);
const NEEDED: [&str; 3] = ["skopeo", "crane", "oras"];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry_moving/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("import", import),
        case("in-place", in_place),
        case("mirror", mirror),
    ]
}

fn crane(world: &World, arguments: &[&str]) -> Result<String> {
    let mut crane = Command::new(World::tool("crane")?);
    said(crane.env("HOME", world.path("")).args(arguments))
}

/// An image as OCI and as Docker's schema 2, an index of both, and a note that refers to the index, in the case's registry.
fn fill(world: &World) -> Result<String> {
    let layout = layout(world, false)?;
    let name = format!("{}/team/app", world.registry);
    skopeo_push(&layout, &format!("{name}:v1"), &[])?;
    skopeo_push(&layout, &format!("{name}:docker"), &["--format", "v2s2"])?;
    let (one, two, all) = (
        format!("{name}:v1"),
        format!("{name}:docker"),
        format!("{name}:all"),
    );
    crane(
        world,
        &[
            "index",
            "append",
            "--insecure",
            "-m",
            &one,
            "-m",
            &two,
            "-t",
            &all,
        ],
    )?;
    fs::write(world.path("note.txt"), "a note")?;
    let mut oras = Command::new(World::tool("oras")?);
    oras.current_dir(world.path("")).env("HOME", world.path(""));
    run(oras.args([
        "attach",
        "--plain-http",
        "--artifact-type",
        "application/x.note",
        &all,
        "note.txt:text/plain",
    ]))?;
    Ok(name)
}

/// `xebec-registry` with these arguments.
fn command(world: &World, root: &str, arguments: &[&str]) -> Result<Output> {
    let program = OwnRegistry::program().context("xebec-registry is not built")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg("--root")
        .arg(world.path(root).join("data"));
    command.output().context("cannot start xebec-registry")
}

/// The report of such a command.
fn report(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("no report: {output:?}"))
}

fn number(report: &Value, what: &str) -> Result<u64> {
    let number = report.get(what).and_then(Value::as_u64);
    number.with_context(|| format!("no {what} in {report}"))
}

/// The registry has what the other one has: the same digests by the same tags, all bytes, and what refers to the index.
fn compare(world: &World, registry: &OwnRegistry, prefix: &str) -> Result<()> {
    let (theirs, ours) = (
        format!("{}/team/app", world.registry),
        format!("{}/{prefix}team/app", registry.address),
    );
    for tag in ["v1", "docker", "all"] {
        let digest = |name: &str| crane(world, &["digest", "--insecure", &format!("{name}:{tag}")]);
        ensure!(digest(&theirs)? == digest(&ours)?, "{tag} is another manifest");
        crane(
            world,
            &["validate", "--insecure", "--remote", &format!("{ours}:{tag}")],
        )?;
    }
    let mut oras = Command::new(World::tool("oras")?);
    oras.env("HOME", world.path(""));
    let listed = said(oras.args([
        "discover",
        "--plain-http",
        "--format",
        "json",
        &format!("{ours}:all"),
    ]))?;
    ensure!(listed.contains("application/x.note"), "{listed}");
    Ok(())
}

/// By copy, with one image whose link is damaged; twice, and the second time beside a registry that serves.
fn import(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&NEEDED) {
        return Ok(skipped);
    }
    fill(world)?;
    let broken = format!("{}/team/broken:v1", world.registry);
    crane(
        world,
        &[
            "copy",
            "--insecure",
            &format!("{}/team/app:v1", world.registry),
            &broken,
        ],
    )?;
    let storage = world.path("registry/storage");
    // As after a fault of the disk: the link of its manifest names something else.
    let manifest = crane(world, &["digest", "--insecure", &broken])?;
    let revision = storage.join(format!(
        "docker/registry/v2/repositories/team/broken/_manifests/revisions/sha256/{}/link",
        manifest.trim_start_matches("sha256:")
    ));
    fs::write(&revision, format!("sha256:{}", "0".repeat(64)))?;
    let storage = storage.to_string_lossy().into_owned();
    let planned = command(world, "imported", &["import", &storage, "--dry-run", "--json"])?;
    let first = command(world, "imported", &["import", &storage, "--json"])?;
    let (planned, told) = (report(&planned)?, report(&first)?);
    ensure!(
        first.status.code() == Some(1),
        "a link that names something else is no success: {first:?}"
    );
    ensure!(
        String::from_utf8_lossy(&first.stderr).contains("names something else"),
        "{first:?}"
    );
    for what in ["repositories", "blobs", "bytes"] {
        ensure!(
            number(&planned, what)? == number(&told, what)?,
            "planned {planned}, done {told}"
        );
    }
    let registry = OwnRegistry::start(world, "imported", "")?;
    compare(world, &registry, "")?;
    let again = report(&command(world, "imported", &["import", &storage, "--json"])?)?;
    ensure!(
        number(&again, "manifests")? == 0 && number(&again, "blobs")? == 0,
        "{again}"
    );
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(format!(
        "{} manifests and {} bytes of blobs; a second run found all of them",
        number(&told, "manifests")?,
        number(&told, "bytes")?
    )))
}

/// By links, and by moving: to where the other registry keeps its files, since files have names on one file system only.
fn in_place(world: &World) -> Result<Outcome> {
    const LINKED: &str = "registry/linked";
    const MOVED: &str = "registry/moved";
    if let Some(skipped) = missing(&NEEDED) {
        return Ok(skipped);
    }
    fill(world)?;
    let storage = world.path("registry/storage");
    let text = storage.to_string_lossy().into_owned();
    let linked = command(world, LINKED, &["import", &text, "--hard-link", "--json"])?;
    ensure!(linked.status.success(), "{linked:?}");
    let blobs = number(&report(&linked)?, "blobs")?;
    let twice = files(&storage)?.into_iter().filter(|names| *names == 2).count();
    ensure!(
        twice as u64 == blobs,
        "{twice} files have two names, and {blobs} blobs came"
    );
    let registry = OwnRegistry::start(world, LINKED, "")?;
    compare(world, &registry, "")?;
    drop(registry);
    let before = files(&storage)?.len();
    let moved = command(world, MOVED, &["import", &text, "--move", "--json"])?;
    ensure!(moved.status.success(), "{moved:?}");
    let after = files(&storage)?.len();
    ensure!(
        (before - after) as u64 == blobs,
        "{before} files before, {after} after"
    );
    let registry = OwnRegistry::start(world, MOVED, "")?;
    let name = format!("{}/team/app:all", registry.address);
    crane(world, &["validate", "--insecure", "--remote", &name])?;
    Ok(Outcome::Passed(format!("{blobs} blobs by links, and by moving")))
}

/// How many names each file of blobs has.
fn files(storage: &Path) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut waiting = vec![storage.join("docker/registry/v2/blobs")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(fs::metadata(&path)?.nlink()),
            }
        }
    }
    Ok(found)
}

/// From the registry while it runs: by a command, and by one that serves.
fn mirror(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&NEEDED) {
        return Ok(skipped);
    }
    fill(world)?;
    let arguments = [
        "mirror",
        &world.registry,
        "--repository",
        "team/*",
        "--to",
        "copy",
        "--json",
    ];
    let first = command(world, "copied", &arguments)?;
    ensure!(first.status.success(), "{first:?}");
    let again = report(&command(world, "copied", &arguments)?)?;
    ensure!(
        number(&again, "manifests")? == 0 && number(&again, "bytes")? == 0,
        "{again}"
    );
    let registry = OwnRegistry::start(world, "copied", "")?;
    compare(world, &registry, "copy/")?;
    drop(registry);
    let configuration = format!("[[mirror]]\nsource = \"{}\"\nevery = \"1h\"\n", world.registry);
    let registry = OwnRegistry::start(world, "scheduled", &configuration)?;
    let deadline = Instant::now() + PATIENCE;
    while !registry.log().contains("the mirror is made") {
        ensure!(
            Instant::now() < deadline,
            "no mirror was made: {}",
            registry.log()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    compare(world, &registry, "")?;
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(
        "by a command, and by a registry that serves".to_owned(),
    ))
}
