//! A registry that misbehaves on purpose, images made up for a test, and the binary under test between them.
//!
//! The things that a case needs beyond its [`World`]: images whose every byte is known, pushed without a network tool; state roots with
//! settings that give up soon; and questions to the daemon.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::registry::{FaultyRegistry, Options};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use crate::world::{World, run};

/// Settings of a root: a registry that fails is given up after seconds, not minutes.
const SETTINGS: &str = "[budget]\nattempts = 4\nbase_delay = \"20ms\"\nmax_delay = \"100ms\"\n\
    total_deadline = \"6s\"\nresponse_timeout = \"2s\"\nstall_window = \"1s\"\nstall_bytes = 4096\n";
/// Settings of the daemon: readers are refused after seconds, too.
const DAEMON: &str = "fill_wait = \"6s\"\n";
/// `EIO`, which a reader gets if its bytes cannot be fetched.
const EIO: i32 = 5;

/// The surroundings of a case about faults.
pub(crate) struct Lab<'a> {
    world: &'a World,
    /// The registry.
    pub(crate) registry: FaultyRegistry,
    /// Variables that commands get, and the daemons that they start.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// The references of a pushed image.
pub(crate) struct Names {
    /// Its repository.
    pub(crate) repository: String,
    /// By tag.
    pub(crate) tag: String,
    /// By digest.
    pub(crate) digest: String,
}

