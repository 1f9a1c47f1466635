//! A container's network, and `xebec network`.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use clap::{Args, Subcommand};
use xebec_container::{Net, NetworkOptions};
use xebec_network::{
    DEFAULT_NETWORK, HostEntry, NetworkError, NewNetwork, PortRequest, ResolverOptions, Subnet,
};

use super::json::Json;
use crate::template::Format;

/// The network that a container sees.
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// The network that the container sees: host, none, bridge, the name of a network (see xebec network), or
    /// container:NAME for that of a running container. By default the host's, and bridge if ports are published.
    #[arg(id = "net", long = "network", visible_alias = "net", value_name = "NETWORK")]
    net: Option<Net>,
    /// Publish a port of the container: [[ADDRESS:][PORT]:]PORT[/tcp|/udp], or a range of ports. Repeatable.
    #[arg(short, long, value_name = "PORTS")]
    publish: Vec<Ports>,
    /// Publish each port that the image exposes on a free port of the host.
    #[arg(short = 'P', long)]
    publish_all: bool,
    /// The container's address in its network.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<Ipv4Addr>,
    /// Another name of the container for the other containers of its network. Repeatable.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    network_alias: Vec<String>,
    /// Add a line to the container's /etc/hosts: NAME:ADDRESS; the address host-gateway stands for the host. Repeatable.
    #[arg(long, value_name = "NAME:ADDRESS")]
    add_host: Vec<HostEntry>,
    /// A name server instead of the host's. Repeatable.
    #[arg(long, value_name = "ADDRESS")]
    dns: Vec<IpAddr>,
    /// A domain in which short names are looked up, instead of the host's; "." for none. Repeatable.
    #[arg(long, value_name = "DOMAIN", value_parser = domain)]
    dns_search: Vec<String>,
    /// An option of resolv.conf, instead of the host's. Repeatable.
    #[arg(long, visible_alias = "dns-opt", value_name = "OPTION", value_parser = resolver_option)]
    dns_option: Vec<String>,
}

impl NetworkArgs {
    /// The network. A user who publishes a port, or asks for an address or a name in a network, wants one.
    pub(crate) fn net(&self) -> Net {
        let wants_network = !self.publish.is_empty()
            || self.publish_all
            || self.ip.is_some()
            || !self.network_alias.is_empty();
        match (&self.net, wants_network) {
            (Some(net), _) => net.clone(),
            (None, true) => Net::Network(DEFAULT_NETWORK.to_owned()),
            (None, false) => Net::Host,
        }
    }

    /// The container's options for its network.
    pub(crate) fn options(&self) -> NetworkOptions {
        NetworkOptions {
            ports: self.publish.iter().flat_map(|ports| ports.0.clone()).collect(),
            publish_all: self.publish_all,
            ip: self.ip,
            aliases: self.network_alias.clone(),
            hosts: self.add_host.clone(),
            resolver: ResolverOptions {
                servers: self.dns.clone(),
                search: self.dns_search.clone(),
                options: self.dns_option.clone(),
            },
        }
    }
}

/// The ports that one `--publish` names.
#[derive(Clone, Debug)]
struct Ports(Vec<PortRequest>);

impl FromStr for Ports {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        PortRequest::parse(text).map(Ports)
    }
}

/// A name of a host. Other characters in a line of `hosts` would be read as something else.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match !text.is_empty() && text.len() <= 255 && text.chars().all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, '.', '-' and '_'".to_owned()),
    }
}

fn domain(text: &str) -> Result<String, String> {
    host_name(text)
}

fn resolver_option(text: &str) -> Result<String, String> {
    let is_option = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_');
    match !text.is_empty() && text.chars().all(is_option) {
        true => Ok(text.to_owned()),
        false => Err("write it as ndots:1 (see resolv.conf(5))".to_owned()),
    }
}

/// `xebec network`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Make a network.
    Create(CreateArgs),
    /// List the networks, and how many containers are attached to each.
    #[command(visible_alias = "list")]
    Ls(Json),
    /// Print a network's definition and its containers as JSON.
    Inspect {
        /// The networks.
        #[arg(required = true, value_name = "NETWORK")]
        networks: Vec<String>,
        /// Print JSON (it always does).
        #[arg(long)]
        json: bool,
        /// Print a line for each, of fields as {{.subnet}} or {{json .attachments}} and text; json: all fields.
        #[arg(short, long, value_name = "FORMAT", conflicts_with = "json")]
        format: Option<Format>,
    },
    /// Remove networks that no container is attached to.
    #[command(visible_alias = "remove")]
    Rm {
        /// The networks.
        #[arg(required = true, value_name = "NETWORK")]
        networks: Vec<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove all networks but bridge that no container is attached to.
    Prune {
        /// Do not ask. Xebec never asks; the option is for scripts that are written for docker.
        #[arg(short, long)]
        force: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `xebec network create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The network's name.
    pub(crate) name: String,
    /// Only bridge, which it always is.
    #[arg(short, long, value_name = "DRIVER", value_parser = driver)]
    driver: Option<String>,
    /// Its addresses, as 10.9.0.0/24. By default the first from 10.4.0.0/24 on that this host has no route to.
    #[arg(long, value_name = "SUBNET")]
    subnet: Option<Subnet>,
    /// The host's address in the network. By default the subnet's first.
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<Ipv4Addr>,
    /// Its containers reach each other only, and neither this host nor anything beyond it.
    #[arg(long, conflicts_with = "gateway")]
    internal: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn driver(text: &str) -> Result<String, String> {
    match text {
        "bridge" => Ok(text.to_owned()),
        _ => Err(
            "Xebec makes bridges; docs/networks.md says how to write the definition of another network"
                .to_owned(),
        ),
    }
}

impl CreateArgs {
    /// The settings of the new network.
    pub(crate) fn new_network(&self) -> NewNetwork {
        NewNetwork {
            subnet: self.subnet,
            gateway: self.gateway,
            internal: self.internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        network: NetworkArgs,
    }

    fn net(arguments: &[&str]) -> Option<String> {
        let line = Line::try_parse_from([&["xebec"], arguments].concat()).ok()?;
        Some(line.network.net().to_string())
    }

    #[test]
    fn the_network_is_the_hosts_unless_something_of_another_one_is_asked_for() {
        for (arguments, wanted) in [
            (&[][..], "host"),
            (&["-p", "8080:80"], "bridge"),
            (&["-P"], "bridge"),
            (&["--ip", "10.4.0.7"], "bridge"),
            (&["--network-alias", "db"], "bridge"),
            (&["--dns", "192.0.2.1"], "host"),
            (&["--net", "web", "-p", "80"], "web"),
            (&["--network", "host", "-p", "80"], "host"),
            (&["--network=container:db"], "container:db"),
        ] {
            assert_eq!(net(arguments).as_deref(), Some(wanted), "{arguments:?}");
        }
    }

    #[test]
    fn a_network_is_a_bridge() {
        assert!(driver("bridge").is_ok());
        assert!(driver("overlay").is_err_and(|error| error.contains("docs/networks.md")));
    }

    #[test]
    fn what_cannot_stand_in_a_file_is_refused() {
        for arguments in [
            ["--network-alias", "a b"],
            ["--dns-search", "a\nnameserver 192.0.2.1"],
            ["--dns-option", "a b"],
            ["--add-host", "a b:192.0.2.1"],
            ["-p", "80:"],
        ] {
            assert_eq!(net(&arguments), None, "{arguments:?}");
        }
    }
}
