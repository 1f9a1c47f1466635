//! The definition of a network: a list of plugins, as in the CNI specification, section 1.
//!
//! Xebec writes lists of three plugins. `bridge` makes the container's interface and gives it an address;
//! `firewall` lets its packets through, and keeps other networks' bridges out; `portmap` publishes ports. The
//! plugin `tuning` is not among them: without settings it does nothing but take time.
//!
//! A user may put a file of another tool there, with other plugins. [`Definition::parse`] says what Xebec needs of it.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::subnet::Subnet;
use crate::{NetworkError, name};

/// The version of the specification that Xebec's own definitions follow.
const VERSION: &str = "1.0.0";

/// The versions whose results Xebec reads.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", VERSION, "1.1.0"];

/// Most plugins of a list.
const MOST_PLUGINS: usize = 32;

/// The settings of a new network.
#[derive(Clone, Debug, Default)]
pub struct NewNetwork {
    /// Its subnet; by default the first that collides with nothing.
    pub subnet: Option<Subnet>,
    /// The address of the host in it; by default the subnet's first.
    pub gateway: Option<Ipv4Addr>,
    /// Whether its containers reach each other only, and neither the host nor anything beyond it.
    pub internal: bool,
}

/// The definition of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    name: String,
    list: Map<String, Value>,
}

impl Definition {
    /// A network of Xebec's.
    pub(crate) fn new(name: &str, bridge: &str, subnet: Subnet, gateway: Ipv4Addr, internal: bool) -> Self {
        let mut range = json!({ "subnet": subnet.to_string() });
        let mut ipam = json!({ "type": "host-local" });
        if !internal {
            range["gateway"] = gateway.to_string().into();
            ipam["routes"] = json!([{ "dst": "0.0.0.0/0" }]);
        }
        ipam["ranges"] = json!([[range]]);
        let mut plugins = vec![
            json!({
                "type": "bridge",
                "bridge": bridge,
                // Without an address of its own the bridge leads neither to the host nor beyond it.
                "isGateway": !internal,
                "ipMasq": !internal,
                // A container reaches itself by a port that it publishes.
                "hairpinMode": true,
                "ipam": ipam,
            }),
            json!({ "type": "firewall", "ingressPolicy": "same-bridge" }),
        ];
        if !internal {
            plugins.push(json!({ "type": "portmap", "capabilities": { "portMappings": true } }));
        }
        let list = json!({
            "cniVersion": VERSION,
            "name": name,
            "plugins": plugins,
        });
        let Value::Object(list) = list else {
            return Definition {
                name: name.to_owned(),
                list: Map::new(),
            };
        };
        Definition {
            name: name.to_owned(),
            list,
        }
    }

    /// Reads the definition of the network of that name.
    ///
    /// The file must be a JSON object with that name, a version that Xebec knows, and a list of plugins, each of
    /// which is a program's name.
    pub(crate) fn parse(name: &str, path: &Path, text: &[u8]) -> Result<Self, NetworkError> {
        let wrong = |reason: String| NetworkError::Definition {
            path: path.to_owned(),
            reason,
        };
        let list: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| wrong(format!("it is no JSON object: {error}")))?;
        let text = |key: &str| list.get(key).and_then(Value::as_str);
        if text("name") != Some(name) {
            return Err(wrong(format!(
                "its \"name\" is not {name:?}, as its file's name is"
            )));
        }
        if !text("cniVersion").is_some_and(|version| VERSIONS.contains(&version)) {
            return Err(wrong(format!(
                "its \"cniVersion\" is none of {}",
                VERSIONS.join(", ")
            )));
        }
        let plugins = list.get("plugins").and_then(Value::as_array);
        let plugins = plugins.filter(|plugins| (1..=MOST_PLUGINS).contains(&plugins.len()));
        let Some(plugins) = plugins else {
            return Err(wrong(format!(
                "\"plugins\" is no list of 1 to {MOST_PLUGINS} plugins"
            )));
        };
        // An ipam may be empty: then the interface gets no address.
        let is_empty = |ipam: &Value| ipam.as_object().is_some_and(Map::is_empty);
        let ipams = plugins.iter().filter_map(|plugin| plugin.get("ipam"));
        for plugin in plugins.iter().chain(ipams.filter(|ipam| !is_empty(ipam))) {
            let kind = plugin.get("type").and_then(Value::as_str);
            if !kind.is_some_and(name::is_network_name) {
                return Err(wrong(
                    "a plugin has no \"type\" that can name a program".to_owned(),
                ));
            }
        }
        Ok(Definition {
            name: name.to_owned(),
            list,
        })
    }

    /// The definition of an attachment, as it was when the container was attached.
    pub(crate) fn recorded(name: &str, list: Map<String, Value>) -> Self {
        Definition {
            name: name.to_owned(),
            list,
        }
    }

    /// The network's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it, as it stands in its file.
    pub fn list(&self) -> &Map<String, Value> {
        &self.list
    }

    pub(crate) fn version(&self) -> &str {
        let version = self.list.get("cniVersion").and_then(Value::as_str);
        version.unwrap_or(VERSION)
    }

    /// Its plugins, in order.
    pub(crate) fn plugins(&self) -> &[Value] {
        let plugins = self.list.get("plugins").and_then(Value::as_array);
        plugins.map_or(&[], Vec::as_slice)
    }

    /// The kind of network: the name of its first plugin.
    pub fn driver(&self) -> &str {
        let first = self.plugins().first();
        first
            .and_then(|plugin| plugin.get("type")?.as_str())
            .unwrap_or_default()
    }

    /// Whether one of its plugins publishes ports.
    pub fn publishes_ports(&self) -> bool {
        self.plugins().iter().any(takes_ports)
    }

    /// The bridge that its first plugin makes.
    pub fn bridge(&self) -> Option<&str> {
        let first = self.plugins().first()?;
        let is_bridge = first.get("type")?.as_str()? == "bridge";
        // The plugin's own default.
        is_bridge.then(|| first.get("bridge").and_then(Value::as_str).unwrap_or("cni0"))
    }

    /// Its IPv4 subnets, each with its gateway.
    pub fn subnets(&self) -> Vec<(Subnet, Option<Ipv4Addr>)> {
        let Some(ipam) = self.plugins().first().and_then(|plugin| plugin.get("ipam")) else {
            return Vec::new();
        };
        let sets = ipam.get("ranges").and_then(Value::as_array);
        let ranges = sets.into_iter().flatten().filter_map(Value::as_array).flatten();
        // The old form has one range in the object itself.
        let read = |range: &Value| {
            let subnet = range.get("subnet")?.as_str()?.parse().ok()?;
            let gateway = range.get("gateway").and_then(Value::as_str);
            Some((subnet, gateway.and_then(|gateway| gateway.parse().ok())))
        };
        ranges.chain([ipam]).filter_map(read).collect()
    }

    /// The host's address in it.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.subnets().into_iter().find_map(|(_, gateway)| gateway)
    }

    /// Whether its containers reach each other only.
    pub fn is_internal(&self) -> bool {
        let first = self.plugins().first();
        let flag = |key: &str| first.and_then(|plugin| plugin.get(key)?.as_bool());
        self.bridge().is_some() && flag("isGateway") == Some(false)
    }

    /// The file's contents.
    pub(crate) fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(&self.list).unwrap_or_default();
        text + "\n"
    }
}