/// A command that goes on, such as `xebec run`, and ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; -1 if a signal ended it.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Ended {
    /// Asks for an exit code and words in what was said.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> Result<()> {
        ensure!(
            self.code == code,
            "exit code {} instead of {code}: {self:?}",
            self.code
        );
        for word in words {
            let said = self.err.contains(word) || self.out.contains(word);
            ensure!(said, "{word:?} is missing: {self:?}");
        }
        Ok(())
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl<'a> Lab<'a> {
    /// A registry that is open to everyone.
    pub(crate) fn new(world: &'a World) -> Result<Self> {
        Self::with(world, Options::default())
    }

    /// A registry.
    pub(crate) fn with(world: &'a World, options: Options) -> Result<Self> {
        let registry = FaultyRegistry::with(options)?;
        Ok(Self {
            world,
            registry,
            environment: Vec::new(),
        })
    }

    /// A path in the case's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// Puts an image into the registry under the tag `latest`.
    pub(crate) fn push(&self, image: &Image, repository: &str) -> Names {
        for blob in image.blobs() {
            self.registry
                .put_blob_as(repository, blob.digest, blob.bytes.clone());
        }
        let (manifest, media_type) = (&image.manifest, image.manifest.media_type.as_str());
        let bytes = manifest.bytes.clone();
        self.registry.put_manifest(
            repository,
            &manifest.digest.to_string(),
            media_type,
            bytes.clone(),
        );
        self.registry
            .put_manifest(repository, "latest", media_type, bytes);
        let name = format!("{}/{repository}", self.registry.host());
        Names {
            repository: repository.to_owned(),
            tag: format!("{name}:latest"),
            digest: format!("{name}@{}", manifest.digest),
        }
    }

    /// Pushes an image and its indexes, made by a root of their own.
    pub(crate) fn push_indexed(&self, image: &Image, repository: &str) -> Result<Names> {
        let names = self.push(image, repository);
        self.xebec("builder", &["index", "--push", &names.tag])?
            .expect(0, &[])?;
        self.registry.clear_log();
        Ok(names)
    }

    /// Runs the binary with its state in a root of that name.
    pub(crate) fn xebec(&self, root: &str, arguments: &[&str]) -> Result<Ended> {
        self.settle(root)?;
        let mut command = self.world.xebec_at(root, arguments);
        command.envs(self.environment.iter().cloned());
        let output = command
            .output()
            .with_context(|| format!("cannot start {command:?}"))?;
        Ok(output.into())
    }

    /// The same, started and left to itself.
    pub(crate) fn spawn(&self, root: &str, arguments: &[&str]) -> Result<Child> {
        self.settle(root)?;
        let mut command = self.world.xebec_at(root, arguments);
        command
            // As a shell starts it.
            .process_group(0)
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::null())
            // Its message about a failure belongs to the output of the case.
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))
    }

    /// Makes a root with settings that give up soon.
    fn settle(&self, root: &str) -> Result<()> {
        let settings = self.path(root).join("registries.toml");
        if !settings.exists() {
            fs::create_dir_all(self.path(root))?;
            write_settings(&settings, SETTINGS)?;
        }
        let daemon = self.path(root).join("daemon.toml");
        if !daemon.exists() {
            write_settings(&daemon, DAEMON)?;
        }
        Ok(())
    }

    /// Makes a root whose commands wait for a registry as long as usual.
    pub(crate) fn settle_patiently(&self, root: &str) -> Result<()> {
        fs::create_dir_all(self.path(root))?;
        write_settings(&self.path(root).join("registries.toml"), "").context("write registries.toml")
    }

    /// Adds to a root's `daemon.toml`.
    pub(crate) fn daemon_settings(&self, root: &str, more: &str) -> Result<()> {
        self.settle(root)?;
        write_settings(&self.path(root).join("daemon.toml"), &format!("{DAEMON}{more}"))
            .context("write daemon.toml")
    }

    /// Adds to a root's `registries.toml`.
    pub(crate) fn registries(&self, root: &str, more: &str) -> Result<()> {
        self.settle(root)?;
        write_settings(
            &self.path(root).join("registries.toml"),
            &format!("{SETTINGS}{more}"),
        )
        .context("write registries.toml")
    }

    /// Writes a root's `trust.toml`.
    pub(crate) fn trust(&self, root: &str, text: &str) -> Result<()> {
        self.settle(root)?;
        write_settings(&self.path(root).join("trust.toml"), text).context("write trust.toml")
    }

    /// A key pair in PEM files, `NAME.key` and `NAME.pub`; gives the path of the private one.
    pub(crate) fn make_key(&self, name: &str) -> Result<String> {
        let private = self.path(&format!("{name}.key"));
        run(Command::new("openssl")
            .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
            .arg(&private))?;
        run(Command::new("openssl")
            .args(["ec", "-pubout", "-in"])
            .arg(&private)
            .arg("-out")
            .arg(self.path(&format!("{name}.pub"))))?;
        Ok(private.to_string_lossy().into_owned())
    }

    /// Has a root trust the key of that name, for all repositories.
    pub(crate) fn trust_key(&self, root: &str, name: &str) -> Result<()> {
        let file = self.path(&format!("{name}.pub"));
        let key = format!(
            "[[key]]\nname = \"{name}\"\nfile = \"{}\"\nrepositories = [\"{}/**\"]\n",
            file.display(),
            self.registry.host()
        );
        self.trust(root, &key)
    }

    /// Mounts an image and gives where.
    pub(crate) fn mount(&self, root: &str, reference: &str, options: &[&str]) -> Result<PathBuf> {
        let directory = self.mount_point(&format!("mnt-{root}-{:x}", fastrand::u64(..)))?;
        let place = directory.to_string_lossy().into_owned();
        let arguments = [&["mount"], options, &[reference, &place]].concat();
        self.xebec(root, &arguments)?.expect(0, &[])?;
        Ok(directory)
    }

    /// Tries to mount an image; nothing may be mounted when that fails.
    pub(crate) fn try_mount(&self, root: &str, reference: &str, options: &[&str]) -> Result<Ended> {
        let directory = self.mount_point(&format!("try-{root}-{:x}", fastrand::u64(..)))?;
        let place = directory.to_string_lossy().into_owned();
        let ended = self.xebec(root, &[&["mount"], options, &[reference, &place]].concat())?;
        let is_empty = fs::read_dir(&directory)?.next().is_none();
        ensure!((ended.code == 0) != is_empty, "mounted or not? {ended:?}");
        Ok(ended)
    }

    /// An empty directory.
    pub(crate) fn mount_point(&self, name: &str) -> Result<PathBuf> {
        let directory = self.path(name);
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Unmounts.
    pub(crate) fn umount(&self, root: &str, directory: &Path) -> Result<()> {
        self.xebec(root, &["umount", &directory.to_string_lossy()])?
            .expect(0, &[])
    }

    /// Ends a root's daemon.
    pub(crate) fn stop(&self, root: &str) -> Result<()> {
        self.xebec(root, &["daemon", "stop", "--force"])?.expect(0, &[])
    }

    /// The log of a root's daemon.
    pub(crate) fn daemon_log(&self, root: &str) -> Result<String> {
        Ok(fs::read_to_string(
            self.path(&format!("{root}-run")).join("daemon.log"),
        )?)
    }

    /// The lines of a root's daemon's log that contain all of `words`.
    pub(crate) fn logged(&self, root: &str, words: &[&str]) -> Result<String> {
        let log = self.daemon_log(root)?;
        let fits = |line: &&str| words.iter().all(|word| line.contains(word));
        let line = log.lines().find(fits);
        line.map(str::to_owned)
            .with_context(|| format!("no line with {words:?} in the daemon's log:\n{log}"))
    }

    /// The status of a root's daemon.
    pub(crate) fn status(&self, root: &str) -> Result<Value> {
        let ended = self.xebec(root, &["daemon", "status", "--json"])?;
        ended.expect(0, &[])?;
        serde_json::from_str(&ended.out).context("daemon status is not JSON")
    }

    /// A process of a root's daemon: `keeper_pid` or `worker_pid`.
    pub(crate) fn pid(&self, root: &str, name: &str) -> Result<Pid> {
        let status = self.status(root)?;
        let pid = status.get(name).and_then(Value::as_i64);
        let pid = pid
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        pid.with_context(|| format!("no {name} in {status}"))
    }

    /// One of the counters of a root's daemon.
    pub(crate) fn counter(&self, root: &str, name: &str) -> Result<u64> {
        let status = self.status(root)?;
        let value = status
            .pointer(&format!("/counters/{name}"))
            .and_then(Value::as_u64);
        value.with_context(|| format!("no counter {name} in {status}"))
    }

    /// Sums of `xebec check --json`: spans verified, spans wrong, pages present.
    pub(crate) fn check(&self, root: &str, reference: &str) -> Result<Checked> {
        let ended = self.xebec(root, &["check", "--json", reference])?;
        let layers: Vec<Value> = serde_json::from_str(&ended.out).with_context(|| format!("{ended:?}"))?;
        let sum = |name: &str| layers.iter().filter_map(|layer| layer.get(name)?.as_u64()).sum();
        Ok(Checked {
            verified: sum("verified_spans"),
            wrong: sum("wrong_spans"),
            present: sum("present_pages"),
            pages: sum("pages"),
        })
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // Readers that wait for a registry that is gone would wait for its deadline.
        self.registry.clear_faults();
        for entry in fs::read_dir(&self.world.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(root) = name.strip_suffix("-run") {
                let _ = self.world.xebec_at(root, &["daemon", "stop", "--force"]).output();
            }
        }
    }
}

