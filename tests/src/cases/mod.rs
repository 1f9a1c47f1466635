//! The cases, by topic.

mod budget;
mod commit;
mod containerd;
mod containers;
mod daemon_stop;
mod differential;
mod directory_permissions;
mod docker;
mod exec_and_copy;
mod faults;
mod foreign_files;
mod idle_views;
mod killed_daemon;
mod kubelet;
mod kubernetes;
mod laziness;
mod networks;
mod observe;
mod outages;
mod packaging;
mod packaging_registry;
mod podman;
mod power;
mod preparing;
mod private_layers;
mod quota;
mod reading;
mod registry;
mod registry_clients;
mod registry_copies;
mod registry_deduplicated;
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
mod stalled_registry;
mod succession;
mod tour;
mod trust;
mod unprivileged_user;
mod unreachable_registry;
mod volumes;

use crate::company::takes_long;
use crate::runner::Case;

/// Every case, in the order in which they run among those of the same company.
pub(crate) fn all() -> Vec<Case> {
    let cases = [
        reading::cases(),
        exec_and_copy::cases(),
        foreign_files::cases(),
        podman::cases(),
        unprivileged_user::cases(),
        directory_permissions::cases(),
        private_layers::cases(),
        outages::cases(),
        networks::cases(),
        observe::cases(),
        unreachable_registry::cases(),
        faults::cases(),
        stalled_registry::cases(),
        budget::cases(),
        trust::cases(),
        runtime::cases(),
        laziness::cases(),
        registry_clients::cases(),
        registry_copies::cases(),
        registry_deduplicated::cases(),
        registry_killed::cases(),
        registry_large::cases(),
        registry_memory::cases(),
        registry_lazy::cases(),
        registry_moving::cases(),
        registry_page::cases(),
        registry_redirects::cases(),
        idle_views::cases(),
        killed_daemon::cases(),
        succession::cases(),
        daemon_stop::cases(),
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
        commit::cases(),
        volumes::cases(),
        differential::cases(),
        registry::cases(),
        tour::cases(),
        soak::cases(),
    ];
    let mut cases: Vec<Case> = cases.into_iter().flatten().collect();
    cases.sort_by_key(|case| !takes_long(&case.name));
    cases
}
