//! Xebec is installed on a node and removed from it under running pods, by `xebec install` in both directions. Complete images go on
//! without it, the others are named and go on as long as the daemon does, and new pods start from overlayfs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::support::{bare, exec};
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::push_indexed;
use crate::cases::containerd::support::{PORT, SOON};
use crate::containerd::{Containerd, Line, Snapshots, http, listens};
use crate::kubelet::Kubelet;
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::{World, run, run_failing};

/// Where the program is put.
const PROGRAM: &str = "/usr/local/bin/xebec";
/// Where its units are.
const UNITS: &str = "/etc/systemd/system";
/// A stand-in for the program of the service manager: it notes what it is asked.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >> \"$(dirname \"$0\")/ran\"\n";

/// How long what is left of a pod may stay: the kubelet removes that once a minute, first containers, then their sandboxes.
const COLLECTED: Duration = Duration::from_secs(130);

/// This machine, as far as an installation changes it, in the case's own mounts.
struct Host<'a> {
    world: &'a World,
    tools: PathBuf,
    configuration: PathBuf,
    before: String,
}

impl<'a> Host<'a> {
    fn new(world: &'a World, containerd: &Containerd<'_>) -> Result<Self> {
        for (number, place) in ["/etc", "/usr/local"].into_iter().enumerate() {
            let directory = |name: &str| world.path(&format!("{name}-{number}"));
            let (upper, work) = (directory("upper"), directory("work"));
            fs::create_dir(&upper)?;
            fs::create_dir(&work)?;
            let options = format!(
                "lowerdir={place},upperdir={},workdir={}",
                upper.display(),
                work.display()
            );
            run(Command::new("mount").args(["-t", "overlay", "-o", &options, "host", place]))?;
        }
        let tools = world.path("tools");
        fs::create_dir(&tools)?;
        let systemctl = tools.join("systemctl");
        fs::write(&systemctl, SYSTEMCTL)?;
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755))?;
        let configuration = containerd.configuration();
        Ok(Self {
            world,
            tools,
            before: fs::read_to_string(&configuration)?,
            configuration,
        })
    }

    /// A command of Xebec by a program, which finds this host's service manager.
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .args(words)
            .env("XEBEC_ROOT", self.world.path("root"))
            .env("XEBEC_RUN", self.world.path("root-run"))
            .env("PATH", format!("{}:{path}", self.tools.display()))
            .stdin(Stdio::null());
        command
    }

    /// Runs `xebec install` where a service manager runs; gives what it printed, and what the manager was asked.
    fn runs(&self, program: &Path, words: &[&str]) -> Result<(String, String)> {
        let runs = Path::new("/run/systemd/system");
        fs::create_dir_all(runs)?;
        let file = self.configuration.to_string_lossy();
        let words = [&["install", "--containerd", &*file][..], words].concat();
        let output = run(&mut self.command(program, &words));
        // A kubelet and a runc that found one would talk to it.
        fs::remove_dir(runs)?;
        let asked = self.tools.join("ran");
        let said = String::from_utf8_lossy(&output?.stdout).into_owned();
        let told = (said, fs::read_to_string(&asked).unwrap_or_default());
        fs::write(asked, "")?;
        Ok(told)
    }

    fn install(&self) -> Result<()> {
        let (_, asked) = self.runs(self.world.binary(), &["--restart-containerd"])?;
        for words in [
            "enable --now xebec.socket xebec.service",
            "restart containerd.service",
        ] {
            ensure!(asked.contains(words), "{words:?} is not among {asked:?}");
        }
        ensure!(self.units() == 3 && Path::new(PROGRAM).exists());
        Ok(())
    }

    /// Takes it back, and gives what that said. containerd's configuration is as before, and nothing starts any more.
    fn uninstall(&self, program: &Path) -> Result<String> {
        let had = self.units();
        let (said, asked) = self.runs(program, &["--uninstall"])?;
        let is_disabled = asked.contains("disable --now xebec-containers.service xebec.service xebec.socket");
        ensure!(is_disabled == (had > 0), "{asked:?}");
        ensure!(self.units() == 0, "{} units are left", self.units());
        let now = fs::read_to_string(&self.configuration)?;
        ensure!(now == self.before, "containerd's configuration is {now}");
        Ok(said)
    }

    fn units(&self) -> usize {
        let entries = fs::read_dir(UNITS).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("xebec")).count()
    }
}

/// A container that waits.
fn waits(image: &str, policy: &str) -> Value {
    json!({"containers": [{"name": "waits", "image": image, "imagePullPolicy": policy, "command": ["sleep", "1d"]}]})
}

/// Why a pod's container does not run.
fn why(kubelet: &Kubelet<'_>, name: &str) -> Result<String> {
    let status = kubelet.status(name)?.unwrap_or_default();
    Ok(status["containerStatuses"][0]["state"]["waiting"].to_string())
}

/// Asks that a pod's container has its files from containerd's own snapshotter.
fn is_of_overlayfs(world: &World, containerd: &Containerd<'_>, id: &str) -> Result<()> {
    let place = containerd.root_in(cri::NAMESPACE, bare(id));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let place = format!(" {} ", place.display());
    let line = mounts.lines().find(|line| line.contains(&place));
    let line = line.with_context(|| format!("{place} is not mounted"))?;
    ensure!(
        line.contains("snapshotter.v1.overlayfs") && !line.contains(&*world.path("root").to_string_lossy()),
        "{line}"
    );
    Ok(())
}

