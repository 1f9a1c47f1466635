//! Packages and manifests, by the tools that will read them: dpkg, kustomize, a validator of Kubernetes objects.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process, umask};

use crate::lab::wait_until;
use crate::runner::{Case, Outcome};
use crate::world::{World, run as run_command};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Masks that take nothing away, and all that can be taken from others.
pub(super) const MASKS: [(&str, u32); 2] = [("open", 0), ("shut", 0o077)];

/// A command in another root directory, with a /proc that goes with it.
const IN_ROOT: &str = r#"mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("packaging/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("debian", debian),
        case("kubernetes", kubernetes),
        case("stays", stays),
        case("modes", modes),
        case("containerd-reads-it", containerd_reads_it),
    ]
}

/// Runs a command and gives what it said.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let output = run_command(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Makes the package in a folder of its own.
fn build_package(world: &World, name: &str) -> Result<PathBuf> {
    let out = world.path(name);
    let mut command = Command::new(top().join("scripts/package.sh"));
    command
        .arg("deb")
        .env("XEBEC_OUT", &out)
        .env("XEBEC_DEB_COMPRESSION", "none")
        .env("XEBEC_BIN", world.binary());
    let said = run(&mut command)?;
    let line = said.lines().last().context("no package")?;
    Ok(PathBuf::from(line))
}

/// A Debian system in a folder of the case.
pub(super) fn unpack_debian(world: &World) -> Result<PathBuf> {
    let bundle = world.path("debian");
    let layout = format!("{}:latest", World::built_image("debian")?.display());
    run(Command::new("umoci")
        .args(["unpack", "--image", &layout])
        .arg(&bundle))?;
    Ok(bundle.join("rootfs"))
}

