//! Log messages at most once a minute, for events whose number a container or registry decides.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often it is said.
const PAUSE: Duration = Duration::from_secs(60);

/// One thing that happens.
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl RateLimitedLog {
    /// Whether to say it this time, and then how often it happened without being said since the last time.
    pub fn say(&self) -> Option<u64> {
        self.say_at(Instant::now())
    }

    fn say_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let is_recent = |said: Instant| now.saturating_duration_since(said) < PAUSE;
        if state.said.is_some_and(is_recent) {
            state.unsaid += 1;
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_minute_and_the_others_are_counted() {
        let (seldom, start) = (RateLimitedLog::default(), Instant::now());
        assert_eq!(seldom.say_at(start), Some(0));
        assert_eq!(seldom.say_at(start + PAUSE / 2), None);
        assert_eq!(seldom.say_at(start + PAUSE / 2), None);
        assert_eq!(seldom.say_at(start + PAUSE), Some(2));
        assert_eq!(seldom.say_at(start + PAUSE * 2), Some(0));
    }
}
