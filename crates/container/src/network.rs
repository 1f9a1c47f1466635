//! The network of a container.

use std::str::FromStr;

use crate::RunError;

/// The network that a container sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// The host's network: every port of the container is a port of the host.
    #[default]
    Host,
    /// A network namespace of its own, which has a loopback interface only.
    None,
}

impl FromStr for Net {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        match text {
            "host" => Ok(Net::Host),
            "none" => Ok(Net::None),
            _ => Err(RunError::Net(text.to_owned())),
        }
    }
}
