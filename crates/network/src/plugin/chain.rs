//! A container's attachment and detachment, plugin by plugin (CNI specification, sections 2 and 4).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};
use xebec_kernel::process::Ending;

use super::input::locked;
use super::process::{Ended, run};
use super::programs::{PATH, Programs};
use crate::NetworkError;
use crate::definition::{Definition, takes_ports};
use crate::port::PortMapping;
use crate::result::failure;

/// How long a plugin may take. Those of containernetworking take a tenth of a second; the firewall's lock may
/// hold one up for some seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// How much a plugin may write. A result has a kilobyte.
const MOST: usize = 1 << 20;

/// The name of a container's interface, as in docker.
pub(crate) const INTERFACE: &str = "eth0";

/// The plugins of a network, for one container.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) programs: Programs,
    pub(crate) definition: Definition,
    /// The container, as plugins know it.
    pub(crate) id: String,
    /// The container's network namespace; without it plugins can only take back what is the host's.
    pub(crate) namespace: Option<PathBuf>,
    /// The address that the container is to have.
    pub(crate) ip: Option<IpAddr>,
    /// Where host-local keeps the addresses that are taken.
    pub(crate) addresses: PathBuf,
    /// The file that plugins get on standard input.
    pub(crate) input: PathBuf,
}

impl Chain {
    pub(crate) fn new(
        programs: Programs,
        definition: Definition,
        id: &str,
        addresses: &Path,
        input: &Path,
    ) -> Self {
        Chain {
            programs,
            definition,
            id: id.to_owned(),
            namespace: None,
            ip: None,
            addresses: addresses.to_owned(),
            input: input.to_owned(),
        }
    }

    /// Attaches the container. Returns the last plugin's result.
    ///
    /// `ports` gives the ports to publish, and is called when the first plugin is reached that publishes ports.
    /// After a failure the caller detaches the container.
    pub(crate) fn add(
        &self,
        ports: impl FnOnce() -> Result<Vec<PortMapping>, NetworkError>,
    ) -> Result<Value, NetworkError> {
        let mut result = None;
        let (mut ports, mut known) = (Some(ports), Vec::new());
        for plugin in self.definition.plugins() {
            if takes_ports(plugin) {
                if let Some(ports) = ports.take() {
                    known = ports()?;
                }
                if known.is_empty() && is_only_for_ports(plugin) {
                    continue;
                }
            }
            let output = self.call("ADD", "attach the container", plugin, &known, result.as_ref())?;
            result = Some(output);
        }
        Ok(result.unwrap_or_else(|| json!({})))
    }

    /// Detaches the container: the plugins in reverse order take back what they did. All of them are called;
    /// the error is the first one's that failed.
    pub(crate) fn del(&self, ports: &[PortMapping], result: Option<&Value>) -> Result<(), NetworkError> {
        let mut outcome = Ok(());
        for plugin in self.definition.plugins().iter().rev() {
            if ports.is_empty() && is_only_for_ports(plugin) {
                continue;
            }
            let called = self.call("DEL", "detach the container", plugin, ports, result);
            outcome = outcome.and(called.map(drop));
        }
        outcome
    }

    fn call(
        &self,
        command: &str,
        doing: &'static str,
        plugin: &Value,
        ports: &[PortMapping],
        previous: Option<&Value>,
    ) -> Result<Value, NetworkError> {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let program = self.programs.find(self.definition.name(), kind)?;
        let failed = |message: String| NetworkError::Plugin {
            network: self.definition.name().to_owned(),
            plugin: kind.to_owned(),
            doing,
            message,
        };
        let input = self.execution(plugin, ports, previous).to_string();
        let mut process = self.process(&program, command);
        let input =
            locked(&self.input, input.as_bytes()).map_err(NetworkError::file("write", &self.input))?;
        let ended = run(&mut process, input, LIMIT, MOST);
        let Ended {
            ending,
            output,
            errors,
        } = ended.map_err(|error| failed(error.to_string()))?;
        if ending != Ending::Exited(0) {
            return Err(failed(failure(&output, &errors, &ending.to_string())));
        }
        // Only ADD has a result.
        if command != "ADD" {
            return Ok(Value::Null);
        }
        let result: Option<Value> = serde_json::from_slice(&output).ok();
        result
            .filter(Value::is_object)
            .ok_or_else(|| failed("it ended with success, and its result is no JSON object".to_owned()))
    }

    /// The standard input of a plugin (section 4, "Deriving execution configuration").
    fn execution(&self, plugin: &Value, ports: &[PortMapping], previous: Option<&Value>) -> Value {
        let mut input = plugin.as_object().cloned().unwrap_or_default();
        input.insert("cniVersion".to_owned(), self.definition.version().into());
        input.insert("name".to_owned(), self.definition.name().into());
        if let Some(previous) = previous {
            input.insert("prevResult".to_owned(), previous.clone());
        }
        let mut settings = Map::new();
        if takes_ports(plugin) {
            settings.insert("portMappings".to_owned(), json!(ports));
        }
        if !settings.is_empty() {
            input.insert("runtimeConfig".to_owned(), settings.into());
        }
        if let Some(ipam) = input.get_mut("ipam").and_then(Value::as_object_mut)
            && ipam.get("type").and_then(Value::as_str) == Some("host-local")
            && !ipam.contains_key("dataDir")
        {
            let directory = self.addresses.to_string_lossy().into_owned();
            ipam.insert("dataDir".to_owned(), directory.into());
        }
        input.into()
    }

    fn process(&self, program: &Path, command: &str) -> Command {
        let mut process = Command::new(program);
        process
            .env_clear()
            .env("PATH", PATH)
            .env("LC_ALL", "C")
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &self.id)
            .env("CNI_IFNAME", INTERFACE)
            .env("CNI_PATH", self.programs.path())
            .env("CNI_NETNS", self.namespace.as_deref().unwrap_or(Path::new("")))
            .current_dir("/");
        if let Some(ip) = self.ip {
            process.env("CNI_ARGS", format!("IgnoreUnknown=1;IP={ip}"));
        }
        process
    }
}

/// Whether a plugin does nothing without ports to publish. It is not run then: calling the firewall for
/// nothing takes a tenth of a second when a container ends.
fn is_only_for_ports(plugin: &Value) -> bool {
    plugin.get("type").and_then(Value::as_str) == Some("portmap")
}
