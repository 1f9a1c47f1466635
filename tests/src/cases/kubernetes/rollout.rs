//! The DaemonSet of `packaging/kubernetes` as its controller rolls it out: it installs Xebec on the node, then another version of
//! it, and takes it back, and a pod that reads a lazy image all the time does not notice.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::cluster::{blobs, exec, network};
use crate::cases::containerd::cri;
use crate::cases::containerd::lazy::{index, push_indexed, without_layers};
use crate::cases::containerd::support::SOON;
use crate::containerd::{Containerd, Line, listens};
use crate::control_plane::ControlPlane;
use crate::kubelet::Kubelet;
use crate::lab::wait_until;
use crate::node::Node;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Where the DaemonSet is.
const SET: &str = "/apis/apps/v1/namespaces/xebec-system/daemonsets/xebec";
const NAMESPACE: &str = "/api/v1/namespaces/xebec-system";
/// Where it installs the program.
const PROGRAM: &str = "/usr/local/bin/xebec";
/// Reads files one by one, says how many, and which it could not.
const READS: &str = "find /usr/lib /usr/share -xdev -type f -readable > /tmp/list; while read -r file; do \
    cat \"$file\" > /dev/null || echo \"$file\" >> /tmp/failed; echo >> /tmp/read; sleep 0.02; done < /tmp/list; exec sleep 1d";
/// How often the service manager looks whether it is asked something.
const LOOK: Duration = Duration::from_millis(20);

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let mut plane = ControlPlane::begin(world)?;
    let (first, second) = push_installers(world)?;
    let web = push_indexed(world, "nginx")?;
    let pause = cri::push_pause(world)?;
    let manifests = world.path("kubernetes");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes");
    run(Command::new("cp").arg("-r").args([&from, &manifests]))?;

    let node = Node::enter(world)?;
    // Files for the installer are where it looks for them, and files that pods leave are not on the overlay.
    for (there, usual) in [("c", "/etc/containerd"), ("state", "/var/lib/xebec")] {
        let there = world.path(there);
        fs::create_dir_all(&there)?;
        fs::create_dir_all(usual)?;
        run(Command::new("mount")
            .arg("--bind")
            .args([&there, Path::new(usual)]))?;
    }
    symlink(World::tool("containerd")?, "/usr/local/bin/containerd")?;
    let settings = cri::on_this_host(world, Line::Two, &pause)? + &network(world)?;
    let settings = format!("version = {}\n{settings}", Line::Two.version());
    let containerd = Mutex::new(Containerd::start_with(world, Line::Two, &settings)?);
    node.boot()?;
    let before = fs::read("/etc/containerd/config.toml")?;
    plane.is_ready()?;
    let settings = json!({"nodeStatusUpdateFrequency": "1s"});
    let kubelet = Kubelet::start_on(world, &listens(world), &settings)?;
    run(Command::new("mount")
        .arg("--bind")
        .args([&world.path("state"), Path::new("/var/lib/xebec")]))?;
    plane.has_node("Ready", "True")?;

    let host = Host {
        world,
        node: &node,
        containerd: &containerd,
        plane: &plane,
        manifests,
        web,
        before,
    };
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let serves = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                node.serve(|| host.restart_containerd())?;
                std::thread::sleep(LOOK);
            }
            anyhow::Ok(())
        });
        let outcome = host.rolls(&first, &second);
        ended.store(true, Ordering::Relaxed);
        match serves.join() {
            Ok(served) => served.and(outcome),
            Err(_) => outcome,
        }
    });
    outcome.with_context(|| kubelet.last_words(&["xebec-system", "\"xebec"]))
}

/// All of the host that the roll-outs are about.
struct Host<'h, 'w> {
    world: &'w World,
    node: &'h Node<'w>,
    containerd: &'h Mutex<Containerd<'w>>,
    plane: &'h ControlPlane,
    manifests: PathBuf,
    /// The lazy image.
    web: String,
    /// containerd's configuration as it was.
    before: Vec<u8>,
}