/// Whether a plugin publishes ports.
pub(crate) fn takes_ports(plugin: &Value) -> bool {
    let capabilities = plugin.get("capabilities");
    let capability = capabilities.and_then(|all| all.get("portMappings"));
    capability.and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(internal: bool) -> Definition {
        let subnet: Subnet = "10.4.0.0/24".parse().unwrap();
        Definition::new("web", "xebec1", subnet, Ipv4Addr::new(10, 4, 0, 1), internal)
    }

    /// The whole files as they are. If you change a default, change these, on purpose.
    #[test]
    fn definitions_are_as_expected() {
        assert_eq!(network(false).to_text(), include_str!("../tests/bridge.conflist"));
        assert_eq!(
            network(true).to_text(),
            include_str!("../tests/internal.conflist")
        );
    }

    #[test]
    fn what_is_written_is_read() {
        for internal in [false, true] {
            let network = network(internal);
            let read =
                Definition::parse("web", Path::new("web.conflist"), network.to_text().as_bytes()).unwrap();
            assert_eq!(read, network);
            assert_eq!(read.bridge(), Some("xebec1"));
            assert_eq!(read.is_internal(), internal);
            assert_eq!(read.publishes_ports(), !internal);
            let gateway = (!internal).then_some(Ipv4Addr::new(10, 4, 0, 1));
            assert_eq!(read.subnets(), [("10.4.0.0/24".parse().unwrap(), gateway)]);
        }
    }

    #[test]
    fn a_definition_of_another_tool_is_read() {
        let text = br#"{"cniVersion":"0.4.0","name":"mac","plugins":[{"type":"macvlan","master":"eth0",
            "ipam":{"type":"host-local","subnet":"192.168.7.0/24"}},{"type":"sbr"}]}"#;
        let read = Definition::parse("mac", Path::new("mac.conflist"), text).unwrap();
        assert_eq!(
            (read.driver(), read.bridge(), read.is_internal()),
            ("macvlan", None, false)
        );
        assert_eq!(read.subnets(), [("192.168.7.0/24".parse().unwrap(), None)]);
    }

    #[test]
    fn a_wrong_definition_says_what_is_wrong() {
        for (text, why) in [
            ("", "JSON"),
            ("[]", "JSON"),
            (r#"{"name":"b"}"#, "name"),
            (r#"{"name":"a"}"#, "cniVersion"),
            (r#"{"name":"a","cniVersion":"9.0.0"}"#, "cniVersion"),
            (r#"{"name":"a","cniVersion":"1.0.0","plugins":[]}"#, "plugins"),
            (r#"{"name":"a","cniVersion":"1.0.0","plugins":[{}]}"#, "program"),
            (
                r#"{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"../sh"}]}"#,
                "program",
            ),
            (
                r#"{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x","ipam":{"type":"/sh"}}]}"#,
                "program",
            ),
        ] {
            let outcome = Definition::parse("a", Path::new("/n/a.conflist"), text.as_bytes());
            let error = outcome.unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("/n/a.conflist"),
                "{text}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_definition_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Definition::parse("a", Path::new("a.conflist"), &bytes);
        }
    }
}
