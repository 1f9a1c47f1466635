//! Runtime images: what a service touches at its start is recorded once, and comes by one request at every other start;
//! never wrong bytes, whatever becomes of the recording or of its author.

mod ahead;
mod concurrent_starts;
mod disk;
mod explain;
mod false_recordings;
mod faults;
mod interrupted_recording;
mod learn;
mod merge;
mod native;
mod overlap;
mod picture;
mod power;
mod prefill;
mod recording_isolation;
mod recordings;
mod starts;
mod support;
mod trust;
mod update;

use std::time::Duration;

use anyhow::Result;

use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("runtime/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("one-request", starts::one_request),
        case("four-requests", starts::four_requests),
        case("five-requests", starts::five_requests),
        case("config-elsewhere", starts::config_elsewhere),
        case("user", starts::user),
        case("native-one-request", native::one_request),
        case("native-update", native::update),
        case("native-predicted", native::predicted),
        case("native-killed", native::killed),
        case("ahead-command", ahead::command),
        case("ahead-complete", ahead::complete),
        case("ahead-list", ahead::list),
        case("ahead-told", ahead::told_by_registry),
        case("explain-start", explain::another_path),
        case("explain-shared", explain::others_on_the_view),
        case("explain-two-starts", explain::two_starts),
        case("populated", prefill::prefilled),
        case("record-at-full-speed", recordings::at_full_speed),
        case("learn", learn::learn_and_merge),
        case("learn-by-setting", learn::by_setting),
        case("from-disk", disk::read_ahead),
        case("fallback", faults::fallback),
        case("wrong-index", faults::wrong_index),
        case("unnoted", faults::unnoted),
        case("services", starts::services),
        case("trust", trust::trust),
        case("signed-over-listed", trust::signed_over_listed),
        case("proven-at-once", trust::proven_at_once),
        case("update", update::believed_in_one_repository),
        case("lie", false_recordings::by_tag),
        case("lie-then-digest", false_recordings::by_digest),
        case("lie-beside-the-truth", false_recordings::beside_the_truth),
        case("lie-outlives-a-worker", false_recordings::outlives_a_worker),
        case(
            "lie-outlives-a-sudden-death",
            false_recordings::outlives_a_sudden_death,
        ),
        case("lie-and-nobody-vouches", false_recordings::nobody_vouches),
        case("others-do-not-enter", recordings::others_do_not_enter),
        case("complete-layers-are-seen", recordings::complete_layers),
        case("two-at-once", recordings::two_at_once),
        case("merge", merge::merge),
        case("merge-profiles", merge::profiles),
        case("merge-reaches-others", merge::reaches_others),
        case("merge-learned", merge::learned),
        case("merge-refusals", merge::refusals),
        case("picture", picture::picture),
        case("power-cut", power::cut_after_a_start),
        case("power-damage-heals", power::damage_heals),
        case("overlap", overlap::overlap),
        case("overlap-parts", overlap::parts),
        case("overlap-cut-off", overlap::cut_off),
        case("overlap-several", overlap::several),
        case("overlap-ends-early", overlap::ends_early),
        case("together", concurrent_starts::together),
        case("together-first-fails", concurrent_starts::first_fails),
        case("overlap-killed-worker", overlap::worker_killed),
        case("overlap-both-killed", overlap::both_killed),
        case(
            "overlap-both-killed-between-parts",
            overlap::both_killed_between_parts,
        ),
        case(
            "start-beside-a-slow-recording",
            recording_isolation::no_start_waits,
        ),
        case(
            "readers-of-departed-views",
            recording_isolation::readers_of_departed_views,
        ),
        case("killed-worker", interrupted_recording::of_the_worker),
        case("killed-recorder", interrupted_recording::of_the_recorder),
    ]
}
