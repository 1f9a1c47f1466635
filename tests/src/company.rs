//! The company of a case: which cases may run beside it, and which cases begin first, by the beginnings of their names.

/// Beginnings of the names of cases that wait for something that does not come or comes late, and bound how long. They use little of
/// the machine, so they run beside each other, but not beside cases that use all of it.
const WAITING: &[&str] = &[
    "away/",
    "faults/",
    "observe/slow-registry",
    "observe/reader-on-a-terminal",
    "stalls/",
    "containerd/dead-registry",
    // For the moments at which the daemon looks whether its socket is there.
    "containerd/socket-renewed",
    "docker/dead-registry",
];

/// Beginnings of the names of cases that take long and use little of the machine: they wait for what others do by their own clocks, as a
/// kubelet that looks for containers that have ended. They bound no times shorter than those clocks, so some of them run beside cases
/// that use all of the machine.
const LIGHT: &[&str] = &[
    "kubelet/",
    "kubernetes/",
    "power/cut-under-load",
    "preparing/killed-while-it-serves",
    "quota/killed-midway",
    "runtime/ahead-list",
    "runtime/merge-reaches-others",
    "runtime/power-cut",
];

/// Beginnings of the names of cases that bound or measure time, memory or requests. Cases beside them would be measured, too: they run
/// after the others, one at a time.
const ALONE: &[&str] = &[
    "budget/",
    "soak/",
    "runtime/five-requests",
    "registry/crowd",
    "registry/hundred-thousand-tags",
    // A snapshotter that needs longer than half a minute for five hundred layers lets containerd unpack them.
    "containerd/layers",
    "quota/strange-files-are-cheap",
];

/// Beginnings of the names of cases that take half a minute or more. Of those of the same company they begin first, so that none of them is
/// left over at the end, when there is nothing to run beside it.
const LONG: &[&str] = &[
    "containerd/user-namespaces",
    "differential/odd-500-layers",
    "differential/odd-big-directory",
    "differential/estargz",
    "differential/zstd-chunked",
    "differential/deep",
    "packaging/debian",
    "packaging-registry/debian",
    "reading/64-readers-10000-files",
    "kubelet/room",
    "kubelet/uninstalled",
    "kubernetes/",
    "away/local-image-starts",
    "observe/reader-on-a-terminal",
    "containerd/dead-registry",
    "containerd/socket-renewed",
];

/// The cases that may run beside a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Any case.
    Any,
    /// Any case; it uses little of the machine itself.
    Light,
    /// Cases that mostly wait, as this one does.
    Waiting,
    /// None: it needs the machine for itself.
    None,
}

/// The cases that may run beside the case of this name.
pub(crate) fn company(name: &str) -> Company {
    match () {
        () if is_of(name, ALONE) => Company::None,
        () if is_of(name, WAITING) => Company::Waiting,
        () if is_of(name, LIGHT) => Company::Light,
        () => Company::Any,
    }
}

/// Whether the case of this name takes half a minute or more.
pub(crate) fn takes_long(name: &str) -> bool {
    is_of(name, LONG)
}

fn is_of(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}
