//! The asynchronous runtime of commands that speak to registries or containerd themselves.

use std::sync::Arc;

use xebec_images::images::Report;
use xebec_images::outages::reporting;
use xebec_protocol::failure::Failure;

use crate::progress::Progress;

/// Starts the runtime.
///
/// # Errors
/// When the host gives no threads or descriptors for it.
pub(crate) fn start() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new().map_err(|error| Failure::host("start the runtime", error))
}

/// Does `work` in a runtime of its own, and shows meanwhile that `what` goes on, and for which registry it waits.
///
/// # Errors
/// Those of the work, and when there is no runtime.
pub(crate) fn with_progress<T>(
    what: impl Into<String>,
    work: impl AsyncFnOnce(&Report) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let progress = Arc::new(Progress::of(what));
    let report = progress.report();
    let done = start()?.block_on(reporting(&report, work(&report)))?;
    progress.end();
    Ok(done)
}
