//! A kubelet of its own: it runs the pods whose manifests lie in a directory, and those that an API server has for its node, if
//! the case has one.
//!
//! It is the real one (`scripts/setup.sh` builds it). The settings of this machine that it would change are as it wants them, in the
//! case's own mount namespace: settings of the kernel, and the directories whose places cannot be configured.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::containerd::{Snapshots, listens};
use crate::control_plane::kubeconfig;
use crate::lab::wait_until;
use crate::status::{containers, is_condition};
use crate::world::{World, run};

/// How long it may take until it answers, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Which programs tell it logins, if any do.
const PROVIDERS: &str = "providers.json";
/// Where it tells anybody of this host what it does.
const PORT: u16 = 10255;
/// The node's address, of those that are for documentation: a node of an API server has one that is not loopback's.
const ADDRESS: &str = "192.0.2.1";
/// The settings of the kernel that it makes if they are not so (`setupKernelTunables` in `pkg/kubelet/cm/container_manager_linux.go`).
const TUNABLES: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// A kubelet.
pub(crate) struct Kubelet<'a> {
    directory: PathBuf,
    process: Option<Child>,
    world: &'a World,
}

impl<'a> Kubelet<'a> {
    /// Starts one on this case's containerd and snapshotter; `more` is laid over its configuration.
    pub(crate) fn start(world: &'a World, snapshots: &Snapshots<'_>, more: &Value) -> Result<Self> {
        Self::start_on(world, &snapshots.socket(), more)
    }

    /// The same with its image service at another socket.
    pub(crate) fn start_on(world: &'a World, images: &Path, more: &Value) -> Result<Self> {
        let directory = world.path("kubelet");
        for name in ["manifests", "root", "logs", "tunables", "upper", "work", "proc"] {
            fs::create_dir_all(directory.join(name))?;
        }
        let mut kubelet = Self {
            directory,
            process: None,
            world,
        };
        kubelet.keep_off_the_machine()?;
        if kubeconfig(world).is_some() {
            let address = format!("{ADDRESS}/32");
            run(Command::new("ip").args(["address", "add", &address, "dev", "lo"]))?;
        }
        let endpoint = |path: &Path| format!("unix://{}", path.display());
        let place = |name: &str| kubelet.directory.join(name);
        let mut configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": false,
            "failSwapOn": false,
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", world.name()),
            "containerRuntimeEndpoint": endpoint(&listens(world)),
            "imageServiceEndpoint": endpoint(images),
            "staticPodPath": place("manifests"),
            "podLogsDir": place("logs"),
            "volumePluginDir": place("plugins"),
            "readOnlyPort": PORT,
            "fileCheckFrequency": "1s",
            "imageMinimumGCAge": "1s",
            // A container that ends is started again at once.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            // The disk of this machine is no concern of a case.
            "evictionHard": {"nodefs.available": "1Mi", "nodefs.inodesFree": "1"},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            configuration[name] = value.clone();
        }
        fs::write(place("config.json"), configuration.to_string())?;
        kubelet.wake()?;
        Ok(kubelet)
    }

    fn keep_off_the_machine(&self) -> Result<()> {
        for (number, (name, value)) in TUNABLES.iter().enumerate() {
            let (file, place) = (
                self.directory.join(format!("tunables/{number}")),
                Path::new("/proc/sys").join(name),
            );
            if place.exists() {
                fs::write(&file, value)?;
                run(Command::new("mount").arg("--bind").args([&file, &place]))?;
            }
        }
        // Root of a user namespace may mount a /proc of its own only where one is seen of which nothing is hidden.
        let whole = self.directory.join("proc");
        run(Command::new("mount").args(["-t", "proc", "kubelet"]).arg(&whole))?;
        let (upper, work) = (self.directory.join("upper"), self.directory.join("work"));
        let options = format!(
            "lowerdir=/var/lib,upperdir={},workdir={}",
            upper.display(),
            work.display()
        );
        run(Command::new("mount").args(["-t", "overlay", "-o", &options, "kubelet", "/var/lib"]))?;
        run(Command::new("mount").args(["-t", "tmpfs", "kubelet", "/var/log"]))?;
        Ok(())
    }

    /// Starts it, after [`Self::kill`] too.
    pub(crate) fn wake(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = Command::new(World::tool("kubelet")?);
        let flag = |name: &str, place: &str| format!("--{name}={}", self.directory.join(place).display());
        command
            .args([
                flag("config", "config.json"),
                flag("root-dir", "root"),
                flag("cert-dir", "pki"),
            ])
            .args(["--hostname-override=node", "--v=2"])
            .args(self.login_flags())
            .args(self.plane_flags())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().context("cannot start the kubelet (make setup)")?);
        wait_until(START, "the kubelet answers", || Ok(get("/pods").is_some()))
            .with_context(|| self.last_words(&["E1", "err="]))
    }

    fn login_flags(&self) -> Vec<String> {
        let (configuration, programs) = (self.directory.join(PROVIDERS), self.directory.join("providers"));
        if !configuration.exists() {
            return Vec::new();
        }
        let flag =
            |name: &str, place: &Path| format!("--image-credential-provider-{name}={}", place.display());
        vec![flag("config", &configuration), flag("bin-dir", &programs)]
    }

    fn plane_flags(&self) -> Vec<String> {
        let file = kubeconfig(self.world);
        let flags = |file: PathBuf| {
            let file = format!("--kubeconfig={}", file.display());
            vec![file, format!("--node-ip={ADDRESS}")]
        };
        file.map(flags).unwrap_or_default()
    }

    /// Ends it by a signal; pods go on.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> Result<String> {
        let bytes = fs::read(self.log_path())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The last lines with one of these words.
    pub(crate) fn last_words(&self, words: &[&str]) -> String {
        let log = self.log().unwrap_or_default();
        let lines = log
            .lines()
            .filter(|line| words.iter().any(|word| line.contains(word)));
        let lines: Vec<&str> = lines.collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    }

    /// Has it run a pod, in the case's network unless the pod says otherwise.
    pub(crate) fn add(&self, name: &str, spec: &Value) -> Result<()> {
        let mut spec = spec.clone();
        if spec["hostNetwork"].is_null() {
            spec["hostNetwork"] = json!(true);
        }
        spec["terminationGracePeriodSeconds"] = json!(1);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": format!("{}-{name}", self.world.name())},
            "spec": spec,
        });
        // By its name at once: half a manifest is none.
        let (new, place) = (self.directory.join(name), self.manifest(name));
        fs::write(&new, pod.to_string())?;
        fs::rename(new, place).context("write a manifest")
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.directory.join(format!("manifests/{name}.json"))
    }

    /// Has it end a pod, and waits until it knows it no more.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifest(name))?;
        wait_until(START, "the pod is gone", || Ok(self.status(name)?.is_none()))
    }

    /// The status of a pod.
    pub(crate) fn status(&self, name: &str) -> Result<Option<Value>> {
        let Some(pods) = get("/pods") else {
            return Ok(None);
        };
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let name = format!("{name}-node");
        let pod = pods
            .into_iter()
            .find(|pod| pod["metadata"]["name"] == name.as_str());
        Ok(pod.map(|pod| pod["status"].clone()))
    }

    /// Waits until a pod is ready, and gives the ids of its containers and how often each was started again.
    pub(crate) fn is_ready(&self, name: &str) -> Result<Vec<(String, u64)>> {
        let mut last = None;
        let ready = wait_until(START, "the pod is ready", || {
            last = self.status(name)?;
            Ok(last
                .as_ref()
                .is_some_and(|status| is_condition(status, "Ready", "True")))
        });
        ready.with_context(|| format!("{last:?}\n{}", self.last_words(&[name])))?;
        Ok(containers(&last.context("no status")?))
    }

    /// Waits until a pod has come to this end.
    pub(crate) fn comes_to(&self, name: &str, phase: &str) -> Result<()> {
        let mut last = None;
        wait_until(START, "the pod has ended", || {
            last = self.status(name)?;
            Ok(last.as_ref().is_some_and(|status| status["phase"] == phase))
        })
        .with_context(|| format!("{last:?}\n{}", self.last_words(&[name])))
    }

    /// Its figures of the file system of images.
    pub(crate) fn image_file_system(&self) -> Result<Value> {
        let summary =
            get("/stats/summary").with_context(|| format!("no figures: {:?}", ask("/stats/summary")))?;
        let figures = summary["node"]["runtime"]["imageFs"].clone();
        ensure!(figures.is_object(), "{summary}");
        Ok(figures)
    }
}

