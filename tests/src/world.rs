//! The world that a case acts on: a directory, a registry on loopback, and the binary under test with state of its own.

mod storage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use serde_json::Value;

/// How long a registry may take to listen.
const REGISTRY_START: Duration = Duration::from_secs(60);

/// The surroundings of one case.
pub(crate) struct World {
    /// A directory for whatever the case needs; removed afterwards.
    pub(crate) directory: PathBuf,
    /// The registry's address, `127.0.0.1:PORT`.
    pub(crate) registry: String,
    registry_process: Child,
    binary: PathBuf,
}

/// A variable that the harness's shell script passes on.
fn setting(name: &str) -> Result<PathBuf> {
    let value = std::env::var_os(name).with_context(|| format!("{name} is not set; run scripts/e2e.sh"))?;
    Ok(PathBuf::from(value))
}

impl World {
    /// Brings loopback up and starts a registry.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
        // The registry's files are in memory: it would wait for the disk at each of its many small ones.
        let storage = in_memory(&directory.join("registry"))?.join("storage");
        let (registry_process, registry) = start_registry(&directory.join("registry"), &storage, "")?;
        let binary = setting("XEBEC_BIN")?;
        Ok(Self {
            directory: directory.to_owned(),
            registry,
            registry_process,
            binary,
        })
    }

    /// The binary under test.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// A name that no other case has that runs now: for what a namespace does not keep apart, as control groups.
    pub(crate) fn name(&self) -> String {
        let own = self.directory.parent().and_then(Path::file_name);
        own.map_or_else(
            || "xebec-e2e".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// A path in the case's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The layout of a real image that `scripts/images/build.sh` has built.
    pub(crate) fn built_image(name: &str) -> Result<PathBuf> {
        let layout = setting("XEBEC_BUILD")?.join("oci").join(name);
        ensure!(
            layout.join("index.json").exists(),
            "no image {name}: run scripts/images/build.sh {name}"
        );
        Ok(layout)
    }

    /// A program that `scripts/setup.sh` built.
    pub(crate) fn tool(name: &str) -> Result<PathBuf> {
        Ok(setting("XEBEC_TOOLS")?.join("bin").join(name))
    }

    /// A Go program of `tests/gotools`.
    pub(crate) fn go_tool(name: &str) -> Result<PathBuf> {
        Ok(setting("E2E_GOTOOLS")?.join(name))
    }

    /// Puts a layout's image into the registry and gives the reference it now has.
    pub(crate) fn push(&self, layout: &Path, name: &str) -> Result<String> {
        let reference = format!("{}/{name}:latest", self.registry);
        // A push by requests takes more than half of the time of a case with five hundred layers.
        if storage::put(&self.path("registry/storage"), layout, name)? {
            return Ok(reference);
        }
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--dest-tls-verify=false"]);
        if let Ok(format) = fs::read_to_string(layout.join("push-format")) {
            skopeo.args(["--format", format.trim()]);
        }
        skopeo
            .arg(format!("oci:{}:latest", layout.display()))
            .arg(format!("docker://{reference}"));
        run(&mut skopeo)?;
        Ok(reference)
    }

    /// The binary under test, with this case's state.
    pub(crate) fn xebec(&self, arguments: &[&str]) -> Command {
        self.xebec_at("root", arguments)
    }

    /// The same with its state in another root of this case.
    pub(crate) fn xebec_at(&self, root: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .env("XEBEC_ROOT", self.path(root))
            .env("XEBEC_RUN", self.path(&format!("{root}-run")))
            .env("DOCKER_CONFIG", self.path("no-docker-config"))
            .stdin(Stdio::null());
        command
    }

    /// Pushes, indexes with `--push`, and mounts an image with an empty cache.
    pub(crate) fn mount(&self, layout: &Path, name: &str) -> Result<Mounted<'_>> {
        self.index_and_mount(layout, name, &[])
    }

    /// The same, with devices that can be opened.
    pub(crate) fn mount_with_devices(&self, layout: &Path, name: &str) -> Result<Mounted<'_>> {
        self.index_and_mount(layout, name, &["--dev"])
    }

    fn index_and_mount(&self, layout: &Path, name: &str, options: &[&str]) -> Result<Mounted<'_>> {
        let reference = self.push(layout, name)?;
        run(&mut self.xebec_at("builder", &["index", "--push", &reference]))?;
        run(&mut self.xebec_at("builder", &["daemon", "stop", "--force"]))?;
        self.mount_with(&reference, options)
    }

    /// Mounts what a reference names.
    pub(crate) fn mount_reference(&self, reference: &str) -> Result<Mounted<'_>> {
        self.mount_with(reference, &[])
    }

    fn mount_with(&self, reference: &str, options: &[&str]) -> Result<Mounted<'_>> {
        let directory = self.path("mnt");
        fs::create_dir_all(&directory)?;
        run(self
            .xebec(&["mount"])
            .args(options)
            .arg(reference)
            .arg(&directory))?;
        Ok(Mounted {
            world: self,
            directory,
        })
    }

    /// A registry in the directory "locked" that has the images of the other one, and asks for a name and a password; a line
    /// of an htpasswd file says which.
    pub(crate) fn lock_registry(&self, login: &str) -> Result<Locked> {
        let (directory, storage) = (self.path("locked"), self.path("registry/storage"));
        fs::create_dir_all(&directory)?;
        let file = directory.join("htpasswd");
        fs::write(&file, format!("{login}\n"))?;
        let auth = format!(
            "auth: {{htpasswd: {{realm: locked, path: {}}}}}\n",
            file.display()
        );
        let (process, address) = start_registry(&directory, &storage, &auth)?;
        Ok(Locked { process, address })
    }

    /// The registry's process.
    pub(crate) fn registry_pid(&self) -> Pid {
        Pid::from_child(&self.registry_process)
    }

    /// The answer of `xebec daemon status --json`.
    pub(crate) fn daemon_status(&self) -> Result<Value> {
        let output = run(&mut self.xebec(&["daemon", "status", "--json"]))?;
        serde_json::from_slice(&output.stdout).context("daemon status is not JSON")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.xebec(&["daemon", "stop", "--force"]).output();
        let _ = self.registry_process.kill();
        let _ = self.registry_process.wait();
    }
}

