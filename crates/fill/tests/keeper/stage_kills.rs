//! A worker that ends itself, at random, at every point that matters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use xebec_kernel::journal::{Stage, observe_stages};

/// One in so many stages is the last one.
const ODDS: u64 = 2000;

static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on, every stage may be this process's last.
pub fn arm() {
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    STATE.store(clock ^ u64::from(std::process::id()) << 32, Ordering::Relaxed);
    observe_stages(maybe_die);
}

fn maybe_die(stage: Stage) {
    // The window in which an event is in the raw buffer only is short and matters most.
    let odds = if stage == Stage::Read { ODDS / 4 } else { ODDS };
    if next().is_multiple_of(odds) {
        die();
    }
}

/// Ends this process as the kernel would: no destructor, no flush.
pub fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next() -> u64 {
    let state = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
