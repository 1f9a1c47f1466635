//! The arguments that the allow list looks at, and the errors that it answers with.

/// `EPERM`, on every architecture that Linux containers run on but MIPS.
pub(super) const EPERM: u32 = 1;

/// `ENOSYS`, on the same architectures.
pub(super) const ENOSYS: u32 = 38;

/// The flags of `clone(2)` that make a namespace (`linux/sched.h`): `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`,
/// `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET`.
pub(super) const NAMESPACE_FLAGS: [u64; 7] = [
    0x2_0000,
    0x200_0000,
    0x400_0000,
    0x800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

/// The number of the argument of `clone(2)` that holds the flags: the second on s390, the first elsewhere.
pub(super) const CLONE_FLAGS: u32 = if cfg!(target_arch = "s390x") { 1 } else { 0 };

/// The address families of which sockets are allowed (`linux/socket.h`): `AF_UNIX`, `AF_INET`, `AF_INET6`,
/// `AF_NETLINK`, and `AF_PACKET`, which needs `CAP_NET_RAW`. The others are rarely needed and had many
/// vulnerabilities. `AF_ALG` (CVE-2026-31431) and `AF_VSOCK` ignore namespaces, and many more reach the
/// host's network from its namespace.
pub(super) const FAMILIES: [u32; 5] = [1, 2, 10, 16, 17];

/// The calls of `socketcall(2)` that make a socket and a pair of sockets: `SYS_SOCKET` and `SYS_SOCKETPAIR`
/// (`linux/net.h`).
pub(super) const SOCKET_MAKERS: [u32; 2] = [1, 8];

/// The personalities that a program may take (`linux/personality.h`), as in docker: `PER_LINUX`,
/// `PER_LINUX32`, both with `UNAME26`, and the query of the current one. Others turn off protections of a
/// program's memory.
pub(super) const PERSONALITIES: [u32; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];
