//! A container's network by CNI plugins (Container Network Interface, version 1.0 of its specification).
//!
//! A *network* is a list of plugins in a file, `<root>/networks/NAME.conflist`. A container is *attached* to
//! it: Xebec makes a network namespace, mounts it on `<run>/netns/ID`, and the plugins put an interface, an
//! address, firewall rules and published ports there. When the container has ended, the plugins take it all
//! back.
//!
//! # Promises
//!
//! * An [`Attachment`] is on record before its first plugin runs, and until its last plugin has taken back what
//!   it did. So a killed process leaves nothing that [`Places::detach`] does not find.
//! * A plugin has 10 seconds and 1 MiB of output; then it is killed.
//! * A published port is held by a socket of this process, so that no other program takes it.
//! * Only namespaces that the record names, by path and inode, are unmounted.
//!
//! # Crates that it may use
//!
//! `kernel`, and no other crate of Xebec. It knows no containers: it gets an id and the directories of records.
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `networks`, `definition`, `subnet`, `host` | the networks there are; making one that collides with nothing |
//! | `attaching`, `attachment`, `namespace` | a container's attachment, while it is made and on record |
//! | `plugin` | finding and running plugins, in the order and with the words of the specification |
//! | `port`, `held_ports` | published ports |
//! | `hosts`, `resolver` | names in `/etc/hosts`, and `/etc/resolv.conf` |

mod attaching;
mod attachment;
mod definition;
mod error;
pub mod fuzzing;
mod held_ports;
mod host;
mod hosts;
mod name;
mod namespace;
mod networks;
mod places;
mod plugin;
mod port;
mod resolver;
mod result;
mod subnet;

pub use attaching::{Attaching, Wish};
pub use attachment::Attachment;
pub use definition::{Definition, NewNetwork};
pub use error::NetworkError;
pub use hosts::{HostEntry, host_lines};
pub use name::{DEFAULT_NETWORK, is_network_name, new_attachment_id};
pub use networks::Networks;
pub use places::Places;
pub use plugin::missing_programs;
pub use port::{HostPorts, PortMapping, PortRequest, Protocol, shown_ports};
pub use resolver::{Resolver, ResolverOptions};
pub use result::Addresses;
pub use subnet::Subnet;
