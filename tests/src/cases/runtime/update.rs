//! The next version of an image on a host that has run the one before.

use anyhow::{Result, ensure};

use super::support::{Service, expect_recorded, number};
use crate::runner::Outcome;
use crate::world::World;

/// Pages that a recording of one version brought are believed for the next one of the same repository, named by tag: nothing
/// of the layers that both have is read again. For an image of another repository they are compared first (by digest, too:
/// `false_recordings.rs`).
pub(super) fn believed_in_one_repository(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let first = lab.push_indexed(&service.image, "app")?;
    service.record("recorder", &[&first.tag])?;
    let brought = service.start("root", &[&first.tag])?;
    expect_recorded(&brought)?;
    let brought = number(&brought, "/runtime_image/injected")?;

    let next = service.next_version("news", b"of the next version")?;
    let second = lab.push_indexed(&next, "app")?;
    ensure!(second.tag == first.tag && second.digest != first.digest);
    service.record("recorder", &[&second.tag])?;
    let stats = service.start("root", &[&second.tag])?;
    expect_recorded(&stats)?;
    let again = number(&stats, "/runtime_image/injected")?;
    ensure!(
        again * 10 < brought,
        "{again} pages were brought again, of {brought}"
    );
    // The same layers under another name: other users may attach referrers there.
    let other = lab.push_indexed(&service.image, "other")?;
    let compared = service.start("root", &[&other.tag])?;
    ensure!(
        number(&compared, "/upper_requests")? > 0,
        "what one repository listed is believed of another: {compared:#}"
    );
    service.expect_truth("root", &second.tag)?;
    Ok(Outcome::Passed(format!("{again} pages of {brought} came again")))
}
