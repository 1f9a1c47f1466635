//! The failures of a command that goes on after one.

use xebec_protocol::failure::{Failure, FailureKind};

/// The failures of a command that goes on after one. They are printed in order, the last by the function that gets it; the exit code is
/// that of the first.
#[derive(Default)]
pub(crate) struct Failures {
    kind: Option<FailureKind>,
    last: Option<Failure>,
}

impl Failures {
    /// Adds a failure, and prints the one before.
    pub(crate) fn add(&mut self, failure: Failure) {
        self.kind.get_or_insert(failure.kind);
        if let Some(before) = self.last.replace(failure) {
            errln!("xebec: {before}");
        }
    }

    /// The value of a success; a failure is added.
    pub(crate) fn keep<T>(&mut self, outcome: Result<T, Failure>) -> Option<T> {
        outcome.map_err(|failure| self.add(failure)).ok()
    }

    /// The last failure, with the kind of the first, if there was one.
    pub(crate) fn end(self) -> Result<(), Failure> {
        match (self.last, self.kind) {
            (Some(last), Some(kind)) => Err(Failure { kind, ..last }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_passed_on_with_the_kind_of_the_first() {
        assert_eq!(Failures::default().end(), Ok(()));
        let mut failures = Failures::default();
        for (kind, message) in [
            (FailureKind::NotFound, "one"),
            (FailureKind::Host, "two"),
            (FailureKind::Usage, "three"),
        ] {
            failures.add(Failure::new(kind, message));
        }
        assert_eq!(failures.end(), Err(Failure::new(FailureKind::NotFound, "three")));
    }
}
