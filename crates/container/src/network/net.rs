//! A container's network: the user's options, and its part of the record.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xebec_network::{
    Addresses, HostEntry, NetworkError, PortMapping, PortRequest, ResolverOptions, is_network_name,
};

use crate::RunError;

/// The network that a container sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// The host's network: every port of the container is a port of the host.
    #[default]
    Host,
    /// A network namespace of its own, which has a loopback interface only.
    None,
    /// A network namespace of its own, which CNI plugins connect to the network of this name.
    Network(String),
    /// The network of the running container of this name.
    Container(String),
}

/// Reads the value of `--network`. A network of that name need not exist.
impl FromStr for Net {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match (text, text.strip_prefix("container:")) {
            ("host", _) => Ok(Net::Host),
            ("none", _) => Ok(Net::None),
            (_, Some(container)) => Ok(Net::Container(container.to_owned())),
            (name, None) if is_network_name(name) => Ok(Net::Network(name.to_owned())),
            (name, None) => Err(NetworkError::Name(name.to_owned()).into()),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Net::Host => f.write_str("host"),
            Net::None => f.write_str("none"),
            Net::Network(name) => f.write_str(name),
            Net::Container(name) => write!(f, "container:{name}"),
        }
    }
}

/// The user's options for a container's network beside its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Ports to publish.
    pub ports: Vec<PortRequest>,
    /// Whether the ports that the image exposes are published as well.
    pub publish_all: bool,
    /// The container's address.
    pub ip: Option<Ipv4Addr>,
    /// More names of the container in its network.
    pub aliases: Vec<String>,
    /// More lines for `/etc/hosts`.
    pub hosts: Vec<HostEntry>,
    /// Settings for looking up names that replace the host's.
    pub resolver: ResolverOptions,
}

/// The network of a container, as its record has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedNetwork {
    /// As `--network` names it.
    pub name: String,
    /// The name of the container's attachment to it, by which it is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// Its addresses, once it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
    /// The ports of the host that are published for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_shown() {
        for text in ["host", "none", "bridge", "web", "container:db"] {
            assert_eq!(text.parse::<Net>().unwrap().to_string(), text);
        }
        assert_eq!(
            "container:db".parse::<Net>().unwrap(),
            Net::Container("db".into())
        );
        assert_eq!("web".parse::<Net>().unwrap(), Net::Network("web".into()));
        for wrong in ["", "a b", "../a", "a:b"] {
            assert!(wrong.parse::<Net>().is_err(), "{wrong:?}");
        }
    }
}
