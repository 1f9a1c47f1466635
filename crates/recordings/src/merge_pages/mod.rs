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
/// none was made: it says what a start may read, not what one did read. `service_of` gives the service of an item.
pub(super) fn standing<T>(mut all: Vec<T>, service_of: impl Fn(&T) -> &Service) -> Vec<T> {
    if all.iter().any(|item| !service_of(item).is_predicted()) {
        all.retain(|item| !service_of(item).is_predicted());
    }
    all.sort_by_key(|item| Reverse(date(service_of(item))));
    let last = all.iter().position(|item| is_merged(service_of(item)));
    all.truncate(last.map_or(all.len(), |last| last + 1));
    all
}

/// The time of a recording that is newer than these of the same service: now, or a moment after the last of them, where they
/// were made within the same second or a clock is ahead. Times that are too far ahead do not count. All in seconds since 1970.
pub(super) fn after<'a>(recordings: impl IntoIterator<Item = &'a Service>, now: u64) -> u64 {
    let recorded = recordings.into_iter().map(|service| service.recorded);
    let latest = recorded
        .filter(|recorded| *recorded <= now.saturating_add(CLOCKS))
        .max();
    now.max(latest.map_or(0, |latest| latest.saturating_add(1)))
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
/// there is none of either.
pub(super) fn fold(recordings: &[Service], profiles: &[Profile], limit: Limit, now: u64) -> Option<Folded> {
    if !recordings.is_empty() {
        return fold_recorded(recordings, profiles, limit, now);
    }
    let (knowing, others): (Vec<&Profile>, Vec<&Profile>) =
        profiles.iter().partition(|profile| says_all(profile));
    let starts: Vec<Service> = knowing.into_iter().map(as_recording).collect();
    let others: Vec<Profile> = others.into_iter().cloned().collect();
    let folded = fold_recorded(&starts, &others, limit, now)?;
    let pages = folded
        .service
        .touched
        .iter()
        .map(|seen| u64::from(seen.run.pages));
    Some(Folded {
        added: pages.sum(),
        ..folded
    })
}

/// Whether a profile says all that its start touched, and that is something.
pub(super) fn says_all(profile: &Profile) -> bool {
    let touched = profile.touched.as_ref();
    touched.is_some_and(|touched| !touched.is_empty() || !profile.missed.is_empty())
}

/// A start that says all that it touched, as if it had been recorded.
fn as_recording(profile: &Profile) -> Service {
    let touched = profile.touched.iter().flatten().chain(&profile.missed);
    let runs = Profile::runs(touched.flat_map(pages));
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
    // What is predicted stays so until a start has said something of it.
    let is_predicted = profiles.is_empty() && recordings.iter().all(Service::is_predicted);
    let how = if is_predicted { PREDICTED } else { MERGED };
    let touched = seen_runs(kept.iter().chain(&added).copied(), seen_of);
    let service = Service {
        key: newest.key.clone(),
        probe: newest.probe.clone(),
        recorded: after(recordings, now),
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
mod tests {
    use xebec_format::digest::Digest;
    use xebec_format::runtime_image::{RecordedLayer, ServiceKey};

    use super::*;

    const NOW: u64 = 1_000_000;

    fn key() -> ServiceKey {
        ServiceKey {
            argv: vec!["service".to_owned()],
            env: Default::default(),
        }
    }

    /// Pages with how often each was seen.
    fn recorded(when: u64, runs: u8, touched: &[(u64, u8)]) -> Service {
        let mut seen = Vec::new();
        for (first, times) in touched.iter().copied() {
            let (layer, pages) = (0, 1);
            let run = PageRun { layer, first, pages };
            SeenRun { run, seen: times }.push_onto(&mut seen);
        }
        Service {
            key: key(),
            probe: format!("probe of {when}"),
            recorded: when,
            runs,
            recorder: "xebec 0.0.1".to_owned(),
            touched: seen,
        }
    }

    fn profile(started: u64, missed: &[u64], touched: Option<&[u64]>) -> Profile {
        let runs = |pages: &[u64]| Profile::runs(pages.iter().map(|page| (0, *page)));
        Profile {
            image: Digest::of(b"image"),
            layers: Vec::new(),
            service: key(),
            started,
            missed: runs(missed),
            touched: touched.map(runs),
        }
    }

    fn seen(folded: &Folded) -> Vec<(u64, u8)> {
        let touched = folded.service.touched.iter();
        touched
            .flat_map(|seen| pages(&seen.run).map(|(_, page)| (page, seen.seen)))
            .collect()
    }

    #[test]
    fn a_recording_is_dated_after_those_that_it_follows() {
        let of =
            |dates: &[u64]| -> Vec<Service> { dates.iter().map(|when| recorded(*when, 1, &[])).collect() };
        assert_eq!(after(&[], NOW), NOW);
        assert_eq!(after(&of(&[NOW - 7, NOW - 1]), NOW), NOW);
        assert_eq!(after(&of(&[NOW, NOW - 1]), NOW), NOW + 1, "within one second");
        assert_eq!(
            after(&of(&[NOW + CLOCKS]), NOW),
            NOW + CLOCKS + 1,
            "by a clock that is ahead"
        );
        assert_eq!(after(&of(&[NOW + CLOCKS + 1, u64::MAX]), NOW), NOW, "by none");
    }

    #[test]
    fn recordings_unite() {
        let newest = recorded(300, 2, &[(1, 2), (5, 1), (6, 2)]);
        let older = recorded(200, 1, &[(5, 1), (9, 1), (6, 1)]);
        let folded = fold(&[newest, older], &[], Limit::default(), NOW).unwrap();
        assert_eq!(seen(&folded), [(1, 2), (5, 2), (9, 1), (6, 3)]);
        let service = &folded.service;
        assert_eq!(
            (service.runs, service.recorded, &service.probe[..]),
            (3, NOW, "probe of 300")
        );
        assert!(is_merged(service));
        assert_eq!((folded.added, folded.dropped, folded.left_out), (0, 0, 0));
        assert_eq!(fold(&[], &[], Limit::default(), NOW), None);
    }

    #[test]
    fn what_was_folded_stands_for_what_is_older() {
        let merged = Service {
            recorder: format!("xebec 9{MERGED}"),
            ..recorded(200, 1, &[(1, 1)])
        };
        let all = vec![
            recorded(100, 1, &[(1, 1)]),
            recorded(300, 1, &[(1, 1)]),
            merged,
            recorded(200, 1, &[(1, 1)]),
        ];
        let times: Vec<u64> = standing(all.clone(), |service| service)
            .iter()
            .map(|s| s.recorded)
            .collect();
        assert_eq!(times, [300, 200]);
        let times: Vec<u64> = standing(all[..2].to_vec(), |service| service)
            .iter()
            .map(|s| s.recorded)
            .collect();
        assert_eq!(times, [300, 100]);
    }

    #[test]
    fn what_is_predicted_is_a_hint_until_a_start_has_said_something() {
        let predicted = Service {
            recorder: "xebec-registry 1 predict".to_owned(),
            ..recorded(300, 1, &[(1, 1), (2, 1), (3, 1)])
        };
        let both = vec![predicted.clone(), recorded(100, 2, &[(9, 2)])];
        let standing_times: Vec<u64> = standing(both, |service| service)
            .iter()
            .map(|s| s.recorded)
            .collect();
        assert_eq!(standing_times, [100], "it is left out where there is a recording");
        let alone = [predicted];
        let folded = |profiles: &[Profile]| fold(&alone, profiles, Limit::default(), NOW).unwrap();
        let hint = folded(&[]);
        assert!(hint.service.is_predicted(), "nothing has confirmed it");
        let starts: Vec<Profile> = (400..404)
            .map(|when| profile(when, &[7], Some(&[1, 2])))
            .collect();
        let confirmed = folded(&starts);
        assert!(is_merged(&confirmed.service));
        // Four starts ran it; the prediction is no run.
        assert_eq!(confirmed.service.runs, 4);
        assert_eq!(seen(&confirmed), [(1, 4), (2, 4), (7, 4)]);
        assert_eq!(confirmed.dropped, 1);
    }

    #[test]
    fn it_is_newer_than_what_it_stands_for() {
        let at = |when: u64| fold(&[recorded(when, 1, &[(1, 1)])], &[], Limit::default(), NOW);
        let when = |when: u64| at(when).unwrap().service.recorded;
        assert_eq!((when(10), when(NOW), when(NOW + 60)), (NOW, NOW + 1, NOW + 61));
        assert_eq!(when(u64::MAX), NOW, "no clock goes that wrong");
    }

    #[test]
    fn profiles_add_what_most_starts_asked_for() {
        let pages: Vec<(u64, u8)> = (0..10).map(|page| (page, 1)).collect();
        let base = [recorded(100, 1, &pages)];
        let profiles = [
            profile(400, &[70, 50, 3], None),
            profile(300, &[60, 50], None),
            profile(200, &[60, 80, 50], None),
        ];
        let folded = fold(&base, &profiles, Limit::default(), NOW).unwrap();
        assert_eq!((folded.added, folded.left_out, folded.dropped), (2, 2, 0));
        let mut expected = pages.clone();
        expected.extend([(60, 1), (50, 1)]);
        assert_eq!(seen(&folded), expected);
        assert_eq!(folded.service.runs, 1, "nobody knows what these starts touched");
        let all = fold(&base, &profiles, Limit::Pages(100), NOW).unwrap();
        assert_eq!((all.added, all.left_out), (4, 0));
        let none = fold(&base, &profiles, Limit::Percent(0), NOW).unwrap();
        assert_eq!((seen(&none), none.left_out), (pages, 4));
    }

    #[test]
    fn pages_that_no_recent_start_touched_are_dropped() {
        let base = recorded(100, 1, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let start = |started, touched: &[u64]| profile(started, &[], Some(touched));
        let alone = std::slice::from_ref(&base);
        let dropped = |recordings: &[Service], profiles: &[Profile]| {
            let folded = fold(recordings, profiles, Limit::Pages(0), NOW).unwrap();
            let left: Vec<u64> = seen(&folded).into_iter().map(|(page, _)| page).collect();
            assert_eq!(folded.dropped as usize, 4 - left.len());
            left
        };
        let starts = [start(500, &[1, 3]), start(400, &[1]), start(300, &[1, 3, 2])];
        assert_eq!(dropped(alone, &starts), [1, 2, 3]);
        assert_eq!(dropped(alone, &starts[..2]), [1, 2, 3, 4], "too few");
        // Those that do not know, that saw nothing, or that were before the recording do not count.
        for other in [
            profile(300, &[], None),
            profile(300, &[70], None),
            start(300, &[]),
            start(99, &[1]),
        ] {
            let profiles = [starts[0].clone(), starts[1].clone(), other];
            assert_eq!(dropped(alone, &profiles), [1, 2, 3, 4]);
        }
        // Read lazily, since it was not there: needed.
        let lazily = [start(500, &[1]), start(400, &[1]), profile(300, &[4], Some(&[1]))];
        assert_eq!(dropped(alone, &lazily), [1, 4]);
        // One that had no recording lists all its pages as missed.
        let all = [
            starts[0].clone(),
            starts[1].clone(),
            profile(300, &[2, 1], Some(&[])),
        ];
        assert_eq!(dropped(alone, &all), [1, 2, 3]);
        // Recorded again since.
        let again = recorded(450, 1, &[(2, 1), (4, 1)]);
        assert_eq!(dropped(&[again, base.clone()], &starts), [1, 2, 3, 4]);
        // A service that reads nothing is none.
        let elsewhere = [start(500, &[70]), start(400, &[71]), start(300, &[72])];
        assert_eq!(dropped(alone, &elsewhere), [1, 2, 3, 4]);
    }

    #[test]
    fn what_was_never_recorded_is_learned() {
        let profiles = [
            profile(400, &[5, 1, 2], Some(&[])),
            profile(300, &[9, 1, 8], None),
            profile(200, &[1, 7], Some(&[3])),
            profile(100, &[], Some(&[])),
        ];
        let folded = fold(&[], &profiles, Limit::Pages(1), NOW).unwrap();
        // The first page that only the start has of which it is not known what it touched.
        assert_eq!(seen(&folded), [(3, 1), (5, 1), (1, 2), (7, 1), (2, 1), (9, 1)]);
        assert_eq!((folded.service.runs, folded.service.key), (2, key()));
        assert_eq!((folded.added, folded.left_out), (6, 1));
        assert_eq!(fold(&[], &profiles[1..2], Limit::default(), NOW), None);
        assert_eq!(fold(&[], &profiles[3..], Limit::default(), NOW), None);
    }

    #[test]
    fn counts_of_runs_go_on() {
        let base = recorded(100, 2, &[(1, 2), (2, 1)]);
        let profiles = [
            profile(300, &[9], Some(&[1, 2])),
            profile(200, &[9], Some(&[1])),
            profile(200, &[9], None),
        ];
        let folded = fold(&[base], &profiles, Limit::Pages(9), NOW).unwrap();
        assert_eq!(seen(&folded), [(1, 4), (2, 2), (9, 3)]);
        assert_eq!(folded.service.runs, 4);
        // More than a byte can tell.
        let many: Vec<Service> = (0..3)
            .map(|when| recorded(when, 200, &[(1, 200), (2, 1), (3, 199)]))
            .collect();
        let folded = fold(&many, &[], Limit::default(), NOW).unwrap();
        assert_eq!(
            (seen(&folded), folded.service.runs),
            (vec![(1, 255), (2, 1), (3, 253)], 255)
        );
    }

    #[test]
    fn layers_have_one_number() {
        let layer = |name: &[u8], data_size| RecordedLayer {
            layer: Digest::of(name),
            index: Digest::of(b"index"),
            data_size,
        };
        let ours = [layer(b"lower", 4096), layer(b"upper", 8192)];
        let numbers = Numbers::new(&[ours[1], ours[0]], &ours).unwrap();
        let service = numbers.service(&recorded(1, 1, &[(7, 1)]));
        assert_eq!(service.touched[0].run.layer, 1);
        let profile = numbers.profile(&profile(1, &[3], Some(&[4])));
        assert_eq!(
            (profile.missed[0].layer, profile.touched.unwrap()[0].layer),
            (1, 1)
        );
        assert!(Numbers::new(&[layer(b"upper", 4096)], &ours).is_none());
        assert!(Numbers::new(&[ours[0], layer(b"other", 4096)], &ours).is_none());
    }
}
