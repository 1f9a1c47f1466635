//! The phases that a fill waits in, now and so far: written by the fill, read to explain why a reader waits.
//!
//! The time of a fetch is one line, cut into phases: a phase lasts until the next one begins. Where two things go on
//! at once (a range of the blob and the windows for it), the line belongs to the one that spoke last, so phases always
//! add up to the time that passed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A thing that a fill can wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A turn: a place among the requests to a registry, a thread, another reader's fetch of the windows.
    #[default]
    Queue,
    /// A token, or credentials.
    Token,
    /// The connection to a registry and the head of its answer.
    Registry,
    /// The body of that answer.
    Body,
    /// The next try, after a fault.
    Pause,
    /// Decoding and comparing digests.
    Verify,
    /// The file system of the cache.
    Disk,
}

impl Phase {
    /// All of them, in the order in which a fill goes through them.
    pub const ALL: [Phase; 7] = [
        Phase::Queue,
        Phase::Token,
        Phase::Registry,
        Phase::Body,
        Phase::Pause,
        Phase::Verify,
        Phase::Disk,
    ];

    /// Its name, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Queue => "queue",
            Phase::Token => "token",
            Phase::Registry => "registry",
            Phase::Body => "body",
            Phase::Pause => "pause",
            Phase::Verify => "verify",
            Phase::Disk => "disk",
        }
    }
}

/// Time by phase, in the order of [`Phase::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases([Duration; Phase::ALL.len()]);

impl Phases {
    /// Time in one phase.
    pub fn of(&self, phase: Phase) -> Duration {
        self.0.get(phase as usize).copied().unwrap_or_default()
    }

    /// Adds time to a phase.
    pub fn add(&mut self, phase: Phase, time: Duration) {
        if let Some(spent) = self.0.get_mut(phase as usize) {
            *spent += time;
        }
    }

    /// Time in all phases.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    fn add_all(&mut self, other: &Phases) {
        for phase in Phase::ALL {
            self.add(phase, other.of(phase));
        }
    }

    fn since(&self, earlier: &Phases) -> Phases {
        let mut difference = *self;
        for (spent, before) in difference.0.iter_mut().zip(earlier.0) {
            *spent = spent.saturating_sub(before);
        }
        difference
    }
}

/// The progress of one fetch.
#[derive(Debug)]
pub struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    spent: Phases,
    ended: bool,
    retries: u32,
    problem: Option<String>,
    sources: Vec<(Arc<str>, u64)>,
}

impl Default for Progress {
    fn default() -> Self {
        Self(Mutex::new(State {
            phase: Phase::Queue,
            since: Instant::now(),
            spent: Phases::default(),
            ended: false,
            retries: 0,
            problem: None,
            sources: Vec::new(),
        }))
    }
}

impl State {
    fn spent(&self) -> Phases {
        let mut spent = self.spent;
        if !self.ended {
            spent.add(self.phase, self.since.elapsed());
        }
        spent
    }
}

impl Progress {
    /// The fetch waits for this from now on.
    pub fn enter(&self, phase: Phase) {
        let mut state = self.0.lock();
        state.spent = state.spent();
        state.since = Instant::now();
        state.phase = phase;
    }

    /// The fetch is over, well or badly.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.spent = state.spent();
        state.ended = true;
    }

    /// A try failed for this reason, and another will follow.
    pub fn retry(&self, problem: String) {
        let mut state = self.0.lock();
        state.retries += 1;
        state.problem = Some(problem);
    }

    /// Compressed bytes came from `source`: a host, or a word for what is kept on this one.
    pub fn received(&self, source: &str, bytes: u64) {
        let mut state = self.0.lock();
        match state.sources.iter_mut().find(|(name, _)| &**name == source) {
            Some((_, sum)) => *sum += bytes,
            None => state.sources.push((source.into(), bytes)),
        }
    }

    /// Where bytes came from so far, and how many.
    pub fn sources(&self) -> Vec<(Arc<str>, u64)> {
        self.0.lock().sources.clone()
    }

    /// Why the last try failed and how many did, while the next one is waited for.
    pub fn pausing(&self) -> Option<(String, u32)> {
        let state = self.0.lock();
        let pauses = state.phase == Phase::Pause && !state.ended;
        let problem = state.problem.clone().filter(|_| pauses);
        problem.map(|problem| (problem, state.retries))
    }

    /// The phase that the fetch is in now.
    pub fn phase(&self) -> Phase {
        self.0.lock().phase
    }
}

