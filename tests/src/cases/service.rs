//! The daemon as a service: a stand-in for the service manager keeps its descriptors, restarts it, and stops it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_kernel::process::{Child, Ending, find_program};
use xebec_testkit::compression::Compression;
use xebec_testkit::service_manager::ServiceManager;

use crate::lab::{self, Lab, Names, contents, expect_contents, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// How long the service may take to be ready.
const SOON: Duration = Duration::from_secs(60);
/// Size of the file that is read.
const FILE: usize = 24 << 20;
/// Rounds of killing or restarting.
const ROUNDS: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("service/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("both-killed", both_killed),
        case("restarted-by-a-package", restarted),
        case("begins-late", begins_late),
        case("hardened", hardened),
        case("units", units),
    ]
}

/// A service of the root "root", with a socket unit's socket.
struct Service<'a> {
    // Dropped before the lab, which asks the daemon to end: a socket that a manager kept would let it wait.
    manager: ServiceManager,
    lab: Lab<'a>,
    program: PathBuf,
}

impl<'a> Service<'a> {
    fn new(world: &'a World, wrapper: &[&str]) -> Result<Self> {
        Self::in_lab(world, Lab::new(world)?, wrapper)
    }

    fn in_lab(world: &'a World, lab: Lab<'a>, wrapper: &[&str]) -> Result<Self> {
        let (root, run) = (lab.path("root"), lab.path("root-run"));
        fs::create_dir_all(&root)?;
        fs::create_dir_all(&run)?;
        let program = world.binary().to_owned();
        let mut words: Vec<PathBuf> = wrapper.iter().map(PathBuf::from).collect();
        words.extend([program.clone(), "daemon".into(), "start".into()]);
        let first = words.remove(0);
        let mut manager = ServiceManager::new(world.directory.as_path(), first, words)?;
        manager.set_variable("XEBEC_ROOT", &root);
        manager.set_variable("XEBEC_RUN", &run);
        manager.keep("socket", UnixListener::bind(run.join("xebec.sock"))?.into());
        Ok(Self {
            lab,
            manager,
            program,
        })
    }

    fn image(&self) -> Result<(Names, Vec<u8>)> {
        let bytes = contents(78, FILE);
        let image = lab::image(&[&[("file", &bytes)]], Compression::Gzip(4))?;
        Ok((self.lab.push_indexed(&image, "app")?, bytes))
    }

    fn worker(&self) -> Result<Pid> {
        self.lab.pid("root", "worker_pid")
    }

    /// As `systemctl stop`: the main process is told, and nothing else.
    fn stop(&self, keeper: &Child) -> Result<()> {
        self.manager.listen()?;
        keeper.signal(Signal::TERM.as_raw())?;
        ensure!(keeper.wait()? == Ending::Exited(0), "it did not stop in order");
        Ok(())
    }
}

/// Reads the file at random, never from the view's page cache, until `ended`; gives the longest wait.
fn read_on(mnt: &Path, wanted: &[u8], ended: &AtomicBool, reads: &AtomicU64) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut random = fastrand::Rng::with_seed(3);
    while !ended.load(Ordering::Relaxed) {
        let file = File::open(mnt.join("file"))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let offset = random.usize(..FILE - 4096);
        let mut page = [0; 4096];
        let begin = Instant::now();
        file.read_exact_at(&mut page, offset as u64)
            .with_context(|| format!("read at {offset}"))?;
        ensure!(page == wanted[offset..][..4096], "wrong bytes at {offset}");
        longest = longest.max(begin.elapsed());
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(longest)
}

/// Does something again and again while a process reads.
fn while_reading(
    mnt: &Path,
    wanted: &[u8],
    mut act: impl FnMut(usize) -> Result<()>,
) -> Result<(u64, Duration)> {
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(mnt, wanted, &ended, &reads));
        let done = (0..ROUNDS).try_for_each(|round| {
            std::thread::sleep(Duration::from_millis(150));
            act(round)
        });
        ended.store(true, Ordering::Relaxed);
        let read = reader.join().map_err(|_| anyhow::anyhow!("the reader died"))?;
        done.and(read)
    })?;
    Ok((reads.load(Ordering::Relaxed), longest))
}

