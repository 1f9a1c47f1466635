//! Pods in user namespaces, as a kubelet starts them where they say `hostUsers: false`.
//!
//! containerd refuses them if its runc cannot map the ids of mounts, so these are started by the one that `scripts/setup.sh`
//! builds for that. A pod's own process runs from an image that is unpacked, its container from a lazy one; both are mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cri;
use super::lazy::{push_indexed, without_layers};
use super::support::{PORT, SOON, downloads};
use super::user_namespaces::{nothing_is_mounted, uppers, written};
use crate::containerd::{Containerd, Line, Snapshots, http};
use crate::lab::wait_until;
use crate::reference_unpackers;
use crate::runner::Outcome;
use crate::world::{World, run};

/// The ids of the pods' roots. A kubelet gives each pod ids of its own, which are the same for users and groups.
const PODS: [u32; 2] = [100_000, 165_536];
/// Files of the image that nothing needs.
const COLD: [&str; 2] = ["usr/bin/perl", "usr/bin/dpkg"];
/// Lists the owners of all files of the file system that it is started in.
const OWNERS: &str = "find . -xdev -printf '%U:%G %P\\n'";
/// Paths on which a container has mounts of its own; the image's owners are not seen there.
const MOUNTED: &[&str] = &[
    "proc",
    "sys",
    "dev",
    "etc/hosts",
    "etc/hostname",
    "etc/resolv.conf",
];

/// The owners that [`OWNERS`] listed, by names.
fn owners(listed: &[u8]) -> Result<BTreeMap<String, (u32, u32)>> {
    let listed = String::from_utf8_lossy(listed);
    let parse = |line: &str| {
        let (ids, name) = line.split_once(' ')?;
        let (user, group) = ids.split_once(':')?;
        Some((name.to_owned(), (user.parse().ok()?, group.parse().ok()?)))
    };
    let found = listed.lines().map(|line| parse(line).context(line.to_owned()));
    found.collect()
}

/// Asks that what is in the image belongs to whom it belongs in `truth`, ids counted from `first` on.
fn same_owners(
    found: &BTreeMap<String, (u32, u32)>,
    truth: &BTreeMap<String, (u32, u32)>,
    first: u32,
) -> Result<()> {
    let of_image = truth.iter().filter(|(name, _)| {
        let is_at = |top: &&str| Path::new(name).starts_with(top);
        !MOUNTED.iter().any(is_at)
    });
    for (name, (user, group)) in of_image {
        let wanted = (user + first, group + first);
        let owner = found.get(name);
        ensure!(
            owner == Some(&wanted),
            "/{name} belongs to {owner:?} and not to {wanted:?}"
        );
    }
    Ok(())
}

/// containerd, its pods' image, and what is true of that.
struct Pods<'a> {
    world: &'a World,
    containerd: &'a Containerd<'a>,
    reference: String,
    truth: PathBuf,
    owners: BTreeMap<String, (u32, u32)>,
}

/// A pod that runs.
struct Pod<'a> {
    pods: &'a Pods<'a>,
    /// The id on this host of root in it.
    first: u32,
    sandbox: String,
    container: String,
}

impl<'a> Pods<'a> {
    fn new(world: &'a World, containerd: &'a Containerd<'a>, reference: &str) -> Result<Self> {
        let layout = World::built_image("nginx")?;
        let truth = reference_unpackers::unpack_to(world, &layout, xebec_testkit::odd::Unpacker::Containerd)?;
        let listed = run(Command::new("sh").args(["-c", OWNERS]).current_dir(&truth))?;
        let owners = owners(&listed.stdout)?;
        let others = owners.values().filter(|owner| **owner != (0, 0)).count();
        ensure!(others > 0, "all in the image is root's: its owners say little");
        Ok(Self {
            world,
            containerd,
            reference: reference.to_owned(),
            truth,
            owners,
        })
    }

