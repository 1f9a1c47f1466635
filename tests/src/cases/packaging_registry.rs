//! Packages and manifests of `xebec-registry`, by the tools that will read them.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process, umask};
use serde_json::{Value, json};

use super::packaging::{Systemctl, inside, run, top, unpack_debian, validate};
use crate::browser::text;
use crate::lab::wait_until;
use crate::registry::OwnRegistry;
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// The unit that the package's scripts name to systemd, which is not there in these cases.
const UNIT: &str = "xebec-registry.service";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("packaging-registry/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("debian", debian),
        case("container", container),
        case("unit", unit),
        case("kubernetes", kubernetes),
    ]
}

/// Makes a package, `registry-deb` or `registry-container`, in a folder of its own.
fn build_package(world: &World, kind: &str, program: &Path, name: &str) -> Result<PathBuf> {
    let mut command = Command::new(top().join("scripts/package.sh"));
    command
        .arg(kind)
        .env("XEBEC_OUT", world.path(name))
        .env("XEBEC_DEB_COMPRESSION", "none")
        .env("XEBEC_REGISTRY_BIN", program);
    let said = run(&mut command)?;
    Ok(PathBuf::from(said.lines().last().context("no package")?))
}

/// The package is the same each time. A Debian system takes it, its user runs the registry as the package configures it, and it goes
/// again without what was pushed.
fn debian(world: &World) -> Result<Outcome> {
    let Some(program) = OwnRegistry::program() else {
        return Ok(skipped());
    };
    let package = build_package(world, "registry-deb", &program, "once")?;
    // That no mask changes it is tried with the other package, by the same script.
    umask(Mode::from_raw_mode(0o077));
    let again = build_package(world, "registry-deb", &program, "again");
    umask(Mode::from_raw_mode(0o022));
    ensure!(
        fs::read(&package)? == fs::read(&again?)?,
        "with another mask another package is made"
    );
    let root = unpack_debian(world)?;
    fs::copy(&package, root.join("registry.deb"))?;
    let systemctl = Systemctl::put(&root)?;
    // The packages that it depends on are not tested here.
    let install = ["dpkg", "--force-depends", "-i", "/registry.deb"];
    inside(&root, &install)?;
    ensure!(systemctl.ran()?.contains(&format!("enable --now {UNIT}")));
    let verified = inside(&root, &["dpkg", "--verify", "xebec-registry"])?;
    ensure!(
        verified.lines().all(|line| line.contains("/usr/share/")),
        "changed by installing: {verified}"
    );
    for path in [
        "lib/systemd/system/xebec-registry.service",
        "usr/share/man/man1/xebec-registry-serve.1.gz",
        "usr/share/bash-completion/completions/xebec-registry",
        "usr/share/doc/xebec-registry/examples/grafana-dashboard.json",
    ] {
        ensure!(root.join(path).is_file(), "{path} is missing");
    }
    serves(&root)?;
    // An upgrade restarts what runs, and enables nothing that its owner has disabled. Their configuration stays.
    let configuration = root.join("etc/xebec-registry/registry.toml");
    let theirs = fs::read_to_string(&configuration)? + "# theirs\n";
    fs::write(&configuration, &theirs)?;
    inside(&root, &install)?;
    let ran = systemctl.ran()?;
    ensure!(
        ran.contains(&format!("try-restart {UNIT}")) && !ran.contains("enable"),
        "{ran}"
    );
    ensure!(fs::read_to_string(&configuration)? == theirs);
    inside(&root, &["dpkg", "--purge", "xebec-registry"])?;
    ensure!(systemctl.ran()?.contains(&format!("disable --now {UNIT}")));
    ensure!(!root.join("usr/bin/xebec-registry").exists() && !configuration.exists());
    let data = root.join("var/lib/xebec-registry");
    ensure!(
        data.read_dir()?.next().is_some(),
        "what was pushed went with the package"
    );
    Ok(Outcome::Passed(format!(
        "{} bytes",
        fs::metadata(&package)?.len()
    )))
}

/// The program serves as the package's user, with the configuration of the package and a directory as systemd makes it.
fn serves(root: &Path) -> Result<()> {
    let user = [
        "setpriv",
        "--reuid",
        "xebec-registry",
        "--regid",
        "xebec-registry",
        "--clear-groups",
    ];
    let as_user = |words: &[&str]| inside(root, &[&user, words].concat());
    let owner = "xebec-registry";
    inside(
        root,
        &[
            "install",
            "-d",
            "-m",
            "700",
            "-o",
            owner,
            "-g",
            owner,
            "/var/lib/xebec-registry",
        ],
    )?;
    let configuration = "/etc/xebec-registry/registry.toml";
    as_user(&["xebec-registry", "check-config", configuration])?;
    let ready = as_user(&[
        "sh",
        "-c",
        "xebec-registry serve --config /etc/xebec-registry/registry.toml --listen 127.0.0.1:0 2>/tmp/log & \
         for i in $(seq 200); do grep -q 'serving at' /tmp/log && break; sleep 0.1; done; \
         kill -TERM $!; wait $! && cat /tmp/log",
    ])?;
    ensure!(ready.contains("serving at http://127.0.0.1:"), "{ready}");
    Ok(())
}

