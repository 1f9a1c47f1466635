//! The log, on standard error: lines for people, or objects of JSON.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use xebec_registry_server::config::LogFormat;

/// Starts logging. `XEBEC_LOG` says more exactly what is wanted than `-v`.
pub(crate) fn start(verbose: u8, format: LogFormat) {
    let usual = if verbose == 0 { "info" } else { "debug" };
    let filter = EnvFilter::try_from_env("XEBEC_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It reports them on standard error, and panics when that cannot be written: it is what failed.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
