//! `xebec daemon` as containerd's snapshotter: by itself, or as a service whose manager keeps what must outlive it.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use xebec_kernel::process;
use xebec_testkit::service_manager::ServiceManager;

use super::{ROOT, START, block, listens};
use crate::lab::wait_until;
use crate::world::{World, run};

/// The filter of its log: as usual, and why a layer stays that was to go.
const LOG: &str = "info,xebec_daemon::snapshots::removed_images=debug";

/// `xebec daemon` with its snapshotter switched on.
pub(crate) struct Snapshots<'a> {
    world: &'a World,
    keeper: Mutex<Option<Keeper>>,
    /// The service manager that starts it, if it is a service.
    manager: Option<ServiceManager>,
}

/// The daemon's first process.
enum Keeper {
    Own(Child),
    Service(process::Child),
}

impl Keeper {
    fn wait(&mut self) -> Result<()> {
        match self {
            Self::Own(child) => child.wait().map(|_| ())?,
            Self::Service(child) => child.wait().map(|_| ())?,
        }
        Ok(())
    }
}

impl<'a> Snapshots<'a> {
    /// Starts one in the root "root", with nothing in it.
    pub(crate) fn start(world: &'a World) -> Result<Self> {
        Self::start_with(world, "")
    }

    /// The same with more settings, which are not of a table.
    pub(crate) fn start_with(world: &'a World, settings: &str) -> Result<Self> {
        Self::settle(world, settings, &listens(world), "")?;
        Self::begun(world, None)
    }

    /// The same as a service: a stand-in for the service manager holds what the daemon gives it, and starts it again.
    pub(crate) fn start_as_service(world: &'a World, settings: &str) -> Result<Self> {
        Self::settle(world, settings, &listens(world), "")?;
        Self::start_as_installed(world)
    }

    /// The same with the settings that are there.
    pub(crate) fn start_as_installed(world: &'a World) -> Result<Self> {
        let (root, run) = (world.path(ROOT), world.path(&format!("{ROOT}-run")));
        fs::create_dir_all(&run)?;
        let mut manager = ServiceManager::new(&world.directory, world.binary(), ["daemon", "start"])?;
        manager.set_variable("XEBEC_ROOT", root);
        manager.keep("socket", UnixListener::bind(run.join("xebec.sock"))?.into());
        manager.set_variable("XEBEC_RUN", run);
        manager.set_variable("DOCKER_CONFIG", world.path("no-docker-config"));
        Self::begun(world, Some(manager))
    }