/// The counts that `xebec check` found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Spans that are right.
    pub(crate) verified: u64,
    /// Spans that are wrong.
    pub(crate) wrong: u64,
    /// Pages that are present.
    pub(crate) present: u64,
    /// Pages.
    pub(crate) pages: u64,
}

/// Contents that compress to about a half, the same for the same seed.
pub(crate) fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    // Sixteen letters. Eight bytes at a time: these programs are compiled as fast as can be, so each step of a loop costs.
    let (eights, rest) = bytes.as_chunks_mut::<8>();
    for eight in eights {
        let numbers = u64::from_ne_bytes(*eight) & u64::from_ne_bytes([15; 8]);
        *eight = (numbers + u64::from_ne_bytes([b'a'; 8])).to_ne_bytes();
    }
    for byte in rest {
        *byte = b'a' + (*byte & 15);
    }
    bytes
}

/// A tar file of files, given as path and contents.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    for (path, contents) in files {
        tar.file(path, contents);
    }
    tar.into_bytes()
}

/// A shell with its tools, and what it needs if it is not linked statically.
pub(crate) const BUSYBOX: &[&str] = &[
    "/bin/busybox",
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libc.so.6",
];

/// Puts programs of this host where they are here, with this mode. The directories that they are in are the caller's to put.
pub(crate) fn put_programs(tar: &mut TarBuilder<Vec<u8>>, paths: &[&str], mode: u32) -> Result<()> {
    for path in paths {
        let program = fs::read(path).with_context(|| format!("read {path} (make setup-test)"))?;
        let header = Header::new(path.trim_start_matches('/'), Kind::File).mode(mode);
        tar.file_with(&header, &program);
    }
    Ok(())
}

/// An image whose layers hold these files.
pub(crate) fn image(layers: &[&[(&str, &[u8])]], compression: Compression) -> Result<Image> {
    let mut builder = ImageBuilder::new();
    for files in layers {
        builder = builder.layer(&tar(files), compression)?;
    }
    Ok(builder.build())
}

/// Reads a file whole, from its file system and not from the page cache.
pub(crate) fn read_cold(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&file, 0, None, advice)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file and asks for its contents.
pub(crate) fn expect_contents(path: &Path, wanted: &[u8]) -> Result<()> {
    let bytes = read_cold(path).with_context(|| format!("read {}", path.display()))?;
    if bytes == wanted {
        return Ok(());
    }
    let place = bytes.iter().zip(wanted).position(|(one, other)| one != other);
    bail!(
        "{} has other contents: {} bytes of {}, first difference at {place:?}",
        path.display(),
        bytes.len(),
        wanted.len()
    )
}

/// Whether a reading failed with `EIO`; another failure is a failure of the test.
pub(crate) fn is_eio<T>(result: &io::Result<T>) -> Result<bool> {
    match result {
        Ok(_) => Ok(false),
        Err(error) if error.raw_os_error() == Some(EIO) => Ok(true),
        Err(error) => anyhow::bail!("a reader got {error} instead of EIO"),
    }
}

/// Asks until the answer is yes.
pub(crate) fn wait_until(limit: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = std::time::Instant::now() + limit;
    while !holds()? {
        ensure!(
            std::time::Instant::now() < deadline,
            "after {limit:?} still not: {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Writes settings that others may not change, whatever the mask is: Xebec refuses those that they may.
fn write_settings(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?)
}

/// Mounts a new ext4 file system of `size` bytes: one that can be full, and that raises events (tmpfs cannot).
pub(crate) fn mount_small(directory: &Path, size: u64) -> Result<()> {
    mount_small_with(directory, size, &[])
}

/// The same, made with more options of `mkfs.ext4`.
pub(crate) fn mount_small_with(directory: &Path, size: u64, options: &[&str]) -> Result<()> {
    let image = directory.with_extension("ext4");
    File::create(&image)?.set_len(size)?;
    run(Command::new("mkfs.ext4")
        .args(["-q", "-m", "0", "-O", "^has_journal"])
        .args(options)
        .arg(&image))?;
    fs::create_dir_all(directory)?;
    run(Command::new("mount")
        .args(["-o", "loop"])
        .args([&image, directory]))
    .map(|_| ())
}
