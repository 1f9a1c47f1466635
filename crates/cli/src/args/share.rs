//! Options for the parts of the host and of other containers that a container shares, and for its limits.

use clap::Args;
use xebec_confinement::{Confinement, CpuSet, Device, Sysctl};
use xebec_container::{IpcMode, PidMode, RunOptions};
use xebec_kernel::size::Bytes;

/// Options for the parts that a container shares, and for its limits.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// Start a small first process that reaps all others and passes on signals, instead of the command itself.
    #[arg(long)]
    init: bool,
    /// The processes that the container sees: private, host, or container:NAME.
    #[arg(long, value_name = "MODE", default_value = "private")]
    pid: PidMode,
    /// The shared memory that the container sees: private or host.
    #[arg(long, value_name = "MODE", default_value = "private")]
    ipc: IpcMode,
    /// Add a group to the container's user, by name or number in the image. Repeatable.
    #[arg(long, value_name = "GROUP")]
    group_add: Vec<String>,
    /// Let the container use a device of the host, or a directory of them: SRC[:DST][:rwm]. Repeatable.
    #[arg(long = "device", value_name = "SRC[:DST][:rwm]")]
    devices: Vec<Device>,
    /// Set what the kernel keeps for each network or IPC namespace, such as net.core.somaxconn=1024. Repeatable.
    #[arg(long = "sysctl", value_name = "NAME=VALUE")]
    sysctls: Vec<Sysctl>,
    /// How much memory the kernel leaves to the container when memory is scarce; at most --memory.
    #[arg(long, value_name = "SIZE", value_parser = Bytes::or_zero)]
    memory_reservation: Option<Bytes>,
    /// The container's share of processor time when processors are busy, from 2 to 262144; 1024 by default, which 0 stands for, too.
    #[arg(short, long, value_name = "N", value_parser = shares)]
    cpu_shares: Option<u64>,
    /// The processors that the container runs on, such as 0-3,8.
    #[arg(long, value_name = "LIST")]
    cpuset_cpus: Option<CpuSet>,
    /// The nodes of memory that the container uses, such as 0,1.
    #[arg(long, value_name = "LIST")]
    cpuset_mems: Option<CpuSet>,
    /// How readily the kernel ends the container's processes when memory is short: -1000 (never) to 1000.
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i16).range(-1000..=1000))]
    oom_score_adj: Option<i16>,
}

impl ShareArgs {
    /// Adds these options to the permissions and limits of a container.
    pub(crate) fn confine(&self, confinement: Confinement) -> Confinement {
        Confinement {
            devices: self.devices.clone(),
            sysctls: self.sysctls.clone(),
            memory_reservation: self.memory_reservation.filter(|size| size.0 > 0),
            cpu_shares: self.cpu_shares.filter(|shares| *shares > 0),
            cpuset_cpus: self.cpuset_cpus.clone(),
            cpuset_mems: self.cpuset_mems.clone(),
            oom_score_adj: self.oom_score_adj,
            ..confinement
        }
    }

    /// Adds these options to the others.
    pub(crate) fn share(&self, options: RunOptions) -> RunOptions {
        RunOptions {
            init: self.init.then(crate::init::program),
            pid: self.pid.clone(),
            ipc: self.ipc,
            group_add: self.group_add.clone(),
            ..options
        }
    }
}

/// As docker has it: 0 is as if nothing had been said.
fn shares(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(shares @ (0 | 2..=262_144)) => Ok(shares),
        _ => Err("it is a number from 2 to 262144, or 0 for the usual share".to_owned()),
    }
}
