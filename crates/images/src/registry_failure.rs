//! What a registry's refusal comes to for the user.

use xebec_oci::ClientError;
use xebec_protocol::failure::{Failure, FailureKind};

/// A registry's failure for the user: what is not there is told from what cannot be reached.
pub fn registry_failure(error: &ClientError) -> Failure {
    let kind = if matches!(error, ClientError::NotFound { .. }) {
        FailureKind::NotFound
    } else {
        FailureKind::Registry
    };
    Failure::new(kind, error)
}
