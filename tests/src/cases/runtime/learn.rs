//! Profiles, which are learned from starts.

use anyhow::{Context, Result, ensure};

use super::explain::{Choosing, expect_about, pages};
use super::support::{Service, number};
use crate::runner::Outcome;
use crate::world::World;

/// A start that learns, by a recording that lacks what it reads; one recording of both; and nothing is missed any more.
pub(super) fn learn_and_merge(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let service = &choosing.service;
    let tag = choosing.names.tag.as_str();
    let b = pages(service, "start/b")?;
    choosing.choose("/start/a")?;
    // Nobody recorded it: all that it reads is learned, page by page.
    let all = choosing.start("first", &["--learn"])?;
    ensure!(all["with_read_ahead"] == false, "{all:#}");
    let learned = number(&all, "/learned/kept/missed")?;
    let recorded = number(&choosing.record("recorder")?, "/pages")?;
    expect_about(&all, "/learned/kept/missed", recorded)?;

    choosing.choose("/start/b")?;
    let other = choosing.start("learner", &["--learn"])?;
    expect_about(&other, "/learned/kept/missed", b)?;
    expect_about(
        &other,
        "/learned/kept/touched",
        number(&other, "/recorded/touched")?,
    )?;
    ensure!(kept(service, "learner")? == 1, "{other:#}");
    let told = service.record("learner", &["--merge", "--limit", "1000", tag])?;
    expect_about(&told, "/services/0/added", b)?;
    ensure!(kept(service, "learner")? == 0, "{told:#}");

    let better = choosing.start("better", &[])?;
    expect_about(&better, "/missed_pages", 0)?;
    expect_about(&better, "/local_pages", 0)?;
    ensure!(
        number(&better, "/recorded/pages")? >= recorded + b - super::support::STRAY,
        "{better:#}"
    );

    // A profile that could not be learned is reported, and not kept.
    let failed = service
        .lab
        .xebec("better", &["run", "--rm", "--learn", tag, "20s"])?;
    failed.expect(125, &["--probe"])?;
    let words = ["run", "--rm", "--learn", "--probe", "log:^never$", tag, "0s"];
    let failed = service.lab.xebec("better", &words)?;
    ensure!(failed.code != 0, "{failed:?}");
    let ended = super::explain::explained(service, "better", &[])?;
    ensure!(ended["end"] == "ended", "{ended:#}");
    ensure!(ended.pointer("/learned/not").is_some(), "{ended:#}");
    ensure!(kept(service, "better")? == 0, "{ended:#}");
    Ok(Outcome::Passed(format!(
        "{learned} pages without a recording, {b} besides one"
    )))
}

/// With the daemon's setting all starts with a probe learn, but not each again.
pub(super) fn by_setting(world: &World) -> Result<Outcome> {
    let choosing = Choosing::new(world)?;
    let service = &choosing.service;
    choosing.choose("/start/a")?;
    std::fs::create_dir_all(service.lab.path("root"))?;
    std::fs::write(service.lab.path("root").join("daemon.toml"), "learn = true\n")?;
    let first = choosing.start("root", &[])?;
    ensure!(first.pointer("/learned/kept").is_some(), "{first:#}");
    let second = choosing.start("root", &[])?;
    ensure!(second["learned"].is_null(), "{second:#}");
    ensure!(kept(service, "root")? == 1, "{second:#}");
    // Another service is another matter; one without a probe says nothing of when it is ready.
    let ended = service.lab.xebec("root", &["run", "--rm", &choosing.names.tag])?;
    ended.expect(0, &["ready"])?;
    let unprobed = super::explain::explained(service, "root", &[])?;
    ensure!(
        unprobed["learned"].is_null() && unprobed["end"] == "ended",
        "{unprobed:#}"
    );
    let metrics = service.lab.xebec("root", &["daemon", "metrics"])?;
    metrics.expect(
        0,
        &[
            "xebec_starts_total{recording=\"none\"} 3",
            "xebec_start_profiles_total 1",
            "xebec_start_pages_total{pages=\"missed\"}",
        ],
    )?;
    let options = service.lab.xebec("root", &["daemon", "start", "--learn=maybe"])?;
    options.expect(2, &["learn"])?;
    Ok(Outcome::Passed("one profile of two starts".to_owned()))
}

/// How many profiles a root keeps.
fn kept(service: &Service<'_>, root: &str) -> Result<usize> {
    let folder = service.lab.path(root).join("runtime");
    let mut count = 0;
    for image in std::fs::read_dir(&folder).context("read what is kept")? {
        let profiles = std::fs::read_dir(image?.path().join("profiles"));
        count += profiles.into_iter().flatten().count();
    }
    Ok(count)
}