/// A registry that asks for a name and a password.
pub(crate) struct Locked {
    process: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An image that is mounted.
pub(crate) struct Mounted<'a> {
    world: &'a World,
    /// Where.
    pub(crate) directory: PathBuf,
}

impl Mounted<'_> {
    /// Unmounts it.
    pub(crate) fn umount(self) -> Result<()> {
        run(self.world.xebec(&["umount"]).arg(&self.directory)).map(|_| ())
    }
}

fn start_registry(directory: &Path, storage: &Path, more: &str) -> Result<(Child, String)> {
    fs::create_dir_all(directory)?;
    fs::create_dir_all(storage)?;
    let configuration = directory.join("config.yml");
    fs::write(
        &configuration,
        format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: false}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\n{more}",
            storage.display()
        ),
    )?;
    let log = directory.join("log");
    let mut process = Command::new("registry")
        .arg("serve")
        .arg(&configuration)
        .env("OTEL_TRACES_EXPORTER", "none")
        // Go's runtime, which collects garbage above all, took two fifths of its time.
        .env("GOGC", "400")
        .stdin(Stdio::null())
        .stdout(File::create(directory.join("access"))?)
        .stderr(File::create(&log)?)
        .spawn()
        .context("cannot start the registry (make setup)")?;
    let deadline = Instant::now() + REGISTRY_START;
    loop {
        let text = fs::read_to_string(&log)?;
        // It was told port 0; the one it got is in its log.
        if let Some((_, rest)) = text.split_once("listening on ") {
            let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
            if let Some(address) = end.and_then(|end| rest.get(..end)) {
                return Ok((process, address.to_owned()));
            }
        }
        if process.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("the registry did not start: {text}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Mounts a file system in memory, unless one is there: for what is written once, read once, and need not outlive the machine.
pub(crate) fn in_memory(directory: &Path) -> Result<&Path> {
    if !directory.exists() {
        fs::create_dir(directory)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "mode=755", "xebec-e2e"])
            .arg(directory))?;
    }
    Ok(directory)
}

/// Runs a command and asks for success; an error carries what it printed.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{}", describe(command, &output));
    Ok(output)
}

/// Runs a command and asks for failure; gives what it said.
pub(crate) fn run_failing(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        !output.status.success(),
        "should have failed: {}",
        describe(command, &output)
    );
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn describe(command: &Command, output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    format!(
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&text)
    )
}
