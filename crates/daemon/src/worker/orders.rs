//! Orders that the keeper gives its worker by signals.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;
use xebec_kernel::process;
use xebec_protocol::failure::Failure;

/// The keeper's signals. The keeper starts a worker with these blocked, and the worker listens to them before it unblocks
/// them: a signal without a handler would end the worker with readers waiting.
pub(super) struct Orders {
    /// Stop.
    pub(super) stop: Signal,
    /// Make room for another worker.
    pub(super) replace: Signal,
}

impl Orders {
    /// Begins to listen. Inside a runtime.
    pub(super) fn listen() -> Result<Orders, Failure> {
        let failed = |error| Failure::host("listen for signals", error);
        Ok(Orders {
            stop: signal(SignalKind::terminate()).map_err(failed)?,
            replace: signal(SignalKind::from_raw(xebec_keeper::REPLACE)).map_err(failed)?,
        })
    }
}

/// Unblocks the signals in this thread. In each thread once somebody listens, so that programs that it starts inherit nothing
/// blocked.
pub(super) fn unblock() {
    if let Err(error) = process::unblock_signals(&xebec_keeper::WORKER_SIGNALS) {
        warn!("cannot listen to the keeper: {error}");
    }
}