/// The fetches that one reader waits for: those that it boarded, in rounds, one for each time that it had to board again.
#[derive(Debug, Default)]
pub struct Ticket(Mutex<Boarded>);

#[derive(Debug, Default)]
struct Boarded {
    rounds: Vec<Vec<Leg>>,
    spans: usize,
    joined: usize,
}

/// A fetch, and how far it was when the reader joined it.
#[derive(Debug)]
struct Leg {
    fetch: Arc<Progress>,
    before: Phases,
    retries_before: u32,
}

impl Account {
    /// Puts an earlier wait before this one: times and tries add up, the rest is of the later wait.
    pub fn put_before(&mut self, earlier: &Account) {
        self.phases.add_all(&earlier.phases);
        self.spans = self.spans.max(earlier.spans);
        self.joined = self.joined.max(earlier.joined);
        self.retries += earlier.retries;
        if self.problem.is_none() {
            self.problem.clone_from(&earlier.problem);
        }
        for source in &earlier.sources {
            if !self.sources.contains(source) {
                self.sources.push(source.clone());
            }
        }
    }
}

/// The account of one reader's wait.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Time in each phase. Of fetches side by side, the longest counts.
    pub phases: Phases,
    /// The phase that it waits in now, or was in last.
    pub phase: Phase,
    /// Spans that it needed.
    pub spans: usize,
    /// How many of them were on their way already, for another reader.
    pub joined: usize,
    /// Tries that failed meanwhile.
    pub retries: u32,
    /// Why the latest of them failed.
    pub problem: Option<String>,
    /// Where the bytes came from.
    pub sources: Vec<Arc<str>>,
}

