//! Why a container cannot be confined as its user asks. Each message names the option and the remedy.

use std::io;
use std::path::PathBuf;

use xebec_kernel::size::SizeParseError;

/// An error in an option, or in the part of this host that it needs.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// There is no such capability.
    #[error(
        "{0:?} is not a capability; use names such as NET_ADMIN or CAP_NET_ADMIN, or ALL (see capabilities(7))"
    )]
    Capability(String),
    /// Not a size.
    #[error(transparent)]
    Size(#[from] SizeParseError),
    /// A limit of memory that cannot be set.
    #[error("memory: {reason}")]
    Memory {
        /// The fault of the limit, in words.
        reason: &'static str,
    },
    /// Not a number of processors.
    #[error("{0:?} is not a number of CPUs; write it as 1.5, and at least 0.01")]
    CpusText(String),
    /// More processors than the host has.
    #[error("{cpus} CPUs: this host has {processors}; use 0.01 to {processors}.00")]
    Cpus {
        /// How many the user asked for.
        cpus: f64,
        /// How many the host has.
        processors: usize,
    },
    /// Not a list of processors.
    #[error("{0:?} is not a list of numbers; write it as 0-3,8")]
    CpuSet(String),
    /// Processors, or nodes of memory, that the host has not.
    #[error("{option} {asked}: this host has {there}; name only such")]
    NotThere {
        /// The option.
        option: &'static str,
        /// The value that the user asked for.
        asked: String,
        /// The values that the host has.
        there: String,
    },
    /// A device that cannot be given to a container.
    #[error("device {device}: {reason}")]
    Device {
        /// The device as the user gave it.
        device: String,
        /// The fault of the device, in words.
        reason: String,
    },
    /// A setting of the kernel that a container cannot have.
    #[error("sysctl {sysctl}: {reason}")]
    Sysctl {
        /// The setting as the user gave it.
        sysctl: String,
        /// The fault of the setting, in words.
        reason: &'static str,
    },
    /// Not a number of processes.
    #[error("{0:?} is not a number of processes; use one above 0, or -1 for no limit")]
    PidsLimit(String),
    /// A resource limit that cannot be set.
    #[error("ulimit {ulimit:?}: {reason}")]
    Ulimit {
        /// The limit as the user gave it.
        ulimit: String,
        /// The fault of the limit, in words.
        reason: &'static str,
    },
    /// A security option that does not exist, or that this host does not support.
    #[error("--security-opt {option}: {reason}")]
    SecurityOption {
        /// The option as the user gave it.
        option: String,
        /// The fault of the option, in words.
        reason: String,
    },
    /// The user's profile for system calls cannot be read.
    #[error("cannot read the seccomp profile {}: {source}", path.display())]
    Profile {
        /// Its file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The kernel gives no random bytes.
    #[error("cannot get random bytes for a label: {0}")]
    Random(io::Error),
}
