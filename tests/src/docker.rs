//! Docker Engine with state of its own, on the containerd of a case, by way of `xebec docker-relay`.
//!
//! The configuration is the one of `docs/docker.md`, with this case's paths, and without networks: a case's containers have the case's
//! own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::containerd::Containerd;
use crate::lab::{Ended, wait_until};
use crate::world::World;

/// How long a daemon may take to be ready.
const START: Duration = Duration::from_secs(60);
/// Longest that a command may take; none of them waits for a network that is not there.
const LONGEST: &str = "90";

/// `xebec docker-relay`, as a service manager would keep it.
pub(crate) struct Relay<'a> {
    world: &'a World,
    containerd: PathBuf,
    process: Option<Child>,
}

impl<'a> Relay<'a> {
    /// Starts one.
    pub(crate) fn start(world: &'a World, containerd: &Containerd<'_>) -> Result<Self> {
        let mut relay = Self {
            world,
            containerd: containerd.socket(),
            process: None,
        };
        relay.begin()?;
        Ok(relay)
    }

    /// The path of the socket that Docker is told.
    pub(crate) fn link(world: &World) -> PathBuf {
        world.path("relay/containerd.sock")
    }

    /// The same.
    pub(crate) fn at(&self) -> PathBuf {
        Self::link(self.world)
    }

    /// Starts it again.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let log = log(&self.world.path("relay.log"))?;
        let link = Self::link(self.world);
        let mut command = self.world.xebec(&["--verbose", "docker-relay", "--link"]);
        command.arg(&link).arg("--address").arg(&self.containerd);
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().context("cannot start the relay")?);
        let socket = link.with_file_name("relay.sock");
        wait_until(START, "the relay leads to itself", || {
            Ok(fs::read_link(&link).is_ok_and(|to| to == socket))
        })
        .with_context(|| fs::read_to_string(self.world.path("relay.log")).unwrap_or_default())
    }

    /// Has it end, as a service manager does.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no relay")?;
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        ensure!(process.wait()?.success(), "the relay did not end well");
        let to = fs::read_link(Self::link(self.world))?;
        ensure!(to == self.containerd, "the link leads to {}", to.display());
        Ok(())
    }

    /// How many blobs it has fetched.
    pub(crate) fn fetched(&self) -> Result<usize> {
        let log = fs::read_to_string(self.world.path("relay.log"))?;
        Ok(log
            .lines()
            .filter(|line| line.contains("fetching the blob"))
            .count())
    }

    /// Has it die.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no relay")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// An engine.
pub(crate) struct Docker<'a> {
    world: &'a World,
    namespace: String,
    process: Option<Child>,
}

impl<'a> Docker<'a> {
    /// Starts one on this containerd; `is_live` if containers are to go on while it does not run.
    pub(crate) fn start(
        world: &'a World,
        containerd: &Containerd<'_>,
        address: &Path,
        is_live: bool,
    ) -> Result<Self> {
        let place = |name: &str| world.path("d").join(name).display().to_string();
        fs::create_dir_all(place("config"))?;
        let settings = json!({
            "containerd": address,
            "containerd-namespace": containerd.namespace(),
            "features": {"containerd-snapshotter": true},
            "storage-driver": "xebec",
            "data-root": place("root"),
            "exec-root": place("exec"),
            "pidfile": place("pid"),
            "hosts": [format!("unix://{}", place("sock"))],
            "bridge": "none",
            "iptables": false,
            "ip6tables": false,
            "userland-proxy": false,
            "cgroup-parent": format!("/{}", containerd.namespace()),
            "live-restore": is_live,
            "runtimes": {"newer": {"path": World::tool("runc-idmap")?}},
            "default-runtime": "newer",
        });
        fs::write(place("daemon.json"), settings.to_string())?;
        let mut docker = Self {
            world,
            namespace: containerd.namespace().to_owned(),
            process: None,
        };
        docker.begin()?;
        Ok(docker)
    }

    /// Starts it, after [`Self::stop`] and [`Self::kill`] too.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let mut command = Command::new(World::tool("dockerd")?);
        command
            .arg("--config-file")
            .arg(self.world.path("d/daemon.json"))
            // Debian's client speaks an older language.
            .env("DOCKER_MIN_API_VERSION", "1.24")
            .env_remove("CONTAINERD_ADDRESS")
            .stdout(Stdio::null())
            .stderr(log(&self.world.path("d/log"))?);
        self.process = Some(command.spawn().context("cannot start dockerd (make setup)")?);
        wait_until(START, "Docker answers", || Ok(self.ask(&["version"])?.code == 0))
            .with_context(|| self.last_words())
    }

    /// Has it end.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no engine")?;
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        process.wait()?;
        Ok(())
    }

    /// Has it die.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("no engine")?;
        process.kill()?;
        process.wait()?;
        let _ = fs::remove_file(self.world.path("d/pid"));
        Ok(())
    }

    /// A command of Docker's client.
    pub(crate) fn client(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after", "5", LONGEST])
            .arg(World::tool("docker-client")?)
            .arg("--host")
            .arg(format!("unix://{}", self.world.path("d/sock").display()))
            .args(arguments)
            .env("DOCKER_CONFIG", self.world.path("d/config"))
            .env("DOCKER_BUILDKIT", "0")
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a command; gives its end, whatever it is.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Ended> {
        Ok(self
            .client(arguments)?
            .output()
            .context("cannot start Docker's client")?
            .into())
    }

    /// A command that works; what it said.
    pub(crate) fn does(&self, arguments: &[&str]) -> Result<String> {
        let ended = self.ask(arguments)?;
        ensure!(
            ended.code == 0,
            "docker {arguments:?}: {ended:?}\n{}",
            self.last_words()
        );
        Ok(ended.out.trim().to_owned())
    }

    /// A command that is refused, in time; what it said.
    pub(crate) fn refuses(&self, arguments: &[&str]) -> Result<String> {
        let ended = self.ask(arguments)?;
        let is_refused = ended.code != 0 && ended.code < 124 || ended.code == 125;
        ensure!(is_refused, "docker {arguments:?} was not refused: {ended:?}");
        Ok(ended.err)
    }

    /// Whether a container runs.
    pub(crate) fn runs(&self, name: &str) -> Result<bool> {
        let told = self.ask(&["inspect", "--format", "{{.State.Running}}", name])?;
        Ok(told.code == 0 && told.out.trim() == "true")
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let tail = |name: &str| {
            let log = fs::read_to_string(self.world.path(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            lines
                .get(lines.len().saturating_sub(15)..)
                .unwrap_or_default()
                .join("\n")
        };
        format!("{}\nrelay:\n{}\n", tail("d/log"), tail("relay.log"))
    }
}

impl Drop for Docker<'_> {
    fn drop(&mut self) {
        if let Ok(all) = self.ask(&["ps", "--all", "--quiet"]) {
            let all: Vec<&str> = all.out.split_whitespace().collect();
            if !all.is_empty() {
                let _ = self.ask(&[&["rm", "--force"][..], &all].concat());
            }
        }
        let _ = self.stop();
        // Control groups are the host's, and Docker leaves the one that it made.
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(&self.namespace));
        }
    }
}

fn log(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}
