//! `xebec-registry` with the specification's own test, and with clients as they are.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::TarBuilder;

use crate::engines::Engines;
use crate::lab::{self, wait_until};
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("registry/{name}"),
        limit: Duration::from_secs(180),
        run: Box::new(run),
    };
    vec![
        case("conformance", conformance),
        case("conformance-postgresql-and-s3", conformance_over_others),
        case("clients", clients),
        case("referrers", referrers),
        case("runs-an-image", runs_an_image),
        case("restart", restart),
        case("ten-thousand-connections", ten_thousand_connections),
    ]
}

/// Why a case cannot run here, if one of the programs that it needs is missing.
pub(super) fn missing(tools: &[&str]) -> Option<Outcome> {
    if OwnRegistry::program().is_none() {
        let reason = "XEBEC_REGISTRY_BIN names no program; scripts/e2e.sh builds one where it is not set";
        return Some(Outcome::Skipped(reason.to_owned()));
    }
    // Some of these do their work whatever they are told, so none is started.
    let is_missing = |tool: &&&str| {
        let built = World::tool(tool).is_ok_and(|path| path.is_file());
        let path = std::env::var_os("PATH").unwrap_or_default();
        !built && !std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
    };
    let tool = *tools.iter().find(is_missing)?;
    // Nobody gets it unasked.
    let purpose = if tool == "cosign" { tool } else { "test" };
    Some(Outcome::Skipped(format!(
        "{tool} is not installed (make setup-{purpose})"
    )))
}

/// The program of the distribution specification, once as it is and once with all that is off by default: manifests whose parts were
/// not pushed, tags as parameters, uploads that are given up, and digests in headers.
fn conformance(world: &World) -> Result<Outcome> {
    conforms(world, "", &[])
}

/// The same over PostgreSQL and S3.
fn conformance_over_others(world: &World) -> Result<Outcome> {
    match Engines::start(world)? {
        Some(engines) => conforms(world, &engines.configuration, &engines.environment),
        None => {
            let reason = "PostgreSQL or versitygw is not installed (make setup-test)";
            Ok(Outcome::Skipped(reason.to_owned()))
        }
    }
}

fn conforms(world: &World, storage: &str, environment: &[(String, String)]) -> Result<Outcome> {
    if let Some(skipped) = missing(&["conformance"]) {
        return Ok(skipped);
    }
    let mut figures = Vec::new();
    for (name, configuration, more) in [
        ("as-it-is", "", &[][..]),
        (
            "everything",
            "[manifests]\nsparse = true\n",
            &[("OCI_VERSION", "dev"), ("OCI_DATA_SPARSE", "true")][..],
        ),
    ] {
        let configuration = format!("[storage]\n{storage}{configuration}");
        let mut registry = OwnRegistry::spawn(world, name, &configuration, 0, environment)?;
        registry.wait()?;
        let results = world.path(&format!("{name}-results"));
        let output = Command::new(World::tool("conformance")?)
            .current_dir(world.path(name))
            .env("OCI_REGISTRY", &registry.address)
            .env("OCI_TLS", "disabled")
            .env("OCI_RESULTS_DIR", &results)
            .envs(more.iter().copied())
            .output()
            .context("cannot start the conformance program")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let count = |word: &str| said.lines().filter(|line| line.ends_with(word)).count();
        let (passed, failed) = (count(": Pass"), count(": FAIL") + count(": Error"));
        let skipped: Vec<&str> = said.lines().filter(|line| line.ends_with(": Skip")).collect();
        ensure!(
            output.status.success() && failed == 0 && passed > 100 && skipped.is_empty(),
            "{name}: {passed} passed, {failed} failed, skipped {skipped:?}\n{said}\n{}\n{}",
            String::from_utf8_lossy(&output.stderr),
            registry.log()
        );
        figures.push(format!("{name}: {passed} passed, none failed"));
        ensure!(registry.end()?, "{name}: the registry did not end well");
    }
    Ok(Outcome::Passed(figures.join("; ")))
}

