//! A control plane of its own: etcd, an API server, a scheduler and the controllers, on the case's loopback.
//!
//! They are the real ones (`scripts/setup.sh` builds them), and what they keep is in the case's directory. Their ports cannot be
//! taken: a case has a network of its own, and so nobody else reaches them there.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::lab::wait_until;
use crate::status::{containers, is_condition};
use crate::world::{World, run};

/// How long it may take until it answers, and until it has done what it was asked, on a busy machine.
const START: Duration = Duration::from_secs(90);
/// Longest that one question may take, in seconds.
const ANSWER: &str = "20";
/// Where its files are in the case's directory.
const DIRECTORY: &str = "plane";
/// The token of its clients. Nobody outside of the case's network can use it.
const TOKEN: &str = "case";
/// Where the API server listens.
const SERVER: &str = "https://127.0.0.1:6443";
/// Where etcd does.
const ETCD: &str = "http://127.0.0.1:2379";
/// Controllers that a node and its pods need, by the controller manager's names.
const CONTROLLERS: &str = "daemonset-controller,node-lifecycle-controller,taint-eviction-controller,\
    serviceaccount-controller,namespace-controller,garbage-collector-controller,pod-garbage-collector-controller";
/// By whom objects are said to be managed.
const MANAGER: &str = "fieldManager=e2e&force=true";

/// A control plane.
pub(crate) struct ControlPlane {
    directory: PathBuf,
    /// The processes that keep objects: etcd and the API server.
    keep: Vec<Child>,
    /// The processes that act on them: scheduler and controllers.
    act: Vec<Child>,
}

impl ControlPlane {
    /// Starts one, and does not wait for it.
    pub(crate) fn begin(world: &World) -> Result<Self> {
        let directory = world.path(DIRECTORY);
        fs::create_dir_all(&directory)?;
        let mut plane = Self {
            directory,
            keep: Vec::new(),
            act: Vec::new(),
        };
        let place = |name: &str| plane.directory.join(name);
        let curve = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"];
        run(Command::new("openssl").args(curve).arg(place("key")))?;
        run(Command::new("openssl").args(["ec", "-pubout", "-in"]).args([
            &place("key"),
            Path::new("-out"),
            &place("public"),
        ]))?;
        fs::write(place("tokens"), format!("{TOKEN},e2e,e2e,\"system:masters\"\n"))?;
        fs::write(place("kubeconfig"), client().to_string())?;
        plane.begin_keeping()?;
        Ok(plane)
    }

    fn begin_keeping(&mut self) -> Result<()> {
        let flag = |name: &str, place: &str| format!("--{name}={}", self.directory.join(place).display());
        let etcd = [
            flag("data-dir", "etcd"),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ];
        let server = [
            format!("--etcd-servers={ETCD}"),
            flag("cert-dir", "certificates"),
            flag("token-auth-file", "tokens"),
            flag("service-account-key-file", "public"),
            flag("service-account-signing-key-file", "key"),
        ];
        let settings = [
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            // It wants no address of loopback in the list of API servers, which nobody here asks for.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=AlwaysAllow",
            "--allow-privileged=true",
        ];
        let server = [&server[..], &settings.map(str::to_owned)].concat();
        let etcd = self.spawn("etcd", &etcd)?;
        self.keep.push(etcd);
        let server = self.spawn("kube-apiserver", &server)?;
        self.keep.push(server);
        Ok(())
    }

