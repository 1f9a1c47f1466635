//! The security settings of a container, decided from its options before its runtime starts.

use std::fs;
use std::path::Path;

use crate::capabilities::Capabilities;
use crate::devices::{Device, DeviceNode};
use crate::error::ConfinementError;
use crate::labels::Labels;
use crate::options::Confinement;
use crate::seccomp::{self, Filter, Filters};
use crate::security_option::SecurityOption;

/// The security settings of a container.
#[derive(Clone, Debug, Default)]
pub struct SecurityContext {
    /// The parts of root's power that its processes have.
    pub capabilities: Capabilities,
    /// Which system calls they may make.
    pub filters: Filters,
    /// How AppArmor and SELinux know its processes and files.
    pub labels: Labels,
    /// Whether setuid programs run with the privileges of the caller.
    pub no_new_privileges: bool,
    /// The devices of the host that it may use.
    pub devices: Vec<DeviceNode>,
    /// Whether the container sees all of /proc and /sys.
    pub shows_system_paths: bool,
}

/// The circumstances on which a container's settings depend, beside its user's options.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Whether its runtime works under a filter of system calls ([`crate::seccomp`]).
    pub takes_filter: bool,
    /// Whether it is on the host's network.
    pub is_on_hosts_network: bool,
    /// Whether it has the host's shared memory.
    pub is_on_hosts_ipc: bool,
    /// Whether this host can limit swap.
    pub can_limit_swap: bool,
}

impl SecurityContext {
    /// Decides the settings of a container, from the user's options.
    ///
    /// # Errors
    /// If options contradict each other, or this host does not support one.
    pub fn decide(confinement: &Confinement, surroundings: Surroundings) -> Result<Self, ConfinementError> {
        let Surroundings {
            takes_filter,
            is_on_hosts_network,
            is_on_hosts_ipc,
            can_limit_swap,
        } = surroundings;
        confinement.check(can_limit_swap)?;
        for sysctl in &confinement.sysctls {
            sysctl.check(is_on_hosts_network, is_on_hosts_ipc)?;
        }
        let devices = confinement.devices.iter().map(Device::nodes);
        let devices = devices.collect::<Result<Vec<_>, _>>()?.concat();
        let capabilities = Capabilities::of(
            &confinement.cap_add,
            &confinement.cap_drop,
            is_on_hosts_network,
            Capabilities::held(),
        );
        let security = &confinement.security;
        let filter = filter(security, capabilities)?;
        let no_new_privileges = security.iter().rev().find_map(|option| match option {
            SecurityOption::NoNewPrivileges(is_on) => Some(*is_on),
            _ => None,
        });
        Ok(Self {
            capabilities,
            filters: Filters::new(&filter, capabilities, takes_filter, confinement.is_32_bit),
            labels: Labels::decide(Path::new("/"), security)?,
            no_new_privileges: no_new_privileges.unwrap_or(false),
            devices,
            shows_system_paths: security.contains(&SecurityOption::SystemPathsUnconfined),
        })
    }
}

/// The system call filter. Of several options the last counts.
fn filter(security: &[SecurityOption], capabilities: Capabilities) -> Result<Filter, ConfinementError> {
    for option in security.iter().rev() {
        match option {
            SecurityOption::SeccompUnconfined => return Ok(Filter::Unconfined),
            SecurityOption::SeccompBuiltin => return Ok(Filter::Default),
            SecurityOption::SeccompFile(path) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(|source| ConfinementError::Profile {
                    path: path.clone(),
                    source,
                })?;
                let release = rustix::system::uname().release().to_string_lossy().into_owned();
                let kernel = seccomp::version(&release);
                let profile = seccomp::read(&text, capabilities, kernel);
                return profile
                    .map(Filter::Custom)
                    .map_err(|reason| ConfinementError::SecurityOption {
                        option: format!("seccomp={}", path.display()),
                        reason,
                    });
            }
            _ => {}
        }
    }
    Ok(Filter::Default)
}
