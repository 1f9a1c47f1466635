//! One image or registry that is stuck keeps no reader of another one waiting.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::mount::mount_bind;
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::{Fault, When};

use crate::lab::{self, Lab, contents, expect_contents};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// How long a reader may wait beside what is stuck for half a minute at least.
const SOON: Duration = Duration::from_secs(8);
/// More than the worker has threads for what blocks.
const STUCK: usize = 24;
/// Size of the file that is read: several spans.
const FILE: usize = 3 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("stalls/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("silent-name-server", silent_name_server),
        case("whole-layers", whole_layers),
    ]
}

/// A root whose requests have the patience of a host's.
fn root(lab: &Lab<'_>) -> Result<()> {
    fs::create_dir_all(lab.path("root"))?;
    fs::write(lab.path("root").join("registries.toml"), "")?;
    Ok(())
}

/// Mounts an image, begins what gets stuck, and reads beside it.
fn read_beside(lab: &Lab<'_>, begin: impl FnOnce() -> Result<Vec<Child>>) -> Result<Duration> {
    let file = contents(1, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let stuck = begin()?;
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let read = expect_contents(&mnt.join("file"), &file);
    let took = begun.elapsed();
    for mut child in stuck {
        ensure!(child.try_wait()?.is_none(), "nothing is stuck");
        child.kill()?;
        child.wait()?;
    }
    read?;
    ensure!(took < SOON, "a reader of another image waited for {took:?}");
    Ok(took)
}

/// Names of registries that nobody resolves: each is asked for by a thread that waits for half a minute.
fn silent_name_server(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    root(&lab)?;
    let _silent = UdpSocket::bind("127.0.0.1:53")?;
    let resolv = lab.path("resolv.conf");
    fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")?;
    mount_bind(&resolv, Path::new("/etc/resolv.conf"))?;
    let took = read_beside(&lab, || {
        let pull = |number: usize| {
            let name = format!("registry.example{number}.com/app:latest");
            lab.spawn("root", &["pull", &name])
        };
        (0..STUCK).map(pull).collect()
    })?;
    Ok(Outcome::Passed(format!(
        "3 MiB in {took:?} beside {STUCK} registries whose names nobody resolves"
    )))
}

/// Images that cannot be read lazily, by a registry that gives their layers slowly.
fn whole_layers(world: &World) -> Result<Outcome> {
    let (lab, slow) = (Lab::new(world)?, Lab::new(world)?);
    root(&lab)?;
    let mut names = Vec::new();
    for number in 0..STUCK {
        let file = contents(number as u64 + 9, 512 << 10);
        let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
        for layer in &image.layers {
            let when = When::blob().path(&layer.digest.to_string());
            let bytes_per_second = 4096;
            slow.registry.inject(when, Fault::Trickle { bytes_per_second });
        }
        names.push(slow.push(&image, &format!("slow{number}")));
    }
    let took = read_beside(&lab, || {
        let pulls = names.iter().map(|names| lab.spawn("root", &["pull", &names.tag]));
        pulls.collect()
    })?;
    Ok(Outcome::Passed(format!(
        "3 MiB in {took:?} beside {STUCK} layers that are read whole"
    )))
}
