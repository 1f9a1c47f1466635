//! The table of system calls (`syscalls.txt`), and what a container with certain capabilities may do with each.

use std::sync::LazyLock;

use super::super::capabilities::Capabilities;

/// A system call of x86-64 or of its 32-bit relative.
#[derive(Debug)]
pub(super) struct Call {
    pub name: &'static str,
    /// Its number for programs of x86-64.
    pub x86_64: Option<u32>,
    /// Its number for 32-bit programs.
    pub i386: Option<u32>,
    who: &'static str,
    /// Whether the runtime needs it, whatever its container may do.
    pub for_runtime: bool,
}

/// What is answered to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    /// Its error is `EPERM`.
    Refuse,
    /// It does not exist: its error is `ENOSYS`, and a libc does without it.
    Missing,
    /// What makes no namespace.
    Clone,
    /// To some families of addresses.
    Socket,
    /// All but making sockets and pairs of them, whose family is where a filter cannot look.
    Socketcall,
    /// To some of them.
    Personality,
}

/// Every call that is known.
pub(super) static CALLS: LazyLock<Vec<Call>> = LazyLock::new(|| {
    let lines = include_str!("syscalls.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(read)
        .collect()
});

fn read(line: &'static str) -> Option<Call> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut number = || words.next().map(|word| word.parse().ok());
    let (x86_64, i386) = (number()?, number()?);
    let who = words.next()?;
    Some(Call {
        name,
        x86_64,
        i386,
        who: who.trim_end_matches('+'),
        for_runtime: who.ends_with('+'),
    })
}

impl Call {
    /// What a container is answered that has these capabilities.
    pub(super) fn answer(&self, capabilities: Capabilities, socketcall: bool) -> Answer {
        let if_it_has = |names: &[&str]| match names.iter().any(|name| capabilities.contains(name)) {
            true => Answer::Allow,
            false => Answer::Refuse,
        };
        match self.who {
            "all" => Answer::Allow,
            "never" => Answer::Refuse,
            "clone" if capabilities.contains("SYS_ADMIN") => Answer::Allow,
            // The flags of clone3 are behind a pointer, where a filter cannot look. A libc then uses clone.
            "clone" if self.name == "clone3" => Answer::Missing,
            "clone" => Answer::Clone,
            "socket" => Answer::Socket,
            "socketcall" if socketcall => Answer::Allow,
            "socketcall" => Answer::Socketcall,
            "personality" => Answer::Personality,
            // Before they had capabilities of their own, the most powerful one was asked for.
            who @ ("bpf" | "perfmon" | "syslog") => if_it_has(&[&who.to_ascii_uppercase(), "SYS_ADMIN"]),
            who => if_it_has(&[&who.to_ascii_uppercase()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::super::capabilities::NAMES;
    use super::*;

    #[test]
    fn every_line_is_one_call_with_numbers_of_its_own() {
        let lines = include_str!("syscalls.txt").lines();
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), CALLS.len());
        assert!(CALLS.is_sorted_by(|one, other| one.name < other.name));
        for call in CALLS.iter() {
            let known = ["all", "never", "clone", "socket", "socketcall", "personality"];
            let is_capability = NAMES.iter().any(|name| name.to_ascii_lowercase() == call.who);
            assert!(known.contains(&call.who) || is_capability, "{call:?}");
            assert!(call.x86_64.or(call.i386).is_some(), "{call:?}");
        }
        for numbers in [
            CALLS.iter().filter_map(|call| call.x86_64).collect::<Vec<_>>(),
            CALLS.iter().filter_map(|call| call.i386).collect(),
        ] {
            let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
            assert_eq!(distinct.len(), numbers.len());
        }
    }

    #[test]
    fn what_leads_out_is_refused_and_what_programs_cannot_do_without_is_not() {
        let answer = |name: &str| {
            let call = CALLS.iter().find(|call| call.name == name);
            call.map(|call| call.answer(Capabilities::default(), false))
        };
        for name in "mount setns unshare bpf kexec_load open_by_handle_at io_uring_setup io_uring_enter keyctl add_key \
            request_key userfaultfd perf_event_open init_module finit_module pivot_root move_mount open_tree_attr \
            fsopen reboot swapon acct iopl settimeofday syslog quotactl kcmp pidfd_getfd"
            .split_whitespace()
        {
            assert_eq!(answer(name), Some(Answer::Refuse), "{name}");
        }
        for name in "read write openat execve futex mmap ptrace capset seccomp landlock_create_ruleset \
            statx rseq membarrier io_setup epoll_pwait2 clock_gettime64 process_vm_readv futex_wait"
            .split_whitespace()
        {
            assert_eq!(answer(name), Some(Answer::Allow), "{name}");
        }
        assert_eq!(answer("clone3"), Some(Answer::Missing));
        assert_eq!(answer("clone"), Some(Answer::Clone));
        assert_eq!(answer("socketcall"), Some(Answer::Socketcall));
        assert_eq!(answer("socket"), Some(Answer::Socket));
        // The kernel makes both sockets, and loads what it needs for that, before it says that a family has no pairs.
        assert_eq!(answer("socketpair"), Some(Answer::Socket));
    }

    /// As docker's profile has it.
    #[test]
    fn capabilities_bring_their_calls() {
        let answers = |capability: &str, name: &str| {
            let added = capability.parse().into_iter().collect::<Vec<_>>();
            let all = super::super::super::capabilities::Capability::All;
            let none = [all];
            let has = Capabilities::of(&added, &none, crate::Net::Host, Capabilities::ALL);
            let call = CALLS.iter().find(|call| call.name == name);
            call.map(|call| call.answer(has, false))
        };
        for (capability, name) in [
            ("SYS_ADMIN", "mount"),
            ("SYS_ADMIN", "clone"),
            ("SYS_ADMIN", "clone3"),
            ("SYS_ADMIN", "unshare"),
            ("SYS_ADMIN", "bpf"),
            ("SYS_PTRACE", "kcmp"),
            ("SYS_PTRACE", "pidfd_getfd"),
            ("BPF", "bpf"),
            ("PERFMON", "perf_event_open"),
            ("SYS_MODULE", "init_module"),
            ("SYS_TIME", "settimeofday"),
            ("SYS_BOOT", "reboot"),
            ("SYS_NICE", "mbind"),
            ("SYS_RAWIO", "iopl"),
            ("SYSLOG", "syslog"),
            ("DAC_READ_SEARCH", "open_by_handle_at"),
            ("SYS_TTY_CONFIG", "vhangup"),
            ("SYS_PACCT", "acct"),
            ("SYS_CHROOT", "chroot"),
        ] {
            assert_eq!(
                answers(capability, name),
                Some(Answer::Allow),
                "{capability} {name}"
            );
            assert_ne!(answers("KILL", name), Some(Answer::Allow), "{name}");
        }
        assert_eq!(answers("SYS_ADMIN", "keyctl"), Some(Answer::Refuse));
        assert_eq!(answers("SYS_ADMIN", "io_uring_setup"), Some(Answer::Refuse));
    }
}
