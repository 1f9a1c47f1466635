//! The whole daemon is killed, once an image is complete. Workers and commands are killed in `soak`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, contents, expect_contents, read_cold, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("deaths/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![case("daemon-of-a-complete-image", daemon_of_a_complete_image)]
}

/// Once an image is complete its readers need no daemon; and a new one takes over what the dead one left mounted.
fn daemon_of_a_complete_image(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (contents(33, 3 << 20), contents(34, 3 << 20));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy", "--complete"])?;
    // Held open by a reader that has read a part of it.
    let held = fs::File::open(mnt.join("one")).context("open a file of a fresh mount")?;
    wait_until(Duration::from_secs(30), "complete", || {
        let status = lab.status("root")?;
        let view = status.pointer("/views/0").context("no view")?;
        let is_complete = view.get("layers") == view.get("complete_layers");
        // Proven too, so that it can be mounted by digest without the registry.
        Ok(is_complete && lab.daemon_log("root")?.matches("is proven").count() == 2)
    })?;
    super::succession::kill_both(&lab, "root")?;
    lab.registry.set_down(true);
    let begin = Instant::now();
    expect_contents(&mnt.join("one"), &one)?;
    expect_contents(&mnt.join("two"), &two)?;
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&held, &mut byte, 12345)?;
    ensure!(byte[0] == one[12345], "a file that was open reads wrong");
    let took = begin.elapsed();
    // The next daemon knows that a complete view cannot have shown holes: it is used on.
    let again = lab.mount("root", &names.digest, &["--require-lazy"])?;
    expect_contents(&again.join("two"), &two)?;
    lab.logged("root", &["left from a daemon that was killed"])?;
    ensure!(
        read_cold(&mnt.join("one"))? == one,
        "the old mount shows something else"
    );
    let status = lab.status("root")?;
    let count = |name| status.get(name).and_then(Value::as_array).map(Vec::len);
    ensure!(
        (count("views"), count("suspects")) == (Some(1), Some(0)),
        "{status}"
    );
    lab.umount("root", &again)?;
    lab.umount("root", &mnt)?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(format!(
        "right without keeper, worker and registry ({took:?}), and after a new daemon"
    )))
}
