//! Work that a start waits for, before work that it will wait for later.
//!
//! While indexes are decoded and a view is built of them, other threads decode the pages that the service will read, one for each
//! processor. That service reads none of them before its container is made, which needs the view. Others on the host get less
//! of a processor meanwhile: some milliseconds for each start.

use rustix::process::{getpriority_process, setpriority_process};
use tracing::debug;

/// By how much work of this kind goes before other work (nice(2); each step is a factor of about 1.25 in processor time).
const STEPS: i32 = 10;

/// This thread's work is urgent, as long as this lives. Where that is not allowed, it is as before.
pub struct RaisedPriority {
    /// The priority that the thread had, if it was changed.
    before: Option<i32>,
}

impl RaisedPriority {
    /// Raises the priority of this thread until the value is dropped.
    pub fn begin() -> Self {
        // On Linux these are of the calling thread (setpriority(2), "C library/kernel differences").
        let before = getpriority_process(None).ok();
        let is_changed = |before: &i32| {
            let set = setpriority_process(None, *before - STEPS);
            if let Err(error) = &set {
                debug!(%error, "cannot raise the priority of threads: the process lacks CAP_SYS_NICE or a limit of priorities (RLIMIT_NICE)");
            }
            set.is_ok()
        };
        Self {
            before: before.filter(is_changed),
        }
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = setpriority_process(None, before)
        {
            debug!(%error, "a thread stays urgent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_with_the_work() {
        let before = getpriority_process(None);
        let urgent = RaisedPriority::begin();
        if urgent.before.is_none() {
            println!("SKIPPED: this process may not raise its priority");
        } else {
            assert_eq!(
                getpriority_process(None),
                before.map(|nice| (nice - STEPS).max(-20))
            );
        }
        drop(urgent);
        assert_eq!(getpriority_process(None), before);
    }
}