/// An image of two layers as an OCI layout in the case's directory.
pub(super) fn layout(world: &World, programs: bool) -> Result<String> {
    let mut tar = TarBuilder::new();
    for directory in [
        "bin",
        "lib",
        "lib/x86_64-linux-gnu",
        "lib64",
        "etc",
        "proc",
        "sys",
        "dev",
        "tmp",
    ] {
        tar.directory(directory);
    }
    if programs {
        lab::put_programs(&mut tar, lab::BUSYBOX, 0o755)?;
    }
    tar.file("etc/said", b"of the image\n");
    let mut second = TarBuilder::new();
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(3 << 20)
        .collect();
    second.directory("data").file("data/noise", noise);
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .layer(&second.into_bytes(), Compression::Gzip(1))?
        .build();
    let directory = world.path("layout");
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    for blob in image.blobs() {
        fs::write(blobs.join(blob.digest.hex()), &blob.bytes)?;
    }
    let manifest = &image.manifest;
    fs::write(blobs.join(manifest.digest.hex()), &manifest.bytes)?;
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#)?;
    let index = serde_json::json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": manifest.media_type,
            "digest": manifest.digest.to_string(),
            "size": manifest.bytes.len(),
            "annotations": {"org.opencontainers.image.ref.name": "latest"},
        }],
    });
    fs::write(directory.join("index.json"), index.to_string())?;
    Ok(format!("oci:{}:latest", directory.display()))
}

pub(super) fn skopeo_push(layout: &str, reference: &str, options: &[&str]) -> Result<()> {
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--dest-tls-verify=false"])
        .args(options)
        .arg(layout)
        .arg(format!("docker://{reference}")))?;
    Ok(())
}

/// Copies an image to the layout `back` of the case, and gives its directory.
pub(super) fn skopeo_pull(world: &World, reference: &str, options: &[&str]) -> Result<PathBuf> {
    let back = world.path("back");
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--src-tls-verify=false"])
        .args(options)
        .arg(format!("docker://{reference}"))
        .arg(format!("oci:{}:back", back.display())))?;
    Ok(back)
}

pub(super) fn said(command: &mut Command) -> Result<String> {
    let output = run(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The type that an answer has.
fn media_type(registry: &OwnRegistry, path: &str) -> Result<String> {
    let address = format!("http://{}/v2/{path}", registry.address);
    let media_type = ["-sS", "--output", "/dev/null", "--write-out", "%{content_type}"];
    said(Command::new("curl").args(media_type).arg(&address))
}

/// skopeo and crane push, copy, list, pull, compare and delete.
fn clients(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "crane"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "clients", "")?;
    let layout = layout(world, false)?;
    let name = format!("{}/team/app", registry.address);
    skopeo_push(&layout, &format!("{name}:v1"), &[])?;
    // Docker's schema 2, and a copy within the registry, whose blobs are mounted.
    skopeo_push(&layout, &format!("{name}:docker"), &["--format", "v2s2"])?;
    ensure!(
        media_type(&registry, "team/app/manifests/docker")?
            == "application/vnd.docker.distribution.manifest.v2+json",
        "the type of Docker's manifest"
    );
    let other = format!("{}/other/copy", registry.address);
    run(Command::new("skopeo")
        .args([
            "copy",
            "--quiet",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
        ])
        .args([format!("docker://{name}:v1"), format!("docker://{other}:v1")]))?;
    let back = skopeo_pull(world, &format!("{other}:v1"), &[])?;
    let pushed = fs::read_dir(world.path("layout/blobs/sha256"))?.count();
    ensure!(
        fs::read_dir(back.join("blobs/sha256"))?.count() == pushed,
        "what came back is not what was pushed"
    );
    let crane = || -> Result<Command> {
        let mut crane = Command::new(World::tool("crane")?);
        crane.env("HOME", world.path(""));
        Ok(crane)
    };
    ensure!(
        said(crane()?.args(["ls", "--insecure", &name]))? == "docker\nv1",
        "tags"
    );
    ensure!(
        said(crane()?.args(["catalog", "--insecure", &registry.address]))? == "other/copy\nteam/app",
        "catalog"
    );
    run(crane()?.args(["validate", "--insecure", "--remote", &format!("{name}:v1")]))?;
    run(crane()?.args([
        "copy",
        "--insecure",
        &format!("{name}:v1"),
        &format!("{}/third:x", registry.address),
    ]))?;
    let (third, archive) = (format!("{}/third", registry.address), world.path("crane.tar"));
    run(crane()?
        .args(["pull", "--insecure", &format!("{third}:x")])
        .arg(&archive))?;
    run(crane()?
        .args(["push", "--insecure"])
        .arg(&archive)
        .arg(format!("{third}:back")))?;
    run(crane()?.args(["delete", "--insecure", &format!("{third}:back")]))?;
    ensure!(
        said(crane()?.args(["ls", "--insecure", &third]))? == "x",
        "tags of the copy"
    );
    run(crane()?.args(["tag", "--insecure", &format!("{name}:v1"), "v2"]))?;
    let digest = said(crane()?.args(["digest", "--insecure", &format!("{name}:v2")]))?;
    ensure!(
        digest == said(crane()?.args(["digest", "--insecure", &format!("{other}:v1")]))?,
        "digests differ"
    );
    run(Command::new("skopeo").args([
        "delete",
        "--tls-verify=false",
        &format!("docker://{name}@{digest}"),
    ]))?;
    ensure!(
        said(crane()?.args(["ls", "--insecure", &name]))? == "docker",
        "tags after the deletion"
    );
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(
        "skopeo and crane push, copy, list, validate and delete".to_owned(),
    ))
}

