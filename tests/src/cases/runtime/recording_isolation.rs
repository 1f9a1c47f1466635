//! A recording that one image admits, and layers that another image reads, which does not admit it: by way of its own repository, where
//! a key signs what counts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::overlap::Slow;
use super::support::{PAGE, Service, number, problem};
use crate::lab::{Lab, Names, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// So slow that a recording is not there for a long time.
const VERY_SLOW: u64 = 20_000;
/// Longest that a start may take beside it, on a busy machine. It takes half a second, and waited for a minute.
const SOON: Duration = Duration::from_secs(15);

/// How a view goes from under its readers.
type Way = fn(&Lab<'_>, &str, &Path) -> Result<()>;

/// The image once more, in a repository where its index is signed by a key that counts there only.
fn push_strong(service: &Service<'_>, root: &str) -> Result<Names> {
    let lab = &service.lab;
    let key = lab.make_key("strong")?;
    let names = lab.push(&service.image, "strong");
    let words = ["index", "--push", "--sign", &key, &names.tag];
    lab.xebec("builder", &words)?.expect(0, &[])?;
    let file = lab.path("strong.pub");
    let trust = format!(
        "[[key]]\nname = \"strong\"\nfile = \"{}\"\nrepositories = [\"{}/strong\"]\n",
        file.display(),
        lab.registry.host()
    );
    lab.trust(root, &trust)?;
    Ok(names)
}

/// While one image's recording trickles in, another with the same layers starts by its digest: it does not wait for the rest, and sees
/// nothing of it.
pub(super) fn no_start_waits(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, VERY_SLOW)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    let strong = push_strong(service, "root")?;
    slow.start_daemon()?;
    let running = slow.spawn_at_once(world, &lab.path("stats").to_string_lossy())?;
    wait_until(SOON, "the recording is on its way", || {
        Ok(lab.registry.count(&slow.zone.to_string()) > 0)
    })?;
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let mnt = lab.mount("root", &strong.digest, &["--require-lazy"])?;
    let took = begun.elapsed();
    ensure!(
        took < SOON,
        "a start waited {took:?} for another image's recording"
    );
    service.expect_files(&mnt)?;
    lab.umount("root", &mnt)?;
    running.end()?;
    service.expect_sound("root", &strong.digest)?;
    Ok(Outcome::Passed(format!("mounted in {took:?}")))
}

/// A daemon is stopped by force, or a view unmounted by hand, while a process reads it: no pages come in that this reader would not
/// admit, until it is gone.
pub(super) fn readers_of_departed_views(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&names.tag])?;
    let mut said = Vec::new();
    let ways: [(&str, Way); 3] = [
        ("stopped", stop_by_force),
        ("by-hand", unmount_by_hand),
        ("between", unmount_between_workers),
    ];
    for (root, depart) in ways {
        let strong = push_strong(&service, root)?;
        let mnt = lab.mount(root, &strong.digest, &["--require-lazy"])?;
        let read = File::open(mnt.join("start/b"))?;
        depart(lab, root, &mnt)?;
        let stats = service.start(root, &[&names.tag])?;
        ensure!(
            number(&stats, "/runtime_image/injected")? == 0,
            "{root}: pages came in under a reader: {stats:#}"
        );
        let why = problem(&stats)?.context("nothing is said")?;
        ensure!(why.contains("do not admit"), "{root}: {why}");
        let mut page = [0; PAGE];
        read.read_exact_at(&mut page, 0)?;
        ensure!(service.file("start/b")?.starts_with(&page), "{root}: wrong bytes");
        drop(read);
        let stats = service.start(root, &[&names.tag])?;
        ensure!(problem(&stats)?.is_none(), "{root}: he is gone: {stats:#}");
        let left: Vec<Value> = fs::read_dir(lab.path(root).join("departed"))?
            .flatten()
            .map(|entry| entry.path().display().to_string().into())
            .collect();
        ensure!(left.is_empty(), "{root}: {left:?} is left");
        service.expect_sound(root, &names.tag)?;
        said.push(why);
    }
    Ok(Outcome::Passed(said.join("; ")))
}

fn stop_by_force(lab: &Lab<'_>, root: &str, _: &Path) -> Result<()> {
    // It stays, since somebody reads.
    lab.xebec(root, &["daemon", "stop", "--force"]).map(drop)
}

/// While there is no worker that could see it: the next one finds a record of a view that is not mounted.
fn unmount_between_workers(lab: &Lab<'_>, root: &str, mnt: &Path) -> Result<()> {
    let pid = |name: &str| -> Result<Pid> {
        let status = lab.status(root)?;
        let pid = status.get(name).and_then(Value::as_i64).context("no process")?;
        Pid::from_raw(i32::try_from(pid)?).context("no process")
    };
    let (keeper, worker) = (pid("keeper_pid")?, pid("worker_pid")?);
    kill_process(keeper, Signal::STOP)?;
    kill_process(worker, Signal::KILL)?;
    unmount(mnt, UnmountFlags::DETACH)?;
    let views = lab.path(&format!("{root}-run/views"));
    for view in fs::read_dir(views)?.flatten() {
        let _ = unmount(view.path(), UnmountFlags::DETACH);
    }
    kill_process(keeper, Signal::CONT)?;
    wait_until(SOON, "another worker serves", || {
        Ok(pid("worker_pid").is_ok_and(|next| next != worker))
    })
}

fn unmount_by_hand(lab: &Lab<'_>, root: &str, mnt: &Path) -> Result<()> {
    unmount(mnt, UnmountFlags::DETACH)?;
    wait_until(SOON, "nobody is known to hold it", || {
        let records = fs::read_dir(lab.path(&format!("{root}-run/views")))?.flatten();
        let records = records.filter_map(|entry| fs::read(entry.path()).ok());
        let mut records = records.filter_map(|record| serde_json::from_slice::<Value>(&record).ok());
        let is_held = |record: Value| {
            let holders = record.get("holders").and_then(Value::as_array);
            holders.is_some_and(|holders| !holders.is_empty())
        };
        Ok(!records.any(is_held))
    })
}
