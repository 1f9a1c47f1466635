//! The options for a container's permissions and limits: `--cap-add`, `--memory`, `--security-opt` and others, with docker's names
//! and values.

use serde_json::{Map, Value, json};
use xebec_kernel::size::Bytes;

use crate::capabilities::Capability;
use crate::devices::Device;
use crate::error::ConfinementError;
use crate::limits::{CpuSet, Cpus, MemorySwap, PidsLimit, Ulimit};
use crate::security_option::SecurityOption;
use crate::sysctl::Sysctl;

/// The smallest limit of memory; docker's figure. With less the runtime itself runs out of memory.
const LEAST_MEMORY: u64 = 6 << 20;

/// The period of the kernel's limit of processor time, in microseconds; its default and docker's.
const CPU_PERIOD: u64 = 100_000;

/// Where the kernel lists the processors that are there, and the nodes of memory.
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const MEMORY_NODES: &str = "/sys/devices/system/node/online";

/// The permissions and limits of a container.
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
    /// The limit of memory.
    pub memory: Option<Bytes>,
    /// The limit of memory and swap together.
    pub memory_swap: Option<MemorySwap>,
    /// The memory that the kernel leaves to the container when memory is scarce.
    pub memory_reservation: Option<Bytes>,
    /// The limit of processor time.
    pub cpus: Option<Cpus>,
    /// Its share of processor time when processors are busy; 1024 is usual.
    pub cpu_shares: Option<u64>,
    /// The processors that it runs on.
    pub cpuset_cpus: Option<CpuSet>,
    /// The nodes of memory that it uses.
    pub cpuset_mems: Option<CpuSet>,
    /// Devices of the host.
    pub devices: Vec<Device>,
    /// Settings of the kernel.
    pub sysctls: Vec<Sysctl>,
    /// How readily the kernel ends its processes when memory is short, -1000 to 1000.
    pub oom_score_adj: Option<i16>,
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
    /// Refuses options that contradict each other, or that this host does not support, as perhaps a limit of swap.
    pub(crate) fn check(&self, can_limit_swap: bool) -> Result<(), ConfinementError> {
        self.check_memory(can_limit_swap)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(cpus) = self.cpus
            && cpus.exceeds(processors)
        {
            return Err(ConfinementError::Cpus {
                cpus: cpus.number(),
                processors,
            });
        }
        for (option, set, there) in [
            ("--cpuset-cpus", &self.cpuset_cpus, PROCESSORS),
            ("--cpuset-mems", &self.cpuset_mems, MEMORY_NODES),
        ] {
            let Some(asked) = set else { continue };
            // A kernel that does not tell refuses the container itself.
            let there = std::fs::read_to_string(there).ok();
            let there: Option<CpuSet> = there.and_then(|text| text.trim().parse().ok());
            if let Some(there) = there
                && !asked.is_within(&there)
            {
                let (asked, there) = (asked.to_string(), there.to_string());
                return Err(ConfinementError::NotThere { option, asked, there });
            }
        }
        Ok(())
    }

    fn check_memory(&self, can_limit_swap: bool) -> Result<(), ConfinementError> {
        let refused = |reason| Err(ConfinementError::Memory { reason });
        match (self.memory, self.memory_swap) {
            (None, Some(_)) => refused("--memory-swap is memory and swap together, so it needs --memory"),
            (Some(memory), _) if memory.0 < LEAST_MEMORY => refused("--memory must be at least 6m"),
            (Some(memory), Some(MemorySwap::Limited(both))) if both.0 < memory.0 => {
                refused("--memory-swap is memory and swap together, so it must be at least --memory")
            }
            (Some(memory), _)
                if self
                    .memory_reservation
                    .is_some_and(|reserved| reserved.0 > memory.0) =>
            {
                refused("--memory-reservation must be at most --memory")
            }
            (Some(_), Some(MemorySwap::Limited(_))) if !can_limit_swap => refused(
                "this host does not account for swap; leave --memory-swap out, or boot with swapaccount=1",
            ),
            _ => Ok(()),
        }
    }

    /// The `linux.resources` object of the runtime's configuration.
    pub fn resources(&self, can_limit_swap: bool) -> Value {
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
        if let Some(reserved) = self.memory_reservation {
            let memory = resources.entry("memory").or_insert_with(|| json!({}));
            memory["reservation"] = json!(reserved.0);
        }
        let mut cpu = Map::new();
        if let Some(cpus) = self.cpus {
            cpu.insert("quota".into(), json!(cpus.share_of(CPU_PERIOD)));
            cpu.insert("period".into(), json!(CPU_PERIOD));
        }
        if let Some(shares) = self.cpu_shares {
            cpu.insert("shares".into(), json!(shares));
        }
        for (name, set) in [("cpus", &self.cpuset_cpus), ("mems", &self.cpuset_mems)] {
            if let Some(set) = set {
                cpu.insert(name.into(), json!(set.to_string()));
            }
        }
        if !cpu.is_empty() {
            resources.insert("cpu".into(), cpu.into());
        }
        if let Some(PidsLimit(Some(limit))) = self.pids_limit {
            resources.insert("pids".into(), json!({ "limit": limit }));
        }
        resources.into()
    }
}

#[cfg(test)]
mod tests;
