//! The system call filter: what a program in a container may not ask of the kernel.
//!
//! It is an allow list, the policy of docker's default profile: what reaches beyond a container is refused (mounts and namespaces,
//! kernel modules and images, clocks, swap, keys, kernel tracing, I/O ports, file handles that bypass paths, `io_uring` and
//! `userfaultfd`), unless a capability that was added brings it; and so is whatever nobody had heard of when the list was made.
//!
//! Docker gives the whole list to the runtime, whose libseccomp takes 16 to 45 ms to compile its 400 names for the three kinds of calls
//! of x86-64, after the container's root is there, where the whole of runc takes 33 ms without. Here it is two filters:
//!
//! * **The outer one** ([`Filters::outer`]) is the allow list, as a program that is put together here in microseconds. It is put on
//!   the runtime before that begins, and what the runtime makes has inherited it. It allows besides what the runtime needs to make
//!   a container.
//! * **The inner one** ([`Filters::profile`]) is given to the runtime, which puts it on the container's command last. It refuses what
//!   the outer one allows the runtime only, and once more what else is known to be refused, since whoever runs the runtime by hand
//!   (`runc exec`) has no outer one. It allows the rest, so it is short and costs next to nothing.
//!
//! The kernel asks both, and the stricter answer counts. A name that the host's libseccomp does not know is passed over by every
//! runtime, silently. In the outer filter there are no names. In the inner one this opens nothing: what only that refuses is as old
//! as libseccomp, or, as the newer calls for mounts, refused by the kernel to who lacks the capability with which the list allows it.
//!
//! Runtimes other than runc and crun may need other calls for themselves (one that starts a virtual machine talks to it by
//! `AF_VSOCK`), and the numbers are known for x86-64 only; everybody else is given the allow list by names, and pays for it.

mod custom_profile;
mod program;
mod syscalls;

use serde_json::{Value, json};
use xebec_kernel::process::Instruction;

pub(super) use self::custom_profile::{read, version};
use self::syscalls::{Answer, CALLS, Call};
use super::capabilities::Capabilities;

/// `EPERM` and `ENOSYS`, the same on every architecture that Linux containers run on but MIPS.
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The flags of `clone(2)` that make a namespace (`linux/sched.h`): `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`,
/// `NEWPID`, `NEWNET`.
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

/// The families of addresses that there are sockets for (`linux/socket.h`): `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`, and
/// `AF_PACKET`, which needs `CAP_NET_RAW`. The others are rarely needed and often had holes; `AF_ALG` (CVE-2026-31431) and
/// `AF_VSOCK` do not care for namespaces, and many more are the host's own in its network.
const FAMILIES: [u32; 5] = [1, 2, 10, 16, 17];

/// What `socketcall(2)` makes a socket by, and a pair of them: `SYS_SOCKET` and `SYS_SOCKETPAIR` (`linux/net.h`).
const SOCKET_MAKERS: [u32; 2] = [1, 8];

/// What a program may make itself look like (`linux/personality.h`), as in docker: `PER_LINUX`, `PER_LINUX32`, both with
/// `UNAME26`, and the question what it is. Others undo what protects a program's memory.
const PERSONALITIES: [u32; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// What filters a container's system calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Filter {
    /// The list above.
    #[default]
    Default,
    /// Nothing.
    Unconfined,
    /// A profile of the user's, as the runtime wants it.
    Custom(Value),
}

/// The filters of a container.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    /// What the runtime is started with.
    pub outer: Option<Vec<Instruction>>,
    /// The `linux.seccomp` object of the runtime's configuration.
    pub profile: Option<Value>,
}

