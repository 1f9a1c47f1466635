//! Podman, Buildah and skopeo beside Xebec: what they pulled, ran, built and pushed before, they do with an image that has indexes,
//! too.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::TarBuilder;

use crate::lab::{self, Lab};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "podman/beside-xebec".to_owned(),
        limit: Duration::from_secs(240),
        run: Box::new(beside_xebec),
    }]
}

/// Buildah with storage of its own; without a network, and without a runtime, as here nobody asks for either.
pub(super) fn buildah(world: &World, arguments: &[&str]) -> Result<Output> {
    run(Command::new("buildah")
        .arg("--root")
        .arg(world.path("storage"))
        .arg("--runroot")
        .arg(world.path("storage-run"))
        .args(["--storage-driver", "vfs"])
        .args(arguments)
        .env("BUILDAH_ISOLATION", "chroot")
        .env("HOME", world.path("")))
}

/// Podman with storage of its own, in the case's network. It is told no more than it needs here: a runtime that takes this host's
/// control groups, and limits that this process may set.
pub(super) fn podman(world: &World, arguments: &[&str]) -> Result<Output> {
    let (action, rest) = arguments.split_first().context("no command")?;
    let mut command = Command::new("podman");
    for (option, name) in [
        ("--root", "pods"),
        ("--runroot", "pods-run"),
        ("--tmpdir", "pods-tmp"),
    ] {
        command.arg(option).arg(world.path(name));
    }
    command
        .args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"])
        .args(["--events-backend", "none", "--runtime", "runc"])
        .arg(action);
    if *action == "run" {
        command
            .args(["--rm", "--network", "host", "--log-driver", "none"])
            .args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"])
            .args(["--cgroup-parent", &format!("/{}", world.name())]);
    } else {
        command.args(["--quiet", "--tls-verify=false"]);
    }
    run(command.args(rest).env("HOME", world.path("")))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The digests of what a registry has of an image, as skopeo tells them.
fn layers(reference: &str) -> Result<String> {
    let inspected = run(Command::new("skopeo").args([
        "inspect",
        "--tls-verify=false",
        "--no-tags",
        "--format",
        "{{.Layers}}",
        &format!("docker://{reference}"),
    ]))?;
    Ok(said(&inspected))
}

/// How many blobs `skopeo copy --all` makes of an image.
fn blobs_of_copy(world: &World, reference: &str, name: &str) -> Result<usize> {
    let copy = world.path(name);
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--src-tls-verify=false", "--all"])
        .arg(format!("docker://{reference}"))
        .arg(format!("oci:{}:copy", copy.display())))?;
    Ok(fs::read_dir(copy.join("blobs/sha256"))?.count())
}

/// An image before it has an index, with one, and by the image index that binds it: the same is pulled, runs, is built upon and
/// pushed; what is pushed is an image for Xebec.
fn beside_xebec(world: &World) -> Result<Outcome> {
    for tool in ["podman", "buildah", "skopeo"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return Ok(Outcome::Skipped(format!("{tool} is not installed")));
        }
    }
    let lab = Lab::new(world)?;
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
    lab::put_programs(&mut tar, lab::BUSYBOX, 0o755)?;
    tar.file("etc/said", b"of the image\n");
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))?
        .build();
    let names = lab.push(&image, "plain");
    let before = layers(&names.tag)?;
    lab.xebec("builder", &["index", "--push", "--bind", &names.tag])?
        .expect(0, &[])?;
    ensure!(layers(&names.tag)? == before, "the image's layers have changed");

    podman(world, &["pull", &names.tag])?;
    let ran = podman(world, &["run", &names.tag, "/bin/busybox", "cat", "/etc/said"])?;
    ensure!(said(&ran) == "of the image", "{ran:?}");

    let container = said(&buildah(
        world,
        &["from", "--tls-verify=false", "--quiet", &names.tag],
    )?);
    let ran = buildah(
        world,
        &["run", &container, "--", "/bin/busybox", "cat", "/etc/said"],
    )?;
    ensure!(said(&ran) == "of the image", "{ran:?}");

    let context = world.path("context");
    fs::create_dir(&context)?;
    let recipe = format!(
        "FROM {}\nRUN [\"/bin/busybox\", \"sh\", \"-c\", \"echo built > /etc/built\"]\nCMD [\"/bin/busybox\", \"cat\", \"/etc/built\"]\n",
        names.tag
    );
    fs::write(context.join("Containerfile"), recipe)?;
    let pushed = names.tag.replace("plain", "built");
    let context = context.display().to_string();
    buildah(
        world,
        &["bud", "--quiet", "--tls-verify=false", "-t", &pushed, &context],
    )?;
    buildah(
        world,
        &[
            "push",
            "--quiet",
            "--tls-verify=false",
            &pushed,
            &format!("docker://{pushed}"),
        ],
    )?;

    podman(world, &["pull", &pushed])?;
    let ran = podman(world, &["run", &pushed])?;
    ensure!(said(&ran) == "built", "{ran:?}");
    let by_podman = names.tag.replace("plain", "by-podman");
    podman(world, &["push", &pushed, &format!("docker://{by_podman}")])?;

    // Of the image itself there are its manifest, its configuration and its layer. The index comes along if an image index lists it,
    // and stays behind if it merely refers to the image.
    let bound = blobs_of_copy(world, &names.tag, "copy")?;
    ensure!(bound > 4, "{bound} blobs: the bound index was not copied");
    let referring = lab.push(&image, "referring");
    lab.xebec("builder", &["index", "--push", &referring.tag])?
        .expect(0, &[])?;
    let alone = blobs_of_copy(world, &referring.tag, "copy-alone")?;
    ensure!(alone == 3, "{alone} blobs: more than the image was copied");

    for reference in [&pushed, &by_podman] {
        let ran = lab.xebec("root", &["run", "--rm", reference])?;
        ran.expect(0, &["built"])?;
    }
    Ok(Outcome::Passed(
        "pulled, run, built upon, pushed, copied, and run by Xebec".to_owned(),
    ))
}
