//! When what has failed is tried again: after pauses that grow, each a little longer than it need be, so that not everything comes at once.
//!
//! A place that cannot be written has one pause for all that waits for it. Until that is over, nobody asks the place. What fails for another reason has
//! a pause of its own. All of it is in memory: a process that starts anew begins with the shortest pause.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use xebec_placement::{PlaceName, Placement};
use xebec_store::{StoreError, Unplaced};

/// The first pause.
pub(crate) const SHORTEST: Duration = Duration::from_secs(300);
/// No pause is longer, but for the part that is by chance: half of it at most.
pub(crate) const LONGEST: Duration = Duration::from_secs(4 * 60 * 60);
/// Of so many blobs and packs it is remembered how often they have failed. With more, all begin anew.
const REMEMBERED: usize = 10_000;

#[derive(Default)]
pub(crate) struct Pauses(Mutex<Known>);

#[derive(Default)]
struct Known {
    places: BTreeMap<PlaceName, Pause>,
    tries: HashMap<String, u32>,
}

struct Pause {
    tries: u32,
    /// When it is over, in milliseconds since 1970.
    until: u64,
}

impl Pauses {
    /// The places that nobody asks now.
    pub(crate) fn places(&self, now: u64) -> BTreeSet<PlaceName> {
        let known = self.0.lock();
        let paused = known.places.iter().filter(|(_, pause)| pause.until > now);
        paused.map(|(place, _)| place.clone()).collect()
    }

    /// When to try something again that has failed so: when the first of its places may be back. Each place that is away has its pause from now on.
    pub(crate) fn after(&self, what: &str, failed: &Unplaced, now: u64) -> u64 {
        let mut known = self.0.lock();
        let away: BTreeSet<&PlaceName> = failed.all().filter_map(unwritable).collect();
        let skipped: BTreeSet<&PlaceName> = failed.all().filter_map(skipped).collect();
        let is_of_place = |error| unwritable(error).or(self::skipped(error)).is_some();
        let by_itself = (!failed.all().all(is_of_place)).then(|| known.after_itself(what, now));
        let asked: Vec<u64> = away.iter().map(|place| known.after_place(place, now)).collect();
        // One of which the pause has run out meanwhile was not asked: it is no further try.
        let others = skipped
            .difference(&away)
            .map(|place| known.after_pause(place, now));
        others.chain(asked).chain(by_itself).min().unwrap_or(now)
    }

    /// Something is as it should be, and was not before perhaps.
    pub(crate) fn forget(&self, what: &str) {
        self.0.lock().tries.remove(what);
    }

    /// Something was written to all these places; whether one of them could not be written before.
    pub(crate) fn written(&self, placements: &BTreeSet<Placement>) -> bool {
        let mut known = self.0.lock();
        let before = known.places.len();
        for placement in placements {
            for place in placement.places() {
                known.places.remove(place);
            }
        }
        known.places.len() < before
    }

    /// All places are asked again at once, and begin with the shortest pause.
    pub(crate) fn end(&self) {
        let mut known = self.0.lock();
        let places = known.places.values_mut();
        places.for_each(|pause| *pause = Pause { tries: 0, until: 0 });
        known.tries.clear();
    }
}

impl Known {
    fn after_itself(&mut self, what: &str, now: u64) -> u64 {
        if self.tries.len() >= REMEMBERED {
            self.tries.clear();
        }
        let tries = self.tries.entry(what.to_owned()).or_default();
        *tries = tries.saturating_add(1);
        let pause = pause(*tries);
        now.saturating_add(pause).saturating_add(by_chance(pause))
    }

    /// When a place is asked again that was passed over: at once, if its pause is over.
    fn after_pause(&self, place: &PlaceName, now: u64) -> u64 {
        match self.places.get(place).filter(|paused| paused.until > now) {
            Some(paused) => paused.until.saturating_add(by_chance(pause(paused.tries))),
            None => now,
        }
    }

    fn after_place(&mut self, place: &PlaceName, now: u64) -> u64 {
        let never = Pause { tries: 0, until: 0 };
        let paused = self.places.entry(place.clone()).or_insert(never);
        if paused.until <= now {
            // Nothing has failed there for long, although perhaps nothing was written either.
            if now.saturating_sub(paused.until) > pause(paused.tries) {
                paused.tries = 0;
            }
            paused.tries = paused.tries.saturating_add(1);
            paused.until = now.saturating_add(pause(paused.tries));
        }
        paused.until.saturating_add(by_chance(pause(paused.tries)))
    }
}

/// The place that an error says was passed over, since it is away.
fn skipped(error: &StoreError) -> Option<&PlaceName> {
    match error {
        StoreError::Paused(place) => Some(place),
        _ => None,
    }
}

/// The place that an error says is away or full. One with wrong bytes, or without an object, is neither.
fn unwritable(error: &StoreError) -> Option<&PlaceName> {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    match error {
        StoreError::Place { place, source } => {
            let is_of_one = matches!(source.kind(), InvalidData | NotFound | UnexpectedEof);
            (!is_of_one).then_some(place)
        }
        _ => None,
    }
}

/// The pause after so many tries, in milliseconds.
fn pause(tries: u32) -> u64 {
    let doubled = SHORTEST.saturating_mul(1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX));
    u64::try_from(doubled.min(LONGEST).as_millis()).unwrap_or(u64::MAX)
}