/// oras and regctl attach, list and copy what refers to an image.
fn referrers(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "oras", "regctl"]) {
        return Ok(skipped);
    }
    let (oras, regctl) = (World::tool("oras")?, World::tool("regctl")?);
    let registry = OwnRegistry::start(world, "referrers", "")?;
    let layout = layout(world, false)?;
    let name = format!("{}/team/app:v1", registry.address);
    skopeo_push(&layout, &name, &[])?;
    fs::write(world.path("note.txt"), "a note")?;
    let tool = |program: &std::path::PathBuf| {
        let mut command = Command::new(program);
        command.current_dir(world.path("")).env("HOME", world.path(""));
        command
    };
    run(tool(&oras).args([
        "attach",
        "--plain-http",
        "--artifact-type",
        "application/x.note",
        &name,
        "note.txt:text/plain",
    ]))?;
    run(tool(&regctl).args(["registry", "set", "--tls", "disabled", &registry.address]))?;
    run(tool(&regctl)
        .args([
            "artifact",
            "put",
            "--artifact-type",
            "application/x.other",
            "--subject",
            &name,
        ])
        .args(["--file", "note.txt"]))?;
    let types = |told: &str| ["note", "other"].map(|kind| told.contains(&format!("application/x.{kind}")));
    let listed = said(tool(&oras).args(["discover", "--plain-http", "--format", "json", &name]))?;
    ensure!(types(&listed) == [true, true], "{listed}");
    let filtered = said(tool(&regctl).args([
        "artifact",
        "list",
        "--filter-artifact-type",
        "application/x.note",
        &name,
    ]))?;
    ensure!(types(&filtered) == [true, false], "{filtered}");
    // A client may filter by itself what the registry gives it.
    let digest = said(tool(&oras).args(["resolve", "--plain-http", &name]))?;
    let address = format!(
        "http://{}/v2/team/app/referrers/{digest}?artifactType=application/x.note",
        registry.address
    );
    let filtered = said(Command::new("curl").args(["-sS", &address]))?;
    ensure!(types(&filtered) == [true, false], "{filtered}");
    let copy = format!("{}/copy/app:v1", registry.address);
    run(tool(&oras).args(["cp", "-r", "--from-plain-http", "--to-plain-http", &name, &copy]))?;
    let copied = said(tool(&oras).args(["discover", "--plain-http", "--format", "json", &copy]))?;
    ensure!(types(&copied) == [true, true], "{copied}");
    Ok(Outcome::Passed(
        "oras and regctl attach, list with a filter, and copy with all that refers".to_owned(),
    ))
}

