//! Makes the profile that a start teaches.

use std::collections::BTreeMap;

use xebec_format::runtime_image::ServiceKey;
use xebec_protocol::start_report::StartEnd;
use xebec_recordings::profile::Profile;

use crate::start_facts::{Facts, Over, Seen, Sorted, runs_of};

/// Pages that a profile may miss: a gigabyte. One that missed more says little about a start.
const MAX_PAGES: u64 = 1 << 18;

/// The profile to be learned from a start, or the reason why nothing is.
pub(super) fn profile(start: &Facts, over: &Over, seen: &Seen) -> Result<Profile, String> {
    let refused = match over.end {
        StartEnd::Ready if seen.asked.is_full => "it asked for more pages than are remembered",
        StartEnd::Ready if seen.unnoticed.is_none() => {
            "what it read of complete layers cannot be told: they have too many files, or its view was in memory before"
        }
        StartEnd::Ready if !seen.is_exact => "its view reads ahead, since others used it before",
        StartEnd::Ready => "",
        StartEnd::Ended => "it ended before it was ready",
        StartEnd::Limit => "it was not ready for long",
    };
    if !refused.is_empty() {
        return Err(refused.to_owned());
    }
    let sorted = Sorted::new(start, seen);
    if sorted.outside.len() as u64 > MAX_PAGES {
        let pages = sorted.outside.len();
        return Err(format!("{pages} pages outside of the recording are too many"));
    }
    let (service, touched) = match &start.recorded {
        Some(recorded) => {
            let read = seen.touched.pages.without(&sorted.inside);
            let unknown = recorded
                .pages
                .without(&seen.touched.looked_for)
                .without(&sorted.inside);
            let is_seen = !seen.is_shared && unknown.is_empty();
            let touched = is_seen.then(|| [runs_of(start, &read), runs_of(start, &sorted.inside)].concat());
            (recorded.key.clone(), touched)
        }
        None => {
            let key = ServiceKey {
                argv: start.argv.clone(),
                env: BTreeMap::new(),
            };
            // All that it read is outside, but for files that are elsewhere.
            let is_seen = !seen.is_shared && !start.borrows;
            (key, is_seen.then(Vec::new))
        }
    };
    let touched = touched.map(|runs| {
        let pages = runs
            .iter()
            .flat_map(|run| (run.first..run.end()).map(|page| (run.layer, page)));
        let mut pages: Vec<(u16, u64)> = pages.collect();
        pages.sort_unstable();
        Profile::runs(pages)
    });
    Ok(Profile {
        image: start.manifest,
        layers: start.layers.clone(),
        service,
        started: start.began_ms / 1000,
        missed: Profile::runs(sorted.outside),
        touched,
    })
}
