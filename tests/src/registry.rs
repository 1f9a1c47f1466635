//! `xebec-registry` under test, as a process of a case.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::World;

/// How long it may take to listen.
const START: Duration = Duration::from_secs(60);

/// A registry that serves until this is dropped.
pub(crate) struct OwnRegistry {
    process: Child,
    /// `127.0.0.1:PORT`
    pub(crate) address: String,
    directory: PathBuf,
}

impl OwnRegistry {
    /// The program, if it was built.
    pub(crate) fn program() -> Option<PathBuf> {
        let program = std::env::var_os("XEBEC_REGISTRY_BIN").map(PathBuf::from)?;
        program.is_file().then_some(program)
    }

    /// Adds a user to an htpasswd file.
    pub(crate) fn add_user(htpasswd: &Path, name: &str, password: &str) -> Result<()> {
        let mut add = Command::new(Self::program().context("xebec-registry is not built")?)
            .args(["user", "add", name, "--htpasswd"])
            .arg(htpasswd)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        writeln!(add.stdin.take().context("no pipe")?, "{password}")?;
        ensure!(add.wait()?.success(), "no user was added");
        Ok(())
    }

    /// Starts one with its data in a directory of the case, and this configuration.
    pub(crate) fn start(world: &World, name: &str, configuration: &str) -> Result<Self> {
        Self::start_at(world, name, configuration, 0)
    }

    /// The same at a port that is known beforehand.
    pub(crate) fn start_at(world: &World, name: &str, configuration: &str, port: u16) -> Result<Self> {
        let mut registry = Self::spawn(world, name, configuration, port, &[])?;
        registry.wait()?;
        Ok(registry)
    }

    /// The same without waiting until it listens, and with more in its environment.
    pub(crate) fn spawn(
        world: &World,
        name: &str,
        configuration: &str,
        port: u16,
        environment: &[(String, String)],
    ) -> Result<Self> {
        let directory = world.path(name);
        fs::create_dir_all(&directory)?;
        let file = directory.join("registry.toml");
        fs::write(&file, configuration)?;
        let log = directory.join("log");
        let program = Self::program().context("xebec-registry is not built")?;
        let process = Command::new(program)
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"])
            .arg(&file)
            .arg("--root")
            .arg(directory.join("data"))
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("cannot start xebec-registry")?;
        Ok(Self {
            process,
            address: format!("127.0.0.1:{port}"),
            directory,
        })
    }

    /// Waits until it listens.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.address = self.wait_for_address(&self.directory.join("log"))?;
        Ok(())
    }

    /// It may have been told port 0; the one it got is in its log.
    fn wait_for_address(&mut self, log: &Path) -> Result<String> {
        let deadline = Instant::now() + START;
        loop {
            let text = fs::read_to_string(log)?;
            if let Some((_, rest)) = text.split_once("serving at http://")
                && let Some(end) = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit())
            {
                return Ok(rest[..end].to_owned());
            }
            if self.process.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("xebec-registry did not start: {text}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The log that it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// How much memory it has had at most, in MiB.
    pub(crate) fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.context("the process tells no memory")? / 1024)
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Has it read its certificate and its rules for copies again.
    pub(crate) fn hang_up(&self) -> Result<()> {
        let pid = i32::try_from(self.process.id())?;
        Ok(kill_process(
            Pid::from_raw(pid).context("no process")?,
            Signal::HUP,
        )?)
    }

    /// Tells it to end, and says whether it ended well.
    pub(crate) fn end(mut self) -> Result<bool> {
        let pid = i32::try_from(self.process.id())?;
        kill_process(Pid::from_raw(pid).context("no process")?, Signal::TERM)?;
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for OwnRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