impl Host<'_, '_> {
    fn rolls(&self, first: &str, second: &str) -> Result<Outcome> {
        self.node.fails(true);
        self.apply("install", Some(first))?;
        self.is_told()?;
        self.node.fails(false);
        self.is_rolled_out()?;
        let asked = self.node.asked();
        ensure!(
            asked.contains("enable --now xebec.socket xebec.service")
                && asked.contains("restart containerd.service"),
            "it is rolled out before it is installed: {asked}"
        );
        UnixStream::connect("/run/xebec/snapshots.sock").context("connect as containerd does")?;
        let installed = fs::read(PROGRAM)?;

        let spec =
            json!({"containers": [{"name": "reads", "image": self.web, "command": ["sh", "-c", READS]}]});
        let begun = without_layers(self.world, || {
            self.plane.add_pod("default", "reads", &spec)?;
            self.plane.is_ready_pod("default", "reads")
        })?;
        let reader = Reader { host: self, begun };
        let (keeper, worker) = self.processes()?;

        // The installer's own program is read lazily, by what it replaces.
        without_layers(self.world, || {
            self.apply("install", Some(second))?;
            self.is_rolled_out()
        })?;
        reader.goes_on("an upgrade", "/usr/bin/[a-k]*")?;
        let asked = self.node.asked();
        ensure!(asked.contains("reload xebec.service"), "{asked}");
        ensure!(!asked.contains("restart"), "an upgrade restarts: {asked}");
        let (keeper_now, worker_now) = self.processes()?;
        ensure!(keeper_now == keeper, "the keeper is another process");
        ensure!(worker_now != worker, "the worker is the same");
        ensure!(fs::read(PROGRAM)? != installed, "the program is the same");

        self.apply("uninstall", None)?;
        self.is_rolled_out()?;
        reader.goes_on("the removal", "/usr/bin/[l-z]*")?;
        ensure!(
            fs::read("/etc/containerd/config.toml")? == self.before,
            "containerd's configuration is not as it was"
        );
        for left in [
            "/etc/systemd/system/xebec.service",
            "/etc/systemd/system/xebec.socket",
        ] {
            ensure!(!Path::new(left).exists(), "{left} is left");
        }
        // Nothing else could end the daemon, which the pod needs.
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} went");
        for object in [SET, NAMESPACE] {
            self.plane.delete(object)?;
        }
        wait_until(SOON, "the namespace is gone", || {
            Ok(self.plane.get(NAMESPACE)?.is_none())
        })
        .with_context(|| format!("{:?}", self.plane.get(NAMESPACE)))?;
        let read = reader.read()?;
        self.plane.remove_pod("default", "reads")?;
        Ok(Outcome::Passed(format!(
            "{read} files were read meanwhile, and none failed"
        )))
    }

    /// Does the work of `kubectl apply -k`.
    fn apply(&self, name: &str, image: Option<&str>) -> Result<()> {
        if let Some(image) = image {
            let mut edit = Command::new("kustomize");
            edit.current_dir(self.manifests.join("install"));
            run(edit.args(["edit", "set", "image", &format!("xebec={image}")]))?;
        }
        let built = run(Command::new("kustomize")
            .arg("build")
            .arg(self.manifests.join(name)))?;
        let built = String::from_utf8_lossy(&built.stdout).into_owned();
        for object in built.split("\n---\n") {
            let path = match object.contains("kind: DaemonSet") {
                true => SET,
                false => NAMESPACE,
            };
            self.plane.apply(path, object)?;
        }
        Ok(())
    }

    /// Waits until the pod says why nothing could be installed, and is not said to be there.
    fn is_told(&self) -> Result<()> {
        let mut last = Value::Null;
        wait_until(SOON, "the pod says why", || {
            let pods = self.plane.get(&format!("{NAMESPACE}/pods"))?.unwrap_or_default();
            last = pods["items"][0]["status"].clone();
            let init = &last["initContainerStatuses"][0];
            let messages = ["state", "lastState"].map(|state| &init[state]["terminated"]["message"]);
            let mut messages = messages.iter().filter_map(|message| message.as_str());
            Ok(messages.any(|message| message.contains("systemctl") && message.contains("today")))
        })
        .with_context(|| last.to_string())?;
        let set = self.plane.get(SET)?.context("no DaemonSet")?;
        ensure!(set["status"]["numberReady"] == 0, "{}", set["status"]);
        Ok(())
    }

    /// The condition that `kubectl rollout status` waits for.
    fn is_rolled_out(&self) -> Result<()> {
        let mut last = Value::Null;
        wait_until(SOON, "it is rolled out", || {
            last = self.plane.get(SET)?.context("no DaemonSet")?;
            let status = &last["status"];
            Ok(status["observedGeneration"] == last["metadata"]["generation"]
                && [
                    "desiredNumberScheduled",
                    "updatedNumberScheduled",
                    "numberAvailable",
                ]
                .iter()
                .all(|count| status[count] == 1))
        })
        .with_context(|| last["status"].to_string())
    }

    fn processes(&self) -> Result<(u64, u64)> {
        let status: Value = serde_json::from_str(&self.node.xebec("daemon status --json")?)?;
        let pid = |name: &str| status[name].as_u64().with_context(|| format!("no {name}"));
        Ok((pid("keeper_pid")?, pid("worker_pid")?))
    }

    fn restart_containerd(&self) -> Result<()> {
        let mut containerd = self.containerd.lock();
        containerd.kill()?;
        containerd.wake()
    }

    fn exec(&self, id: &str, line: &str) -> Result<String> {
        let containerd = self.containerd.lock();
        exec(&containerd, id, line)
    }
}