/// Keeper and worker are killed at the same moment: the manager holds the group, so readers wait for the restart.
fn both_killed(world: &World) -> Result<Outcome> {
    let service = Service::new(world, &[])?;
    let mut keeper = service.manager.start(SOON)?;
    let (names, wanted) = service.image()?;
    let mnt = service.lab.mount("root", &names.tag, &["--require-lazy"])?;
    let (reads, longest) = while_reading(&mnt, &wanted, |_| {
        service.manager.listen()?;
        let worker = service.worker()?;
        keeper.kill()?;
        let _ = kill_process(worker, Signal::KILL);
        keeper.wait()?;
        keeper = service.manager.start(SOON)?;
        Ok(())
    })?;
    let status = service.lab.status("root")?;
    ensure!(
        status
            .get("suspects")
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty),
        "{status}"
    );
    expect_contents(&mnt.join("file"), &wanted)?;
    service.lab.umount("root", &mnt)?;
    service.lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    service.manager.listen()?;
    ensure!(
        service.manager.kept().is_empty(),
        "still kept: {:?}",
        service.manager.kept()
    );
    ensure!(
        keeper.wait()? == Ending::Exited(0),
        "the keeper did not end in order"
    );
    Ok(Outcome::Passed(format!(
        "keeper and worker killed {ROUNDS} times, {reads} reads right, the longest took {longest:?}"
    )))
}

/// An upgrade as a package does it: stop, another program at the same place, start.
fn restarted(world: &World) -> Result<Outcome> {
    let mut service = Service::new(world, &[])?;
    let mut keeper = service.manager.start(SOON)?;
    let (names, wanted) = service.image()?;
    let mnt = service.lab.mount("root", &names.tag, &["--require-lazy"])?;
    let (reads, longest) = while_reading(&mnt, &wanted, |round| {
        let before = service.worker()?;
        service.stop(&keeper)?;
        ensure!(service.worker()? == before, "the worker went with the keeper");
        let next = world.path(&format!("xebec-{round}"));
        fs::copy(&service.program, &next)?;
        service.manager.set_program(&next);
        keeper = service.manager.start(SOON)?;
        ensure!(service.worker()? != before, "the old program's worker serves on");
        Ok(())
    })?;
    // Stopped, with nobody who starts it again: what is mounted goes on, and can still be taken down.
    service.stop(&keeper)?;
    expect_contents(&mnt.join("file"), &wanted)?;
    service.lab.umount("root", &mnt)?;
    service.lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    wait_until(SOON, "nothing is mounted", || {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(!mounts.contains(&*service.lab.path("root-run").to_string_lossy()))
    })?;
    Ok(Outcome::Passed(format!(
        "{ROUNDS} restarts with other programs, {reads} reads right, the longest took {longest:?}"
    )))
}

/// The service is started on a host where some command started a daemon already: it takes that one over, and serves on
/// the socket that its manager made.
fn begins_late(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let bytes = contents(79, FILE);
    let image = lab::image(&[&[("file", &bytes)]], Compression::Gzip(4))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let before = lab.status("root")?;
    // As a socket unit does with a path that is taken.
    fs::remove_file(lab.path("root-run").join("xebec.sock"))?;
    let service = Service::in_lab(world, lab, &[])?;
    let (reads, longest) = while_reading(&mnt, &bytes, |round| {
        if round == ROUNDS / 2 {
            service.manager.start(SOON)?;
        }
        Ok(())
    })?;
    let after = service.lab.status("root")?;
    ensure!(before.get("keeper_pid") != after.get("keeper_pid"), "{after}");
    let views = after.get("views").and_then(Value::as_array).map(Vec::len);
    ensure!(views == Some(1), "{after}");
    expect_contents(&mnt.join("file"), &bytes)?;
    service.lab.umount("root", &mnt)?;
    service.lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(format!(
        "taken over with its view, {reads} reads right, the longest took {longest:?}"
    )))
}

