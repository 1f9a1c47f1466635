//! The network of a container.

mod files;
mod net;
mod plan;

pub(crate) use files::{host_name, set_mode, write_network_files};
pub use net::{Net, NetworkOptions, RecordedNetwork};
pub(crate) use plan::{Namespace, NetworkPlan};
