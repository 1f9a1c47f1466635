//! Turns a registry's refusal into a failure that the user sees.

use xebec_oci::ClientError;
use xebec_protocol::failure::{Failure, FailureKind};

/// A registry's failure for the user: a thing that is not there differs from one that cannot be reached.
pub fn registry_failure(error: &ClientError) -> Failure {
    let kind = match error {
        ClientError::NotFound { .. } | ClientError::NoTag { .. } | ClientError::NoRepository { .. } => {
            FailureKind::NotFound
        }
        _ => FailureKind::Registry,
    };
    Failure::new(kind, error)
}
