//! A wait of a reader, as it is told.

use xebec_cache::progress::Phase;
use xebec_fill::waits::WaitRecord;
use xebec_kernel::clock::rfc3339_milliseconds;
use xebec_protocol::explain::{WaitReport, WaitState};

/// A wait as it is told, without the file's name: that is found when somebody asks.
pub(crate) fn report(wait: &WaitRecord) -> WaitReport {
    let milliseconds = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let account = &wait.account;
    let mut phases = account.phases;
    // Before the fetch began, and between two of them, the reader waited for its turn.
    phases.add(Phase::Queue, wait.waited.saturating_sub(phases.total()));
    let spent = Phase::ALL.map(|phase| (phase, milliseconds(phases.of(phase))));
    let state = match (wait.ended, &wait.error) {
        (false, _) => WaitState::Waiting,
        (true, None) => WaitState::Served,
        (true, Some(_)) => WaitState::Refused,
    };
    WaitReport {
        began: rfc3339_milliseconds(wait.began),
        began_ms: wait.began,
        waited_ms: milliseconds(wait.waited),
        state,
        pid: wait.process.pid,
        comm: wait.process.comm.clone(),
        container: wait.process.container.clone(),
        container_run: wait.process.container_run.clone(),
        layer: wait.key.map(|key| key.layer),
        index: wait.key.map(|key| key.index),
        file: None,
        offset: wait.range.start,
        count: wait.range.end.saturating_sub(wait.range.start),
        spans: account.spans,
        joined: account.joined,
        retries: account.retries,
        waited_for_ms: spent
            .into_iter()
            .filter(|(_, time)| *time > 0.0)
            .map(|(phase, time)| (phase.name().to_owned(), time))
            .collect(),
        phase: account.phase.name().to_owned(),
        sources: account.sources.iter().map(ToString::to_string).collect(),
        problem: wait.error.clone().or_else(|| account.problem.clone()),
    }
}
