//! A host of its own for a case that installs things on it: another root directory, and a stand-in for its service manager.
//!
//! The root is an overlay on this machine's, in the case's mount namespace: what is written goes to memory, and the machine's own
//! root is unmounted there, so that not even a privileged container finds it. There are no devices of disks, nothing in `/run`, and
//! processes and networks are the case's. Its mounts are shared among themselves, as systemd has it, and with nobody else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Signal, kill_process};
use xebec_kernel::process::Child;
use xebec_testkit::service_manager::ServiceManager;

use crate::world::{World, run};

/// How long a service may take until it is ready.
const START: Duration = Duration::from_secs(60);
/// Devices that programs need.
const DEVICES: [&str; 7] = ["kmsg", "null", "zero", "full", "random", "urandom", "tty"];
/// Where units are, by whose directory the system is known to have this service manager.
const UNITS: &str = "/etc/systemd/system";
/// Where the manager is asked.
const ASKED: &str = "/run/systemd/system/asked";
/// It does nothing by itself, as the real one: it asks process 1, which is on the host even if it is not.
const SYSTEMCTL: &str = r#"#!/bin/sh
ask=/run/systemd/system/asked/$(date +%s%N)-$$
echo "$*" > "$ask.new"
mv "$ask.new" "$ask"
until [ -e "$ask.done" ]; do sleep 0.05; done
read -r code words < "$ask.done"
[ "$code" = 0 ] || echo "$words" >&2
exit "$code"
"#;
/// Makes an overlay of this root, goes there, and lets go of the other. `$1` is the case's directory, which stays where it is.
const ENTER: &str = r#"
set -e
mount --make-rprivate /
mkdir "$1/node"
mount -t tmpfs node "$1/node"
mkdir "$1/node/upper" "$1/node/work" "$1/node/root"
root="$1/node/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/node/upper,workdir=$1/node/work" node "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 devices "$root/dev"
case=$1
shift
for device; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 pts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir -p "$root$case" "$root/run/before"
mount --bind "$case" "$root$case"
mount --bind "$case/registry" "$root$case/registry"
pivot_root "$root" "$root/run/before"
umount --lazy /run/before
rmdir /run/before
mount --make-rshared /
"#;

/// The host.
pub(crate) struct Node<'a> {
    world: &'a World,
    services: Mutex<Services>,
}

/// The daemon's processes and units, as its service manager has them.
#[derive(Default)]
struct Services {
    manager: Option<ServiceManager>,
    main: Option<Child>,
    /// The commands that it got, one a line.
    asked: String,
    /// Whether it refuses.
    fails: bool,
}

impl<'a> Node<'a> {
    /// From now on the case's processes are on it.
    pub(crate) fn enter(world: &'a World) -> Result<Self> {
        let mut enter = Command::new("sh");
        enter
            .args(["-c", ENTER, "sh"])
            .arg(&world.directory)
            .args(DEVICES);
        run(&mut enter)?;
        // Only who was in the old root's own directory is in the new one's.
        std::env::set_current_dir("/")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let roots: Vec<&str> = mounts.lines().filter(|line| line.contains(" / / ")).collect();
        // Nothing that is done from here on may reach the machine.
        ensure!(
            matches!(roots[..], [root] if root.contains(" - overlay node ")),
            "this is not the root that was made: {roots:?}"
        );
        let node = Self {
            world,
            services: Mutex::default(),
        };
        let systemctl = Path::new("/usr/bin/systemctl");
        // An existing file may be a link to a program of another name.
        let _ = fs::remove_file(systemctl);
        fs::write(systemctl, SYSTEMCTL)?;
        fs::set_permissions(systemctl, Permissions::from_mode(0o755))?;
        fs::create_dir_all(UNITS)?;
        Ok(node)
    }

    /// Has it a service manager, after `/run` was mounted last.
    pub(crate) fn boot(&self) -> Result<()> {
        fs::create_dir_all(ASKED).context("make the directory by which systemctl asks")
    }