    /// The same, but its socket has a directory of its own, to which the usual name leads.
    pub(crate) fn start_in(world: &'a World, directory: &Path) -> Result<Self> {
        let (socket, run) = (
            directory.join("snapshots.sock"),
            world.path(&format!("{ROOT}-run")),
        );
        for directory in [directory, &run] {
            // The daemon takes no open directory with a link in it for its run directory.
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        symlink(&socket, run.join("snapshots.sock"))?;
        Self::settle(world, "", &listens(world), &format!("socket = {socket:?}\n"))?;
        Self::begun(world, None)
    }

    /// Writes what the manual says, and where containerd listens; `settings` before it, `more` of the same table after it.
    fn settle(world: &World, settings: &str, containerd: &Path, more: &str) -> Result<()> {
        fs::create_dir_all(world.path(ROOT))?;
        let section = block("[snapshotter]")?;
        let settings = format!("{settings}{section}address = {containerd:?}\n{more}");
        fs::write(world.path(ROOT).join("daemon.toml"), settings).context("write daemon.toml")
    }

    /// Starts the daemon again with `more` in its table of the settings.
    pub(crate) fn restart_with(&self, more: &str) -> Result<()> {
        self.stop()?;
        Self::settle(self.world, "", &listens(self.world), more)?;
        self.begin()
    }

    /// Starts the daemon again, which is told that containerd listens there.
    pub(crate) fn restart_elsewhere(&self, containerd: &Path) -> Result<()> {
        self.stop()?;
        Self::settle(self.world, "", containerd, "")?;
        self.begin()
    }

    fn begun(world: &'a World, manager: Option<ServiceManager>) -> Result<Self> {
        let snapshots = Self {
            world,
            keeper: Mutex::default(),
            manager,
        };
        snapshots.begin()?;
        Ok(snapshots)
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Keeper>> {
        self.keeper.lock()
    }

    /// Starts the daemon, again after [`Self::stop`] or [`Self::kill_whole`].
    pub(crate) fn begin(&self) -> Result<()> {
        let keeper = match &self.manager {
            Some(manager) => Keeper::Service(manager.start(START)?),
            None => {
                let log = File::options()
                    .create(true)
                    .append(true)
                    .open(self.world.path("daemon.log"))?;
                let mut command = self.world.xebec(&["daemon", "start"]);
                command.stdout(Stdio::null()).stderr(log).env("XEBEC_LOG", LOG);
                Keeper::Own(command.spawn().context("cannot start the daemon")?)
            }
        };
        *self.keeper() = Some(keeper);
        wait_until(START, "containerd's socket and the worker answer", || {
            Ok(UnixStream::connect(self.socket()).is_ok() && self.pid("worker_pid").is_ok())
        })
        .with_context(|| fs::read_to_string(self.world.path("daemon.log")).unwrap_or_default())
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.world.path(&format!("{ROOT}-run")).join("snapshots.sock")
    }

    /// The snapshots on disk, for comparison: a path for each snapshot's directories, without those in them.
    pub(crate) fn directories(&self) -> Result<Vec<PathBuf>> {
        let top = self.world.path(ROOT).join("snapshots");
        let mut found = Vec::new();
        // The socket answers before there is a directory.
        for place in fs::read_dir(&top).into_iter().flatten() {
            let place = place?.path();
            if place.is_dir() {
                for snapshot in fs::read_dir(&place)? {
                    found.push(snapshot?.path());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Waits until there is this and nothing else; what was removed is deleted in the background.
    pub(crate) fn has_only(&self, wanted: &[PathBuf]) -> Result<()> {
        wait_until(START, "removed snapshots are gone", || {
            Ok(self.directories()? == wanted)
        })
        .with_context(|| format!("there are {:?}", self.directories().unwrap_or_default()))
    }

    /// The process of that name, `keeper_pid` or `worker_pid`.
    pub(crate) fn pid(&self, name: &str) -> Result<Pid> {
        let status = self.world.daemon_status()?;
        let pid = status.get(name).and_then(serde_json::Value::as_i64);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.with_context(|| format!("no {name} in {status}"))
    }

    /// Kills the process of that name; what is left starts it again.
    pub(crate) fn kill(&self, name: &str) -> Result<()> {
        Ok(kill_process(self.pid(name)?, Signal::KILL)?)
    }

    /// Kills keeper and worker at one moment: neither is left to start the other. One that died by itself, of a disk that
    /// takes no more writes, is as dead.
    pub(crate) fn kill_whole(&self) -> Result<()> {
        let (keeper, worker) = (self.pid("keeper_pid")?, self.pid("worker_pid")?);
        // A process that is stopped starts nothing.
        for (pid, signal) in [
            (keeper, Signal::STOP),
            (worker, Signal::KILL),
            (keeper, Signal::KILL),
        ] {
            match kill_process(pid, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(mut keeper) = self.keeper().take() {
            keeper.wait()?;
        }
        // Until both have ended their sockets still accept, and a caller would take them for those of the next daemon.
        wait_until(START, "the killed daemon's processes have ended", || {
            Ok([keeper, worker].into_iter().all(has_ended))
        })
    }

    /// The service is stopped: its keeper leaves, and the worker goes on.
    pub(crate) fn leave(&self) -> Result<()> {
        kill_process(self.pid("keeper_pid")?, Signal::TERM)?;
        match self.keeper().take() {
            Some(mut keeper) => keeper.wait(),
            None => Ok(()),
        }
    }

    /// Ends the daemon as a host does at shutdown, and starts it again.
    pub(crate) fn restart(&self) -> Result<()> {
        self.stop()?;
        self.begin()
    }

    /// Ends the daemon; containers on lazy images must have been stopped.
    pub(crate) fn stop(&self) -> Result<()> {
        run(&mut self.world.xebec(&["daemon", "stop", "--force"]))?;
        match self.keeper().take() {
            Some(mut keeper) => keeper.wait(),
            None => Ok(()),
        }
    }
}

/// Whether a process has closed all that it had open: it is gone, or waits for its parent. Its first thread may wait so while others
/// still have its files open.
fn has_ended(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    threads.into_iter().flatten().flatten().all(|thread| {
        // The state follows the name, which may hold anything.
        fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with(['Z', 'X']))
        })
    })
}

impl Drop for Snapshots<'_> {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper().take() {
            let _ = self.world.xebec(&["daemon", "stop", "--force"]).output();
            let _ = match &mut keeper {
                Keeper::Own(child) => child.kill().ok(),
                Keeper::Service(child) => child.kill().ok(),
            };
            let _ = keeper.wait();
        }
    }
}
