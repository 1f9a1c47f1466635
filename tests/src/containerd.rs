//! containerd with state of its own, and `xebec daemon` as its snapshotter.
//!
//! Both lines of containerd that `scripts/setup.sh` builds are used. Their configuration is the one that `docs/containerd.md` tells users
//! to copy, with this case's paths in place of the usual ones.

mod leftovers;
mod snapshots;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::lab::wait_until;
use crate::world::{World, run};
pub(crate) use leftovers::Leftovers;
pub(crate) use snapshots::Snapshots;

/// How long a daemon may take to be ready.
const START: Duration = Duration::from_secs(30);
/// How often a view may be collected before the case says that it stays. A view is collected soon after something was removed.
const COLLECTED: usize = 5;
/// The page with the configuration that users copy.
const MANUAL: &str = include_str!("../../docs/containerd.md");
/// The root of the daemon under test.
const ROOT: &str = "root";
/// The directory of containerd.
const CONTAINERD: &str = "c";
/// Where CRI keeps its images and containers.
pub(crate) const CRI: &str = "k8s.io";
/// The snapshotter's name in containerd.
const NAME: &str = "xebec";

/// Which containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// 2.x
    Two,
    /// 1.7
    OneSeven,
}

impl Line {
    /// Of its configuration.
    pub(crate) fn version(self) -> u8 {
        match self {
            Self::Two => 3,
            Self::OneSeven => 2,
        }
    }
}

/// A containerd.
pub(crate) struct Containerd<'a> {
    world: &'a World,
    line: Line,
    directory: PathBuf,
    namespace: String,
    process: Option<Child>,
}

impl<'a> Containerd<'a> {
    /// Starts one that knows the snapshotter; `more` is added to its configuration.
    pub(crate) fn start(world: &'a World, line: Line, more: &str) -> Result<Self> {
        Self::start_with(world, line, &(drop_in(world, line)? + more))
    }

    /// Starts one that knows nothing of Xebec, with `more` in its configuration, which is to be a file by itself.
    pub(crate) fn start_with(world: &'a World, line: Line, more: &str) -> Result<Self> {
        // Shims put sockets there, whatever containerd is told; and nothing of ours outlives the case's mounts.
        run(Command::new("mount").args(["-t", "tmpfs", "containerd", "/run"]))?;
        let mut containerd = Self {
            world,
            line,
            directory: world.path(CONTAINERD),
            // Control groups are named after it, and are removed after the case.
            namespace: world.name(),
            process: None,
        };
        containerd.configure(more)?;
        containerd.wake()?;
        Ok(containerd)
    }

