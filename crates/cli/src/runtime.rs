//! The asynchronous runtime of commands that speak to registries or containerd themselves.

use xebec_protocol::failure::Failure;

/// Starts the runtime.
///
/// # Errors
/// When the host gives no threads or descriptors for it.
pub(crate) fn start() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new().map_err(|error| Failure::host("start the runtime", error))
}
