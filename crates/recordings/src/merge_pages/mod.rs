//! Folds recordings and profiles of a service into one list of pages, in the order of first access. The pages of all
//! recordings are united. Pages that production asked for besides come in, the most often seen first, up to a limit. Pages that
//! no recent start touched go.
//!
//! Numbers only: nothing here says what is in a page. Layers must be numbered alike everywhere; see `Numbers`.

mod limit;
mod numbers;
mod order;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use xebec_format::runtime_image::{PREDICTED, PageRun, SeenRun, Service};

use crate::find::date;
use crate::profile::Profile;
pub use limit::Limit;
pub(super) use numbers::Numbers;
pub(super) use order::{Page, arranged, pages};
use order::{interleaved, most_often};

/// How the recorder of a service ends that was folded. It stands for everything that is older: a page that it left out
/// must not come back with the recording in which it was.
const MERGED: &str = " merge";
/// So many starts must agree that a page is not needed.
const RECENT: usize = 3;
/// How far clocks of hosts that record may go wrong, in seconds: a day.
const CLOCKS: u64 = 24 * 60 * 60;

/// Whether a service was folded from others.
fn is_merged(service: &Service) -> bool {
    service.recorder.ends_with(MERGED)
}

/// The recordings of one service that count, newest first: back to the last one that was folded. One that is predicted counts only where
/// none was made: it says what a start may read, not what one did read. Of several that are predicted the newest counts, so that one that
/// was folded stands for what it was folded of. `service_of` gives the service of an item.
pub(super) fn standing<T>(mut all: Vec<T>, service_of: impl Fn(&T) -> &Service) -> Vec<T> {
    let all_predicted = all.iter().all(|item| service_of(item).is_predicted());
    all.retain(|item| all_predicted || !service_of(item).is_predicted());
    all.sort_by_key(|item| Reverse(date(service_of(item))));
    let stands = |item: &T| all_predicted || is_merged(service_of(item));
    let last = all.iter().position(stands);
    all.truncate(last.map_or(all.len(), |last| last + 1));
    all
}

/// The time of a recording that is newer than these of the same service: now, or a moment after the last of them, where they
/// were made within the same second or a clock is ahead. Times that are too far ahead do not count. All in seconds since 1970.
pub(super) fn after<'a>(recordings: impl IntoIterator<Item = &'a Service>, now: u64) -> u64 {
    now.max(just_after(recordings, now).unwrap_or_default())
}

/// A moment after the last of these recordings, of those whose times are not too far ahead.
fn just_after<'a>(recordings: impl IntoIterator<Item = &'a Service>, now: u64) -> Option<u64> {
    let recorded = recordings.into_iter().map(|service| service.recorded);
    let latest = recorded
        .filter(|recorded| *recorded <= now.saturating_add(CLOCKS))
        .max();
    latest.map(|latest| latest.saturating_add(1))
}

/// A service that was folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folded {
    /// The service.
    pub(super) service: Service,
    /// Pages that came from profiles.
    pub(super) added: u64,
    /// Pages that profiles have and the limit kept out.
    pub(super) left_out: u64,
    /// Recorded pages that no recent start touched.
    pub(super) dropped: u64,
}

/// Folds the recordings of one service, newest first ([`standing`]), and its profiles, newest first. `now` is in seconds
/// since 1970. Of a service that was never recorded, starts that say all that they touched are the recordings; `None` if
/// there is none of either. What is predicted gives their pages its order then, and no page: a poor prediction must not say how much
/// may be learned.
pub(super) fn fold(recordings: &[Service], profiles: &[Profile], limit: Limit, now: u64) -> Option<Folded> {
    let (knowing, others): (Vec<&Profile>, Vec<&Profile>) =
        profiles.iter().partition(|profile| says_all(profile));
    if knowing.is_empty() || !recordings.iter().all(Service::is_predicted) {
        return fold_recorded(recordings, profiles, limit, now);
    }
    let predicted = Recorded::of(recordings).order;
    let starts: Vec<Service> = knowing
        .into_iter()
        .map(|start| as_recording(start, &predicted))
        .collect();
    let others: Vec<Profile> = others.into_iter().cloned().collect();
    let folded = fold_recorded(&starts, &others, limit, now)?;
    let touched = &folded.service.touched;
    let learned: HashSet<Page> = touched.iter().flat_map(|seen| pages(&seen.run)).collect();
    let stayed = predicted.iter().filter(|page| learned.contains(*page)).count();
    Some(Folded {
        added: (learned.len() - stayed) as u64,
        dropped: (predicted.len() - stayed) as u64,
        ..folded
    })
}

