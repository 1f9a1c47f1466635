//! The system call filter of a container.
//!
//! It is an allow list with the policy of docker's default profile. It refuses system calls that reach beyond
//! a container (mounts and namespaces, kernel modules and images, clocks, swap, keys, kernel tracing, I/O
//! ports, file handles that bypass paths, `io_uring` and `userfaultfd`), unless an added capability allows
//! them. It also refuses calls that did not exist when the list was made.
//!
//! Docker passes the whole list to the runtime, whose libseccomp takes 16 to 45 ms to compile its 400 names
//! for the three kinds of calls of x86-64, after the container's root is mounted. Without that, runc takes 33
//! ms in all. Here there are two filters:
//!
//! * **The outer filter** ([`Filters::outer`]) is the allow list, as a program that this crate assembles in microseconds. It is
//!   installed on the runtime when that is started, and the processes of the runtime inherit it. It also allows the calls that the
//!   runtime needs to create a container.
//! * **The inner filter** ([`Filters::profile`]) is passed to the runtime, which installs it on the container's command last. It
//!   refuses the calls that the outer filter allows for the runtime alone. It also repeats the other refusals, since a runtime that
//!   an administrator runs (`runc exec`) has no outer filter. It allows the rest, so it is short and costs little.
//!
//! The kernel asks both, and the stricter answer counts. Every runtime silently ignores a name that the host's libseccomp does not
//! know. The outer filter has no names. In the inner filter such a name opens nothing. The calls that it alone refuses are as old
//! as libseccomp, or are newer calls for mounts. For those the kernel itself demands the capability with which the list allows
//! them.
//!
//! Runtimes other than runc and crun may need more system calls (one that starts a virtual machine uses
//! `AF_VSOCK`), and the numbers are known for x86-64 only. In those cases the runtime gets the allow list by
//! names, which takes longer.

mod custom_profile;
mod joining;
mod policy;
mod program;
mod syscalls;

use serde_json::{Value, json};
use xebec_kernel::process::Instruction;

pub(crate) use self::custom_profile::{read, version};
use self::joining::annotation;
pub use self::joining::{ANNOTATION, outer_filter_of};
use self::policy::{CLONE_FLAGS, ENOSYS, EPERM, FAMILIES, NAMESPACE_FLAGS, PERSONALITIES, SOCKET_MAKERS};
use self::syscalls::{Action, SYSCALLS, Syscall};
use crate::capabilities::Capabilities;

/// The choice of a container's filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Filter {
    /// The allow list.
    #[default]
    Default,
    /// No filter.
    Unconfined,
    /// A profile of the user, in the form of the runtime's configuration.
    Custom(Value),
}

/// The filters of a container.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// The filter that is installed on the runtime.
    pub outer: Option<Vec<Instruction>>,
    /// The note of the outer filter in the runtime's configuration ([`ANNOTATION`]).
    pub annotation: Option<&'static str>,
    /// The `linux.seccomp` object of the runtime's configuration.
    pub profile: Option<Value>,
}

impl Filters {
    /// The filters of a container with these capabilities. `takes_outer` is whether its runtime works under
    /// the outer filter, and `socketcall` whether programs may make sockets by the old call whose arguments a
    /// filter cannot read.
    pub fn new(filter: &Filter, capabilities: Capabilities, takes_outer: bool, socketcall: bool) -> Self {
        match filter {
            Filter::Unconfined => Filters::default(),
            Filter::Custom(profile) => Filters {
                profile: Some(profile.clone()),
                ..Filters::default()
            },
            Filter::Default if takes_outer && cfg!(target_arch = "x86_64") => Filters {
                outer: Some(program::allow_list(capabilities, socketcall)),
                annotation: Some(annotation(socketcall)),
                profile: Some(deny_list(capabilities, socketcall)),
            },
            Filter::Default => Filters {
                profile: Some(allow_list(capabilities, socketcall)),
                ..Filters::default()
            },
        }
    }
}

/// The profile that refuses the calls of the table that are refused, and allows all others.
fn deny_list(capabilities: Capabilities, socketcall: bool) -> Value {
    let mut rules = vec![
        refusing(&names(capabilities, socketcall, Action::Refuse), EPERM, &[]),
        refusing(&names(capabilities, socketcall, Action::Missing), ENOSYS, &[]),
        // libseccomp compares all 64 bits, and the kernel uses 32. The outer filter compares those; this rule
        // is for processes without it.
        refusing(
            &names(capabilities, socketcall, Action::Socket),
            EPERM,
            &[compare(0, "SCMP_CMP_GT", 17, 0)],
        ),
    ];
    if !names(capabilities, socketcall, Action::Clone).is_empty() {
        rules.extend(NAMESPACE_FLAGS.map(|flag| {
            let has_flag = compare(CLONE_FLAGS, "SCMP_CMP_MASKED_EQ", flag, flag);
            refusing(&["clone"], EPERM, &[has_flag])
        }));
    }
    // The runtime refuses a rule without names.
    rules.retain(|rule| rule["names"] != json!([]));
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures(), "syscalls": rules })
}

/// The profile that allows the calls of the table that are allowed, and refuses all others.
fn allow_list(capabilities: Capabilities, socketcall: bool) -> Value {
    let allow =
        |names: &[&str], args: &[Value]| json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": args });
    let mut rules = vec![
        allow(&names(capabilities, socketcall, Action::Allow), &[]),
        refusing(&names(capabilities, socketcall, Action::Missing), ENOSYS, &[]),
    ];
    let equals = |value: u32| compare(0, "SCMP_CMP_EQ", value.into(), 0);
    let sockets = names(capabilities, socketcall, Action::Socket);
    rules.extend(FAMILIES.map(|family| allow(&sockets, &[equals(family)])));
    rules.extend(PERSONALITIES.map(|persona| allow(&["personality"], &[equals(persona)])));
    if !names(capabilities, socketcall, Action::Socketcall).is_empty() {
        let (first, last) = (SOCKET_MAKERS[0], SOCKET_MAKERS[1]);
        // The error differs from that of the default action, or runtimes would ignore the rule.
        rules.extend(SOCKET_MAKERS.map(|maker| refusing(&["socketcall"], ENOSYS, &[equals(maker)])));
        rules.extend((first + 1..last).map(|other| allow(&["socketcall"], &[equals(other)])));
        rules.push(allow(
            &["socketcall"],
            &[compare(0, "SCMP_CMP_GT", last.into(), 0)],
        ));
    }
    if !names(capabilities, socketcall, Action::Clone).is_empty() {
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

fn names(capabilities: Capabilities, socketcall: bool, wanted: Action) -> Vec<&'static str> {
    let has = |call: &&Syscall| call.action(capabilities, socketcall) == wanted;
    SYSCALLS.iter().filter(has).map(|call| call.name).collect()
}

fn refusing(names: &[&str], errno: u32, args: &[Value]) -> Value {
    json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args })
}

fn compare(argument: u32, operator: &str, value: u64, second: u64) -> Value {
    json!({ "index": argument, "value": value, "valueTwo": second, "op": operator })
}

/// The kinds of system calls of this machine, its 32-bit ones included. A call of another kind kills the
/// process.
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