/// The image has the program and a user without rights, who runs it on a directory of its own, and it answers.
fn container(world: &World) -> Result<Outcome> {
    let Some(program) = OwnRegistry::program() else {
        return Ok(skipped());
    };
    if !is_static(&program)? {
        let reason =
            "the program needs libraries, which the image has not: scripts/test.sh links one that needs none";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let archive = build_package(world, "registry-container", &program, "out")?;
    let bundle = world.path("image");
    let layout = format!("oci:{}:made", world.path("layout").display());
    run(Command::new("skopeo")
        .args(["copy", "--quiet"])
        .arg(format!("oci-archive:{}", archive.display()))
        .arg(&layout))?;
    let config: Value = serde_json::from_str(&run(
        Command::new("skopeo").args(["inspect", "--config", &layout])
    )?)?;
    let config = &config["config"];
    ensure!(
        config["User"] == "65532:65532"
            && config["Entrypoint"] == json!(["/xebec-registry"])
            && config["Cmd"] == json!(["serve"])
            && config["ExposedPorts"]["5000/tcp"].is_object()
            && config["Volumes"]["/var/lib/xebec-registry"].is_object(),
        "{config}"
    );
    run(Command::new("umoci")
        .args(["unpack", "--image", layout.trim_start_matches("oci:")])
        .arg(&bundle))?;
    // As an engine does it: the image's variables, its user, and a volume that is the user's.
    let root = bundle.join("rootfs");
    let mut command = Command::new("chroot");
    command
        .args(["--userspec=65532:65532", "--groups="])
        .arg(&root)
        .args(["/xebec-registry", "serve"])
        .env_clear();
    for variable in config["Env"].as_array().context("no variables")? {
        let (name, value) = text(variable).split_once('=').context("no variable")?;
        command.env(name, value);
    }
    let mut process = command.stderr(fs::File::create(world.path("said"))?).spawn()?;
    let answers = || {
        let asked = Command::new("curl")
            .args(["-sf", "http://127.0.0.1:5000/readyz"])
            .output()?;
        Ok(asked.status.success())
    };
    let ready = wait_until(
        Duration::from_secs(30),
        "the registry of the image answers",
        answers,
    );
    kill_process(Pid::from_child(&process), Signal::TERM)?;
    let status = process.wait()?;
    ready.with_context(|| fs::read_to_string(world.path("said")).unwrap_or_default())?;
    ensure!(status.success(), "{status}");
    Ok(Outcome::Passed(format!(
        "{} bytes",
        fs::metadata(&archive)?.len()
    )))
}

/// Whether a program names no loader of libraries, which it would do in the beginning of its file.
fn is_static(program: &Path) -> Result<bool> {
    let mut beginning = Vec::new();
    fs::File::open(program)?.take(4096).read_to_end(&mut beginning)?;
    let loader = b"/ld-linux";
    Ok(!beginning.windows(loader.len()).any(|part| part == loader))
}

fn skipped() -> Outcome {
    let reason = "XEBEC_REGISTRY_BIN names no program; scripts/e2e.sh builds one where it is not set";
    Outcome::Skipped(reason.to_owned())
}

/// systemd reads the unit without complaint, and counts it among those that are confined.
fn unit(world: &World) -> Result<Outcome> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return Ok(Outcome::Skipped("systemd-analyze is not installed".to_owned()));
    }
    // systemd looks whether programs and other units are there. In this root directory they are.
    let root = world.path("root");
    for folder in ["usr/bin", "bin", "etc/systemd/system"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for program in ["usr/bin/xebec-registry", "bin/kill"] {
        fs::copy("/bin/true", root.join(program))?;
    }
    let file = top().join("packaging/systemd").join(UNIT);
    fs::copy(&file, root.join("etc/systemd/system").join(UNIT))?;
    for target in ["sysinit", "basic", "shutdown", "network-online", "local-fs"] {
        let unit = root.join(format!("etc/systemd/system/{target}.target"));
        fs::write(unit, "[Unit]\n")?;
    }
    let verify = |name: &str| -> Result<String> {
        let mut command = Command::new("systemd-analyze");
        command
            .args(["verify", "--man=no", "--root"])
            .arg(&root)
            .arg(name);
        let output = command.output().context("cannot start systemd-analyze")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let said = verify(UNIT)?;
    ensure!(said.is_empty(), "{said}");
    // It can tell.
    let wrong = fs::read_to_string(&file)?.replace("ProtectHome=yes", "ProtectHomes=yes");
    fs::write(root.join("etc/systemd/system").join(UNIT), wrong)?;
    ensure!(!verify(UNIT)?.is_empty(), "a wrong key was not seen");
    let mut command = Command::new("systemd-analyze");
    command
        .args(["security", "--offline=true", "--threshold=20"])
        .arg(&file);
    let told = run(&mut command).context("the unit is exposed to more than 2.0 of 10")?;
    let last = told.lines().rev().find(|line| line.contains("exposure"));
    Ok(Outcome::Passed(last.unwrap_or_default().to_owned()))
}

/// Objects that are applied to a cluster have only fields that there are. Their configurations are read by a test of the registry's own.
fn kubernetes(world: &World) -> Result<Outcome> {
    for (name, kind) in [("registry", "StatefulSet"), ("registry-nodes", "Deployment")] {
        let folder = top().join("packaging/kubernetes").join(name);
        let text = run(Command::new("kustomize").arg("build").arg(folder))?;
        for part in [
            format!("kind: {kind}").as_str(),
            "kind: Service",
            "kind: ConfigMap",
            "path: /readyz",
            "readOnlyRootFilesystem: true",
            "runAsNonRoot: true",
        ] {
            ensure!(text.contains(part), "{name}: no {part} in {text}");
        }
        validate(world, name, &text).with_context(|| format!("{name} is not valid"))?;
        // The validator can tell.
        let wrong = text.replace("runAsNonRoot: true", "runAsNonroot: true");
        ensure!(
            validate(world, "wrong", &wrong).is_err(),
            "a wrong field was not seen"
        );
    }
    Ok(Outcome::Passed("two, by the schemas".to_owned()))
}
