//! What a reader of a layer is told when an origin does not give its bytes: whether waiting helps.

use xebec_cache::fill::{FaultKind, SourceError};
use xebec_oci::ClientError;

/// An error of this host; waiting does not help.
pub(super) fn local(reason: impl std::fmt::Display) -> SourceError {
    SourceError {
        kind: FaultKind::Lasting,
        reason: reason.to_string(),
    }
}

pub(super) fn passing(reason: String) -> SourceError {
    SourceError {
        kind: FaultKind::Passing,
        reason,
    }
}

pub(super) fn of_client(error: &ClientError) -> SourceError {
    let kind = match error {
        ClientError::WrongDigest { .. } => FaultKind::Wrong,
        error if error.may_heal() => FaultKind::Passing,
        _ => FaultKind::Lasting,
    };
    SourceError {
        kind,
        reason: error.to_string(),
    }
}

/// The errors of several origins as one: worth waiting if one of them is.
pub(super) fn all_of(errors: Vec<SourceError>) -> SourceError {
    let has = |kind| errors.iter().any(|error: &SourceError| error.kind == kind);
    let kind = match (has(FaultKind::Passing), has(FaultKind::Wrong)) {
        (true, _) => FaultKind::Passing,
        (false, true) => FaultKind::Wrong,
        (false, false) => FaultKind::Lasting,
    };
    let reasons: Vec<String> = errors.into_iter().map(|error| error.reason).collect();
    SourceError {
        kind,
        reason: reasons.join("; "),
    }
}