/// An image that skopeo has pushed runs by `xebec run`.
fn runs_an_image(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "runc"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "runs", "")?;
    let name = format!("{}/team/app:v1", registry.address);
    skopeo_push(&layout(world, true)?, &name, &[])?;
    let output = said(&mut world.xebec(&["run", "--rm", &name, "/bin/busybox", "cat", "/etc/said"]))?;
    ensure!(output == "of the image", "{output:?}");
    Ok(Outcome::Passed("an image runs that was pushed here".to_owned()))
}

/// Contents that were pushed are there after a kill and a start, and an upload goes on.
fn restart(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo"]) {
        return Ok(skipped);
    }
    let registry = OwnRegistry::start(world, "restart", "")?;
    skopeo_push(
        &layout(world, false)?,
        &format!("{}/a/b:v1", registry.address),
        &[],
    )?;
    let begun = ask(&registry.address, "POST /v2/a/b/blobs/uploads/ HTTP/1.1", "")?;
    let place = begun
        .lines()
        .find_map(|line| line.strip_prefix("location: "))
        .context("no place of the upload")?
        .trim()
        .to_owned();
    ask(&registry.address, &format!("PATCH {place} HTTP/1.1"), "abc")?;
    // Dropped: that is SIGKILL.
    drop(registry);
    let registry = OwnRegistry::start(world, "restart", "")?;
    let state = ask(&registry.address, &format!("GET {place} HTTP/1.1"), "")?;
    ensure!(state.contains("204") && state.contains("range: 0-2"), "{state}");
    let back = world.path("back");
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--src-tls-verify=false"])
        .arg(format!("docker://{}/a/b:v1", registry.address))
        .arg(format!("oci:{}:back", back.display())))?;
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(
        "an image and an upload outlive a kill".to_owned(),
    ))
}

/// One request, and the answer as it comes.
fn ask(address: &str, line: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(
        stream,
        "{line}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// 10,000 connections of one client that say nothing: the registry keeps 1,024 of them, serves others, and bounds its memory.
fn ten_thousand_connections(world: &World) -> Result<Outcome> {
    const CONNECTIONS: u64 = 10_000;
    const KEPT: usize = 1024;
    if let Some(skipped) = missing(&[]) {
        return Ok(skipped);
    }
    let limit = getrlimit(Resource::Nofile).maximum;
    if limit.is_some_and(|limit| limit < CONNECTIONS + 100) {
        let reason = format!("this process may have {limit:?} files open, and needs {CONNECTIONS}");
        return Ok(Outcome::Skipped(reason));
    }
    let registry = OwnRegistry::start(world, "flood", "")?;
    let files = Some(CONNECTIONS + 100);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: files,
            maximum: files,
        },
    )?;
    // The flood comes from one address of loopback, the client from another.
    let target: std::net::SocketAddr = registry.address.parse()?;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        if let Ok(stream) = TcpStream::connect_timeout(&target, Duration::from_secs(2)) {
            stream.set_nonblocking(true)?;
            held.push(stream);
        }
    }
    let connected = held.len();
    wait_until(
        Duration::from_secs(60),
        "connections beyond 1,024 are closed",
        || {
            let is_open = |stream: &TcpStream| {
                let peeked = stream.peek(&mut [0]);
                peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            Ok(held.iter().filter(|stream| is_open(stream)).count() <= KEPT)
        },
    )?;
    let answer = run(Command::new("curl").args([
        "--silent",
        "--fail",
        "--max-time",
        "5",
        "--interface",
        "127.0.0.2",
        &format!("http://{}/v2/", registry.address),
    ]))?;
    ensure!(answer.stdout == b"{}", "{answer:?}");
    let memory = registry.peak_memory()?;
    ensure!(memory < 128, "{memory} MiB");
    ensure!(connected > 2 * KEPT, "only {connected} connections came about");
    Ok(Outcome::Passed(format!(
        "of {connected} connections {KEPT} are kept at most; others are served; {memory} MiB at most"
    )))
}
