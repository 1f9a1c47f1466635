//! What a container may do and use, beyond what its image says: the options of that name, as users of docker know them.

mod limits;
mod security;
mod tmpfs;

pub use self::limits::{Bytes, Cpus, MemorySwap, PidsLimit, Ulimit};
pub use self::security::SecurityOption;
pub use self::tmpfs::Tmpfs;

use serde_json::{Map, Value, json};

use super::capabilities::Capability;
use super::control_groups;
use super::{RunError, RunOptions};

/// The least memory that a container may be limited to, docker's figure: below it the runtime itself ends for want of memory.
const LEAST_MEMORY: u64 = 6 << 20;

/// The period of the kernel's accounting of processor time, in microseconds; its own default and docker's.
const CPU_PERIOD: u64 = 100_000;

/// What a container may do and use.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Capabilities beyond the usual ones.
    pub cap_add: Vec<Capability>,
    /// Capabilities that it does not have.
    pub cap_drop: Vec<Capability>,
    /// How it is kept apart.
    pub security: Vec<SecurityOption>,
    /// Its root can only be read.
    pub read_only: bool,
    /// Directories in memory.
    pub tmpfs: Vec<Tmpfs>,
    /// The most memory that it may use.
    pub memory: Option<Bytes>,
    /// The most memory and swap together.
    pub memory_swap: Option<MemorySwap>,
    /// How much processor time it may use.
    pub cpus: Option<Cpus>,
    /// The most processes and threads that it may have.
    pub pids_limit: Option<PidsLimit>,
    /// Size of `/dev/shm`.
    pub shm_size: Option<Bytes>,
    /// Limits of each process.
    pub ulimits: Vec<Ulimit>,
    /// Its programs may be 32-bit ones that make sockets by `socketcall`.
    pub is_32_bit: bool,
}

impl Confinement {
    /// Refuses what makes no sense, or what this host cannot do.
    pub(super) fn check(&self, options: &RunOptions) -> Result<(), RunError> {
        self.check_memory()?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(cpus) = self.cpus
            && cpus.exceeds(processors)
        {
            return Err(RunError::Cpus { cpus, processors });
        }
        let targets = || options.volumes.iter().map(|volume| volume.target.as_path());
        let mut seen: Vec<_> = targets().collect();
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
    pub(super) fn resources(&self, can_limit_swap: bool) -> Value {
        let mut resources = Map::new();
        // The runtime adds the devices that every container has.
        resources.insert("devices".into(), json!([{ "allow": false, "access": "rwm" }]));
        if let Some(memory) = self.memory {
            let mut limits = json!({ "limit": memory.0 });
            if can_limit_swap {
                limits["swap"] = match self.memory_swap {
                    // As much swap as memory, docker's rule.
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
