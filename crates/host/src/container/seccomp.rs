//! The system call filter: what a program in a container may not ask of the kernel.
//!
//! It denies what reaches beyond a container: mounts and namespaces, kernel modules and images, clocks, swap,
//! keys, kernel tracing, I/O ports, file handles that bypass paths, and `io_uring` and `userfaultfd`, which have
//! been a way out of containers time and again. Docker's default profile denies the same calls.
//!
//! Docker writes it the other way round, as a list of some 400 calls that are allowed. That also denies calls
//! that nobody has thought of yet, and it is slow to start with: libseccomp takes 45 ms to compile it for the
//! three kinds of calls of x86-64, more than everything else that the runtime does (32 to 38 ms), and next to
//! nothing for this one (`runc run` of `true`, best of 12 in turn). Most calls named here want a capability
//! that containers lack; what the filter adds is that no container gets a user namespace, where it would have
//! them all.

use serde_json::{Value, json};

/// `EPERM` and `ENOSYS`, the same on every architecture that Linux containers run on but MIPS.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Flags of `clone(2)` that make a namespace (`linux/sched.h`): `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`,
/// `NEWUSER`, `NEWPID`, `NEWNET`.
const NAMESPACE_FLAGS: [u64; 7] = [
    0x2_0000,
    0x200_0000,
    0x400_0000,
    0x800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

/// The argument of `clone(2)` that holds the flags: the second on s390, the first elsewhere.
const CLONE_FLAGS: u32 = if cfg!(target_arch = "s390x") { 1 } else { 0 };

/// Sockets to the hypervisor (`linux/socket.h`): they lead out of every network namespace.
const AF_VSOCK: u64 = 40;

/// Denied whatever the arguments. Names that an architecture does not have are passed over by the runtime.
const DENIED: &str = "\
    _sysctl acct add_key bpf clock_adjtime clock_adjtime64 clock_settime clock_settime64 create_module \
    delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick get_kernel_syms \
    get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp \
    kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mount mount_setattr move_mount \
    move_pages nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root \
    process_madvise query_module quotactl quotactl_fd reboot request_key set_mempolicy \
    set_mempolicy_home_node setdomainname sethostname setns settimeofday stime swapoff swapon sysfs \
    syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old";

/// The `linux.seccomp` object of the runtime's configuration.
pub(super) fn profile() -> Value {
    let deny = |names: &[&str], errno: u32, args: Value| json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args });
    let denied: Vec<&str> = DENIED.split_whitespace().collect();
    let mut calls = vec![
        deny(&denied, EPERM, json!([])),
        // Its flags are behind a pointer, where a filter cannot look. A libc then uses clone.
        deny(&["clone3"], ENOSYS, json!([])),
        deny(
            &["socket"],
            EPERM,
            json!([{ "index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_EQ" }]),
        ),
    ];
    calls.extend(NAMESPACE_FLAGS.map(|flag| {
        let has_flag =
            json!({ "index": CLONE_FLAGS, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ" });
        deny(&["clone"], EPERM, json!([has_flag]))
    }));
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures(), "syscalls": calls })
}

/// The machine's own kind of system calls and those of its 32-bit relatives. Any other kind kills.
fn architectures() -> &'static [&'static str] {
    if cfg!(target_arch = "x86_64") {
        &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    } else if cfg!(target_arch = "aarch64") {
        &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_is_denied_and_what_programs_cannot_do_without_is_not() {
        let denied: Vec<&str> = DENIED.split_whitespace().collect();
        assert!(
            denied.is_sorted_by(|one, other| one < other),
            "sorted, and nothing twice"
        );
        for name in [
            "mount",
            "setns",
            "unshare",
            "bpf",
            "kexec_load",
            "open_by_handle_at",
            "io_uring_setup",
            "keyctl",
        ] {
            assert!(denied.contains(&name), "{name}");
        }
        for name in [
            "read",
            "execve",
            "clone",
            "socket",
            "ptrace",
            "chroot",
            "capset",
            "seccomp",
            "personality",
        ] {
            assert!(!denied.contains(&name), "{name}");
        }
    }

    #[test]
    fn every_namespace_flag_is_one_bit() {
        assert_eq!(
            NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag),
            0x7e02_0000
        );
        assert!(NAMESPACE_FLAGS.iter().all(|flag| flag.is_power_of_two()));
    }
}
