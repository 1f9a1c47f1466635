//! Deaths on purpose, for tests: a worker that ends itself at a named stage of its work on an event.
//!
//! The environment variable `XEBEC_TEST_DIE_AT=STAGE:N`, which a daemon inherits from the command that starts it,
//! makes each of its workers kill itself with `SIGKILL` at one of the N-th to 2N-th times that it reaches STAGE,
//! drawn anew by each worker. Nothing is flushed and no destructor runs, as when the kernel ends it. Without the
//! variable nothing here runs. A value that is not understood is told on standard error, and ignored.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use xebec_cache::stage as fill;
use xebec_kernel::journal;

/// The variable's name.
const VARIABLE: &str = "XEBEC_TEST_DIE_AT";

/// A stage of the journal or of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Journal(journal::Stage),
    Fill(fill::Stage),
}

/// The stages by the names that the variable uses, in the order in which an event passes them.
const STAGES: [(&str, Stage); 13] = [
    ("held", Stage::Journal(journal::Stage::Held)),
    ("adopted", Stage::Journal(journal::Stage::Adopted)),
    ("reading", Stage::Journal(journal::Stage::Reading)),
    ("read", Stage::Journal(journal::Stage::Read)),
    ("recorded", Stage::Journal(journal::Stage::Recorded)),
    ("cleared", Stage::Journal(journal::Stage::Cleared)),
    ("fetched", Stage::Fill(fill::Stage::Fetched)),
    ("verified", Stage::Fill(fill::Stage::Verified)),
    ("written", Stage::Fill(fill::Stage::Written)),
    ("claimed", Stage::Fill(fill::Stage::Claimed)),
    ("answering", Stage::Journal(journal::Stage::Answering)),
    ("answered", Stage::Journal(journal::Stage::Answered)),
    ("freed", Stage::Journal(journal::Stage::Freed)),
];

/// Where this worker ends, and how often it may still pass there.
#[derive(Debug)]
struct End {
    stage: Stage,
    passes: AtomicU64,
}

static END: OnceLock<End> = OnceLock::new();

/// Arranges the death that the environment asks for, if it asks for one. Opens no descriptor, so that it may come
/// before the inherited ones are taken over.
pub fn arrange() {
    let Ok(value) = std::env::var(VARIABLE) else {
        return;
    };
    let Some((stage, times)) = parse(&value) else {
        eprintln!("xebec worker: {VARIABLE}={value} is not STAGE:N; ignored");
        return;
    };
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::from(since.subsec_nanos()));
    let passes = AtomicU64::new(times + clock / 1000 % times);
    if END.set(End { stage, passes }).is_ok() {
        journal::observe_stages(|stage| pass(Stage::Journal(stage)));
        fill::observe_stages(|stage| pass(Stage::Fill(stage)));
    }
}

fn parse(value: &str) -> Option<(Stage, u64)> {
    let (name, times) = value.split_once(':')?;
    let (_, stage) = STAGES.iter().find(|(known, _)| *known == name)?;
    Some((*stage, times.parse().ok().filter(|times| *times > 0)?))
}

fn pass(stage: Stage) {
    let Some(end) = END.get().filter(|end| end.stage == stage) else {
        return;
    };
    if end.passes.fetch_sub(1, Ordering::Relaxed) == 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        // Not one instruction more of this thread's work.
        loop {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_understood_and_nothing_else() {
        for (name, stage) in STAGES {
            assert_eq!(parse(&format!("{name}:7")), Some((stage, 7)));
        }
        for value in ["", "read", "read:", "read:0", "read:-1", "slept:3"] {
            assert_eq!(parse(value), None, "{value}");
        }
    }
}
