//! Finds plugins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::NetworkError;
use crate::definition::Definition;

/// Where distributions put plugins (Debian, the plugins' own releases, Fedora), after those of `CNI_PATH`.
const DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// The plugins that networks of Xebec's own need. They run `iptables`, which is needed too.
const NEEDED: [&str; 4] = ["bridge", "host-local", "firewall", "portmap"];

/// Where plugins find `iptables`; many users' `PATH` lacks the `sbin` directories.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The programs that this host lacks for networks that Xebec makes.
pub fn missing_programs() -> Vec<String> {
    let programs = Programs::of_host();
    let plugins = NEEDED.iter().filter(|plugin| programs.find("", plugin).is_err());
    let mut missing: Vec<String> = plugins.map(|plugin| format!("the CNI plugin {plugin}")).collect();
    if !PATH
        .split(':')
        .any(|directory| Path::new(directory).join("iptables").is_file())
    {
        missing.push("iptables".to_owned());
    }
    missing
}

/// The directories in which plugins are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Programs(Vec<PathBuf>);

impl Programs {
    /// Those of the environment variable `CNI_PATH`, and the usual ones.
    pub(crate) fn of_host() -> Self {
        let named = std::env::var_os("CNI_PATH");
        let named = named
            .iter()
            .flat_map(std::env::split_paths)
            .filter(|path| path.is_absolute());
        Programs(named.chain(DIRECTORIES.iter().map(PathBuf::from)).collect())
    }

    /// The program of that name.
    pub(crate) fn find(&self, network: &str, plugin: &str) -> Result<PathBuf, NetworkError> {
        let candidates = self.0.iter().map(|directory| directory.join(plugin));
        let mut found = candidates.filter(|path| path.is_file());
        found.next().ok_or_else(|| {
            let searched: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
            NetworkError::NoPlugin {
                network: network.to_owned(),
                plugin: plugin.to_owned(),
                searched: searched.join(", "),
            }
        })
    }

    /// Refuses a network one of whose plugins is not installed.
    pub(crate) fn check(&self, definition: &Definition) -> Result<(), NetworkError> {
        let kind = |value: &Value| value.get("type").and_then(Value::as_str).map(str::to_owned);
        for plugin in definition.plugins() {
            for kind in kind(plugin).into_iter().chain(plugin.get("ipam").and_then(kind)) {
                self.find(definition.name(), &kind)?;
            }
        }
        Ok(())
    }

    /// As plugins get it, which start others.
    pub(crate) fn path(&self) -> OsString {
        std::env::join_paths(&self.0).unwrap_or_default()
    }
}
