//! An upstream that is away, or that limits requests, is left alone for a while, so that nobody waits for it in vain.
//!
//! A *slow* upstream is left alone only for clients that can be answered without it: it may still answer the others.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::UpstreamError;

/// How long an upstream that could not be reached is not asked again.
const REST: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(super) struct Health {
    trouble: Mutex<Option<Trouble>>,
    slow: Mutex<Option<Trouble>>,
}

struct Trouble {
    end: Instant,
    error: UpstreamError,
}

impl Trouble {
    fn new(rest: Duration, error: UpstreamError) -> Self {
        Self {
            end: Instant::now() + rest,
            error,
        }
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Whether the upstream limits requests until a time that is still to come. A request under way that succeeds does not end that limit.
    fn is_limit(&self) -> bool {
        matches!(self.error, UpstreamError::Limited { .. }) && !self.left().is_zero()
    }
}

impl Health {
    /// Why the upstream is not to be asked now.
    pub(super) fn trouble(&self) -> Option<UpstreamError> {
        current(&self.trouble)
    }

    /// Why it is not to be asked for a client that can be answered without it.
    pub(super) fn slowness(&self) -> Option<UpstreamError> {
        self.trouble().or_else(|| current(&self.slow))
    }

    /// Takes note of what a call came to.
    pub(super) fn note<T>(&self, result: &Result<T, UpstreamError>) {
        let mut trouble = self.trouble.lock();
        match result {
            Ok(_) | Err(UpstreamError::NotFound(_)) => {
                trouble.take_if(|trouble| !trouble.is_limit());
                *self.slow.lock() = None;
            }
            Err(error @ UpstreamError::Limited { after, .. }) => {
                let new = Trouble::new(*after, error.clone());
                if !trouble
                    .as_ref()
                    .is_some_and(|old| old.is_limit() && old.end > new.end)
                {
                    *trouble = Some(new);
                }
            }
            Err(error @ UpstreamError::Away { .. }) => {
                if !trouble.as_ref().is_some_and(Trouble::is_limit) {
                    *trouble = Some(Trouble::new(REST, error.clone()));
                }
            }
            Err(_) => {}
        }
    }

    /// Takes note that no answer came in a time in which one was expected.
    pub(super) fn is_slow(&self, error: UpstreamError) {
        *self.slow.lock() = Some(Trouble::new(REST, error));
    }
}

fn current(place: &Mutex<Option<Trouble>>) -> Option<UpstreamError> {
    let mut place = place.lock();
    let trouble = place.as_ref()?;
    let left = trouble.left();
    if left.is_zero() {
        *place = None;
        return None;
    }
    Some(match &trouble.error {
        UpstreamError::Limited { registry, .. } => UpstreamError::Limited {
            registry: registry.clone(),
            // Never "in 0 s".
            after: left + Duration::from_secs(1),
        },
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(seconds: u64) -> Result<(), UpstreamError> {
        Err(UpstreamError::Limited {
            registry: "r".to_owned(),
            after: Duration::from_secs(seconds),
        })
    }

    fn away() -> UpstreamError {
        UpstreamError::Away {
            registry: "r".to_owned(),
            reason: "silence".to_owned(),
        }
    }

    fn left(health: &Health) -> u64 {
        match health.trouble() {
            Some(UpstreamError::Limited { after, .. }) => after.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_limit_is_kept_to_whatever_else_is_answered_meanwhile() {
        let health = Health::default();
        health.note(&limited(100));
        assert!((99..=101).contains(&left(&health)));
        // Answers to requests that were under way.
        health.note(&Ok(()));
        health.note::<()>(&Err(UpstreamError::NotFound("x".to_owned())));
        health.note::<()>(&Err(away()));
        health.note(&limited(10));
        assert!((99..=101).contains(&left(&health)));
        health.note(&limited(300));
        assert!((299..=301).contains(&left(&health)));
    }

    #[test]
    fn a_limit_that_is_over_is_forgotten() {
        let health = Health::default();
        health.note(&limited(0));
        assert!(health.trouble().is_none());
        health.note(&limited(0));
        health.note::<()>(&Err(away()));
        assert!(matches!(health.trouble(), Some(UpstreamError::Away { .. })));
    }

    #[test]
    fn an_answer_ends_the_rest_of_one_that_was_away() {
        let health = Health::default();
        health.note::<()>(&Err(away()));
        assert!(health.trouble().is_some() && health.slowness().is_some());
        health.note(&Ok(()));
        assert!(health.trouble().is_none() && health.slowness().is_none());
    }

    #[test]
    fn a_slow_one_is_left_alone_by_those_who_can_be_answered_without_it() {
        let health = Health::default();
        health.is_slow(away());
        assert!(health.trouble().is_none());
        assert!(health.slowness().is_some());
        health.note(&Ok(()));
        assert!(health.slowness().is_none());
    }
}