fn by_chance(pause: u64) -> u64 {
    fastrand::u64(..=pause / 2)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const MINUTE: u64 = 60_000;

    fn away(place: &str) -> Unplaced {
        let error = StoreError::Place {
            place: place.parse().unwrap(),
            source: io::Error::other("it is not mounted"),
        };
        error.into()
    }

    #[test]
    fn pauses_grow_up_to_some_hours() {
        let minutes: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 40, u32::MAX]
            .map(|tries| pause(tries) / MINUTE)
            .into();
        assert_eq!(minutes, [5, 10, 20, 40, 80, 160, 240, 240, 240]);
    }

    /// A thousand things that wait for it make no pause longer: only a place that was asked again does.
    #[test]
    fn a_place_is_asked_once_for_all_that_waits() {
        let pauses = Pauses::default();
        let dues: BTreeSet<u64> = (0..1000)
            .map(|number| pauses.after(&number.to_string(), &away("one"), 7))
            .collect();
        let (begin, end) = (7 + 5 * MINUTE, 7 + 5 * MINUTE + 5 * MINUTE / 2);
        assert!(dues.iter().all(|due| (begin..=end).contains(due)));
        assert!(dues.len() > 500, "they come one after the other");
        let one = BTreeSet::from(["one".parse().unwrap()]);
        assert_eq!(pauses.places(begin - 1), one);
        assert_eq!(pauses.places(begin), BTreeSet::new());
        let again = pauses.after("1", &away("one"), begin);
        assert!(again >= begin + 10 * MINUTE && pauses.places(begin) == one);
        // Another place has a pause of its own, and one that was written has none.
        assert!(pauses.after("1", &away("two"), begin) <= begin + 8 * MINUTE);
        let written = BTreeSet::from(["one".parse().unwrap()]);
        assert!(pauses.written(&written) && !pauses.written(&written));
        assert_eq!(pauses.places(begin).len(), 1);
        pauses.end();
        assert_eq!(pauses.places(begin).len(), 0);
        let later = begin + 60 * MINUTE;
        for minutes in [0, 6, 17, 38] {
            pauses.after("1", &away("two"), later + minutes * MINUTE);
        }
        assert!(!pauses.places(later + 77 * MINUTE).is_empty(), "the fourth pause");
        pauses.end();
        assert!(pauses.after("1", &away("two"), later) <= later + 8 * MINUTE);
    }

    /// Otherwise the second would be asked, and waited for, in each round.
    #[test]
    fn each_place_that_is_away_has_a_pause() {
        let pauses = Pauses::default();
        let names = |names: &[&str]| -> BTreeSet<PlaceName> {
            names.iter().map(|name| name.parse().unwrap()).collect()
        };
        pauses.after("1", &away("one"), 0);
        // The first has been asked again, and the second for the first time.
        let second = 6 * MINUTE;
        let due = pauses.after("1", &away("two").after(Some(away("one"))), second);
        assert!(
            due < second + 10 * MINUTE,
            "the second may be back before the first"
        );
        assert_eq!(pauses.places(second), names(&["one", "two"]));
        assert_eq!(pauses.places(second + 9 * MINUTE), names(&["one"]));
        assert_eq!(pauses.places(second + 10 * MINUTE), names(&[]));
    }

    /// Nobody writes to a place that was only read, so that nobody says that it answers again.
    #[test]
    fn the_pauses_of_a_place_that_has_not_failed_for_long_begin_anew() {
        let one = BTreeSet::from(["one".parse().unwrap()]);
        // The third pause takes 20 minutes, up to the 37th.
        for (minutes, next) in [(57, 40), (58, 5)] {
            let pauses = Pauses::default();
            for failed in [0, 6, 17, minutes] {
                pauses.after("1", &away("one"), failed * MINUTE);
            }
            let end = (minutes + next) * MINUTE;
            assert_eq!(pauses.places(end - 1), one, "{minutes}");
            assert_eq!(pauses.places(end), BTreeSet::new(), "{minutes}");
        }
    }

    /// The pause of a place may run out between the look at it and the note of what came of it.
    #[test]
    fn a_place_that_was_passed_over_has_had_no_further_try() {
        let pauses = Pauses::default();
        let passed_over = || Unplaced::from(StoreError::Paused("one".parse().unwrap()));
        let first = pauses.after("1", &away("one"), 0);
        assert!(first >= 5 * MINUTE);
        let still = pauses.after("2", &passed_over(), MINUTE);
        assert!((5 * MINUTE..8 * MINUTE).contains(&still), "{still}");
        assert_eq!(
            pauses.after("2", &passed_over(), 6 * MINUTE),
            6 * MINUTE,
            "at once"
        );
        // The second try, and not the third one.
        let again = pauses.after("2", &away("one"), 6 * MINUTE);
        assert!((16 * MINUTE..=21 * MINUTE).contains(&again), "{again}");
        // Another one that has failed has the pause of a place that was asked.
        let both = passed_over().after(Some(away("two")));
        let due = pauses.after("3", &both, 6 * MINUTE);
        assert!((11 * MINUTE..=14 * MINUTE).contains(&due), "{due}");
    }

    #[test]
    fn what_fails_by_itself_has_a_pause_of_its_own() {
        let pauses = Pauses::default();
        let error = StoreError::Unsupported("it is odd".to_owned()).into();
        let pause = |what: &str| pauses.after(what, &error, 0) / (5 * MINUTE);
        assert_eq!((pause("a"), pause("b")), (1, 1));
        assert!((2..=3).contains(&pause("a")));
        pauses.forget("a");
        assert_eq!(pause("a"), 1);
        (0..2 * REMEMBERED).for_each(|number| {
            pause(&number.to_string());
        });
        assert!(pauses.0.lock().tries.len() <= REMEMBERED);
    }
}