/// The unit file's restrictions, as far as they can be set without its manager: capabilities, no new privileges.
fn hardened(world: &World) -> Result<Outcome> {
    if find_program("setpriv").is_none() {
        return Ok(Outcome::Skipped(
            "setpriv (util-linux) is not installed".to_owned(),
        ));
    }
    let unit = unit("xebec.service")?;
    let capabilities: Vec<String> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|name| Some(format!("+{}", name.strip_prefix("CAP_")?.to_ascii_lowercase())))
        .collect();
    ensure!(capabilities.len() > 5, "{unit}");
    let bounding = format!("--bounding-set=-all,{}", capabilities.join(","));
    ensure!(unit.contains("\nLimitNICE=-10\n"), "{unit}");
    let mut limited = vec!["/usr/bin/setpriv", "--no-new-privs", &bounding];
    // As resource limits count: 20 is what every process may have. To give more takes a right that this process may lack.
    let can_limit = run(Command::new("prlimit").args(["--nice=30", "true"])).is_ok();
    if can_limit {
        limited.splice(..0, ["/usr/bin/prlimit", "--nice=30"]);
        let raised = run(Command::new(limited[0])
            .args(&limited[1..])
            .args(["nice", "-n", "-10", "nice"]))?;
        ensure!(raised.stdout == b"-10\n", "a start cannot go first: {raised:?}");
    }
    let service = Service::new(world, &limited)?;
    let mut keeper = service.manager.start(SOON)?;
    let (names, wanted) = service.image()?;
    let mnt = service.lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&mnt.join("file"), &wanted)?;
    // Taking over from a worker needs the right to trace it.
    service.stop(&keeper)?;
    keeper = service.manager.start(SOON)?;
    kill_process(service.worker()?, Signal::KILL)?;
    expect_contents(&mnt.join("file"), &wanted)?;
    let program = service.program.to_string_lossy().into_owned();
    service
        .lab
        .xebec("root", &["daemon", "upgrade", "--program", &program])?
        .expect(0, &[])?;
    service.lab.umount("root", &mnt)?;
    service.lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    ensure!(
        keeper.wait()? == Ending::Exited(0),
        "the keeper did not end in order"
    );
    let limits = if can_limit {
        "and its limit of priorities"
    } else {
        "its limit of priorities cannot be tried here"
    };
    Ok(Outcome::Passed(format!(
        "works with {} capabilities; {limits}",
        capabilities.len()
    )))
}

/// The unit files as a real manager reads them.
fn units(world: &World) -> Result<Outcome> {
    let (service, socket) = (unit("xebec.service")?, unit("xebec.socket")?);
    for needed in [
        "FileDescriptorStoreMax=",
        "KillMode=process",
        "OOMPolicy=continue",
        "Type=notify",
    ] {
        ensure!(service.contains(needed), "{needed} is missing");
    }
    let Some(analyze) = find_program("systemd-analyze") else {
        return Ok(Outcome::Skipped("systemd-analyze is not installed".to_owned()));
    };
    // It looks whether the program is there.
    let directory = world.path("units");
    fs::create_dir_all(&directory)?;
    let program = world.binary().to_string_lossy().into_owned();
    fs::write(
        directory.join("xebec.service"),
        service.replace("/usr/bin/xebec", &program),
    )?;
    fs::write(directory.join("xebec.socket"), socket)?;
    let containers = unit("xebec-containers.service")?.replace("/usr/bin/xebec", &program);
    fs::write(directory.join("xebec-containers.service"), containers)?;
    let output = Command::new(analyze)
        .args(["verify", "--man=no"])
        .arg(directory.join("xebec.service"))
        .arg(directory.join("xebec.socket"))
        .arg(directory.join("xebec-containers.service"))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A key that an older version does not know is no fault of the file.
    let complaints: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("xebec") && !line.contains("FileDescriptorStorePreserve"))
        .collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(Outcome::Passed(
        "systemd-analyze verify has nothing to say".to_owned(),
    ))
}

fn unit(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../packaging/systemd")
        .join(name);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}
