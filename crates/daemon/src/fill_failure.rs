//! What a command is told by a fill that failed.

use xebec_cache::fill::FillError;
use xebec_protocol::failure::FailureKind;

/// What a fill failed by.
pub(crate) fn kind_of(error: &FillError) -> FailureKind {
    match error {
        FillError::Disk { .. } => FailureKind::Host,
        FillError::Wrong { .. } => FailureKind::Integrity,
        _ => FailureKind::Registry,
    }
}
