//! The runtime's `config.json`.
//!
//! Source: runtime-spec 1.0.2, `config.md` and `config-linux.md`. The defaults are those that docker and
//! containerd have in common (containerd `pkg/oci/spec.go`, moby `oci/defaults.go`), because images are
//! tested with them. Nothing here reads the file, so it is composed as JSON.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use xebec_confinement::{Confinement, DeviceNode, SecurityContext, seccomp};
use xebec_volume::{BindMount, Propagation, Tmpfs};

use crate::network::Namespace;
use crate::process::Process;
use crate::{IpcMode, PidMode};

/// The version whose members are used. Every runc since 1.0 reads it.
const SPEC_VERSION: &str = "1.0.2";

/// Parts of /proc and /sys that show or change the host.
const MASKED_PATHS: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Parts of /proc that are read-only.
const READ_ONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The limits of open files, soft and hard. systemd gives them to services, and so containerd 2 to
/// containers. The soft limit is low because of programs that use `select(2)`.
const OPEN_FILES: (u64, u64) = (1024, 524_288);

/// The default size of `/dev/shm` in bytes; docker's figure.
pub const SHARED_MEMORY: u64 = 64 << 20;

/// Where a container sees the program of `--init`; docker's place.
const INIT: &str = "/sbin/docker-init";

/// Everything that `config.json` depends on.
pub(crate) struct SpecInput<'a> {
    /// The path of the container's control groups.
    pub control_group: &'a str,
    pub process: &'a Process,
    pub root: &'a Path,
    pub hostname: &'a str,
    pub network: &'a Namespace,
    pub pid: &'a PidMode,
    /// Where the PID namespace of another container is.
    pub pid_namespace: Option<PathBuf>,
    pub ipc: IpcMode,
    /// The program that is the container's first process instead of its command.
    pub init: Option<&'a Path>,
    pub terminal: bool,
    pub volumes: &'a [BindMount],
    pub tmpfs: &'a [Tmpfs],
    /// Files of this container, each with the path at which the container sees it.
    pub network_files: &'a [(PathBuf, &'static str)],
    /// The rights and limits that the user gives the container.
    pub confinement: &'a Confinement,
    /// The security settings that were decided from that.
    pub security: &'a SecurityContext,
    /// Whether this host can limit swap.
    pub can_limit_swap: bool,
    /// Whether the host has control groups of version 2 alone. Then the container gets a cgroup namespace.
    pub unified_cgroups: bool,
    /// The largest limit of open files that this process may set. `None` if any.
    pub open_files_limit: Option<u64>,
}

/// Composes `config.json`.
pub(crate) fn config_json(input: &SpecInput<'_>) -> Value {
    let mut config = json!({
        "ociVersion": SPEC_VERSION,
        "hostname": input.hostname,
        "root": { "path": input.root, "readonly": input.confinement.read_only },
        "process": process(input),
        "mounts": mounts(input),
        "linux": linux(input),
    });
    if let Some(annotation) = input.security.filters.annotation {
        config["annotations"] = json!({ seccomp::ANNOTATION: annotation });
    }
    config
}

fn process(input: &SpecInput<'_>) -> Value {
    let Process {
        args,
        env,
        cwd,
        identity,
    } = input.process;
    let named = env.iter().any(|(name, _)| name == "HOSTNAME");
    let hostname = (!named).then(|| format!("HOSTNAME={}", input.hostname));
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .chain(hostname)
        .collect();
    let first: &[&str] = if input.init.is_some() { &[INIT, "--"] } else { &[] };
    let args: Vec<&str> = first
        .iter()
        .copied()
        .chain(args.iter().map(String::as_str))
        .collect();
    let capabilities = input.security.capabilities.names();
    let mut process = json!({
        "terminal": input.terminal,
        "user": { "uid": identity.uid, "gid": identity.gid, "additionalGids": identity.additional },
        "args": args,
        "env": env,
        "cwd": cwd,
        // `inheritable` and `ambient` stay empty (CVE-2022-24769).
        "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
        "rlimits": rlimits(input),
        // Off, as in docker, unless asked for: programs such as sudo and ping work as on any host.
        "noNewPrivileges": input.security.no_new_privileges,
    });
    if let Some(score) = input.confinement.oom_score_adj {
        process["oomScoreAdj"] = json!(score);
    }
    let labels = &input.security.labels;
    if let Some(profile) = &labels.apparmor {
        process["apparmorProfile"] = json!(profile);
    }
    if let Some((label, _)) = &labels.selinux {
        process["selinuxLabel"] = json!(label);
    }
    process
}

fn rlimits(input: &SpecInput<'_>) -> Value {
    let ulimits = &input.confinement.ulimits;
    // Of several limits with one name the last counts.
    let last = |index: usize, name: &str| ulimits.iter().skip(index + 1).all(|later| later.name != name);
    let mut limits: Vec<Value> = ulimits
        .iter()
        .enumerate()
        .filter(|(index, one)| last(*index, one.name))
        .map(|(_, one)| one.to_json())
        .collect();
    if ulimits.iter().all(|one| one.name != "nofile") {
        let most = input.open_files_limit.unwrap_or(u64::MAX);
        let (soft, hard) = (OPEN_FILES.0.min(most), OPEN_FILES.1.min(most));
        limits.insert(0, json!({ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }));
    }
    limits.into()
}

