//! The options that say what a container may do and use: `--cap-add`, `--memory`, `--security-opt` and
//! others, with docker's names and values.

mod limits;
mod security;
mod tmpfs;

pub use self::limits::{Bytes, Cpus, MemorySwap, PidsLimit, Ulimit};
pub use self::security::SecurityOption;
pub use self::tmpfs::Tmpfs;

use serde_json::{Map, Value, json};

use crate::capabilities::Capability;
use crate::{RunError, Volume, control_groups};

/// The smallest limit of memory; docker's figure. With less the runtime itself runs out of memory.
const LEAST_MEMORY: u64 = 6 << 20;

/// The period of the kernel's limit of processor time, in microseconds; its default and docker's.
const CPU_PERIOD: u64 = 100_000;

/// What a container may do and use.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Capabilities beyond the default ones.
    pub cap_add: Vec<Capability>,
    /// Capabilities that the container does not have.
    pub cap_drop: Vec<Capability>,
    /// Security options, in the user's order.
    pub security: Vec<SecurityOption>,
    /// Whether its root is read-only.
    pub read_only: bool,
    /// Mounts of tmpfs.
    pub tmpfs: Vec<Tmpfs>,
    /// The limit of memory.
    pub memory: Option<Bytes>,
    /// The limit of memory and swap together.
    pub memory_swap: Option<MemorySwap>,
    /// The limit of processor time.
    pub cpus: Option<Cpus>,
    /// The limit of processes and threads.
    pub pids_limit: Option<PidsLimit>,
    /// Size of `/dev/shm`.
    pub shm_size: Option<Bytes>,
    /// Resource limits of each process.
    pub ulimits: Vec<Ulimit>,
    /// Whether 32-bit programs in it may make sockets by `socketcall`.
    pub is_32_bit: bool,
}

impl Confinement {
    /// Refuses options that contradict each other or `volumes`, or that this host does not support.
    pub(crate) fn check(&self, volumes: &[Volume]) -> Result<(), RunError> {
        self.check_memory()?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(cpus) = self.cpus
            && cpus.exceeds(processors)
        {
            return Err(RunError::Cpus {
                cpus: cpus.number(),
                processors,
            });
        }
        let mut seen: Vec<_> = volumes.iter().map(|volume| volume.target.as_path()).collect();
        for tmpfs in &self.tmpfs {
            if seen.contains(&tmpfs.target.as_path()) {
                return Err(RunError::Mounted(tmpfs.target.clone()));
            }
            seen.push(&tmpfs.target);
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), RunError> {
        let refused = |reason| Err(RunError::Memory { reason });
        match (self.memory, self.memory_swap) {
            (None, Some(_)) => refused("--memory-swap is memory and swap together, so it needs --memory"),
            (Some(memory), _) if memory.0 < LEAST_MEMORY => refused("--memory must be at least 6m"),
            (Some(memory), Some(MemorySwap::Limited(both))) if both.0 < memory.0 => {
                refused("--memory-swap is memory and swap together, so it must be at least --memory")
            }
            (Some(_), Some(MemorySwap::Limited(_))) if !control_groups::can_limit_swap() => refused(
                "this host does not account for swap; leave --memory-swap out, or boot with swapaccount=1",
            ),
            _ => Ok(()),
        }
    }

    /// The `linux.resources` object of the runtime's configuration.
    pub(crate) fn resources(&self, can_limit_swap: bool) -> Value {
        let mut resources = Map::new();
        // The runtime allows the devices that every container has.
        resources.insert("devices".into(), json!([{ "allow": false, "access": "rwm" }]));
        if let Some(memory) = self.memory {
            let mut limits = json!({ "limit": memory.0 });
            if can_limit_swap {
                limits["swap"] = match self.memory_swap {
                    // As much swap as memory; docker's rule.
                    None => json!(memory.0.saturating_mul(2)),
                    Some(MemorySwap::Limited(both)) => json!(both.0),
                    Some(MemorySwap::Unlimited) => json!(-1),
                };
            }
            resources.insert("memory".into(), limits);
        }
        if let Some(cpus) = self.cpus {
            let quota = cpus.share_of(CPU_PERIOD);
            resources.insert("cpu".into(), json!({ "quota": quota, "period": CPU_PERIOD }));
        }
        if let Some(PidsLimit(Some(limit))) = self.pids_limit {
            resources.insert("pids".into(), json!({ "limit": limit }));
        }
        resources.into()
    }
}

#[cfg(test)]
mod tests;
