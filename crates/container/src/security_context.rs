//! The security settings of a container, decided from its options before its runtime starts.

use std::fs;
use std::path::Path;

use crate::capabilities::Capabilities;
use crate::confinement::{Device, DeviceNode, SecurityOption};
use crate::labels::Labels;
use crate::runtime::Runtime;
use crate::seccomp::{self, Filter, Filters};
use crate::{IpcMode, RunError, RunOptions};

/// The security settings of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecurityContext {
    pub capabilities: Capabilities,
    pub filters: Filters,
    pub labels: Labels,
    pub no_new_privileges: bool,
    /// The devices of the host that it may use.
    pub devices: Vec<DeviceNode>,
    /// Whether the container sees all of /proc and /sys.
    pub shows_system_paths: bool,
}

impl SecurityContext {
    /// Decides the settings of a container that `runtime` will create, on the host's network or not.
    pub(crate) fn decide(options: &RunOptions, runtime: &Runtime, on_host: bool) -> Result<Self, RunError> {
        let confinement = &options.confinement;
        confinement.check(&options.volumes)?;
        for sysctl in &confinement.sysctls {
            sysctl.check(on_host, options.ipc == IpcMode::Host)?;
        }
        let devices = confinement.devices.iter().map(Device::nodes);
        let devices = devices.collect::<Result<Vec<_>, _>>()?.concat();
        let capabilities = Capabilities::of(
            &confinement.cap_add,
            &confinement.cap_drop,
            on_host,
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
            filters: Filters::new(
                &filter,
                capabilities,
                runtime.takes_filter(),
                confinement.is_32_bit,
            ),
            labels: Labels::decide(Path::new("/"), security)?,
            no_new_privileges: no_new_privileges.unwrap_or(false),
            devices,
            shows_system_paths: security.contains(&SecurityOption::SystemPathsUnconfined),
        })
    }
}

/// The system call filter. Of several options the last counts.
fn filter(security: &[SecurityOption], capabilities: Capabilities) -> Result<Filter, RunError> {
    for option in security.iter().rev() {
        match option {
            SecurityOption::SeccompUnconfined => return Ok(Filter::Unconfined),
            SecurityOption::SeccompBuiltin => return Ok(Filter::Default),
            SecurityOption::SeccompFile(path) => {
                let text = fs::read_to_string(path);
                let text = text.map_err(RunError::file("read the seccomp profile", path))?;
                let release = rustix::system::uname().release().to_string_lossy().into_owned();
                let kernel = seccomp::version(&release);
                let profile = seccomp::read(&text, capabilities, kernel);
                return profile
                    .map(Filter::Custom)
                    .map_err(|reason| RunError::SecurityOption {
                        option: format!("seccomp={}", path.display()),
                        reason,
                    });
            }
            _ => {}
        }
    }
    Ok(Filter::Default)
}