fn mounts(input: &SpecInput<'_>) -> Value {
    let mount = |target: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": source, "options": options });
    let memory = input.confinement.shm_size.map_or(SHARED_MEMORY, |size| size.0);
    let memory = format!("size={memory}");
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        // Group 5 is tty, in every distribution.
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            "shm",
            &["nosuid", "noexec", "nodev", "mode=1777", &memory],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount(
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", "ro"],
        ),
    ];
    if input.ipc == IpcMode::Host {
        // Message queues are those of the namespace in any case.
        mounts.retain(|mount| mount["destination"] != "/dev/shm");
        mounts.push(mount(
            "/dev/shm",
            "bind",
            "/dev/shm",
            &["rbind", "rprivate", "nosuid", "noexec", "nodev"],
        ));
    }
    if let Some(init) = input.init {
        mounts.push(json!({
            "destination": INIT, "type": "bind", "source": init, "options": ["bind", "rprivate", "ro"],
        }));
    }
    mounts.extend(mounts_of_the_user(input));
    Value::Array(mounts)
}

/// In the order of their depth, so that none hides one that is below it.
fn mounts_of_the_user(input: &SpecInput<'_>) -> Vec<Value> {
    let file = |(source, target): &(PathBuf, &'static str)| {
        let mount = json!({
            "destination": target, "type": "bind", "source": source, "options": ["rbind", "rprivate", "rw"],
        });
        (Path::new(target).components().count(), mount)
    };
    let tmpfs = |tmpfs: &Tmpfs| (tmpfs.target.components().count(), tmpfs.to_json());
    let volume = |volume: &BindMount| (volume.target.components().count(), volume.to_json());
    let files = input.network_files.iter().map(file);
    let tmpfs = input.tmpfs.iter().map(tmpfs);
    let volumes = input.volumes.iter().map(volume);
    let mut mounts: Vec<(usize, Value)> = files.chain(tmpfs).chain(volumes).collect();
    mounts.sort_by_key(|(depth, _)| *depth);
    mounts.into_iter().map(|(_, mount)| mount).collect()
}

/// Where mounts of the host appear that are made after the container is created: only what a volume needs,
/// as in docker.
fn root_propagation(volumes: &[BindMount]) -> Option<&'static str> {
    let mut propagation = None;
    for volume in volumes {
        match volume.propagation {
            Propagation::Shared | Propagation::RShared => return Some("shared"),
            Propagation::Slave | Propagation::RSlave => propagation = Some("rslave"),
            Propagation::Private | Propagation::RPrivate => {}
        }
    }
    propagation
}

/// Whether a mount at a path stays hidden from a container, whatever the user says.
pub(crate) fn is_masked(path: &Path) -> bool {
    MASKED_PATHS.iter().any(|masked| path == Path::new(masked))
}

/// The container's own namespaces, and those of others that it joins.
fn namespaces(input: &SpecInput<'_>) -> Vec<Value> {
    let kinds: &[&str] = match input.ipc {
        IpcMode::Private => &["ipc", "uts", "mount"],
        IpcMode::Host => &["uts", "mount"],
    };
    let mut namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    match input.network {
        Namespace::New => namespaces.push(json!({ "type": "network" })),
        Namespace::Own(path) | Namespace::Shared(path) => {
            namespaces.push(json!({ "type": "network", "path": path }));
        }
        Namespace::Host => {}
    }
    if input.unified_cgroups {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    match (input.pid, &input.pid_namespace) {
        (PidMode::Host, _) => {}
        (_, Some(path)) => namespaces.insert(0, json!({ "type": "pid", "path": path })),
        (_, None) => namespaces.insert(0, json!({ "type": "pid" })),
    }
    namespaces
}

fn linux(input: &SpecInput<'_>) -> Value {
    let mut sysctl = match input.network {
        // As in docker: in a network of its own no port has to be protected from the container's users.
        Namespace::New | Namespace::Own(_) => json!({ "net.ipv4.ip_unprivileged_port_start": "0" }),
        // It has the settings of the container that it belongs to, or the host's.
        Namespace::Shared(_) | Namespace::Host => json!({}),
    };
    for one in &input.confinement.sysctls {
        sysctl[&one.name] = json!(one.value);
    }
    let mut resources = input.confinement.resources(input.can_limit_swap);
    if let Some(rules) = resources["devices"].as_array_mut() {
        rules.extend(input.security.devices.iter().map(DeviceNode::rule));
    }
    let (masked, read_only) = match input.security.shows_system_paths {
        true => (&[][..], &[][..]),
        false => (&MASKED_PATHS[..], &READ_ONLY_PATHS[..]),
    };
    let mut linux = json!({
        "namespaces": namespaces(input),
        "sysctl": sysctl,
        // Absolute, or the runtimes disagree about what it is relative to.
        "cgroupsPath": input.control_group,
        "resources": resources,
        "maskedPaths": masked,
        "readonlyPaths": read_only,
    });
    if !input.security.devices.is_empty() {
        let devices = input.security.devices.iter().map(DeviceNode::to_json);
        linux["devices"] = devices.collect();
    }
    if let Some(propagation) = root_propagation(input.volumes) {
        linux["rootfsPropagation"] = json!(propagation);
    }
    if let Some(profile) = &input.security.filters.profile {
        linux["seccomp"] = profile.clone();
    }
    if let Some((_, label)) = &input.security.labels.selinux {
        linux["mountLabel"] = json!(label);
    }
    linux
}

#[cfg(test)]
mod tests;
