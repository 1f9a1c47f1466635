//! Pods with a network of their own, given by plugins as on a node of a cluster; one of them has users of its own, too.
//!
//! A kubelet refuses `hostUsers: false` for a pod in the host's network, so there is none without the other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::support::{bare, exec, is_started_again, kill};
use crate::cases::containerd::lazy::{push_indexed, without_layers};
use crate::cases::containerd::support::{PORT, SOON};
use crate::cases::containerd::user_namespaces::{nothing_is_mounted, owner, uppers, written};
use crate::cases::containerd::{cri, user_pods};
use crate::containerd::{Containerd, Line, Snapshots, http, http_of, listens};
use crate::kubelet::Kubelet;
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// Beginning of the addresses that pods get.
const SUBNET: &str = "10.88.0.";
/// How many ids a pod has.
const IDS: &str = "65536";
/// A file of the image that nothing needs.
const COLD: &str = "usr/bin/perl";
/// The same in a pod with users of its own.
const COLD_TOO: &str = "usr/bin/dpkg";
/// The log's message when the pages that a service reads were fetched at once.
const RECORDED: &str = "runtime image loaded";

/// Writes which network pods get, and gives what containerd is to know of it.
fn networks(world: &World, plugins: &Path) -> Result<String> {
    let addresses = world.path("addresses");
    let network = json!({
        "cniVersion": "1.0.0", "name": "case",
        "plugins": [{
            "type": "ptp", "ipMasq": false,
            "ipam": {"type": "host-local", "dataDir": addresses,
                     "ranges": [[{"subnet": format!("{SUBNET}0/24")}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }],
    });
    fs::create_dir_all(world.path(cri::NETWORKS))?;
    fs::write(
        world.path(cri::NETWORKS).join("10-case.conflist"),
        network.to_string(),
    )?;
    // Of the table that CRI's configuration ends with, which is that of networks.
    Ok(format!("bin_dirs = [{plugins:?}]\n"))
}

/// nginx, which is probed at its own address.
fn web(image: &str) -> Value {
    let probe = json!({"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1});
    json!({
        "hostNetwork": false,
        "containers": [{"name": "web", "image": image, "imagePullPolicy": "IfNotPresent",
                        "startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe}],
    })
}

/// The same with users of its own, and a directory of the host.
fn mapped(pod: &Value, directory: &Path) -> Value {
    let mut pod = pod.clone();
    pod["hostUsers"] = json!(false);
    pod["volumes"] = json!([{"name": "host", "hostPath": {"path": directory, "type": "Directory"}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "host", "mountPath": "/host"}]);
    pod
}

/// Asks that a pod answers at an address of its own, and not at the host's, and gives that.
fn answers(kubelet: &Kubelet<'_>, name: &str) -> Result<String> {
    let status = kubelet.status(name)?.context("no such pod")?;
    let address = status["podIP"].as_str().unwrap_or_default().to_owned();
    ensure!(address.starts_with(SUBNET), "{name} has the address {address:?}");
    let answer = http_of(&address, PORT).with_context(|| format!("{name} does not answer at {address}"))?;
    ensure!(answer.contains(" 200 "), "{answer}");
    ensure!(http(PORT).is_none(), "{name} answers at the host's address");
    Ok(address)
}

/// A pod with users of its own: its container, and its host's directory.
struct Mapped<'a> {
    containerd: &'a Containerd<'a>,
    directory: PathBuf,
    uppers_before: BTreeSet<PathBuf>,
}

impl Mapped<'_> {
    /// Its files are root's for itself, and on disk whose it is here; a directory of the host stays root's. Gives who its root
    /// is here.
    fn is_well(&self, world: &World, container: &str) -> Result<u32> {
        let does = |command: &str| exec(self.containerd, container, command);
        let map = does("cat /proc/self/uid_map /proc/self/gid_map")?;
        let map: Vec<&str> = map.split_whitespace().collect();
        let first = map.get(1).copied().unwrap_or_default();
        ensure!(first != "0" && map == ["0", first, IDS].repeat(2), "{map:?}");
        let first: u32 = first.parse()?;
        let told = does(
            "echo of root > /made && cat /host/secret && echo of root > /host/made && \
             id -u && stat -c %u:%g / /etc/os-release /made /host/secret /host/made",
        )?;
        let told: Vec<&str> = told.split_whitespace().collect();
        let wanted = [&["secret", "0"][..], &["0:0"; 5]].concat();
        ensure!(told == wanted, "inside: {told:?}");
        let inside = self.containerd.root_in(cri::NAMESPACE, bare(container));
        for name in ["etc/os-release", "made"] {
            let found = owner(&inside.join(name))?;
            ensure!(found == (first, first), "{name} belongs to {found:?}");
        }
        for name in ["secret", "made"] {
            let found = owner(&self.directory.join(name))?;
            ensure!(found == (0, 0), "the host's {name} belongs to {found:?}");
        }
        let written = written(world, &self.uppers_before)?;
        ensure!(
            !written.is_empty() && written.iter().all(|owner| *owner == (first, first)),
            "what the pod wrote belongs to {written:?} on disk"
        );
        let layers = world.path("root/layers");
        let others = run(Command::new("find").arg(&layers).args(["!", "-user", "root"]))?;
        ensure!(
            others.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&others.stdout)
        );
        Ok(first)
    }
}

/// See the head of this file.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let (runc, plugins) = (World::tool("runc-idmap")?, World::tool("cni")?);
    let pause = cri::push_pause(world)?;
    let reference = push_indexed(world, "nginx")?;
    let truth = reference_unpackers::unpack_to(
        world,
        &World::built_image("nginx")?,
        xebec_testkit::odd::Unpacker::Containerd,
    )?;
    let recorded = push_indexed(world, "python")?;
    let record = ["record", "--entrypoint", "/bin/cat", &recorded, "/etc/os-release"];
    run(&mut world.xebec_at("builder", &record))?;
    run(&mut world.xebec_at("builder", &["daemon", "stop", "--force"]))?;
    let snapshots = Snapshots::start(world)?;
    snapshots.restart_with(&format!("image_service = {:?}\n", listens(world)))?;
    let more = cri::configuration(world, Line::Two, &pause)?
        + &networks(world, &plugins)?
        + &user_pods::by_runc(&runc);
    let containerd = Containerd::start(world, Line::Two, &more)?;
    containerd.tool("cri", &["pull", &pause])?;
    // Root of a pod is nobody in particular here, and comes to its files by the directories of this case.
    run(Command::new("chmod").arg("711").arg(&world.directory))?;
    let kubelet = Kubelet::start(world, &snapshots, &json!({}))?;

    let same = |container: &str, file: &str| -> Result<()> {
        let told = exec(&containerd, container, &format!("sha256sum < /{file}"))?;
        let wanted = run(Command::new("sha256sum").stdin(fs::File::open(truth.join(file))?))?;
        ensure!(told.as_bytes() == wanted.stdout, "wrong bytes in {file}");
        Ok(())
    };
    let one = without_layers(world, || {
        kubelet.add("web", &web(&reference))?;
        kubelet.is_ready("web")
    })?;
    let (one, _) = one.first().context("no container")?;
    let address = answers(&kubelet, "web")?;
    same(one, COLD)?;

    // Where a directory of the host is mapped, what is root's there is the pod's root's, and nobody else's.
    let directory = world.path("host");
    fs::create_dir(&directory)?;
    fs::write(directory.join("secret"), "secret\n")?;
    fs::set_permissions(directory.join("secret"), fs::Permissions::from_mode(0o600))?;
    let pod = Mapped {
        containerd: &containerd,
        directory: directory.clone(),
        uppers_before: uppers(world)?,
    };
    kubelet.add("users", &mapped(&web(&reference), &directory))?;
    let begun = kubelet.is_ready("users")?;
    let (two, _) = begun.first().context("no container")?;
    let other = answers(&kubelet, "users")?;
    ensure!(other != address, "both have {address}");
    let first = pod.is_well(world, two)?;
    // By the next worker.
    snapshots.kill("worker_pid")?;
    same(two, COLD_TOO)?;
    kill(&containerd, two)?;
    let again = is_started_again(&kubelet, "users", 0)?;
    ensure!(pod.is_well(world, &again)? == first, "its root is another now");
    answers(&kubelet, "users")?;
    kubelet.remove("users")?;

    // One that is started by a recording.
    kubelet.remove("web")?;
    let service = json!({"hostNetwork": false, "securityContext": {"runAsUser": 0, "runAsGroup": 0},
                         "containers": [{"name": "service", "image": recorded}]});
    let pod = Mapped {
        uppers_before: uppers(world)?,
        ..pod
    };
    kubelet.add("recorded", &mapped(&service, &directory))?;
    let begun = kubelet.is_ready("recorded")?;
    let (three, _) = begun.first().context("no container")?;
    pod.is_well(world, three)?;
    let log = fs::read_to_string(world.path("daemon.log"))?;
    ensure!(log.contains(RECORDED), "no recording was used");
    kubelet.remove("recorded")?;
    wait_until(SOON, "nothing is mounted", || Ok(nothing_is_mounted().is_ok()))?;
    Ok(Outcome::Passed(format!(
        "pods at {address} and {other}; root of one is {first} here, also where it was recorded and started again"
    )))
}
