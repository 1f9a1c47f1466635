//! A registry that sends those who pull to its bucket: clients as they are get there, without the login that they have for the registry.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::registry::{layout, missing, said, skopeo_pull, skopeo_push};
use crate::engines::Engines;
use crate::lab::wait_until;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::World;

/// The layers of [`layout`], and its configuration.
const BLOBS: usize = 3;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "registry/redirects".to_owned(),
        limit: Duration::from_secs(180),
        run: Box::new(redirects),
    }]
}

/// skopeo pulls with a login, and Xebec starts the image without one. No byte of a blob comes from the registry itself.
fn redirects(world: &World) -> Result<Outcome> {
    if let Some(skipped) = missing(&["skopeo", "runc"]) {
        return Ok(skipped);
    }
    let Some(engines) = Engines::start(world)? else {
        let reason = "PostgreSQL or versitygw is not installed (make setup-test)";
        return Ok(Outcome::Skipped(reason.to_owned()));
    };
    let htpasswd = world.path("htpasswd");
    OwnRegistry::add_user(&htpasswd, "anna", "secret")?;
    let configuration = format!(
        "[storage]\nredirect = \"5m\"\n{}[indexing]\nenabled = false\n[auth]\nhtpasswd = {htpasswd:?}\nanonymous_pull = true\n",
        engines.configuration,
    );
    let mut registry = OwnRegistry::spawn(world, "redirects", &configuration, 0, &engines.environment)?;
    registry.wait()?;
    // Programs in Go may take a login along to another port of the same host, which S3 refuses: this way the bucket's is another one.
    let (_, port) = registry.address.rsplit_once(':').context("no port")?;
    let name = format!("localhost:{port}/team/app:v1");
    skopeo_push(&layout(world, true)?, &name, &["--dest-creds", "anna:secret"])?;
    skopeo_pull(world, &name, &["--src-creds", "anna:secret"])?;
    ensure_same(world)?;
    // The log of a request follows its answer.
    let answered = |status: &str| {
        let line = "method=GET path=/v2/team/app/blobs/";
        let log = registry.log();
        let lines = log.lines().filter(|text| text.contains(line));
        lines
            .filter(|text| text.contains(&format!(" status={status}")))
            .count()
    };
    wait_until(Duration::from_secs(60), "skopeo is sent to the bucket", || {
        Ok(answered("307") == BLOBS)
    })
    .with_context(|| registry.log())?;
    let output = said(&mut world.xebec(&[
        "run",
        "--rm",
        &format!("{}/team/app:v1", registry.address),
        "/bin/busybox",
        "cat",
        "/etc/said",
    ]))?;
    ensure!(output == "of the image", "{output:?}");
    wait_until(Duration::from_secs(60), "Xebec is sent to the bucket", || {
        Ok(answered("307") > BLOBS)
    })
    .with_context(|| registry.log())?;
    ensure!(answered("20") == 0, "{}", registry.log());
    ensure!(!registry.log().contains("X-Amz-Signature"), "{}", registry.log());
    ensure!(registry.end()?, "the registry did not end well");
    Ok(Outcome::Passed(
        "skopeo and Xebec read the blobs of an image from the bucket".to_owned(),
    ))
}

/// The bytes that came back are those that were pushed.
fn ensure_same(world: &World) -> Result<()> {
    let (pushed, back) = (world.path("layout/blobs/sha256"), world.path("back/blobs/sha256"));
    let mut compared = 0;
    for entry in fs::read_dir(pushed)? {
        let entry = entry?;
        let same = fs::read(entry.path())? == fs::read(back.join(entry.file_name()))?;
        ensure!(same, "{} is not as it was pushed", entry.path().display());
        compared += 1;
    }
    ensure!(compared == BLOBS + 1, "{compared} files were pushed");
    Ok(())
}
