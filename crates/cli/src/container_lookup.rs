//! The directories of containers, and the failure if a container is not found.

use xebec_container::{Directories, FindError};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

/// The directories of containers.
pub(crate) fn directories(paths: &Paths) -> Directories {
    Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    }
}

/// A container that is not there, or not the only one.
pub(crate) fn not_found(error: FindError) -> Failure {
    let kind = match error {
        FindError::Missing(_) => FailureKind::NotFound,
        FindError::Ambiguous { .. } => FailureKind::Usage,
        FindError::Unreadable(_) => FailureKind::Host,
    };
    Failure::new(kind, error)
}
