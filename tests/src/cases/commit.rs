//! `xebec commit` and `xebec push`: what a container changed is what every other host and program then sees, and no kill and no full disk
//! leaves half an image.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::TarBuilder;

use crate::lab;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::tree::{self, Tree};
use crate::world::{World, run, run_failing};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a command is killed.
const KILLS: u32 = 12;
/// Where something is mounted in each container, so that the container's layer has an empty file or directory there.
const MOUNT_POINTS: &[&str] = &[
    "etc/hosts",
    "etc/hostname",
    "etc/resolv.conf",
    "dev",
    "proc",
    "sys",
];
/// What the container changes. The files of its image are those of [`base`].
const CHANGES: &str = "
    set -e
    echo new > /srv/new; echo more >> /srv/text; rm /srv/gone; rm -r /srv/directory; mkdir /srv/directory
    echo x > /srv/directory/only; ln /srv/new /srv/link; ln -s ../srv/new /srv/symbolic; mkfifo /srv/fifo
    chmod 4750 /srv/text; chown 1000:70000 /srv/new; rm -r /srv/becomes-file; echo file > /srv/becomes-file
    mkdir -p /srv/deep/a/b; touch -d '2001-02-03 04:05:06' /srv/deep/a; echo odd > '/srv/a name
of two lines'; chmod 711 /srv; mknod /srv/null c 1 3
";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("commit/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("whole", whole),
        case("elsewhere", elsewhere),
        case("native", native),
        case("refusals", refusals),
        case("killed", killed),
        case("full-disk", full_disk),
    ]
}

/// Puts an image with a shell into the registry, with its index, and gives its name.
fn base(world: &World) -> Result<String> {
    let mut layer = TarBuilder::new();
    for directory in [
        "bin",
        "etc",
        "tmp",
        "srv",
        "srv/directory",
        "srv/becomes-file",
        "lib64",
        "lib",
        "lib/x86_64-linux-gnu",
    ] {
        layer.directory(directory);
    }
    let programs: Vec<&str> = lab::BUSYBOX
        .iter()
        .copied()
        .filter(|path| Path::new(path).exists())
        .collect();
    lab::put_programs(&mut layer, &programs, 0o755)?;
    for file in ["text", "gone", "directory/lower", "becomes-file/lower"] {
        layer.file(format!("srv/{file}"), b"from the image\n");
    }
    layer.file("srv/large", lab::contents(7, 3 << 20));
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(6))?;
    let layout = world.path("base");
    image.build().write_layout(&layout, "latest")?;
    let reference = world.push(&layout, "base")?;
    run(&mut world.xebec_at("builder", &["index", "--push", &reference]))?;
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"]))?;
    Ok(reference)
}

/// Starts a container that waits, and changes its files.
fn changed(world: &World, image: &str, name: &str, script: &str) -> Result<()> {
    run(&mut world.xebec(&["run", "-d", "--name", name, image, "/bin/busybox", "sleep", "600"]))?;
    run(&mut world.xebec(&["exec", name, "/bin/busybox", "sh", "-c", script]))?;
    Ok(())
}

fn json(command: &mut Command) -> Result<Value> {
    serde_json::from_slice(&run(command)?.stdout).context("no JSON")
}

/// What a container sees, without what is mounted in it.
fn seen(world: &World, name: &str) -> Result<Tree> {
    without_mount_points(tree::read(
        &world.path("root-run/bundles").join(name).join("merged"),
    )?)
}

fn without_mount_points(mut tree: Tree) -> Result<Tree> {
    ensure!(tree.nodes.len() > 10, "nothing is compared");
    tree.nodes
        .retain(|path, _| !MOUNT_POINTS.iter().any(|point| point.as_bytes() == path));
    Ok(tree)
}

/// Compares two trees but for counts of links: an overlay counts those of a lower layer, and one for each directory. Which names are one
/// file is compared.
fn expect_same(what: &str, one: &Tree, other: &Tree) -> Result<()> {
    let differences = tree::compare(one, other);
    let differences = differences
        .iter()
        .filter(|difference| difference.field != "links");
    let differences: Vec<String> = differences.map(ToString::to_string).collect();
    ensure!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
    Ok(())
}