    /// Waits until it can have pods made, and starts what acts on them if that does not run.
    pub(crate) fn is_ready(&mut self) -> Result<()> {
        wait_until(START, "the API server is ready", || {
            Ok(self
                .call("GET", "/readyz", None)
                .is_ok_and(|(code, _)| code == 200))
        })
        .with_context(|| self.last_words("kube-apiserver"))?;
        if self.act.is_empty() {
            let kubeconfig = format!("--kubeconfig={}", self.directory.join("kubeconfig").display());
            let common = [
                kubeconfig,
                "--leader-elect=false".to_owned(),
                "--bind-address=127.0.0.1".to_owned(),
            ];
            let controllers = [&common[..], &[format!("--controllers={CONTROLLERS}")]].concat();
            let scheduler = self.spawn("kube-scheduler", &common)?;
            self.act.push(scheduler);
            let controllers = self.spawn("kube-controller-manager", &controllers)?;
            self.act.push(controllers);
        }
        self.has_account("default")
    }

    /// Waits until a namespace may have pods: each has an account, which the controllers make.
    fn has_account(&self, namespace: &str) -> Result<()> {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        wait_until(START, "the controllers run", || Ok(self.get(&account)?.is_some()))
            .with_context(|| self.last_words("kube-controller-manager"))
    }

