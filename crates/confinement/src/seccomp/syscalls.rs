//! The table of system calls (`syscalls.txt`), and the action of the filter for each.

use std::sync::LazyLock;

use crate::capabilities::Capabilities;

/// A system call of x86-64 or of its 32-bit mode.
#[derive(Debug)]
pub(super) struct Syscall {
    pub name: &'static str,
    /// Its number for programs of x86-64.
    pub x86_64: Option<u32>,
    /// Its number for 32-bit programs.
    pub i386: Option<u32>,
    /// The condition under which a container may make it: a word of the table.
    condition: &'static str,
    /// Whether the runtime needs it, even if its container may not make it.
    pub for_runtime: bool,
}

/// The action of the filter on a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    /// It fails with `EPERM`.
    Refuse,
    /// It fails with `ENOSYS`, as if the kernel did not have it. A libc then uses another call.
    Missing,
    /// It is allowed if its flags make no namespace.
    Clone,
    /// It is allowed for some address families.
    Socket,
    /// It is allowed unless it makes a socket or a pair of sockets, whose family is behind a pointer.
    Socketcall,
    /// It is allowed for some personalities.
    Personality,
}

/// Every system call of the table.
pub(super) static SYSCALLS: LazyLock<Vec<Syscall>> = LazyLock::new(|| {
    let lines = include_str!("syscalls.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(read)
        .collect()
});

fn read(line: &'static str) -> Option<Syscall> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut number = || words.next().map(|word| word.parse().ok());
    let (x86_64, i386) = (number()?, number()?);
    let condition = words.next()?;
    Some(Syscall {
        name,
        x86_64,
        i386,
        condition: condition.trim_end_matches('+'),
        for_runtime: condition.ends_with('+'),
    })
}

impl Syscall {
    /// The action for a container with these capabilities.
    pub(super) fn action(&self, capabilities: Capabilities, socketcall: bool) -> Action {
        let if_it_has = |names: &[&str]| match names.iter().any(|name| capabilities.contains(name)) {
            true => Action::Allow,
            false => Action::Refuse,
        };
        match self.condition {
            "all" => Action::Allow,
            "never" => Action::Refuse,
            "clone" if capabilities.contains("SYS_ADMIN") => Action::Allow,
            // The flags of clone3 are behind a pointer, where a filter cannot look. A libc then uses clone.
            "clone" if self.name == "clone3" => Action::Missing,
            "clone" => Action::Clone,
            "socket" => Action::Socket,
            "socketcall" if socketcall => Action::Allow,
            "socketcall" => Action::Socketcall,
            "personality" => Action::Personality,
            // SYS_ADMIN allowed these before they had capabilities of their own.
            capability @ ("bpf" | "perfmon" | "syslog") => {
                if_it_has(&[&capability.to_ascii_uppercase(), "SYS_ADMIN"])
            }
            capability => if_it_has(&[&capability.to_ascii_uppercase()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::capabilities::NAMES;

    #[test]
    fn every_line_is_one_call_with_its_own_numbers() {
        let lines = include_str!("syscalls.txt").lines();
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), SYSCALLS.len());
        assert!(SYSCALLS.is_sorted_by(|one, other| one.name < other.name));
        for call in SYSCALLS.iter() {
            let known = ["all", "never", "clone", "socket", "socketcall", "personality"];
            let is_capability = NAMES
                .iter()
                .any(|name| name.to_ascii_lowercase() == call.condition);
            assert!(known.contains(&call.condition) || is_capability, "{call:?}");
            assert!(call.x86_64.or(call.i386).is_some(), "{call:?}");
        }
        for numbers in [
            SYSCALLS.iter().filter_map(|call| call.x86_64).collect::<Vec<_>>(),
            SYSCALLS.iter().filter_map(|call| call.i386).collect(),
        ] {
            let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
            assert_eq!(distinct.len(), numbers.len());
        }
    }

    #[test]
    fn calls_that_leave_the_container_are_refused_and_common_ones_are_not() {
        let answer = |name: &str| {
            let call = SYSCALLS.iter().find(|call| call.name == name);
            call.map(|call| call.action(Capabilities::default(), false))
        };
        for name in "mount setns unshare bpf kexec_load open_by_handle_at io_uring_setup io_uring_enter keyctl add_key \
            request_key userfaultfd perf_event_open init_module finit_module pivot_root move_mount open_tree_attr \
            fsopen reboot swapon acct iopl settimeofday syslog quotactl kcmp pidfd_getfd"
            .split_whitespace()
        {
            assert_eq!(answer(name), Some(Action::Refuse), "{name}");
        }
        for name in "read write openat execve futex mmap ptrace capset seccomp landlock_create_ruleset \
            statx rseq membarrier io_setup epoll_pwait2 clock_gettime64 process_vm_readv futex_wait"
            .split_whitespace()
        {
            assert_eq!(answer(name), Some(Action::Allow), "{name}");
        }
        assert_eq!(answer("clone3"), Some(Action::Missing));
        assert_eq!(answer("clone"), Some(Action::Clone));
        assert_eq!(answer("socketcall"), Some(Action::Socketcall));
        assert_eq!(answer("socket"), Some(Action::Socket));
        // The kernel makes both sockets, and loads the modules for that, before it says that a family has no pairs.
        assert_eq!(answer("socketpair"), Some(Action::Socket));
    }

    /// As docker's profile has it.
    #[test]
    fn capabilities_bring_their_calls() {
        let answers = |capability: &str, name: &str| {
            let added = capability.parse().into_iter().collect::<Vec<_>>();
            let all = crate::capabilities::Capability::All;
            let none = [all];
            let has = Capabilities::of(&added, &none, true, Capabilities::ALL);
            let call = SYSCALLS.iter().find(|call| call.name == name);
            call.map(|call| call.action(has, false))
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
                Some(Action::Allow),
                "{capability} {name}"
            );
            assert_ne!(answers("KILL", name), Some(Action::Allow), "{name}");
        }
        assert_eq!(answers("SYS_ADMIN", "keyctl"), Some(Action::Refuse));
        assert_eq!(answers("SYS_ADMIN", "io_uring_setup"), Some(Action::Refuse));
    }
}