/// The image as skopeo and umoci have it.
fn unpacked(world: &World, reference: &str, name: &str) -> Result<Tree> {
    let (layout, bundle) = (
        world.path(&format!("{name}-layout")),
        world.path(&format!("{name}-bundle")),
    );
    let place = format!("oci:{}:image", layout.display());
    let source = format!("docker://{reference}");
    run(Command::new("skopeo").args(["copy", "--quiet", "--src-tls-verify=false", &source, &place]))?;
    let image = format!("{}:image", layout.display());
    run(Command::new("umoci")
        .args(["unpack", "--image", &image])
        .arg(&bundle))?;
    without_mount_points(tree::read(&bundle.join("rootfs"))?)
}

/// The image as another host shows it, lazily.
fn mounted(world: &World, root: &str, reference: &str) -> Result<Tree> {
    let directory = world.path(&format!("{root}-mount"));
    fs::create_dir_all(&directory)?;
    let mut mount = world.xebec_at(root, &["mount", "--require-lazy", "--suid", "--dev", reference]);
    run(mount.arg(&directory))?;
    let tree = tree::read(&directory)?;
    run(world.xebec_at(root, &["umount"]).arg(&directory))?;
    run(&mut world.xebec_at(root, &["daemon", "stop", "--force"]))?;
    without_mount_points(tree)
}

fn whole(world: &World) -> Result<Outcome> {
    let base = base(world)?;
    changed(world, &base, "one", CHANGES)?;
    let name = format!("{}/made:1", world.registry);
    for codec in ["gzip", "zstd"] {
        let options = [
            "commit",
            "--json",
            "--compression",
            codec,
            "-c",
            "ENV MADE=yes",
            "one",
            &name,
        ];
        let made = json(&mut world.xebec(&options))?;
        ensure!(made["entries"].as_u64() > Some(10), "{made}");
        let again = json(&mut world.xebec(&options))?;
        ensure!(
            made["layer"] == again["layer"],
            "the same changes gave {made} and {again}"
        );
        let shown = seen(world, "one")?;
        // Before it is pushed, its name means this image here.
        let said = run(&mut world.xebec(&[
            "run",
            "--rm",
            &name,
            "/bin/busybox",
            "sh",
            "-c",
            "cat /srv/new; echo $MADE",
        ]))?;
        ensure!(said.stdout == b"new\nyes\n", "{said:?}");
        let listed = json(&mut world.xebec(&["images", "--json"]))?;
        let entry = listed.as_array().and_then(|all| {
            all.iter()
                .find(|image| image["manifest_digest"] == again["manifest"])
        });
        ensure!(
            entry.is_some_and(|image| image["committed"]["pushed"].is_null()),
            "{listed}"
        );
        let pushed = json(&mut world.xebec(&["push", "--json", &name]))?;
        ensure!(
            pushed["layers"][0]["how"] == if codec == "gzip" { "mounted" } else { "existed" },
            "{pushed}"
        );
        ensure!(pushed["layers"][1]["how"] == "sent", "{pushed}");
        let repeated = json(&mut world.xebec(&["push", "--json", &name]))?;
        ensure!(
            repeated["layers"][1]["how"] == "existed" && repeated["artifact"] == pushed["artifact"],
            "{repeated}"
        );
        // umoci reads no zstd.
        if codec == "gzip" {
            expect_same("umoci", &shown, &unpacked(world, &name, codec)?)?;
        }
        expect_same("another host", &shown, &mounted(world, codec, &name)?)?;
    }
    run(&mut world.xebec(&["stop", "-t", "0", "one"]))?;
    let ended = json(&mut world.xebec(&["commit", "--json", "one", &name]))?;
    ensure!(
        ended["entries"].as_u64() > Some(10),
        "a container that has ended: {ended}"
    );
    Ok(Outcome::Passed(
        "umoci and another host see what the container saw, by gzip and zstd".to_owned(),
    ))
}