impl Ticket {
    /// A new round with these fetches, for `spans` spans of which `joined` were on their way.
    pub(crate) fn board(&self, fetches: impl Iterator<Item = Arc<Progress>>, spans: usize, joined: usize) {
        let legs = fetches.map(|fetch| {
            let (before, retries_before) = {
                let state = fetch.0.lock();
                (state.spent(), state.retries)
            };
            Leg {
                fetch,
                before,
                retries_before,
            }
        });
        let legs = legs.collect();
        let mut boarded = self.0.lock();
        boarded.rounds.push(legs);
        boarded.spans = boarded.spans.max(spans);
        boarded.joined = boarded.joined.max(joined);
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        let boarded = self.0.lock();
        let mut account = Account {
            spans: boarded.spans,
            joined: boarded.joined,
            ..Account::default()
        };
        for legs in &boarded.rounds {
            let mut longest = Phases::default();
            let mut retries = 0;
            for leg in legs {
                let state = leg.fetch.0.lock();
                let spent = state.spent().since(&leg.before);
                if spent.total() >= longest.total() {
                    (longest, account.phase) = (spent, state.phase);
                }
                retries = retries.max(state.retries - leg.retries_before);
                if state.problem.is_some() {
                    account.problem.clone_from(&state.problem);
                }
                for (source, _) in &state.sources {
                    if !account.sources.contains(source) {
                        account.sources.push(source.clone());
                    }
                }
            }
            account.phases.add_all(&longest);
            account.retries += retries;
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_source_are_summed() {
        let fetch = Progress::default();
        for (source, bytes) in [("one", 1), ("two", 4), ("one", 2)] {
            fetch.received(source, bytes);
        }
        assert_eq!(fetch.sources(), [("one".into(), 3), ("two".into(), 4)]);
    }

    #[test]
    fn a_late_ticket_is_told_of_what_comes_after_it() {
        let fetch = Arc::new(Progress::default());
        fetch.enter(Phase::Registry);
        std::thread::sleep(Duration::from_millis(20));
        fetch.retry("reset".to_owned());
        let late = Ticket::default();
        late.board([fetch.clone()].into_iter(), 2, 2);
        fetch.enter(Phase::Body);
        std::thread::sleep(Duration::from_millis(10));
        fetch.received("r.example", 7);
        assert_eq!(late.account().phase, Phase::Body);
        fetch.end();
        let account = late.account();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(account.phases, late.account().phases, "it is over");
        assert!(account.phases.of(Phase::Body) >= Duration::from_millis(10));
        assert!(account.phases.of(Phase::Registry) < Duration::from_millis(20));
        assert_eq!(
            account.phases.total(),
            Phase::ALL.iter().map(|p| account.phases.of(*p)).sum()
        );
        assert_eq!((account.spans, account.joined, account.retries), (2, 2, 0));
        assert_eq!(account.problem.as_deref(), Some("reset"));
        assert_eq!(&*account.sources[0], "r.example");
    }

    #[test]
    fn a_fetch_pauses_from_a_failure_to_its_next_try_and_no_longer() {
        let fetch = Progress::default();
        fetch.enter(Phase::Pause);
        assert_eq!(fetch.pausing(), None, "nothing failed");
        for (failures, problem) in [(1, "reset"), (2, "refused")] {
            fetch.enter(Phase::Registry);
            assert_eq!(fetch.pausing(), None);
            fetch.retry(problem.to_owned());
            fetch.enter(Phase::Pause);
            assert_eq!(fetch.pausing(), Some((problem.to_owned(), failures)));
        }
        fetch.enter(Phase::Body);
        assert_eq!((fetch.phase(), fetch.pausing()), (Phase::Body, None));
        fetch.enter(Phase::Pause);
        fetch.end();
        assert_eq!(fetch.pausing(), None, "it is given up");
    }

    #[test]
    fn failures_before_a_reader_came_are_not_counted_for_it() {
        let fetches = [Arc::new(Progress::default()), Arc::new(Progress::default())];
        let fail = |number: usize| fetches[number].retry(format!("of {number}"));
        fail(0);
        fail(0);
        let ticket = Ticket::default();
        ticket.board(fetches.iter().cloned(), 3, 1);
        fail(0);
        fail(1);
        fail(1);
        assert_eq!(ticket.account().retries, 2, "of fetches side by side, the most");
        ticket.board(fetches.iter().take(1).cloned(), 1, 2);
        fail(0);
        let account = ticket.account();
        assert_eq!(account.retries, 2 + 1);
        assert_eq!((account.spans, account.joined), (3, 2));
    }

    #[test]
    fn an_earlier_wait_is_added_to_a_later_one() {
        let account = |millis, retries, problem: Option<&str>, sources: &[&str]| {
            let mut phases = Phases::default();
            phases.add(Phase::Body, Duration::from_millis(millis));
            Account {
                phases,
                phase: Phase::Disk,
                spans: retries as usize,
                joined: 4,
                retries,
                problem: problem.map(str::to_owned),
                sources: sources.iter().map(|source| (*source).into()).collect(),
            }
        };
        let mut later = account(30, 2, None, &["one"]);
        later.put_before(&account(12, 5, Some("reset"), &["two", "one"]));
        assert_eq!(later.phases.of(Phase::Body), Duration::from_millis(42));
        assert_eq!(later.phases.total(), Duration::from_millis(42));
        assert_eq!((later.spans, later.joined, later.retries), (5, 4, 7));
        assert_eq!(later.problem.as_deref(), Some("reset"));
        assert_eq!(later.sources, ["one".into(), "two".into()]);
        later.put_before(&account(0, 0, Some("earlier still"), &[]));
        assert_eq!(later.problem.as_deref(), Some("reset"));
    }

    #[test]
    fn every_phase_has_a_name_of_its_own() {
        let names = Phase::ALL.map(Phase::name);
        let expected = ["queue", "token", "registry", "body", "pause", "verify", "disk"];
        assert_eq!(names, expected);
    }
}
