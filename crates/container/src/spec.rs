//! The runtime's `config.json`.
//!
//! Source: runtime-spec 1.0.2, `config.md` and `config-linux.md`; the defaults are those that docker and
//! containerd have in common (containerd `pkg/oci/spec.go`, moby `oci/defaults.go`), because images are
//! tested with them. The file is only ever written, so it is composed as the JSON that it is.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::confinement::{Confinement, Tmpfs};
use super::process::Process;
use super::security_context::SecurityContext;
use super::{Net, Volume};

/// The version whose members are used; everything since runc 1.0 reads it.
const SPEC_VERSION: &str = "1.0.2";

/// Parts of /proc and /sys that tell about, or change, the host.
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

/// Parts of /proc that may be read only.
const READ_ONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Open files, soft and hard limit: what systemd gives to services, and so what containerd 2 gives to
/// containers. The soft limit is low for the sake of programs that use `select(2)`.
const OPEN_FILES: (u64, u64) = (1024, 524_288);

/// Bytes of `/dev/shm` unless told otherwise, docker's figure.
const SHARED_MEMORY: u64 = 64 << 20;

/// Everything that the file depends on.
pub(super) struct SpecInput<'a> {
    /// Where the container's control groups are.
    pub control_group: &'a str,
    pub process: &'a Process,
    pub root: &'a Path,
    pub hostname: &'a str,
    pub net: Net,
    pub terminal: bool,
    pub volumes: &'a [Volume],
    /// Files made for this container, each bound over the path of the same name below `/etc`.
    pub network_files: &'a [(PathBuf, &'static str)],
    /// What it may do and use, as it was asked for and as it was decided.
    pub confinement: &'a Confinement,
    pub confined: &'a SecurityContext,
    /// Whether this host can limit swap.
    pub can_limit_swap: bool,
    /// Whether the host's control groups are version 2 alone; then the container gets a namespace of them.
    pub unified_cgroups: bool,
    /// The most files that this process may allow anyone to open; nothing if there is no limit.
    pub open_files_limit: Option<u64>,
}

/// Composes the file.
pub(super) fn config_json(input: &SpecInput<'_>) -> Value {
    json!({
        "ociVersion": SPEC_VERSION,
        "hostname": input.hostname,
        "root": { "path": input.root, "readonly": input.confinement.read_only },
        "process": process(input),
        "mounts": mounts(input),
        "linux": linux(input),
    })
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
    let capabilities = input.confined.capabilities.names();
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
        "noNewPrivileges": input.confined.no_new_privileges,
    });
    let labels = &input.confined.labels;
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
    // Of several of the same name the last counts.
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
    for (source, target) in input.network_files {
        mounts.push(json!({
            "destination": target, "type": "bind", "source": source, "options": ["rbind", "rprivate", "rw"],
        }));
    }
    mounts.extend(input.confinement.tmpfs.iter().map(Tmpfs::to_json));
    for Volume {
        source,
        target,
        read_only,
    } in input.volumes
    {
        let mode = if *read_only { "ro" } else { "rw" };
        mounts.push(json!({
            "destination": target, "type": "bind", "source": source, "options": ["rbind", "rprivate", mode],
        }));
    }
    Value::Array(mounts)
}

fn linux(input: &SpecInput<'_>) -> Value {
    let mut namespaces = vec!["pid", "ipc", "uts", "mount"];
    let mut sysctl = json!({});
    if input.net == Net::None {
        namespaces.push("network");
        // As in docker: a network of one's own has no ports to protect from its users.
        sysctl = json!({ "net.ipv4.ip_unprivileged_port_start": "0" });
    }
    if input.unified_cgroups {
        namespaces.push("cgroup");
    }
    let namespaces: Vec<Value> = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
    let (masked, read_only) = match input.confined.shows_system_paths {
        true => (&[][..], &[][..]),
        false => (&MASKED_PATHS[..], &READ_ONLY_PATHS[..]),
    };
    let mut linux = json!({
        "namespaces": namespaces,
        "sysctl": sysctl,
        // Absolute, or the runtimes disagree about what it is relative to.
        "cgroupsPath": input.control_group,
        "resources": input.confinement.resources(input.can_limit_swap),
        "maskedPaths": masked,
        "readonlyPaths": read_only,
    });
    if let Some(profile) = &input.confined.filters.profile {
        linux["seccomp"] = profile.clone();
    }
    if let Some((_, label)) = &input.confined.labels.selinux {
        linux["mountLabel"] = json!(label);
    }
    linux
}

#[cfg(test)]
mod tests;