    /// The file of its configuration, beside which are drop-ins.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory.join("config.toml")
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        listens(self.world)
    }

    /// The name of its namespace, and of the control group in which everything of it is.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn configure(&self, more: &str) -> Result<()> {
        let place = |name: &str| self.directory.join(name).display().to_string();
        fs::create_dir_all(self.directory.join("conf.d"))?;
        let version = self.line.version();
        // A case that needs CRI switches it on: it looks for networks, and for the host's directories.
        let disabled = if more.contains("cri") {
            ""
        } else {
            "\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\", "
        };
        let main = format!(
            "version = {version}\nroot = {:?}\nstate = {:?}\nimports = [{:?}]\n\
             disabled_plugins = [{disabled}\"io.containerd.nri.v1.nri\"]\n\
             [grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n[plugins.\"io.containerd.internal.v1.opt\"]\npath = {:?}\n",
            place("root"),
            place("state"),
            place("conf.d/*.toml"),
            place("sock"),
            place("ttrpc"),
            place("opt"),
        );
        fs::write(self.configuration(), main)?;
        fs::write(self.directory.join("conf.d/xebec.toml"), more).context("write a drop-in")
    }

    /// Starts it, after [`Self::kill`] too.
    pub(crate) fn wake(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))?;
        let mut command = self.program("containerd")?;
        command
            .arg("--config")
            .arg(self.configuration())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().context("cannot start containerd (make setup)")?);
        wait_until(START, "containerd answers", || {
            Ok(self.ctr(&["plugins", "ls"])?.output()?.status.success())
        })
        .with_context(|| self.last_words())
    }

    /// Ends it by a signal; containers go on.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// A program of this line, told where containerd is.
    fn program(&self, name: &str) -> Result<Command> {
        let tools =
            PathBuf::from(std::env::var_os("XEBEC_TOOLS").context("XEBEC_TOOLS is not set")?).join("bin");
        let tools = match self.line {
            Line::Two => tools,
            Line::OneSeven => tools.join("containerd-1.7"),
        };
        let mut command = Command::new(tools.join(name));
        let path = std::env::var("PATH").unwrap_or_default();
        self.tell(&mut command)
            .env("PATH", format!("{}:{path}", tools.display()));
        Ok(command)
    }

    fn tell<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env("CONTAINERD_ADDRESS", self.directory.join("sock"))
            .env("CONTAINERD_NAMESPACE", &self.namespace)
            .env("CONTAINERD_SNAPSHOTTER", NAME)
            .env("CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS", "true")
            .stdin(Stdio::null())
    }

    /// `ctr`, with our snapshotter as the one that it uses.
    pub(crate) fn ctr(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.program("ctr")?;
        command.args(arguments);
        Ok(command)
    }

    /// The same, run; gives what it printed.
    pub(crate) fn does(&self, arguments: &[&str]) -> Result<String> {
        let output = run(&mut self.ctr(arguments)?).with_context(|| self.last_words())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, expected to fail; gives what it said.
    pub(crate) fn refuses(&self, arguments: &[&str]) -> Result<String> {
        let output: Output = self.ctr(arguments)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            !output.status.success(),
            "{arguments:?} should have failed: {said}"
        );
        Ok(said)
    }

    /// `xebec`, told of this containerd as `ctr` is.
    pub(crate) fn xebec(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.xebec(arguments);
        self.tell(&mut command);
        command
    }

    /// A Go program of `tests/containerd`, told where containerd is.
    pub(crate) fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(World::go_tool(name)?);
        self.tell(command.args(arguments));
        let output = run(&mut command).with_context(|| self.last_words())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same, with another socket in place of containerd's, whether it succeeds or not.
    pub(crate) fn tool_at(&self, socket: &Path, name: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(World::go_tool(name)?);
        self.tell(command.args(arguments))
            .env("CONTAINERD_ADDRESS", socket);
        command.output().with_context(|| format!("cannot start {name}"))
    }

    /// The last lines that it has logged.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    }

    /// Asks that this namespace has no snapshot any more.
    pub(crate) fn has_none(&self) -> Result<()> {
        let left = self.snapshots()?;
        ensure!(left.is_empty(), "snapshots are left: {left:?}");
        Ok(())
    }

    /// Keys of the snapshots in this namespace.
    pub(crate) fn snapshots(&self) -> Result<Vec<String>> {
        let listed = self.does(&["snapshots", "ls"])?;
        let keys = listed
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next());
        Ok(keys.map(str::to_owned).collect())
    }

    /// Where a container's root file system is mounted.
    pub(crate) fn root_of(&self, container: &str) -> PathBuf {
        self.root_in(&self.namespace, container)
    }

    /// The same of a container in another namespace.
    pub(crate) fn root_in(&self, namespace: &str, container: &str) -> PathBuf {
        self.directory
            .join("state/io.containerd.runtime.v2.task")
            .join(namespace)
            .join(container)
            .join("rootfs")
    }

    /// Ends a container's process, and forgets task and container but not the snapshot.
    pub(crate) fn end(&self, container: &str) -> Result<()> {
        self.does(&["tasks", "kill", "--signal", "KILL", container])?;
        wait_until(START, "the task has ended", || {
            Ok(self.does(&["tasks", "ls"])?.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first() == Some(&container) && words.last() == Some(&"STOPPED")
            }))
        })?;
        self.does(&["tasks", "rm", container]).map(|_| ())
    }

    /// Makes a view of a snapshot that stays. Nothing refers to a view: it stays because it says so, which it can only once
    /// it is there. If it was collected before, it is made again.
    pub(crate) fn view(&self, options: &[&str], key: &str, of: &str) -> Result<()> {
        let does = |arguments: &[&str]| self.does(&[&["snapshots"], options, arguments].concat());
        for _ in 0..COLLECTED {
            does(&["view", key, of])?;
            match does(&["label", key, "containerd.io/gc.root=test"]) {
                Err(error) if format!("{error:#}").contains("not found") => {}
                labelled => return labelled.map(|_| ()),
            }
        }
        bail!("{key} is collected each time before it can say that it is to stay")
    }

    /// Removes what nothing refers to any more, now.
    pub(crate) fn collect(&self) -> Result<()> {
        self.does(&["content", "prune", "references"]).map(|_| ())
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        // A kubelet's containers have their control groups elsewhere, which are nobody's any more if it ends without them.
        for namespace in [self.namespace.as_str(), CRI] {
            let does = |words: &[&str]| {
                let words = [&["--namespace", namespace, "tasks"], words].concat();
                self.ctr(&words).and_then(|mut ctr| Ok(ctr.output()?))
            };
            let tasks = does(&["ls", "--quiet"]).map(|output| output.stdout);
            for task in String::from_utf8_lossy(&tasks.unwrap_or_default()).lines() {
                drop(does(&["rm", "--force", task]));
            }
        }
        let _ = self.kill();
    }
}

/// The configuration that users copy, for this case.
fn drop_in(world: &World, line: Line) -> Result<String> {
    let title = match line {
        Line::Two => "# containerd 2.x\n",
        Line::OneSeven => "# containerd 1.7\n",
    };
    let run_directory = world.path(&format!("{ROOT}-run")).display().to_string();
    Ok(block(title)?
        .replace("/run/xebec", &run_directory)
        .replace("/var/lib/xebec", &world.path(ROOT).display().to_string()))
}

/// Where this case's containerd listens.
pub(crate) fn listens(world: &World) -> PathBuf {
    world.path(CONTAINERD).join("sock")
}

/// The example in the manual that begins with these words.
pub(crate) fn block(beginning: &str) -> Result<String> {
    let blocks = MANUAL.split("```toml\n").skip(1);
    let mut texts = blocks.filter_map(|rest| rest.split_once("```").map(|(text, _)| text));
    let text = texts.find(|text| text.starts_with(beginning));
    Ok(text
        .with_context(|| format!("docs/containerd.md has no example that begins with {beginning:?}"))?
        .to_owned())
}

/// The answer of a server on this host to `GET /`, or `None` if none answers.
pub(crate) fn http(port: u16) -> Option<String> {
    http_of("127.0.0.1", port)
}

/// The same of another host.
pub(crate) fn http_of(host: &str, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((host, port)).ok()?;
    stream.set_read_timeout(Some(START)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
