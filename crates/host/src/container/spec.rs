//! The runtime's `config.json`.
//!
//! Source: runtime-spec 1.0.2, `config.md` and `config-linux.md`; the defaults are those that docker and
//! containerd have in common (containerd `pkg/oci/spec.go`, moby `oci/defaults.go`), because images are
//! tested with them. The file is only ever written, so it is composed as the JSON that it is.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::command::Process;
use super::control_groups;
use super::{Net, Volume, seccomp};

/// The version whose members are used; everything since runc 1.0 reads it.
const SPEC_VERSION: &str = "1.0.2";

/// What a process may do without being told otherwise; docker's list. `inheritable` and `ambient` stay empty
/// (CVE-2022-24769).
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

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

/// Everything that the file depends on.
pub(super) struct SpecInput<'a> {
    pub id: &'a str,
    pub process: &'a Process,
    pub root: &'a Path,
    pub hostname: &'a str,
    pub net: Net,
    pub terminal: bool,
    pub volumes: &'a [Volume],
    /// Files made for this container, each bound over the path of the same name below `/etc`.
    pub network_files: &'a [(PathBuf, &'static str)],
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
        "root": { "path": input.root, "readonly": false },
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
    let most = input.open_files_limit.unwrap_or(u64::MAX);
    let (soft, hard) = (OPEN_FILES.0.min(most), OPEN_FILES.1.min(most));
    let hostname = (!named).then(|| format!("HOSTNAME={}", input.hostname));
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .chain(hostname)
        .collect();
    json!({
        "terminal": input.terminal,
        "user": { "uid": identity.uid, "gid": identity.gid, "additionalGids": identity.additional },
        "args": args,
        "env": env,
        "cwd": cwd,
        "capabilities": { "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES },
        "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }],
        // Off, as in docker: programs such as sudo and ping work as on any host.
        "noNewPrivileges": false,
    })
}

fn mounts(input: &SpecInput<'_>) -> Value {
    let mount = |target: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": source, "options": options });
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
            &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
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
    json!({
        "namespaces": namespaces,
        "sysctl": sysctl,
        // Absolute, or the runtimes disagree about what it is relative to.
        "cgroupsPath": control_groups::path(input.id),
        // The runtime adds the devices that every container has.
        "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
        "maskedPaths": MASKED_PATHS,
        "readonlyPaths": READ_ONLY_PATHS,
        "seccomp": seccomp::profile(),
    })
}

#[cfg(test)]
mod tests;