    fn spawn(&self, name: &str, arguments: &[String]) -> Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join(format!("{name}.log")))?;
        Command::new(World::tool(name)?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name} (make setup)"))
    }

    /// Ends etcd and the API server by a signal; pods go on.
    pub(crate) fn kill(&mut self) -> Result<()> {
        end(&mut self.keep)
    }

    /// Starts them again with what they kept.
    pub(crate) fn wake(&mut self) -> Result<()> {
        self.begin_keeping()?;
        self.is_ready()
    }

    fn last_words(&self, name: &str) -> String {
        let log = fs::read(self.directory.join(format!("{name}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    }

    /// Asks the API server; gives the status of its answer, and what it says.
    fn call(&self, method: &str, path: &str, body: Option<&str>) -> Result<(u16, Value)> {
        let mut curl = Command::new("curl");
        // Its certificate is its own, and nobody else is in the case's network.
        curl.args([
            "--silent",
            "--insecure",
            "--max-time",
            ANSWER,
            "--request",
            method,
        ])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--write-out", "\n%{http_code}"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
        if body.is_some() {
            curl.args(["--header", "Content-Type: application/apply-patch+yaml"])
                .args(["--data-binary", "@-"]);
        }
        let mut curl = curl
            .arg(format!("{SERVER}{path}"))
            .spawn()
            .context("start curl")?;
        if let Some(mut input) = curl.stdin.take() {
            input.write_all(body.unwrap_or_default().as_bytes())?;
        }
        let output = curl.wait_with_output()?;
        ensure!(
            output.status.success(),
            "{method} {path}: curl: {}",
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (said, code) = text.rsplit_once('\n').context("no status")?;
        // `/readyz` does not speak JSON.
        Ok((
            code.parse()?,
            serde_json::from_str(said).unwrap_or_else(|_| json!(said)),
        ))
    }

    /// An object, if it is there.
    pub(crate) fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.call("GET", path, None)? {
            (200, found) => Ok(Some(found)),
            (404, _) => Ok(None),
            (code, said) => bail!("GET {path}: {code}: {said}"),
        }
    }

    /// Makes an object what this says, as `kubectl apply --server-side` does.
    pub(crate) fn apply(&self, path: &str, object: &str) -> Result<()> {
        let (code, said) = self.call("PATCH", &format!("{path}?{MANAGER}"), Some(object))?;
        ensure!(matches!(code, 200 | 201), "apply {path}: {code}: {said}");
        Ok(())
    }

    /// Removes an object; what belongs to it goes after it.
    pub(crate) fn delete(&self, path: &str) -> Result<()> {
        let (code, said) = self.call("DELETE", path, None)?;
        ensure!(matches!(code, 200 | 202), "delete {path}: {code}: {said}");
        Ok(())
    }

    /// Makes a namespace that may have pods.
    pub(crate) fn add_namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply(&format!("/api/v1/namespaces/{name}"), &object.to_string())?;
        self.has_account(name)
    }

    /// Makes a secret, or changes it, with a login for a registry.
    pub(crate) fn tell_login(
        &self,
        namespace: &str,
        name: &str,
        registry: &str,
        login: [&str; 2],
    ) -> Result<()> {
        let [user, password] = login;
        let logins = json!({"auths": {registry: {"username": user, "password": password}}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {".dockerconfigjson": logins.to_string()},
        });
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.apply(&path, &secret.to_string())
    }

    /// Has the scheduler find a node for a pod in the case's network.
    pub(crate) fn add_pod(&self, namespace: &str, name: &str, spec: &Value) -> Result<()> {
        let mut spec = spec.clone();
        spec["hostNetwork"] = json!(true);
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec["automountServiceAccountToken"] = json!(false);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                         "metadata": {"name": name, "namespace": namespace}});
        self.apply(&place_of(namespace, name), &pod.to_string())
    }

    /// Removes a pod, and waits until it is gone.
    pub(crate) fn remove_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let place = place_of(namespace, name);
        self.delete(&place)?;
        wait_until(START, "the pod is gone", || Ok(self.get(&place)?.is_none()))
    }

    /// The state of a pod.
    pub(crate) fn status(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        let pod = self.get(&place_of(namespace, name))?;
        Ok(pod.map(|pod| pod["status"].clone()))
    }

    /// Waits until the state of a pod is so.
    pub(crate) fn comes_to(
        &self,
        (namespace, name): (&str, &str),
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = Value::Null;
        wait_until(START, what, || {
            last = self.status(namespace, name)?.unwrap_or_default();
            Ok(is_so(&last))
        })
        .with_context(|| format!("{namespace}/{name}: {last}"))?;
        Ok(last)
    }

    /// Waits until a pod is ready, and gives the ids of its containers and how often each was started again.
    pub(crate) fn is_ready_pod(&self, namespace: &str, name: &str) -> Result<Vec<(String, u64)>> {
        let status = self.comes_to((namespace, name), "the pod is ready", |status| {
            is_condition(status, "Ready", "True")
        })?;
        Ok(containers(&status))
    }

    /// Waits until a pod waits because its image cannot be pulled, and gives the kubelet's message. It says why at the
    /// moment of the refusal, and then only that it waits.
    pub(crate) fn is_refused(&self, namespace: &str, name: &str) -> Result<String> {
        let reasons = ["ErrImagePull", "ErrImageNeverPull"];
        let status = self.comes_to((namespace, name), "the image is refused", |status| {
            let waits = &status["containerStatuses"][0]["state"]["waiting"]["reason"];
            reasons.iter().any(|reason| waits == reason)
        })?;
        let waits = &status["containerStatuses"][0]["state"]["waiting"];
        Ok(waits["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the node is so: a condition and its status.
    pub(crate) fn has_node(&self, kind: &str, wanted: &str) -> Result<()> {
        let mut last = Value::Null;
        wait_until(START, "the node is as it should be", || {
            last = self.get("/api/v1/nodes/node")?.unwrap_or_default()["status"].clone();
            Ok(is_condition(&last, kind, wanted))
        })
        .with_context(|| format!("{kind} is not {wanted}: {}", last["conditions"]))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = end(&mut self.act);
        let _ = end(&mut self.keep);
    }
}

/// Ends processes by a signal, the last one first.
fn end(processes: &mut Vec<Child>) -> Result<()> {
    while let Some(mut process) = processes.pop() {
        process.kill()?;
        process.wait()?;
    }
    Ok(())
}

fn place_of(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Where a kubelet of this case finds how to come to the API server, if there is one.
pub(crate) fn kubeconfig(world: &World) -> Option<PathBuf> {
    let file = world.path(DIRECTORY).join("kubeconfig");
    file.exists().then_some(file)
}

fn client() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "case",
        "clusters": [{"name": "case", "cluster": {"server": SERVER, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "case", "user": {"token": TOKEN}}],
        "contexts": [{"name": "case", "context": {"cluster": "case", "user": "case"}}],
    })
}
