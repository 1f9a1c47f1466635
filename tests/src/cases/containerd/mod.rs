//! The snapshotter under containerd's own tests and under containerd itself, both lines that are in use.

mod blobs;
mod boot;
mod building;
pub(super) mod cri;
mod ctr_pull;
mod false_labels;
pub(super) mod full;
mod layers;
pub(super) mod lazy;
mod limits;
mod many;
mod own;
mod plain;
mod restarts;
mod services;
mod suite;
pub(super) mod support;
pub(super) mod user_namespaces;
pub(super) mod user_pods;

use std::time::Duration;

use anyhow::Result;

use self::restarts::Loss;
use crate::containerd::Line;
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("containerd/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    let mut cases = suite::cases();
    cases.push(Case {
        limit: layers::LIMIT,
        ..case("layers", layers::run_case)
    });
    cases.extend([
        case("plain-2", |world| plain::run_case(world, Line::Two)),
        case("plain-1.7", |world| plain::run_case(world, Line::OneSeven)),
        case("cri-2", |world| cri::run_case(world, Line::Two)),
        case("cri-1.7", |world| cri::run_case(world, Line::OneSeven)),
        case("logins", cri::logins),
        case("lazy-2", |world| lazy::run_case(world, Line::Two)),
        case("lazy-1.7", |world| lazy::run_case(world, Line::OneSeven)),
        case("changes", lazy::changes),
        case("by-digest", lazy::by_digest),
        case("own-image-2", |world| own::run_case(world, Line::Two)),
        case("own-image-1.7", |world| own::run_case(world, Line::OneSeven)),
        case("moved-tag", own::moved_tag),
        case("lies", false_labels::run_case),
        case("dead-registry", limits::dead_registry),
        case("many-labels", limits::many_labels),
        case("killed", restarts::killed),
        case("restarts", restarts::in_any_order),
        case("socket-renewed-name-removed", |world| {
            restarts::socket_renewed(world, Loss::NameRemoved)
        }),
        case("socket-renewed-directory-replaced", |world| {
            restarts::socket_renewed(world, Loss::DirectoryReplaced)
        }),
        case("socket-renewed-other-socket", |world| {
            restarts::socket_renewed(world, Loss::OtherSocket)
        }),
        case("blobs", blobs::run_case),
        case("building", building::run_case),
        case("ctr-pull", ctr_pull::run_case),
        case("ctr-pull-broken-off", ctr_pull::broken_off),
        case("user-namespaces", user_namespaces::run_case),
        case("user-namespaces-of-pods", user_pods::run_case),
        case("boot", boot::run_case),
        case("services", services::run_case),
        case("many", many::run_case),
        case("full-of-bytes", full::of_bytes),
        case("full-of-files", full::of_files),
        case("nerdctl", |_| {
            cannot_be_had("nerdctl", "nothing stands in for it")
        }),
        case("crictl", |_| {
            cannot_be_had("crictl", "a client of ours makes its calls (cri-2, cri-1.7)")
        }),
    ]);
    cases
}

/// A Go program that is not available as a program.
fn cannot_be_had(program: &str, instead: &str) -> Result<Outcome> {
    Ok(Outcome::Skipped(format!(
        "the Go proxy refuses {program}'s module, and neither Debian 12, PyPI nor npm has a package of it; {instead}"
    )))
}
