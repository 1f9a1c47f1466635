//! Decides on the permissions and limits of a container.
//!
//! Users say it with docker's options, from `--cap-add` over `--security-opt` to `--memory`. [`Confinement`] is their request.
//! [`SecurityContext::decide`] makes of it the settings that this host can give: it refuses contradictions, finds the devices, and
//! chooses the filters of system calls and the security labels. Both say their part in the form of the runtime's configuration.
//!
//! # Promises
//!
//! * Without options a container has the permissions that docker and containerd give it. On the host's network it has less: no
//!   `CAP_NET_RAW`.
//! * Xebec gives no capability that it does not have itself.
//! * A setting of the kernel that the host would get is refused.
//! * A command that joins a container has the container's filters: [`seccomp::outer_filter_of`] finds the outer one again.
//! * A refusal comes before a container exists, by an error that names the option and the remedy.
//!
//! # Crates that it may use
//!
//! `kernel`, and no other crate of Xebec. It knows neither containers nor runtimes: its caller describes both by [`Surroundings`].
//! It reads files of the host and changes nothing.
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `options` | all that a user asks for, and limits in the runtime's form |
//! | `limits`, `devices`, `sysctl`, `security_option` | values of single options |
//! | `security_context` | the decision |
//! | `capabilities` | docker's rules of added and dropped capabilities |
//! | [`seccomp`] | filters of system calls |
//! | `labels` | the AppArmor profile, and the SELinux label |

mod capabilities;
mod devices;
mod error;
mod labels;
mod limits;
mod options;
pub mod seccomp;
mod security_context;
mod security_option;
mod sysctl;

pub use capabilities::{Capabilities, Capability, NAMES as CAPABILITIES};
pub use devices::{Device, DeviceNode};
pub use error::ConfinementError;
pub use labels::Labels;
pub use limits::{CpuSet, Cpus, MemorySwap, PidsLimit, Ulimit};
pub use options::Confinement;
pub use security_context::{SecurityContext, Surroundings};
pub use security_option::SecurityOption;
pub use sysctl::Sysctl;
