//! Why a container could not be given a network. Each message names the thing, and says what to do.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use xebec_kernel::mount::MountError;

/// An error of an operation on networks.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Not a name.
    #[error(
        "{0:?} cannot name a network; use up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    )]
    Name(String),
    /// The name means something else.
    #[error(
        "{0:?} cannot name a network of your own: --network {0} means something else; choose another name"
    )]
    Reserved(String),
    /// There is no network of that name.
    #[error(
        "there is no network named {0}; `xebec network ls` lists those there are, and `xebec network create {0}` makes it"
    )]
    Unknown(String),
    /// There is one already.
    #[error(
        "there is a network named {0} already; choose another name, or remove it with `xebec network rm {0}`"
    )]
    Exists(String),
    /// A network that is in use is to be removed.
    #[error("the network {network} is used by {}; stop them first", containers.join(", "))]
    Used {
        /// The network.
        network: String,
        /// The containers that are attached to it.
        containers: Vec<String>,
    },
    /// Not a subnet.
    #[error("subnet {subnet:?}: {reason}")]
    Subnet {
        /// The subnet as the user gave it.
        subnet: String,
        /// The fault of the subnet.
        reason: String,
    },
    /// A subnet that something else uses.
    #[error("the subnet {subnet} overlaps {what}; choose another with --subnet")]
    Collision {
        /// The subnet.
        subnet: String,
        /// The route, address or network that the subnet overlaps.
        what: String,
    },
    /// There is no free subnet.
    #[error("this host has routes to all of 10.4.0.0 to 10.255.255.255; choose a subnet with --subnet")]
    NoSubnet,
    /// A gateway that its subnet does not have.
    #[error("the gateway {gateway} is no address for a host in {subnet}; choose one that is")]
    Gateway {
        /// The gateway.
        gateway: String,
        /// The subnet.
        subnet: String,
    },
    /// A definition that cannot be used.
    #[error("the network's definition {} cannot be used: {reason}; correct it, or remove it", path.display())]
    Definition {
        /// The file.
        path: PathBuf,
        /// The fault of the definition.
        reason: String,
    },
    /// A plugin is not installed.
    #[error(
        "the network {network} needs the CNI plugin {plugin:?}, which is not in {searched}; install the plugins (`apt install \
         containernetworking-plugins`), or use --network host, which needs none"
    )]
    NoPlugin {
        /// The network.
        network: String,
        /// The plugin.
        plugin: String,
        /// The directories that were searched.
        searched: String,
    },
    /// A plugin failed.
    #[error(
        "network {network}: the CNI plugin {plugin} could not {doing}: {message}{}",
        advice(message)
    )]
    Plugin {
        /// The network.
        network: String,
        /// The plugin.
        plugin: String,
        /// The action that failed, as a phrase.
        doing: &'static str,
        /// The message of the plugin.
        message: String,
    },
    /// An address was asked for that the container did not get.
    #[error(
        "network {network}: the container got {got} instead of the address {asked} that --ip asks for; the network's ipam plugin does not honour it"
    )]
    OtherAddress {
        /// The network.
        network: String,
        /// The address that `--ip` asks for.
        asked: IpAddr,
        /// The addresses that the container got.
        got: String,
    },
    /// Not a port to publish.
    #[error("port {port:?}: {reason}")]
    Port {
        /// The port as the user gave it.
        port: String,
        /// The fault of the text.
        reason: &'static str,
    },
    /// A port of the host that is taken.
    #[error("port {port} of this host cannot be published: {reason}")]
    PortTaken {
        /// The port, with its address and protocol.
        port: String,
        /// The program that has it, or what the kernel said.
        reason: String,
    },
    /// More ports than are published.
    #[error(
        "{0} ports are too many to publish: at most 500; use --network host, where nothing has to be published"
    )]
    TooManyPorts(usize),
    /// A network that cannot publish ports.
    #[error("the network {network} {}", no_ports(*is_internal))]
    NoPorts {
        /// The network.
        network: String,
        /// Whether it leads nowhere on purpose.
        is_internal: bool,
    },
    /// Not a name and an address.
    #[error("{0:?} is no name and address; write it as NAME:ADDRESS, or NAME:host-gateway")]
    HostEntry(String),
    /// An attachment could not be read.
    #[error("the record {} of a container's network cannot be read: {reason}; remove it if no container uses it", path.display())]
    Attachment {
        /// The file.
        path: PathBuf,
        /// The fault of the record.
        reason: String,
    },
    /// The kernel made no namespace.
    #[error("cannot make a network namespace: {source}{}", privilege(source))]
    Namespace {
        /// The error.
        source: io::Error,
    },
    /// Something else is mounted where a namespace is.
    #[error("{} is mounted at {}, which is not the container's network; unmount it first", .found, .at.display())]
    NotOurs {
        /// Where.
        at: PathBuf,
        /// The mount that is there: file system and root.
        found: String,
    },
    /// A namespace could not be mounted or unmounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A bridge could not be removed.
    #[error("cannot remove the bridge {bridge} of network {network}: {source}; `ip link del {bridge}` does")]
    Bridge {
        /// The network.
        network: String,
        /// The bridge.
        bridge: String,
        /// The error.
        source: io::Error,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A system call that concerns no file failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl NetworkError {
    /// The error of an operation on a file, for `map_err`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// The error of a system call that concerns no file, for `map_err`.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self + Copy {
        move |source| Self::System { doing, source }
    }
}

/// Advice for a plugin's message, by the words that the plugins of containernetworking use.
fn advice(message: &str) -> &'static str {
    let message = message.to_ascii_lowercase();
    let has = |words: &str| message.contains(words);
    match () {
        () if has("iptables") && has("not found") => {
            "; install iptables (`apt install iptables`), or use --network host, which needs none"
        }
        () if has("no ip addresses available") => {
            "; all addresses of the network are taken: stop containers, or make a network with a larger --subnet"
        }
        () if has("requested ip") || has("duplicate allocation") => "; choose another --ip, or leave it out",
        () if has("already has an ip address different from") => {
            "; remove that bridge (`ip link del NAME`), or make a network of another name"
        }
        () if has("operation not permitted") || has("permission denied") => "; networks need root",
        () => "",
    }
}

fn no_ports(is_internal: bool) -> &'static str {
    match is_internal {
        true => {
            "is internal, so that no port of its containers can be published; leave --publish out, or use another network"
        }
        false => {
            "has no plugin that publishes ports (portmap); add one to its definition, or leave --publish out"
        }
    }
}

fn privilege(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; networks need root",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_plugins_come_with_what_to_do() {
        let said = |message: &str| {
            NetworkError::Plugin {
                network: "bridge".into(),
                plugin: "firewall".into(),
                doing: "attach the container",
                message: message.into(),
            }
            .to_string()
        };
        let text = said(
            "could not initialize iptables protocol 0: exec: \"iptables\": executable file not found in $PATH",
        );
        assert!(
            text.contains("network bridge") && text.contains("plugin firewall"),
            "{text}"
        );
        assert!(text.ends_with("which needs none"), "{text}");
        assert!(
            said("failed to allocate for range 0: no IP addresses available in range set: a-b")
                .contains("--subnet")
        );
        assert!(
            said("\"xebec0\" already has an IP address different from 10.4.0.1/24").contains("ip link del")
        );
        assert!(said("something").ends_with("something"));
    }
}
