//! The cases, by topic.

mod away;
mod budget;
mod closed;
mod containerd;
mod deaths;
mod differential;
mod docker;
mod faults;
mod kubelet;
mod kubernetes;
mod laziness;
mod lingering;
mod observe;
mod ours;
mod outages;
mod packaging;
mod podman;
mod power;
mod preparing;
mod private;
mod quota;
mod reading;
mod runtime;
mod service;
mod soak;
mod stalls;
mod stops;
mod strangers;
mod succession;
mod trust;

use crate::runner::Case;

/// Beginnings of the names of cases that bound or measure time, memory or requests. What runs beside them would be
/// measured, too: they run after the others, one at a time.
const ALONE: &[&str] = &[
    "away/",
    "budget/",
    "faults/",
    "soak/",
    "observe/slow-registry",
    "stalls/",
    "runtime/five-requests",
    "containerd/dead-registry",
    "docker/dead-registry",
    "quota/strange-files-are-cheap",
];

/// Whether a case needs the machine for itself.
pub(crate) fn is_alone(name: &str) -> bool {
    ALONE.iter().any(|beginning| name.starts_with(beginning))
}

/// Every case, in the order in which they run, but for those that run alone.
pub(crate) fn all() -> Vec<Case> {
    [
        reading::cases(),
        ours::cases(),
        podman::cases(),
        strangers::cases(),
        closed::cases(),
        private::cases(),
        outages::cases(),
        observe::cases(),
        away::cases(),
        faults::cases(),
        stalls::cases(),
        budget::cases(),
        trust::cases(),
        runtime::cases(),
        laziness::cases(),
        lingering::cases(),
        deaths::cases(),
        succession::cases(),
        stops::cases(),
        service::cases(),
        packaging::cases(),
        containerd::cases(),
        docker::cases(),
        kubelet::cases(),
        kubernetes::cases(),
        quota::cases(),
        power::cases(),
        preparing::cases(),
        differential::cases(),
        soak::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