/// The pods that run when Xebec is removed: their names, images, and containers.
struct Pods {
    part: String,
    whole: String,
    begun: Vec<(&'static str, Vec<(String, u64)>)>,
}

impl Pods {
    /// Starts one of an image that is complete here then, and one of an image that is not.
    fn start(world: &World, kubelet: &Kubelet<'_>) -> Result<Self> {
        let (part, whole) = (push_indexed(world, "nginx")?, push_indexed(world, "redis")?);
        let probe = json!({"httpGet": {"host": "127.0.0.1", "path": "/", "port": PORT}, "periodSeconds": 1});
        let web = json!({"containers": [{"name": "web", "image": part, "livenessProbe": probe, "readinessProbe": probe}]});
        let store = json!({"containers": [{"name": "store", "image": whole}]});
        let mut begun = Vec::new();
        for (name, pod) in [("part", web), ("whole", store)] {
            kubelet.add(name, &pod)?;
            begun.push((name, kubelet.is_ready(name)?));
        }
        run(&mut world.xebec(&["pull", "--complete", &whole]))?;
        Ok(Self { part, whole, begun })
    }

    fn container(&self, number: usize) -> Result<&str> {
        let pod = self.begun.get(number).context("no such pod")?;
        Ok(&pod.1.first().context("no container")?.0)
    }

    /// Both run on, and what is missing of the one comes.
    fn go_on(&self, kubelet: &Kubelet<'_>, containerd: &Containerd<'_>) -> Result<()> {
        for (name, begun) in &self.begun {
            let now = kubelet.is_ready(name)?;
            ensure!(*begun == now, "{begun:?} became {now:?}");
        }
        ensure!(http(PORT).is_some(), "nginx does not answer");
        let said = exec(containerd, self.container(0)?, "perl -e 'print 6 * 7'")?;
        ensure!(said == "42", "{said}");
        let said = exec(
            containerd,
            self.container(1)?,
            "redis-cli ping && cat /usr/bin/* > /dev/null",
        )?;
        ensure!(said.contains("PONG"), "{said}");
        Ok(())
    }
}

/// New pods start without Xebec where their image is pulled; one that is only believed to be present is told what is missing, and
/// starts when it is pulled again.
fn start_from_overlayfs(
    world: &World,
    kubelet: &Kubelet<'_>,
    containerd: &Containerd<'_>,
    pods: &Pods,
) -> Result<()> {
    let runs = |name: &str| -> Result<()> {
        let begun = kubelet.is_ready(name)?;
        let (id, _) = begun.first().context("no container")?;
        is_of_overlayfs(world, containerd, id).with_context(|| name.to_owned())
    };
    kubelet.add("after", &waits(&pods.part, "Always"))?;
    kubelet.add("present", &waits(&pods.whole, "IfNotPresent"))?;
    runs("after")?;
    let is_said = || {
        let why = why(kubelet, "present")?;
        Ok(why.contains("content digest") && why.contains("not found"))
    };
    wait_until(SOON, "the kubelet says which layer is missing", is_said)
        .with_context(|| format!("{:?}", why(kubelet, "present")))?;
    containerd.tool("cri", &["rmi", &pods.whole])?;
    runs("present")
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let pause = cri::push_pause(world)?;
    let more = cri::on_this_host(world, Line::Two, &pause)?;
    let more = format!("version = {}\n{more}", Line::Two.version());
    let mut containerd = Containerd::start_with(world, Line::Two, &more)?;
    let host = Host::new(world, &containerd)?;
    host.install()?;
    // The service manager would do this.
    let snapshots = Snapshots::start_as_installed(world)?;
    containerd.kill()?;
    containerd.wake()?;
    containerd.tool("cri", &["pull", &pause])?;
    let more = json!({"imageServiceEndpoint": format!("unix://{}", listens(world).display())});
    let kubelet = Kubelet::start(world, &snapshots, &more)?;
    let pods = Pods::start(world, &kubelet)?;

    let said = host.uninstall(world.binary())?;
    let line = said.lines().find(|line| line.contains("not complete here"));
    let line = line.with_context(|| format!("not said what is not complete: {said}"))?;
    ensure!(line.contains(&pods.part) && !line.contains(&pods.whole), "{line}");
    snapshots.leave()?;
    containerd.kill()?;
    containerd.wake()?;
    pods.go_on(&kubelet, &containerd).context("after the removal")?;
    start_from_overlayfs(world, &kubelet, &containerd, &pods)?;
    // A program that is in use stays, and the message says which command ends it.
    let program = Path::new(PROGRAM);
    let refused = run_failing(&mut host.command(program, &["daemon", "stop"]))?;
    ensure!(refused.contains("views are mounted"), "{refused}");
    ensure!(
        host.uninstall(program)?.contains("daemon stop"),
        "the program went"
    );
    pods.go_on(&kubelet, &containerd).context("after a refusal")?;

    // containerd removes nothing of a snapshotter that it does not know: installed again, it does.
    host.install()?;
    run(&mut world.xebec(&["daemon", "upgrade"]))?;
    containerd.kill()?;
    containerd.wake()?;
    for name in ["part", "whole"] {
        kubelet.remove(name)?;
    }
    wait_until(
        COLLECTED,
        "containerd has removed what was on lazy images",
        || {
            let listed = containerd.does(&["--namespace", cri::NAMESPACE, "snapshots", "ls"])?;
            Ok(!listed.contains("Active"))
        },
    )
    .with_context(|| containerd.last_words())?;
    host.uninstall(program)?;
    run(&mut host.command(program, &["daemon", "stop"]))?;
    host.uninstall(program)?;
    ensure!(!program.exists(), "{PROGRAM} is left");
    Ok(Outcome::Passed(
        "two pods went on without Xebec's installation, two others started from overlayfs; then it was gone"
            .to_owned(),
    ))
}