impl Filters {
    /// Of a container with these capabilities. `takes_outer` says whether its runtime can do with the outer one, and `socketcall`
    /// whether programs make sockets by the old call that a filter cannot look into.
    pub(super) fn new(
        filter: &Filter,
        capabilities: Capabilities,
        takes_outer: bool,
        socketcall: bool,
    ) -> Self {
        match filter {
            Filter::Unconfined => Filters::default(),
            Filter::Custom(profile) => Filters {
                outer: None,
                profile: Some(profile.clone()),
            },
            Filter::Default if takes_outer && cfg!(target_arch = "x86_64") => Filters {
                outer: Some(program::allow_list(capabilities, socketcall)),
                profile: Some(deny_list(capabilities, socketcall)),
            },
            Filter::Default => Filters {
                outer: None,
                profile: Some(allow_list(capabilities, socketcall)),
            },
        }
    }
}

/// Refuses what is known to be refused.
fn deny_list(capabilities: Capabilities, socketcall: bool) -> Value {
    let mut rules = vec![
        refusing(&names(capabilities, socketcall, Answer::Refuse), EPERM, &[]),
        refusing(&names(capabilities, socketcall, Answer::Missing), ENOSYS, &[]),
        // Compared with all 64 bits, of which the kernel looks at half: this is for who is not filtered outside.
        refusing(
            &names(capabilities, socketcall, Answer::Socket),
            EPERM,
            &[compare(0, "SCMP_CMP_GT", 17, 0)],
        ),
    ];
    if !names(capabilities, socketcall, Answer::Clone).is_empty() {
        rules.extend(NAMESPACE_FLAGS.map(|flag| {
            let has_flag = compare(CLONE_FLAGS, "SCMP_CMP_MASKED_EQ", flag, flag);
            refusing(&["clone"], EPERM, &[has_flag])
        }));
    }
    // The runtime takes no rule without names.
    rules.retain(|rule| rule["names"] != json!([]));
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures(), "syscalls": rules })
}

/// Allows what is known to be harmless.
fn allow_list(capabilities: Capabilities, socketcall: bool) -> Value {
    let allow =
        |names: &[&str], args: &[Value]| json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": args });
    let mut rules = vec![
        allow(&names(capabilities, socketcall, Answer::Allow), &[]),
        refusing(&names(capabilities, socketcall, Answer::Missing), ENOSYS, &[]),
    ];
    let equals = |value: u32| compare(0, "SCMP_CMP_EQ", value.into(), 0);
    let sockets = names(capabilities, socketcall, Answer::Socket);
    rules.extend(FAMILIES.map(|family| allow(&sockets, &[equals(family)])));
    rules.extend(PERSONALITIES.map(|persona| allow(&["personality"], &[equals(persona)])));
    if !names(capabilities, socketcall, Answer::Socketcall).is_empty() {
        let (first, last) = (SOCKET_MAKERS[0], SOCKET_MAKERS[1]);
        // One that differs from what is answered else, or runtimes pass over it.
        rules.extend(SOCKET_MAKERS.map(|maker| refusing(&["socketcall"], ENOSYS, &[equals(maker)])));
        rules.extend((first + 1..last).map(|other| allow(&["socketcall"], &[equals(other)])));
        rules.push(allow(
            &["socketcall"],
            &[compare(0, "SCMP_CMP_GT", last.into(), 0)],
        ));
    }
    if !names(capabilities, socketcall, Answer::Clone).is_empty() {
        let all = NAMESPACE_FLAGS.iter().fold(0, |all, flag| all | flag);
        rules.push(allow(
            &["clone"],
            &[compare(CLONE_FLAGS, "SCMP_CMP_MASKED_EQ", all, 0)],
        ));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": architectures(),
        "syscalls": rules,
    })
}

fn names(capabilities: Capabilities, socketcall: bool, wanted: Answer) -> Vec<&'static str> {
    let has = |call: &&Call| call.answer(capabilities, socketcall) == wanted;
    CALLS.iter().filter(has).map(|call| call.name).collect()
}

fn refusing(names: &[&str], errno: u32, args: &[Value]) -> Value {
    json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args })
}

fn compare(argument: u32, operator: &str, value: u64, second: u64) -> Value {
    json!({ "index": argument, "value": value, "valueTwo": second, "op": operator })
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
mod tests;
