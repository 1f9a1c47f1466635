//! The power of the machine goes while containers run, and it starts again without its registry: what is cached starts, what
//! is not says why, nothing is left; and when the registry is back, everything works.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::lazy::pull;
use super::many::{file, push};
use super::support::SOON;
use crate::cases::power::{another_boot, mount_loop, mount_new};
use crate::containerd::{Containerd, Leftovers, Line, Snapshots};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run};

/// A registry that is away is given up after seconds, and nothing stays for the next start.
const SETTINGS: &str = "linger = \"0s\"\nfill_wait = \"3s\"\n";
const REGISTRIES: &str =
    "[budget]\nattempts = 2\nbase_delay = \"20ms\"\nmax_delay = \"100ms\"\ntotal_deadline = \"2s\"\n";

/// Two boots, with the daemon and with containerd first.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let root = world.path("root");
    mount_new(&root)?;
    fs::write(root.join("registries.toml"), REGISTRIES)?;
    let snapshots = Snapshots::start_with(world, SETTINGS)?;
    // Settings are not what is lost here.
    run(Command::new("sync").arg("--file-system").arg(&root))?;
    let mut containerd = Containerd::start(world, Line::Two, "")?;
    let before = Leftovers::now(world, &snapshots)?;
    let program = fs::read(World::go_tool("reread")?)?;
    let images = (0..2)
        .map(|number| push(world, &program, number))
        .collect::<Result<Vec<_>>>()?;
    let [cached, away] = &images[..] else {
        anyhow::bail!("two images")
    };
    for reference in &images {
        pull(world, &containerd, Line::Two, reference)?;
    }
    run(&mut world.xebec(&["pull", "--complete", cached]))?;
    for (reference, name) in [(cached, "cached"), (away, "away")] {
        containerd.does(&["run", "--detach", "--net-host", reference, name])?;
        reads(&containerd, name)?;
    }
    for is_daemon_first in [true, false] {
        power_off(world, &snapshots, &mut containerd)?;
        run(Command::new("ip").args(["link", "set", "lo", "down"]))?;
        if is_daemon_first {
            snapshots.begin()?;
            containerd.wake()?;
        } else {
            containerd.wake()?;
            containerd.refuses(&["snapshots", "usage"])?;
            snapshots.begin()?;
            wait_until(SOON, "containerd tries the socket again", || {
                Ok(containerd.ctr(&["snapshots", "ls"])?.output()?.status.success())
            })?;
        }
        wait_until(SOON, "metadata of views that were mounted is gone", || {
            Ok(fs::read_dir(root.join("views"))?.next().is_none())
        })?;
        containerd.does(&["tasks", "start", "--detach", "cached"])?;
        reads(&containerd, "cached")?;
        is_whole(&containerd, "cached", 0)?;
        // Its program is there, since both images have it; its file is not, and the first page says so.
        containerd.does(&["tasks", "start", "--detach", "away"])?;
        let wrong = containerd.root_of("away").join("wrong");
        wait_until(SOON, "what is away is refused", || Ok(wrong.exists()))?;
        let said = fs::read_to_string(&wrong)?;
        ensure!(said.contains("input/output error"), "{said}");
        let log = fs::read_to_string(world.path("daemon.log"))?;
        let says_why =
            |line: &str| line.contains("a reader gets EIO: cannot fetch") && line.contains("/image1: ");
        ensure!(log.lines().any(says_why), "{log}");
        fs::remove_file(&wrong)?;

        run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
        let _ = containerd.ctr(&["tasks", "rm", "--force", "away"])?.output()?;
        containerd.does(&["tasks", "start", "--detach", "away"])?;
        reads(&containerd, "away")?;
    }
    for (number, name) in ["cached", "away"].into_iter().enumerate() {
        is_whole(&containerd, name, number)?;
        containerd.end(name)?;
        containerd.does(&["containers", "rm", name])?;
    }
    for reference in &images {
        containerd.does(&["images", "rm", "--sync", reference])?;
    }
    containerd.collect()?;
    snapshots.has_only(&[])?;
    let mut left = String::new();
    let waited = wait_until(SOON, "nothing is left", || {
        left = Leftovers::now(world, &snapshots)?.beyond(&before);
        Ok(left.is_empty())
    });
    waited.with_context(|| format!("left: {left}"))?;
    Ok(Outcome::Passed(
        "two boots without a registry: what is cached started, and everything when it was back".to_owned(),
    ))
}

/// It runs, and reads what is right.
fn reads(containerd: &Containerd<'_>, name: &str) -> Result<()> {
    let root = containerd.root_of(name);
    let count = || fs::read(root.join("reads")).unwrap_or_default();
    let before = count();
    wait_until(SOON, &format!("{name} reads"), || {
        let wrong = fs::read_to_string(root.join("wrong")).unwrap_or_default();
        ensure!(wrong.is_empty(), "{wrong}");
        Ok(count() != before)
    })
}

fn is_whole(containerd: &Containerd<'_>, name: &str, number: usize) -> Result<()> {
    let bytes = fs::read(containerd.root_of(name).join("file"))?;
    ensure!(bytes == file(number), "wrong bytes in {name}");
    Ok(())
}

/// Acts as a power cut and a boot do, short of the kernel: the disk takes no more writes, no process lives on, nothing is mounted, and
/// files in memory are gone.
fn power_off(world: &World, snapshots: &Snapshots<'_>, containerd: &mut Containerd<'_>) -> Result<()> {
    let root = world.path("root");
    run(Command::new(World::go_tool("cutpower")?).arg(&root))?;
    containerd.kill()?;
    snapshots.kill_whole()?;
    for pid in strangers()? {
        let _ = kill_process(pid, Signal::KILL);
    }
    let top = world.directory.to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    // The registry is another host.
    let registry = format!("{top}/registry");
    let ours = places.filter(|place| (place.starts_with(&top) && *place != registry) || *place == "/run");
    for place in ours.collect::<Vec<_>>().into_iter().rev() {
        run(Command::new("umount").args(["--lazy", place]))?;
    }
    for gone in [world.path("root-run"), world.path("c/state")] {
        fs::remove_dir_all(gone)?;
    }
    mount_loop(&root.with_extension("ext4"), &root)?;
    run(Command::new("mount").args(["-t", "tmpfs", "containerd", "/run"]))?;
    another_boot(&root.join("layers"))
}

/// Shims and containers: every such process, since a case sees none but its own.
fn strangers() -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let program: PathBuf = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        let name = program.file_name().unwrap_or_default();
        let is_other = name == "containerd-shim-runc-v2" || name == "reread";
        if is_other && let Some(pid) = Pid::from_raw(pid) {
            found.push(pid);
        }
    }
    Ok(found)
}