    fn snapshots(&self) -> Result<BTreeSet<String>> {
        let listed = self
            .containerd
            .does(&["--namespace", cri::NAMESPACE, "snapshots", "ls"])?;
        let keys = listed
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next());
        Ok(keys.map(str::to_owned).collect())
    }

    /// Starts one whose ids are ours from `first` on, and asks that all is as it should be in it, and that nothing was copied
    /// for it: there are two snapshots more, the pod's own process's and its container's.
    fn start(&'a self, first: u32) -> Result<Pod<'a>> {
        let had = self.snapshots()?;
        let uppers_before = uppers(self.world)?;
        let name = self.containerd.namespace();
        let words = ["start", &self.reference, name, &first.to_string()];
        let ids = self.containerd.tool("cri", &words)?;
        let (sandbox, container) = ids.trim().split_once(' ').context("no ids")?;
        let added: BTreeSet<String> = self.snapshots()?.difference(&had).cloned().collect();
        let wanted = BTreeSet::from([sandbox.to_owned(), container.to_owned()]);
        ensure!(added == wanted, "the pod added {added:?}");
        let pod = Pod {
            pods: self,
            first,
            sandbox: sandbox.to_owned(),
            container: container.to_owned(),
        };
        wait_until(SOON, "nginx answers", || Ok(http(PORT).is_some()))
            .with_context(|| self.containerd.last_words())?;
        pod.is_well()?;
        let written = written(self.world, &uppers_before)?;
        ensure!(
            written == [(first, first)],
            "what the pod wrote belongs to {written:?} on disk"
        );
        Ok(pod)
    }
}

impl Pod<'_> {
    fn exec(&self, command: &str) -> Result<String> {
        let words = ["exec", &self.container, "sh", "-c", command];
        self.pods.containerd.tool("cri", &words)
    }

    /// Where the container's files are, for us.
    fn root(&self) -> PathBuf {
        self.pods.containerd.root_in(cri::NAMESPACE, &self.container)
    }

    /// Its users are its own, its files theirs: seen from inside, and from here.
    fn is_well(&self) -> Result<()> {
        let map = self.exec("cat /proc/self/uid_map /proc/self/gid_map")?;
        let map: Vec<&str> = map.split_whitespace().collect();
        let first = self.first.to_string();
        ensure!(map == ["0", &first, "65536"].repeat(2), "{map:?}");
        let told = self.exec("id -u; id -g; echo of root > /made; stat -c %u:%g /made")?;
        let told: Vec<&str> = told.split_whitespace().collect();
        ensure!(told == ["0", "0", "0:0"], "inside: {told:?}");
        for id in [&self.sandbox, &self.container] {
            self.is_another_here(id)?;
        }
        let inside = owners(self.exec(&format!("cd / && {OWNERS}"))?.as_bytes())?;
        same_owners(&inside, &self.pods.owners, 0).context("inside")?;
        let outside = run(Command::new("sh").args(["-c", OWNERS]).current_dir(self.root()))?;
        let outside = owners(&outside.stdout)?;
        same_owners(&outside, &self.pods.owners, self.first).context("outside")?;
        let made = outside.get("made");
        ensure!(
            made == Some(&(self.first, self.first)),
            "what it made belongs to {made:?}"
        );
        Ok(())
    }

    /// Root of one of its containers is another for this host, in a namespace that is not the host's.
    fn is_another_here(&self, container: &str) -> Result<()> {
        let tasks = self
            .pods
            .containerd
            .does(&["--namespace", cri::NAMESPACE, "tasks", "ls"])?;
        let words = tasks
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut pids = words.filter(|words| words.first() == Some(&container));
        let pid = pids.next().and_then(|words| words.get(1).copied());
        let process = Path::new("/proc").join(pid.with_context(|| format!("no task {container}: {tasks}"))?);
        let status = fs::read_to_string(process.join("status"))?;
        let first = self.first.to_string();
        // Real, effective, saved, and of files.
        let wanted = [first.as_str(); 4];
        for kind in ["Uid:", "Gid:"] {
            let ids = status.lines().find_map(|line| line.strip_prefix(kind));
            let ids: Vec<&str> = ids.unwrap_or_default().split_whitespace().collect();
            ensure!(ids == wanted, "{kind} {ids:?} of {container}");
        }
        let namespace = |process: &Path| fs::read_link(process.join("ns/user"));
        ensure!(
            namespace(&process)? != namespace(Path::new("/proc/self"))?,
            "{container} is in this host's user namespace"
        );
        Ok(())
    }

    /// A file that nobody has read yet is right.
    fn reads(&self, cold: &str) -> Result<()> {
        let sum = |text: &str| text.split_whitespace().next().map(str::to_owned);
        let inside = sum(&self.exec(&format!("sha256sum /{cold}"))?);
        let outside = run(Command::new("sha256sum").arg(self.pods.truth.join(cold)))?;
        let outside = sum(&String::from_utf8_lossy(&outside.stdout));
        ensure!(inside.is_some() && inside == outside, "wrong bytes in {cold}");
        Ok(())
    }

    fn stop(self) -> Result<()> {
        self.pods.containerd.tool("cri", &["stop", &self.sandbox])?;
        ensure!(http(PORT).is_none(), "the pod was removed, and answers");
        Ok(())
    }
}

