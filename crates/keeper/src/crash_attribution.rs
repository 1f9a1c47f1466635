//! Whether a worker's death may be the fault of the events that it was bringing bytes for.
//!
//! An event can make a worker crash, or use up memory until the kernel kills it. It cannot send SIGKILL: a worker that
//! is killed so by others says nothing about its events, and blaming them would deny readers that did no harm as soon as
//! workers are killed often.

use xebec_kernel::process::Ending;

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
/// Signals by which a program's own mistakes end it.
const CRASHES: [i32; 7] = [
    rustix::process::Signal::SEGV.as_raw(),
    rustix::process::Signal::BUS.as_raw(),
    rustix::process::Signal::ABORT.as_raw(),
    rustix::process::Signal::ILL.as_raw(),
    rustix::process::Signal::FPE.as_raw(),
    rustix::process::Signal::TRAP.as_raw(),
    rustix::process::Signal::SYS.as_raw(),
];

/// The facts at the start of a worker, by which its end is judged.
#[derive(Debug)]
pub(crate) struct CrashAttribution {
    oom_kills: u64,
}

impl CrashAttribution {
    /// Call it when a worker starts.
    pub(crate) fn begin() -> CrashAttribution {
        CrashAttribution {
            oom_kills: oom_kills(),
        }
    }

    /// Whether the events that were under way may have caused this ending.
    pub(crate) fn falls_on_events(&self, ending: Ending) -> bool {
        judge(ending, oom_kills() != self.oom_kills)
    }
}

fn judge(ending: Ending, memory_ran_out: bool) -> bool {
    match ending {
        Ending::Killed(SIGKILL) => memory_ran_out,
        Ending::Killed(signal) => CRASHES.contains(&signal),
        Ending::Exited(_) => true,
        // Of another keeper's worker; it counts from the next death on.
        Ending::Unknown => false,
    }
}

/// How many processes the kernel has killed for want of memory, in any control group; 0 where it does not tell.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crashes_and_memory_fall_on_events() {
        for (ending, memory_ran_out, falls) in [
            (Ending::Killed(SIGKILL), false, false),
            (Ending::Killed(SIGKILL), true, true),
            (Ending::Killed(11), false, true),
            (Ending::Killed(15), true, false),
            (Ending::Exited(101), false, true),
            (Ending::Unknown, true, false),
        ] {
            assert_eq!(judge(ending, memory_ran_out), falls, "{ending}");
        }
    }
}