/// Whether a profile says all that its start touched, and that is something.
pub(super) fn says_all(profile: &Profile) -> bool {
    let touched = profile.touched.as_ref();
    touched.is_some_and(|touched| !touched.is_empty() || !profile.missed.is_empty())
}

/// A start that says all that it touched, as if it had been recorded: predicted pages in the order in which they are predicted, since
/// profiles say none of those, then the others.
fn as_recording(profile: &Profile, predicted: &[Page]) -> Service {
    let places: HashMap<&Page, usize> = predicted.iter().zip(0..).collect();
    let mut touched: Vec<Page> = profile.touched.iter().flatten().flat_map(pages).collect();
    touched.sort_by_key(|page| places.get(page).copied().unwrap_or(usize::MAX));
    let runs = Profile::runs(touched.into_iter().chain(profile.missed.iter().flat_map(pages)));
    Service {
        key: profile.service.clone(),
        probe: "learned".to_owned(),
        recorded: profile.started,
        runs: 1,
        recorder: String::new(),
        touched: runs.into_iter().map(|run| SeenRun { run, seen: 1 }).collect(),
    }
}

fn fold_recorded(recordings: &[Service], profiles: &[Profile], limit: Limit, now: u64) -> Option<Folded> {
    let newest = recordings.first()?;
    let mut profiles: Vec<Start> = profiles.iter().map(Start::new).collect();
    let Recorded {
        order: recorded,
        mut seen,
        last_seen,
    } = Recorded::of(recordings);
    for start in &mut profiles {
        // One that touched nothing that is recorded was not looked at properly.
        start.knows &= start.pages.iter().any(|page| last_seen.contains_key(page));
    }
    let is_needed = |page: &Page| is_needed(page, &profiles, last_seen.get(page).copied());
    let mut kept: Vec<Page> = recorded.iter().copied().filter(is_needed).collect();
    let (missed, times) = missed(&profiles, &last_seen);
    let added = most_often(&missed, &times, limit.of(recorded.len() as u64));
    if kept.is_empty() && added.is_empty() {
        // That a start needs nothing of its image was not seen, whatever profiles say.
        kept.clone_from(&recorded);
    }
    for start in &profiles {
        start
            .pages
            .iter()
            .for_each(|page| *seen.entry(*page).or_default() += 1);
    }
    let knowing = profiles.iter().filter(|start| start.knows).count() as u64;
    // No start was run for what is predicted.
    let run = recordings.iter().filter(|service| !service.is_predicted());
    let runs = run.map(|service| u64::from(service.runs)).sum::<u64>() + knowing;
    let scale = Scale(runs);
    let seen_of = |page: &Page| scale.seen(seen.get(page).copied().unwrap_or(1));
    // What is predicted stays so, as old as it was, until a start has said all that it touched.
    let is_predicted = knowing == 0 && recordings.iter().all(Service::is_predicted);
    let (how, date) = match is_predicted {
        true => (PREDICTED, just_after(recordings, now).unwrap_or(now)),
        false => (MERGED, after(recordings, now)),
    };
    let touched = seen_runs(kept.iter().chain(&added).copied(), seen_of);
    let service = Service {
        key: newest.key.clone(),
        probe: newest.probe.clone(),
        recorded: date,
        runs: scale.runs(),
        recorder: format!("xebec {}{how}", env!("CARGO_PKG_VERSION")),
        touched,
    };
    Some(Folded {
        service,
        added: added.len() as u64,
        left_out: (missed.len() - added.len()) as u64,
        dropped: (recorded.len() - kept.len()) as u64,
    })
}

