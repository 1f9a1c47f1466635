//! Reads of any size and pattern through a cold mount give what an independent unpack has.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use xebec_testkit::odd::{self, Unpacker};

use crate::reference_unpackers;
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// The program that reads and compares.
const READERS: &str = include_str!("../../tools/readers.py");

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("reading/{name}"),
        limit: Duration::from_secs(300),
        run: Box::new(run),
    };
    vec![
        case("64-readers-10000-files", |world| {
            let (layout, truth) = generated(world, "10000-files")?;
            read_in_all_ways(world, &layout, &truth, 64)
        }),
        case("encodings", |world| {
            let (layout, truth) = generated(world, "encodings")?;
            read_in_all_ways(world, &layout, &truth, 4)
        }),
        case("sparse", |world| {
            let (layout, truth) = generated(world, "sparse")?;
            read_in_all_ways(world, &layout, &truth, 4)
        }),
        case("sparse-old-gnu", |world| {
            let (layout, truth) = generated(world, "sparse-old-gnu")?;
            read_in_all_ways(world, &layout, &truth, 4)
        }),
        case("programs", programs),
    ]
}

/// A generated image's layout and containerd's unpack of it.
fn generated(world: &World, name: &str) -> Result<(std::path::PathBuf, std::path::PathBuf)> {
    let layout = world.path("layout");
    let odd = odd::all().into_iter().find(|odd| odd.name == name);
    let odd = odd.ok_or_else(|| anyhow::anyhow!("no generated image {name}"))?;
    (odd.make)()?.write_layout(&layout, "latest")?;
    let unpacker = odd.unpackers.last().copied().unwrap_or(Unpacker::Containerd);
    let truth = reference_unpackers::unpack_to(world, &layout, unpacker)?;
    Ok((layout, truth))
}

/// How many files each reader reads. Sixty-four of them read each of ten thousand files sixteen times on average.
fn files_of_each() -> usize {
    super::soak::support::sized(2_500, 1_000_000)
}

fn read_in_all_ways(world: &World, layout: &Path, truth: &Path, readers: u32) -> Result<Outcome> {
    let script = world.path("readers.py");
    fs::write(&script, READERS)?;
    let mounted = world.mount(layout, "test/reading")?;
    let output = run(Command::new("python3")
        .arg(script)
        .arg(&mounted.directory)
        .arg(truth)
        .args([readers.to_string(), "1".to_owned(), files_of_each().to_string()]))?;
    mounted.umount()?;
    Ok(Outcome::Passed(
        String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    ))
}

/// Programs start from a cold view, by the kernel's own reads and mappings.
fn programs(world: &World) -> Result<Outcome> {
    // Perl opens /dev/null, which the image brings.
    let mounted = world.mount_with_devices(&World::built_image("nginx")?, "test/programs")?;
    let in_view = |arguments: &[&str]| run(Command::new("chroot").arg(&mounted.directory).args(arguments));
    let nginx = in_view(&["nginx", "-v"])?;
    let nginx = String::from_utf8_lossy(&nginx.stderr).trim().to_owned();
    ensure!(nginx.contains("nginx/"), "{nginx}");
    in_view(&["perl", "-MData::Dumper", "-e", "exit 0"])?;
    in_view(&[
        "sh",
        "-c",
        "ls -lR /usr/lib >/dev/null && dpkg --version >/dev/null",
    ])?;
    mounted.umount()?;
    Ok(Outcome::Passed(nginx))
}