    /// Does what the service manager was asked meanwhile; `restart` restarts containerd.
    pub(crate) fn serve(&self, mut restart: impl FnMut() -> Result<()>) -> Result<()> {
        let mut asked: Vec<PathBuf> = fs::read_dir(ASKED)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        asked.retain(|ask| ask.extension().is_none());
        asked.sort();
        for ask in asked {
            let words = fs::read_to_string(&ask)?;
            let words = words.trim();
            self.services().asked += &format!("{words}\n");
            let answer = match self.does(words, &mut restart) {
                Ok(()) => "0".to_owned(),
                Err(error) => format!("1 {error:#}").replace('\n', " "),
            };
            // By its name at once: half an answer is none.
            let (new, done) = (ask.with_extension("answer"), ask.with_extension("done"));
            fs::write(&new, answer)?;
            fs::remove_file(&ask)?;
            fs::rename(new, done)?;
        }
        Ok(())
    }

    /// From now on its service manager refuses what it is asked, or does it.
    pub(crate) fn fails(&self, does: bool) {
        self.services().fails = does;
    }

    fn does(&self, words: &str, restart: &mut impl FnMut() -> Result<()>) -> Result<()> {
        ensure!(!self.services().fails, "no service is to be had today");
        match words {
            // Units are read when they are needed.
            "daemon-reload" => Ok(()),
            "enable --now xebec.socket xebec.service xebec-containers.service" => self.begin(),
            "reload xebec.service" => {
                ensure!(self.services().main.is_some(), "xebec.service does not run");
                let words = setting("xebec.service", "ExecReload")?;
                run(self.host_command(&words)?.stdin(std::process::Stdio::null())).map(|_| ())
            }
            "restart containerd.service" => restart(),
            // Units that are gone by then.
            "disable --now xebec-containers.service xebec.service xebec.socket" => self.end(),
            _ => bail!("the stand-in for the service manager knows no `{words}`"),
        }
    }

    /// Starts the daemon as its units say, if it does not run.
    fn begin(&self) -> Result<()> {
        let mut services = self.services();
        if services.main.is_some() {
            return Ok(());
        }
        let socket = PathBuf::from(setting("xebec.socket", "ListenStream")?);
        fs::create_dir_all(socket.parent().context("no directory")?)?;
        let start = setting("xebec.service", "ExecStart")?;
        let mut words = start.split_whitespace();
        let program = words.next().context("no program")?;
        let mut manager = ServiceManager::new(&self.world.directory, program, words)?;
        manager.keep("socket", UnixListener::bind(socket)?.into());
        manager.set_variable("HOME", "/root");
        manager.set_variable("DOCKER_CONFIG", self.world.path("no-docker-config"));
        services.main = Some(manager.start(START)?);
        services.manager = Some(manager);
        Ok(())
    }

    /// Stops its main process, and leaves the others (`KillMode=process`).
    fn end(&self) -> Result<()> {
        let mut services = self.services();
        if let Some(main) = services.main.take() {
            let pid = rustix::process::Pid::from_raw(main.pid()).context("no process id")?;
            kill_process(pid, Signal::TERM)?;
            main.wait()?;
        }
        services.manager = None;
        Ok(())
    }

    fn services(&self) -> MutexGuard<'_, Services> {
        self.services.lock()
    }

    /// The commands that the service manager got since this was last called.
    pub(crate) fn asked(&self) -> String {
        std::mem::take(&mut self.services().asked)
    }

    fn host_command(&self, line: &str) -> Result<Command> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().context("no program")?);
        command
            .args(words)
            .env("DOCKER_CONFIG", self.world.path("no-docker-config"));
        Ok(command)
    }

    /// Runs the installed program, with the state that it has there.
    pub(crate) fn xebec(&self, words: &str) -> Result<String> {
        let mut command = self.host_command(&format!("{} {words}", self.world.binary().display()))?;
        let output = run(command.stdin(std::process::Stdio::null()))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.xebec("daemon stop --force");
    }
}

/// The value of a setting in an installed unit.
fn setting(unit: &str, name: &str) -> Result<String> {
    let file = Path::new(UNITS).join(unit);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().with_context(|| format!("{unit} says no {name}"))?;
    Ok(value.to_owned())
}