/// Has CRI start containers by another runc. An entry of this table replaces the built-in one, so it says of which kind it is.
pub(in crate::cases) fn by_runc(runc: &Path) -> String {
    let table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc";
    format!("{table}]\nruntime_type = \"io.containerd.runc.v2\"\n{table}.options]\nBinaryName = {runc:?}\n")
}

/// Pods with `hostUsers: false`: a container has the image's files by its own ids, and what it writes belongs to them.
pub(super) fn run_case(world: &World) -> Result<Outcome> {
    let runc = World::tool("runc-idmap")?;
    if !runc.exists() {
        return Ok(Outcome::Skipped(
            "containerd refuses pods in user namespaces if runc cannot map the ids of mounts, as Debian 12's cannot, and \
             runc-idmap is not among the tools (make setup)"
                .to_owned(),
        ));
    }
    let pause = cri::push_pause(world)?;
    let reference = push_indexed(world, "nginx")?;
    let snapshots = Snapshots::start(world)?;
    let more = cri::configuration(world, Line::Two, &pause)? + &by_runc(&runc);
    let containerd = Containerd::start(world, Line::Two, &more)?;
    // Root of a pod is nobody in particular here, and comes to its files by the directories of this case.
    run(Command::new("chmod").arg("711").arg(&world.directory))?;
    containerd.tool("cri", &["pull", &pause])?;
    without_layers(world, || containerd.tool("cri", &["pull", &reference]))?;
    let before = downloads(world)?.len();
    let pods = Pods::new(world, &containerd, &reference)?;

    let ([first, second], [cold, cold_too]) = (PODS, COLD);
    let pod = pods.start(first)?;
    // By the next worker.
    snapshots.kill("worker_pid")?;
    pod.reads(cold)?;
    pod.stop()?;
    snapshots.restart()?;
    wait_until(SOON, "containerd connects again", || {
        let mut listed = containerd.ctr(&["--namespace", cri::NAMESPACE, "snapshots", "ls"])?;
        Ok(listed.output()?.status.success())
    })?;
    let pod = pods.start(second).context("the pod after it")?;
    pod.reads(cold_too)?;
    pod.stop()?;
    let asked = downloads(world)?.len() - before;
    ensure!(asked == 0, "containerd downloaded {asked} blobs");

    for image in [&reference, &pause] {
        containerd.tool("cri", &["rmi", image])?;
    }
    wait_until(SOON, "no snapshot is left", || {
        containerd.does(&["--namespace", cri::NAMESPACE, "content", "prune", "references"])?;
        Ok(pods.snapshots()?.is_empty() && snapshots.directories()?.is_empty())
    })?;
    nothing_is_mounted()?;
    Ok(Outcome::Passed(format!(
        "roots of the pods are {PODS:?} on disk; {} files have their owners; no layer downloaded",
        pods.owners.len()
    )))
}
