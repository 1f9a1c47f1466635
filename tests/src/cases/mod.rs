//! The cases, by topic.

mod away;
mod budget;
mod closed;
mod containerd;
mod containers;
mod deaths;
mod differential;
mod docker;
mod faults;
mod joining;
mod kubelet;
mod kubernetes;
mod laziness;
mod lingering;
mod networks;
mod observe;
mod ours;
mod outages;
mod packaging;
mod packaging_registry;
mod podman;
mod power;
mod preparing;
mod private;
mod quota;
mod reading;
mod registry;
mod registry_clients;
mod registry_killed;
mod registry_large;
mod registry_lazy;
mod registry_memory;
mod registry_moving;
mod registry_page;
mod registry_redirects;
mod runtime;
mod service;
mod soak;
mod stalls;
mod stops;
mod strangers;
mod succession;
mod tour;
mod trust;
mod volumes;

use crate::runner::Case;

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
    "runtime/merge-reaches-others",
    "runtime/power-cut",
];

/// Beginnings of the names of cases that bound or measure time, memory or requests. What runs beside them would be
/// measured, too: they run after the others, one at a time.
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

/// Beginnings of the names of cases that take half a minute or more. Of those of the same company they begin first, so that none of them is left over at the end,
/// when there is nothing to run beside it.
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

/// What may run beside a case.
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

/// What may run beside the case of this name.
pub(crate) fn company(name: &str) -> Company {
    match () {
        () if is_of(name, ALONE) => Company::None,
        () if is_of(name, WAITING) => Company::Waiting,
        () if is_of(name, LIGHT) => Company::Light,
        () => Company::Any,
    }
}

fn is_of(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// Every case, in the order in which they run among those of the same company.
pub(crate) fn all() -> Vec<Case> {
    let cases = [
        reading::cases(),
        joining::cases(),
        ours::cases(),
        podman::cases(),
        strangers::cases(),
        closed::cases(),
        private::cases(),
        outages::cases(),
        networks::cases(),
        observe::cases(),
        away::cases(),
        faults::cases(),
        stalls::cases(),
        budget::cases(),
        trust::cases(),
        runtime::cases(),
        laziness::cases(),
        registry_clients::cases(),
        registry_killed::cases(),
        registry_large::cases(),
        registry_memory::cases(),
        registry_lazy::cases(),
        registry_moving::cases(),
        registry_page::cases(),
        registry_redirects::cases(),
        lingering::cases(),
        deaths::cases(),
        succession::cases(),
        stops::cases(),
        service::cases(),
        packaging::cases(),
        packaging_registry::cases(),
        containerd::cases(),
        docker::cases(),
        kubelet::cases(),
        kubernetes::cases(),
        quota::cases(),
        power::cases(),
        preparing::cases(),
        containers::cases(),
        volumes::cases(),
        differential::cases(),
        registry::cases(),
        tour::cases(),
        soak::cases(),
    ];
    let mut cases: Vec<Case> = cases.into_iter().flatten().collect();
    cases.sort_by_key(|case| !is_of(&case.name, LONG));
    cases
}
