//! What is decided once of a container's confinement, before its runtime begins.

use std::fs;
use std::path::Path;

use super::capabilities::Capabilities;
use super::confinement::SecurityOption;
use super::labels::Labels;
use super::runtime::Runtime;
use super::seccomp::{self, Filter, Filters};
use super::{RunError, RunOptions};

/// It.
#[derive(Clone, Debug, Default)]
pub(super) struct SecurityContext {
    pub capabilities: Capabilities,
    pub filters: Filters,
    pub labels: Labels,
    pub no_new_privileges: bool,
    /// Whether all of /proc and /sys is to be seen.
    pub shows_system_paths: bool,
}

impl SecurityContext {
    /// Decides it. `runtime` is who will make the container.
    pub(super) fn decide(options: &RunOptions, runtime: &Runtime) -> Result<Self, RunError> {
        let confinement = &options.confinement;
        confinement.check(options)?;
        let capabilities = Capabilities::of(
            &confinement.cap_add,
            &confinement.cap_drop,
            options.net,
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
            shows_system_paths: security.contains(&SecurityOption::SystemPathsUnconfined),
        })
    }
}

/// The last one that was asked for.
fn filter(security: &[SecurityOption], capabilities: Capabilities) -> Result<Filter, RunError> {
    for option in security.iter().rev() {
        match option {
            SecurityOption::SeccompUnconfined => return Ok(Filter::Unconfined),
            SecurityOption::SeccompBuiltin => return Ok(Filter::Default),
            SecurityOption::SeccompFile(path) => {
                let text = fs::read_to_string(path).map_err(|source| RunError::File {
                    doing: "read the seccomp profile",
                    path: path.clone(),
                    source,
                })?;
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