/// The pod that reads.
struct Reader<'r, 'h, 'w> {
    host: &'r Host<'h, 'w>,
    begun: Vec<(String, u64)>,
}

impl Reader<'_, '_, '_> {
    fn id(&self) -> Result<&str> {
        let (id, _) = self.begun.first().context("no container")?;
        Ok(id)
    }

    /// How many files it has read. None may have failed.
    fn read(&self) -> Result<usize> {
        let told = self
            .host
            .exec(self.id()?, "cat /tmp/failed 2> /dev/null; wc -l < /tmp/read")?;
        told.trim()
            .parse()
            .with_context(|| format!("could not be read: {told}"))
    }

    /// The same container reads, also pages that are not here.
    fn goes_on(&self, after: &str, files: &str) -> Result<()> {
        let now = self.host.plane.is_ready_pod("default", "reads")?;
        ensure!(
            now == self.begun,
            "after {after}: {:?} became {now:?}",
            self.begun
        );
        let (there, before) = (self.read()?, blobs(self.host.world)?);
        self.host.exec(self.id()?, &format!("cat {files} > /dev/null"))?;
        ensure!(
            blobs(self.host.world)? > before,
            "after {after}: {files} were there already"
        );
        wait_until(SOON, "it reads more", || Ok(self.read()? > there))
            .with_context(|| format!("after {after}"))
    }
}

/// The image that is made for users, and the same with another program, which is read lazily.
fn push_installers(world: &World) -> Result<(String, String)> {
    let out = world.path("out");
    let mut package = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/package.sh"));
    package
        .arg("container")
        .env("XEBEC_OUT", &out)
        .env("XEBEC_BIN", world.binary());
    let said = run(&mut package)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let archive = said.lines().last().context("no image")?;
    let reference = |version: &str| format!("{}/xebec:{version}", world.registry);
    let (first, second) = (reference("first"), reference("second"));
    let mut copy = Command::new("skopeo");
    copy.args(["copy", "--quiet", "--dest-tls-verify=false"]);
    run(copy.args([format!("oci-archive:{archive}"), format!("docker://{first}")]))?;

    let next = world.path("next");
    run(Command::new("strip")
        .args(["--strip-debug", "-o"])
        .args([&next, world.binary()]))?;
    // Nobody reads what follows a program.
    let program = [fs::read(&next)?, b"the next version".to_vec()].concat();
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("xebec", Kind::File).mode(0o755), &program);
    let layer = world.path("next.tar");
    fs::write(&layer, tar.into_bytes())?;
    let layer = layer.to_string_lossy().into_owned();
    // On nothing: what is on a layer that was unpacked is not lazy.
    let append = [
        "append",
        "--oci-empty-base",
        "--new_layer",
        &layer,
        "--new_tag",
        &second,
    ];
    let platform = format!(
        "linux/{}",
        std::env::consts::ARCH
            .replace("x86_64", "amd64")
            .replace("aarch64", "arm64")
    );
    let mutate = [
        "mutate",
        "--entrypoint=/xebec",
        "--set-platform",
        &platform,
        "--tag",
        &second,
        &second,
    ];
    for words in [&append[..], &mutate[..]] {
        let mut crane = Command::new(World::tool("crane")?);
        run(crane.arg("--insecure").args(words))?;
    }
    index(world, &second)?;
    Ok((first, second))
}