/// The pages of all recordings of a service.
struct Recorded {
    /// Their pages, in the order of first access.
    order: Vec<Page>,
    /// In how many runs each was touched.
    seen: HashMap<Page, u64>,
    /// When each was recorded last.
    last_seen: HashMap<Page, u64>,
}

impl Recorded {
    /// `recordings`: the newest comes first.
    fn of(recordings: &[Service]) -> Self {
        let mut this = Self {
            order: Vec::new(),
            seen: HashMap::new(),
            last_seen: HashMap::new(),
        };
        for recording in recordings {
            let touched = recording.touched.iter();
            let order: Vec<Page> = touched.flat_map(|seen| pages(&seen.run)).collect();
            for touched in &recording.touched {
                for page in pages(&touched.run) {
                    if !recording.is_predicted() {
                        *this.seen.entry(page).or_default() += u64::from(touched.seen);
                    }
                    this.last_seen.entry(page).or_insert(recording.recorded);
                }
            }
            this.order = interleaved(this.order, &order);
        }
        this
    }
}

/// Whether a recorded page is kept: a start since it was recorded touched it, or too few starts can tell.
fn is_needed(page: &Page, profiles: &[Start], last_seen: Option<u64>) -> bool {
    let when = last_seen.unwrap_or_default();
    let later = profiles
        .iter()
        .filter(|start| start.knows && start.started > when);
    let (mut count, mut touched) = (0, false);
    for start in later {
        count += 1;
        touched |= start.pages.contains(page);
    }
    touched || count < RECENT
}

/// Pages that starts asked for and no recording has, in their order, and how many starts asked for each.
fn missed(profiles: &[Start], recorded: &HashMap<Page, u64>) -> (Vec<Page>, HashMap<Page, usize>) {
    let mut missed: Vec<Page> = Vec::new();
    let mut times: HashMap<Page, usize> = HashMap::new();
    for start in profiles {
        let others = start.missed.iter().filter(|page| !recorded.contains_key(*page));
        let others: Vec<Page> = others.copied().collect();
        for page in &others {
            *times.entry(*page).or_default() += 1;
        }
        missed = interleaved(missed, &others);
    }
    (missed, times)
}

/// Pages in runs, in their order, as often as they were seen.
fn seen_runs(pages: impl Iterator<Item = Page>, seen: impl Fn(&Page) -> u8) -> Vec<SeenRun> {
    let mut runs = Vec::new();
    for (layer, first) in pages {
        let seen = seen(&(layer, first));
        let run = PageRun {
            layer,
            first,
            pages: 1,
        };
        SeenRun { run, seen }.push_onto(&mut runs);
    }
    runs
}

/// The pages of a profile, for looking up.
struct Start {
    started: u64,
    missed: Vec<Page>,
    /// All pages that it was seen to touch.
    pages: HashSet<Page>,
    /// Whether these are all that it touched.
    knows: bool,
}

impl Start {
    fn new(profile: &Profile) -> Self {
        let missed: Vec<Page> = profile.missed.iter().flat_map(pages).collect();
        let touched = profile.touched.as_deref().unwrap_or_default();
        Self {
            started: profile.started,
            pages: missed
                .iter()
                .copied()
                .chain(touched.iter().flat_map(pages))
                .collect(),
            missed,
            knows: profile.touched.is_some(),
        }
    }
}

/// Counts of runs in a byte: all of them in the same proportion if there were more runs.
struct Scale(u64);

impl Scale {
    fn runs(&self) -> u8 {
        u8::try_from(self.0.max(1)).unwrap_or(u8::MAX)
    }

    /// At least one, and all only if it was all.
    fn seen(&self, seen: u64) -> u8 {
        let (runs, seen) = (self.0.max(1), seen.clamp(1, self.0.max(1)));
        let most = u64::from(self.runs());
        let scaled = (seen.saturating_mul(most) / runs).max(1);
        u8::try_from(scaled).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests;