/// Runs a command in that system and gives what it said.
pub(super) fn inside(root: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", IN_ROOT])
        .arg(root)
        .args(words);
    run(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The package is the same each time, and a Debian system takes it, runs the program, and is rid of it again.
fn debian(world: &World) -> Result<Outcome> {
    let package = build_package(world, "once")?;
    for (name, mask) in MASKS {
        umask(Mode::from_raw_mode(mask));
        let again = build_package(world, name);
        umask(Mode::from_raw_mode(0o022));
        ensure!(
            fs::read(&package)? == fs::read(&again?)?,
            "with the mask {mask:03o} another package is made"
        );
    }
    for line in run(Command::new("dpkg-deb").arg("-c").arg(&package))?.lines() {
        // As `ls -l` says it: mode, owner, ... name.
        let is_usual = [
            "drwxr-xr-x root/root ",
            "-rw-r--r-- root/root ",
            "lrwxrwxrwx root/root ",
        ];
        let is_program = line.starts_with("-rwxr-xr-x root/root ") && line.ends_with(" ./usr/bin/xebec");
        ensure!(
            is_program || is_usual.iter().any(|usual| line.starts_with(usual)),
            "in the package: {line}"
        );
    }

    let root = unpack_debian(world)?;
    fs::copy(&package, root.join("xebec.deb"))?;
    let inside = |words: &[&str]| inside(&root, words);
    // The packages that it depends on are not tested here.
    inside(&["dpkg", "--force-depends", "-i", "/xebec.deb"])?;
    ensure!(inside(&["xebec", "--version"])?.starts_with("xebec "));
    let verified = inside(&["dpkg", "--verify", "xebec"])?;
    ensure!(
        verified.lines().all(|line| line.contains("/usr/share/")),
        "changed by installing: {verified}"
    );
    let listed = inside(&["dpkg", "-L", "xebec"])?;
    for path in [
        "/lib/systemd/system/xebec.service",
        "/usr/share/man/man1/xebec-run.1.gz",
    ] {
        ensure!(
            listed.lines().any(|line| line == path),
            "{path} is missing: {listed}"
        );
    }
    // Nothing that a person installs over it is written twice.
    let plan = inside(&["xebec", "install", "--dry-run", "--json"])?;
    ensure!(!plan.contains("/etc/systemd/system"), "{plan}");
    ensure!(plan.contains("/etc/containerd/config.toml"), "{plan}");

    let systemctl = Systemctl::put(&root)?;
    let install = ["xebec", "install", "--restart-containerd"];
    // A service that does not start is not forgotten.
    systemctl.fails(true)?;
    ensure!(inside(&install).is_err(), "a failing systemctl was not told");
    systemctl.fails(false)?;
    let said = inside(&install)?;
    let ran = systemctl.ran()?;
    for words in [
        "enable --now xebec.socket xebec.service",
        "restart containerd.service",
    ] {
        ensure!(ran.contains(words), "{words} is not among {ran:?}; {said}");
    }
    ensure!(inside(&install)?.contains("nothing to change"));
    ensure!(systemctl.ran()?.is_empty(), "commands ran again for nothing");
    // The owner's choice outlives an upgrade, and the program that runs gives way to the new one. Only what the version before did
    // not have is enabled, once: a version that wrote no list of what it enabled had two of the units.
    let upgrade = ["dpkg", "-i", "--force-depends", "/xebec.deb"];
    for new in [
        &[
            "enable xebec-containers.service",
            "start xebec-containers.service",
        ][..],
        &[],
    ] {
        inside(&upgrade)?;
        let ran = systemctl.ran()?;
        let enabled = ran.lines();
        let enabled: Vec<&str> = enabled
            .filter(|line| line.starts_with("enable") || line.starts_with("start"))
            .collect();
        ensure!(ran.contains("reload xebec.service") && enabled == new, "{ran:?}");
    }
    // A user who removes the package and installs it again still has all of them.
    inside(&["dpkg", "--remove", "xebec"])?;
    ensure!(systemctl.ran()?.contains("disable xebec.socket xebec.service"));
    inside(&upgrade)?;
    let ran = systemctl.ran()?;
    for unit in ["xebec.socket", "xebec.service", "xebec-containers.service"] {
        ensure!(ran.contains(&format!("enable {unit}")), "{ran:?}");
    }

    let state = root.join("var/lib/xebec/containers");
    fs::create_dir_all(&state)?;
    inside(&["dpkg", "--purge", "xebec"])?;
    ensure!(systemctl.ran()?.contains("disable xebec.socket xebec.service"));
    let config = fs::read_to_string(root.join("etc/containerd/config.toml")).unwrap_or_default();
    ensure!(
        !config.contains("xebec"),
        "containerd is still told of it: {config}"
    );
    ensure!(!root.join("usr/bin/xebec").exists(), "the program is still there");
    ensure!(state.is_dir(), "the state directory went with the package");
    Ok(Outcome::Passed(format!(
        "{} bytes",
        fs::metadata(&package)?.len()
    )))
}

/// A service manager that only notes what it is asked.
pub(super) struct Systemctl {
    folder: PathBuf,
}

impl Systemctl {
    pub(super) fn put(root: &Path) -> Result<Self> {
        let folder = root.join("run/systemd/system");
        fs::create_dir_all(&folder)?;
        let program = root.join("usr/bin/systemctl");
        let script = "#!/bin/sh\necho \"$*\" >>/run/systemd/system/ran\n! [ -e /run/systemd/system/fails ]\n";
        // An existing file may be a link to a program of another name.
        let _ = fs::remove_file(&program);
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self { folder })
    }

    fn fails(&self, does: bool) -> Result<()> {
        let file = self.folder.join("fails");
        match does {
            true => fs::write(file, "")?,
            false => fs::remove_file(file)?,
        }
        Ok(())
    }

    /// The commands that it got since this was last called.
    pub(super) fn ran(&self) -> Result<String> {
        let file = self.folder.join("ran");
        let text = fs::read_to_string(&file).unwrap_or_default();
        fs::write(file, "")?;
        Ok(text)
    }
}

/// Objects that are applied to a cluster have only fields that there are, and installing does not end.
fn kubernetes(world: &World) -> Result<Outcome> {
    for name in ["install", "uninstall"] {
        let folder = top().join("packaging/kubernetes").join(name);
        let text = run(Command::new("kustomize").arg("build").arg(folder))?;
        ensure!(
            text.contains("kind: DaemonSet") && text.contains("--stay"),
            "{text}"
        );
        ensure!(text.contains("--uninstall") == (name == "uninstall"), "{text}");
        validate(world, name, &text).with_context(|| format!("{name} is not valid"))?;
        // The validator can tell.
        let wrong = text.replace("hostPID: true", "hostPid: true");
        ensure!(
            validate(world, "wrong", &wrong).is_err(),
            "a wrong field was not seen"
        );
    }
    Ok(Outcome::Passed(String::new()))
}

pub(super) fn validate(world: &World, name: &str, text: &str) -> Result<String> {
    let file = world.path(&format!("{name}.yaml"));
    fs::write(&file, text)?;
    run(Command::new("kubernetes-validate").arg("--strict").arg(file))
}

/// With `--stay` it ends when it is told, not before.
fn stays(world: &World) -> Result<Outcome> {
    let host = world.path("host");
    fs::create_dir(&host)?;
    let log = world.path("stays.log");
    let mut child = Command::new(world.binary())
        .args(["install", "--stay", "--sysroot"])
        .arg(&host)
        .stdout(fs::File::create(&log)?)
        .stderr(Stdio::null())
        .spawn()?;
    let is_done = || Ok(fs::read_to_string(&log)?.contains("note: "));
    wait_until(Duration::from_secs(60), "it is installed", is_done)?;
    ensure!(host.join("usr/local/bin/xebec").exists());
    ensure!(child.try_wait()?.is_none(), "it did not stay");
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process id")?;
    kill_process(pid, Signal::TERM)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    Ok(Outcome::Passed(String::new()))
}

/// Installed files are for everybody to read and for root to change, whatever mask the installer has, and the root directory is closed:
/// by hand, and as the DaemonSet does it. So are the files of the programs that the installer calls.
fn modes(world: &World) -> Result<Outcome> {
    let mut listings = Vec::new();
    for (name, mask) in MASKS {
        let host = world.path(name);
        fs::create_dir(&host)?;
        fs::set_permissions(&host, fs::Permissions::from_mode(0o755))?;
        let mut command = Command::new(world.binary());
        command.args(["install", "--docker", "--sysroot"]).arg(&host);
        umask(Mode::from_raw_mode(mask));
        let installed = run(&mut command);
        umask(Mode::from_raw_mode(0o022));
        installed?;
        let listed = run(Command::new("find").current_dir(&host).args([
            ".",
            "-mindepth",
            "1",
            "-not",
            "-type",
            "l",
            "-printf",
            "%m %u %p\n",
        ]))?;
        for line in listed.lines() {
            let (mode, path) = line
                .split_once(" root ")
                .with_context(|| format!("not root's: {line}"))?;
            let is_own = path.starts_with("./var/lib/xebec");
            let file = fs::metadata(host.join(path))?;
            let wanted = match (file.is_dir(), is_own) {
                (true, true) => "700",
                (false, true) => "600",
                (false, false) if !path.ends_with("/bin/xebec") => "644",
                (_, false) => "755",
            };
            ensure!(
                mode == wanted,
                "with the mask {mask:03o}: {line}, and not {wanted}"
            );
        }
        for path in [
            "etc/containerd/config.toml",
            "usr/local/bin/xebec",
            "var/lib/xebec/installed.json",
        ] {
            ensure!(host.join(path).exists(), "{path} is not among {listed}");
        }
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        listings.push(lines);
    }
    ensure!(listings[0] == listings[1], "{listings:#?}");
    Ok(Outcome::Passed(format!("{} paths", listings[0].len())))
}

/// containerd itself reads what was set, in the configuration that it prints, and the file is as before afterwards.
fn containerd_reads_it(world: &World) -> Result<Outcome> {
    for (program, images) in [
        ("containerd", "io.containerd.cri.v1.images"),
        ("containerd-1.7/containerd", "io.containerd.grpc.v1.cri"),
    ] {
        let program = World::tool(program)?;
        let before = run(Command::new(&program).args(["config", "default"]))?;
        let host = world.path(images);
        let file = host.join("etc/containerd/config.toml");
        fs::create_dir_all(file.parent().context("no folder")?)?;
        fs::write(&file, &before)?;
        let install = |more: &[&str]| -> Result<String> {
            let mut command = Command::new(world.binary());
            run(command.args(["install", "--sysroot"]).arg(&host).args(more))
        };
        install(&[])?;
        let dumped = run(Command::new(&program)
            .arg("--config")
            .arg(&file)
            .args(["config", "dump"]))?;
        let dumped: toml::Table = toml::from_str(&dumped)?;
        let found = |path: &[&str]| -> Result<toml::Value> {
            let mut value = toml::Value::Table(dumped.clone());
            for name in path {
                value = value.get(name).with_context(|| format!("no {path:?}"))?.clone();
            }
            Ok(value)
        };
        let mut cri = vec!["plugins", images];
        if images.contains("grpc") {
            cri.push("containerd");
        }
        let of_cri = |name| found(&[cri.as_slice(), &[name]].concat());
        ensure!(of_cri("snapshotter")?.as_str() == Some("xebec"));
        ensure!(of_cri("disable_snapshot_annotations")?.as_bool() == Some(false));
        ensure!(found(&["proxy_plugins", "xebec", "type"])?.as_str() == Some("snapshot"));
        let exports = found(&["proxy_plugins", "xebec", "exports"]);
        if images.contains("v1.images") {
            let told = exports?.get("enable_remote_snapshot_annotations").cloned();
            ensure!(told.as_ref().and_then(toml::Value::as_str) == Some("true"));
            let capabilities = found(&["proxy_plugins", "xebec", "capabilities"])?;
            ensure!(capabilities.to_string() == "[\"remap-ids\"]", "{capabilities}");
            let unpack = found(&["plugins", "io.containerd.transfer.v1.local", "unpack_config"])?;
            let unpack = unpack.to_string();
            ensure!(
                unpack.contains("xebec") && unpack.contains("overlayfs"),
                "{unpack}"
            );
        }
        ensure!(install(&[])?.contains("nothing to change"));
        install(&["--uninstall"])?;
        ensure!(fs::read_to_string(&file)? == before, "the file is not as it was");
    }
    Ok(Outcome::Passed(String::new()))
}