/// To a registry of Xebec, which has nothing of the base, and from a committed image once more.
fn elsewhere(world: &World) -> Result<Outcome> {
    if OwnRegistry::program().is_none() {
        return Ok(Outcome::Skipped("xebec-registry is not built".to_owned()));
    }
    let base = base(world)?;
    let registry = OwnRegistry::start(world, "own-registry", "")?;
    changed(world, &base, "one", CHANGES)?;
    let first = format!("{}/made:1", world.registry);
    run(&mut world.xebec(&["commit", "one", &first]))?;
    changed(world, &first, "two", "rm /srv/new; echo second > /srv/second")?;
    let second = format!("{}/made:2", world.registry);
    run(&mut world.xebec(&["commit", "two", &second]))?;
    let target = format!("{}/team/made:2", registry.address);
    let pushed = json(&mut world.xebec(&["push", "--json", &second, &target]))?;
    let how: Vec<&Value> = pushed["layers"]
        .as_array()
        .context("no layers")?
        .iter()
        .map(|layer| &layer["how"])
        .collect();
    ensure!(how == ["sent", "sent", "sent"], "{pushed}");
    let shown = seen(world, "two")?;
    expect_same("umoci", &shown, &unpacked(world, &target, "second")?)?;
    expect_same("another host", &shown, &mounted(world, "other", &target)?)?;
    run(Command::new(World::tool("crane")?).args(["validate", "--insecure", "--remote", &target]))?;
    Ok(Outcome::Passed(
        "a commit on a commit, to a registry without the base".to_owned(),
    ))
}

/// A registry that keeps each file once, and the programs that ask it.
const DEDUPLICATED: &str = "[deduplication]\nenabled = true\nleast_size = \"4k\"\nlevel = 1\n";
/// How long it may take until nothing waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// One file of a layer of many is changed, and the image committed again: the registry gets that file, and has the same blob as if all of it had
/// been sent.
fn native(world: &World) -> Result<Outcome> {
    if OwnRegistry::program().is_none() {
        return Ok(Outcome::Skipped("xebec-registry is not built".to_owned()));
    }
    let base = base(world)?;
    let registry = OwnRegistry::start(world, "own-registry", DEDUPLICATED)?;
    // Noise: what is sent of it is as long as it is.
    let script = "for n in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=/srv/part-$n bs=1M count=1; done";
    changed(world, &base, "one", script)?;
    for (number, codec) in [(1, "gzip"), (2, "gzip"), (3, "zstd")] {
        let change = format!("echo {number} > /srv/number; dd if=/dev/urandom of=/srv/part-1 bs=64k count=1");
        run(&mut world.xebec(&["exec", "one", "/bin/busybox", "sh", "-c", &change]))?;
        let name = format!("{}/team/made:{number}", registry.address);
        run(&mut world.xebec(&["commit", "--compression", codec, "one", &name]))?;
        let pushed = json(&mut world.xebec(&["push", "--json", &name]))?;
        let layer = &pushed["layers"][1];
        let figure = |of: &str| layer[of].as_u64().unwrap_or_default();
        let (size, sent) = (figure("size"), figure("sent"));
        if number == 1 {
            ensure!(layer["how"] == "sent" && sent == size, "{pushed}");
        } else {
            ensure!(
                layer["how"] == "assembled" && sent > 60_000 && sent * 8 < size,
                "{pushed}"
            );
        }
        let again = json(&mut world.xebec(&["push", "--json", &name]))?;
        let layer = &again["layers"][1];
        ensure!(layer["how"] == "existed" && layer["sent"] == 0, "{again}");
        let shown = seen(world, "one")?;
        let host = format!("host-{number}");
        expect_same("another host", &shown, &mounted(world, &host, &name)?)?;
        let layout = format!("made-{number}");
        match codec {
            "gzip" => {
                let arguments = ["validate", "--insecure", "--remote", &name];
                run(Command::new(World::tool("crane")?).args(arguments))?;
                expect_same("umoci", &shown, &unpacked(world, &name, &layout)?)?;
            }
            // Neither of them reads zstd. skopeo compares digests.
            _ => {
                let place = format!("oci:{}:image", world.path(&layout).display());
                let source = format!("docker://{name}");
                let arguments = ["copy", "--quiet", "--src-tls-verify=false", &source, &place];
                run(Command::new("skopeo").args(arguments))?;
            }
        }
        lab::wait_until(PATIENCE, "no blob waits", || nothing_waits(world))
            .with_context(|| registry.log())?;
    }
    let told = Command::new("curl")
        .args([
            "-sSf",
            "--noproxy",
            "*",
            &format!("http://{}/metrics", registry.address),
        ])
        .output()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    ensure!(
        told.contains("xebec_registry_assembled_total{outcome=\"done\"} 2"),
        "{told}"
    );
    Ok(Outcome::Passed(
        "a commit after a commit sends the file that has changed, by gzip and zstd".to_owned(),
    ))
}

