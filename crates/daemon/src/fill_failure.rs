//! Turns the error of a fill into a command's failure.

use xebec_cache::fill::FillError;
use xebec_protocol::failure::FailureKind;

/// The kind of failure that the error of a fill is.
pub(crate) fn kind_of(error: &FillError) -> FailureKind {
    match error {
        FillError::Disk { .. } => FailureKind::Host,
        FillError::Wrong { .. } => FailureKind::Integrity,
        _ => FailureKind::Registry,
    }
}
