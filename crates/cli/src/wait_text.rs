//! A reader's wait in words, for `explain` and `daemon status`.

use xebec_protocol::explain::WaitReport;

/// A reason in words.
pub(crate) fn word(phase: &str) -> &str {
    match phase {
        "registry" => "registry (to answer)",
        "body" => "registry (to send)",
        "pause" => "registry (to come back)",
        other => other,
    }
}

/// The process that waited.
pub(crate) fn process(wait: &WaitReport) -> String {
    let place = wait
        .container
        .as_ref()
        .map_or_else(String::new, |name| format!(" in {name}"));
    let name = if wait.comm.is_empty() { "?" } else { &wait.comm };
    format!("{name}[{}]{place}", wait.pid)
}