/// Whether the registry has taken apart all that it was sent.
fn nothing_waits(world: &World) -> Result<bool> {
    let program = OwnRegistry::program().context("xebec-registry is not built")?;
    let directory = world.path("own-registry");
    let space = run(Command::new(program)
        .args(["space", "--json", "--config"])
        .arg(directory.join("registry.toml"))
        .arg("--root")
        .arg(directory.join("data")))?;
    let space: Value = serde_json::from_slice(&space.stdout)?;
    Ok(space["waiting"] == 0)
}

fn refusals(world: &World) -> Result<Outcome> {
    let base = base(world)?;
    let name = format!("{}/made:1", world.registry);
    run(&mut world.xebec(&[
        "run",
        "-d",
        "--name",
        "one",
        &base,
        "/bin/busybox",
        "sleep",
        "600",
    ]))?;
    for (words, said) in [
        (&["commit", "two", &name][..], "no container"),
        (
            &[
                "commit",
                "one",
                "made@sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ],
            "digest",
        ),
        (&["commit", "-c", "RUN make", "one", &name], "RUN make"),
        (&["commit", "--compression", "lz4", "one", &name], "gzip or zstd"),
        (
            &["commit", "--level", "22", "--compression", "zstd", "one", &name],
            "1 to 19",
        ),
        (&["push", &name], "was committed"),
    ] {
        let failed = run_failing(&mut world.xebec(words))?;
        ensure!(failed.contains(said), "{words:?}: {failed}");
    }
    // Nothing was changed: the history has an entry, and the image no layer more.
    let made = json(&mut world.xebec(&[
        "commit",
        "--json",
        "-c",
        "CMD [\"/bin/busybox\", \"echo\", \"said\"]",
        "one",
        &name,
    ]))?;
    ensure!(
        made["layer"].is_null() || made["entries"].as_u64() < Some(3),
        "{made}"
    );
    let said = run(&mut world.xebec(&["run", "--rm", &name]))?;
    ensure!(said.stdout == b"said\n", "{said:?}");
    // A container of it keeps it.
    run(&mut world.xebec(&[
        "run",
        "-d",
        "--name",
        "of-it",
        &name,
        "/bin/busybox",
        "sleep",
        "600",
    ]))?;
    let kept = run_failing(&mut world.xebec(&["rmi", &name]))?;
    run(&mut world.xebec(&["rm", "-f", "of-it"]))?;
    run(&mut world.xebec(&["rmi", &name]))?;
    let left = fs::read_dir(world.path("root/committed/blobs/sha256"))?.count();
    ensure!(left == 0, "{left} blobs stay after rmi, which first said {kept}");
    run_failing(&mut world.xebec(&["run", "--rm", &name]))?;
    Ok(Outcome::Passed(
        "what cannot be is named, and an image goes when it is told to".to_owned(),
    ))
}

/// Runs a command and kills it after a while.
fn kill_after(command: &mut Command, time: Duration) -> Result<bool> {
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let until = Instant::now() + time;
    while Instant::now() < until {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()?;
    Ok(true)
}

fn blobs(world: &World) -> Result<usize> {
    match fs::read_dir(world.path("root/committed/blobs/sha256")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        entries => Ok(entries?.count()),
    }
}

fn killed(world: &World) -> Result<Outcome> {
    let base = base(world)?;
    let name = format!("{}/made:1", world.registry);
    changed(
        world,
        &base,
        "one",
        "dd if=/dev/urandom of=/srv/random bs=1M count=24",
    )?;
    let started = Instant::now();
    run(&mut world.xebec(&["commit", "--level", "1", "one", &name]))?;
    let whole = started.elapsed();
    let (before, mut kills) = (blobs(world)?, 0);
    for number in 0..KILLS {
        let time = whole * fastrand::u32(1..=number.max(1) + 2) / (KILLS + 2);
        kills += u32::from(kill_after(
            &mut world.xebec(&["commit", "--level", "1", "one", &name]),
            time,
        )?);
        // It goes on, although a process has paused it that is gone.
        run(&mut world.xebec(&["exec", "one", "/bin/busybox", "true"]))?;
        run(&mut world.xebec(&["images", "--json"]))?;
    }
    run(&mut world.xebec(&["commit", "--level", "1", "one", &name]))?;
    run(&mut world.xebec(&["exec", "one", "/bin/busybox", "true"]))?;
    let images = json(&mut world.xebec(&["images", "--json"]))?;
    let committed = images
        .as_array()
        .context("no list")?
        .iter()
        .filter(|image| image["committed"].is_object());
    let count = committed.count();
    // One layer, and two documents for each image.
    ensure!(
        blobs(world)? == 1 + 2 * count,
        "{} blobs of {count} images, {before} before",
        blobs(world)?
    );
    let started = Instant::now();
    let elsewhere = format!("{}/elsewhere:1", world.registry);
    run(&mut world.xebec(&["push", &name, &elsewhere]))?;
    let whole = started.elapsed();
    for number in 0..KILLS {
        let target = format!("{}/killed:{number}", world.registry);
        let time = whole * fastrand::u32(1..=number.max(1) + 2) / (KILLS + 2);
        kills += u32::from(kill_after(&mut world.xebec(&["push", &name, &target]), time)?);
    }
    ensure!(kills > 4, "only {kills} commands were killed");
    let target = format!("{}/killed:last", world.registry);
    run(&mut world.xebec(&["push", &name, &target]))?;
    expect_same("umoci", &seen(world, "one")?, &unpacked(world, &target, "last")?)?;
    Ok(Outcome::Passed(format!("{kills} kills left nothing half")))
}

fn full_disk(world: &World) -> Result<Outcome> {
    let base = base(world)?;
    let root: PathBuf = world.path("root");
    lab::mount_small(&root, 64 << 20)?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
    changed(
        world,
        &base,
        "one",
        "dd if=/dev/urandom of=/srv/random bs=1M count=36",
    )?;
    let name = format!("{}/made:1", world.registry);
    let failed = run_failing(&mut world.xebec(&["commit", "one", &name]))?;
    ensure!(failed.contains("disk of the root directory is full"), "{failed}");
    ensure!(blobs(world)? == 0, "something is left");
    // It goes on, and there is room again.
    run(&mut world.xebec(&[
        "exec",
        "one",
        "/bin/busybox",
        "sh",
        "-c",
        "rm /srv/random; echo small > /srv/small",
    ]))?;
    run(&mut world.xebec(&["commit", "one", &name]))?;
    run(&mut world.xebec(&["push", &name]))?;
    expect_same("umoci", &seen(world, "one")?, &unpacked(world, &name, "small")?)?;
    Ok(Outcome::Passed(
        "a full disk is named and leaves nothing".to_owned(),
    ))
}
