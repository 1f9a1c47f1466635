//! Volumes of containers whose image is lazy, and the first process that `--init` gives them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::lab::{Lab, Names, contents};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Larger than a span, so that it comes in parts.
const SIZE: usize = 3 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("volumes/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("filled-once", filled_once),
        case("first-process", first_process),
    ]
}

/// An image with a program, and a directory of another user's.
fn image(lab: &Lab<'_>) -> Result<Names> {
    let program = fs::read(World::go_tool("linger")?)?;
    let mut layer = TarBuilder::new();
    layer.directory("bin");
    layer.file_with(&Header::new("bin/linger", Kind::File).mode(0o755), &program);
    layer.directory("srv");
    layer.directory("srv/data");
    layer.file("srv/data/file", contents(7, SIZE));
    let image = ImageBuilder::new().layer(&layer.into_bytes(), Compression::Gzip(1))?;
    lab.push_indexed(&image.build(), "app")
}

/// A new volume has the bytes of the image, which come from the registry for that, and keeps them.
fn filled_once(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let run = |file: &str| {
        let words = [
            "run",
            "--rm",
            "--volume",
            "data:/srv/data",
            &names.tag,
            "/bin/linger",
            "0s",
            file,
        ];
        lab.xebec("root", &words)
    };
    run("/srv/data/file")?.expect(0, &["ready"])?;
    let data = lab.path("root/volumes/data/_data");
    ensure!(fs::read(data.join("file"))? == contents(7, SIZE), "other bytes");
    ensure!(
        fs::metadata(lab.path("root/volumes"))?.mode() & 0o77 == 0,
        "others may enter"
    );
    fs::rename(data.join("file"), data.join("moved"))?;
    run("/srv/data/moved")?.expect(0, &["ready"])?;
    run("/srv/data/file")?.expect(1, &["no such file"])?;
    let inspected = lab.xebec("root", &["volume", "inspect", "data"])?;
    inspected.expect(0, &[])?;
    let inspected: Value = serde_json::from_str(&inspected.out)?;
    let mountpoint = inspected.pointer("/0/Mountpoint").and_then(Value::as_str);
    ensure!(
        mountpoint.context("a path")?.ends_with("/volumes/data/_data"),
        "{inspected}"
    );
    lab.xebec("root", &["volume", "rm", "data"])?
        .expect(0, &["data"])?;
    ensure!(!data.exists(), "it is still there");
    // A name that is not found makes nothing.
    let missing = format!("{}-missing", names.tag);
    let words = [
        "run",
        "--rm",
        "--volume",
        "other:/srv/data",
        &missing,
        "/bin/linger",
        "0s",
    ];
    lab.xebec("root", &words)?.expect(125, &[])?;
    ensure!(
        !lab.path("root/volumes/other").exists(),
        "a volume for no container"
    );
    Ok(Outcome::Passed(format!("{SIZE} bytes, once")))
}

/// The program itself is the first process, and passes on the exit code of the command.
fn first_process(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = image(&lab)?;
    let run = |arguments: &[&str]| {
        lab.xebec(
            "root",
            &[&["run", "--rm", "--init", &names.tag], arguments].concat(),
        )
    };
    run(&["/bin/linger", "0s"])?.expect(0, &["ready"])?;
    run(&["/bin/linger", "0s", "/no/file"])?.expect(1, &["/no/file"])?;
    run(&["/bin/missing"])?.expect(127, &["/bin/missing"])?;
    Ok(Outcome::Passed("0, 1 and 127".to_owned()))
}