impl Drop for Kubelet<'_> {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// From now on a program tells the kubelet this login for a registry. One that runs already asks it for each pull, if it was there
/// when it was started.
pub(crate) fn give_login(world: &World, registry: &str, user: &str, password: &str) -> Result<()> {
    let directory = world.path("kubelet");
    fs::create_dir_all(directory.join("providers"))?;
    let provider = json!({"name": "tells", "matchImages": [registry], "defaultCacheDuration": "0s",
                          "apiVersion": "credentialprovider.kubelet.k8s.io/v1"});
    let configuration = json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
                               "providers": [provider]});
    fs::write(directory.join(PROVIDERS), configuration.to_string())?;
    let answer = json!({"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
                        "cacheKeyType": "Registry", "auth": {registry: {"username": user, "password": password}}});
    // By its name at once: the kubelet may be about to start it.
    let (new, program) = (directory.join("tells"), directory.join("providers/tells"));
    fs::write(
        &new,
        format!("#!/bin/sh\ncat > /dev/null\nprintf '%s' '{answer}'\n"),
    )?;
    fs::set_permissions(&new, Permissions::from_mode(0o700))?;
    fs::rename(new, program).context("write a credential provider")
}

/// Its answer, if there is one.
fn get(path: &str) -> Option<Value> {
    let (head, body) = ask(path)?;
    head.contains(" 200 ").then(|| serde_json::from_str(&body).ok())?
}

/// The head of its answer, and the rest.
fn ask(path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", PORT)).ok()?;
    stream.set_read_timeout(Some(START)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}
