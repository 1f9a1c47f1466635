//! An upstream that is away, or that limits requests, is left alone for a while, so that nobody waits for it in vain.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::UpstreamError;

/// How long an upstream that could not be reached is not asked again.
const REST: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(super) struct Health {
    trouble: Mutex<Option<(Instant, UpstreamError)>>,
}

impl Health {
    /// Why the upstream is not to be asked now.
    pub(super) fn trouble(&self) -> Option<UpstreamError> {
        let mut trouble = self.trouble.lock();
        let (end, error) = trouble.as_ref()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *trouble = None;
            return None;
        }
        Some(match error {
            UpstreamError::Limited { registry, .. } => UpstreamError::Limited {
                registry: registry.clone(),
                // Never "in 0 s".
                after: left + Duration::from_secs(1),
            },
            other => other.clone(),
        })
    }

    /// Takes note of what a call came to.
    pub(super) fn note<T>(&self, result: &Result<T, UpstreamError>) {
        let rest = match result {
            Ok(_) | Err(UpstreamError::NotFound(_)) => None,
            Err(error @ UpstreamError::Limited { after, .. }) => Some((*after, error.clone())),
            Err(error @ UpstreamError::Away { .. }) => Some((REST, error.clone())),
            Err(_) => return,
        };
        let mut trouble = self.trouble.lock();
        *trouble = rest.map(|(rest, error)| (Instant::now() + rest, error));
    }

    /// Takes note that no answer came in a time in which one was expected.
    pub(super) fn is_silent(&self, error: UpstreamError) {
        self.note::<()>(&Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_the_rest_and_a_limit_is_kept_to() {
        let health = Health::default();
        let limited = UpstreamError::Limited {
            registry: "r".to_owned(),
            after: Duration::from_secs(100),
        };
        health.note::<()>(&Err(limited));
        let left = match health.trouble() {
            Some(UpstreamError::Limited { after, .. }) => after,
            other => panic!("{other:?}"),
        };
        assert!(
            left > Duration::from_secs(99) && left <= Duration::from_secs(101),
            "{left:?}"
        );
        health.note(&Ok(()));
        assert!(health.trouble().is_none());
    }
}
