//! Reaching into containers that run: `xebec exec`, `cp`, `stats` and `top`, and nobody but the container is needed for it.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::TarBuilder;

use crate::lab::{self, Lab, Names, Running, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How soon a container runs, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("joining/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![case("commands", commands), case("files", files)]
}

/// An image with a statically linked busybox.
fn image(lab: &Lab<'_>) -> Result<Names> {
    let mut layer = TarBuilder::new();
    for directory in ["bin", "etc", "tmp"] {
        layer.directory(directory);
    }
    lab::put_programs(&mut layer, &["/bin/busybox"], 0o755)?;
    layer.file(
        "etc/passwd",
        b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n",
    );
    layer.file("etc/text", b"from the image\n");
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
    lab.push_indexed(&image.build(), "joined")
}

fn start(lab: &Lab<'_>) -> Result<Running> {
    let names = image(lab)?;
    let words = [
        "run",
        "--rm",
        "--name",
        "one",
        &names.tag,
        "/bin/busybox",
        "sleep",
        "600",
    ];
    let running = Running(lab.spawn("root", &words)?);
    wait_until(SOON, "the container runs", || {
        let joined = lab.xebec("root", &["exec", "one", "/bin/busybox", "true"])?;
        Ok(joined.code == 0)
    })?;
    Ok(running)
}

fn commands(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let mut running = start(&lab)?;
    let exec = |words: &[&str]| lab.xebec("root", &[&["exec"], words].concat());
    let told = exec(&[
        "-u",
        "app",
        "-e",
        "A=a b",
        "one",
        "/bin/busybox",
        "sh",
        "-c",
        "id -u; echo $A; exit 7",
    ])?;
    told.expect(7, &["1000\na b\n"])?;
    // Not an option of Xebec's.
    exec(&["one", "/bin/busybox", "echo", "--help"])?.expect(0, &["--help"])?;
    for (words, code, word) in [
        (&["one", "/bin/missing"][..], 127, "/bin/missing"),
        (&["one", "missing"], 127, "$PATH"),
        (&["one", "/etc/text"], 126, "/etc/text"),
        (
            &["-w", "/no/such", "one", "/bin/busybox", "true"],
            125,
            "/no/such",
        ),
    ] {
        let failed = exec(words)?;
        // The runtime says what it cannot do on the standard error that the command would have.
        let times = failed.err.matches(word).count();
        ensure!(times == 1, "{word} is said {times} times: {failed:?}");
        ensure!(failed.code == code, "{failed:?}");
    }
    exec(&["two", "/bin/busybox", "true"])?.expect(125, &["two", "xebec ps"])?;
    // A command that joins a paused container would stand still.
    lab.xebec("root", &["pause", "one"])?.expect(0, &[])?;
    exec(&["one", "/bin/busybox", "true"])?.expect(125, &["paused", "xebec unpause one"])?;
    lab.xebec("root", &["unpause", "one"])?.expect(0, &[])?;
    lab.xebec("root", &["top", "one"])?
        .expect(0, &["sleep 600", "root"])?;
    lab.xebec("root", &["stats", "--no-stream"])?
        .expect(0, &["one", "MEMORY"])?;
    let counted = lab.xebec("root", &["stats", "--no-stream", "--json", "one"])?;
    let counted: Value = serde_json::from_str(&counted.out)?;
    ensure!(
        counted[0]["name"] == "one" && counted[0]["pids"].as_u64() >= Some(1),
        "{counted}"
    );
    // The container runs on without its supervisor.
    running.0.kill()?;
    running.0.wait()?;
    exec(&["one", "/bin/busybox", "echo", "still here"])?.expect(0, &["still here"])?;
    lab.xebec("root", &["top", "one"])?.expect(0, &["sleep 600"])?;
    let _ = exec(&["one", "/bin/busybox", "kill", "-9", "1"])?;
    Ok(Outcome::Passed(
        "exec, top and stats, with a supervisor and without".to_owned(),
    ))
}

fn files(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let _running = start(&lab)?;
    let here = lab.path("here");
    fs::create_dir_all(here.join("site/deeper"))?;
    fs::write(here.join("site/deeper/page"), "from the host\n")?;
    let here = here.to_str().context("a path that is text")?;
    let cp = |from: &str, to: &str| lab.xebec("root", &["cp", from, to]);
    cp("one:/etc/text", here)?.expect(0, &[])?;
    ensure!(fs::read_to_string(format!("{here}/text"))? == "from the image\n");
    cp(&format!("{here}/site"), "one:/tmp")?.expect(0, &[])?;
    let page = ["exec", "one", "/bin/busybox", "cat", "/tmp/site/deeper/page"];
    lab.xebec("root", &page)?.expect(0, &["from the host"])?;
    cp("one:/nowhere", here)?.expect(3, &["one:/nowhere"])?;
    cp(here, here)?.expect(2, &["NAME:PATH"])?;
    // A link of the container leads to the container's files.
    let link = ["exec", "one", "/bin/busybox", "ln", "-s", "/etc", "/tmp/link"];
    lab.xebec("root", &link)?.expect(0, &[])?;
    cp("one:/tmp/link/passwd", here)?.expect(0, &[])?;
    ensure!(fs::read_to_string(format!("{here}/passwd"))?.contains("app"));
    // The whole root, by a stream that another program reads.
    let mut stream = world.xebec_at("root", &["cp", "one:/", "-"]);
    let mut stream = stream.stdout(Stdio::piped()).spawn()?;
    let output = stream.stdout.take().context("a pipe")?;
    let listed = Command::new("tar").args(["-t"]).stdin(output).output()?;
    let ended = stream.wait()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    ensure!(ended.success(), "{ended} {listed}");
    for name in ["bin/busybox", "etc/passwd", "tmp/site/deeper/page"] {
        ensure!(listed.lines().any(|line| line == name), "no {name} in {listed}");
    }
    ensure!(!listed.contains("proc/1/"), "{listed}");
    Ok(Outcome::Passed("in, out, by a link and as a stream".to_owned()))
}
