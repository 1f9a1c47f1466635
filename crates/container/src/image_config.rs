//! The part of an OCI image configuration that says how to run the image.
//!
//! Source: image-spec `config.md`, the `config` object. Unknown members are ignored, and a member that is
//! `null` counts as absent, as docker and buildah write both.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Deserializer};
use xebec_network::{HostPorts, PortRequest, Protocol};

use crate::signal::{SignalParseError, StopSignal};

/// How to run an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The start of the command line.
    #[serde(rename = "Entrypoint", deserialize_with = "null_is_default")]
    pub entrypoint: Vec<String>,
    /// The rest of the command line, unless the user gives another.
    #[serde(rename = "Cmd", deserialize_with = "null_is_default")]
    pub cmd: Vec<String>,
    /// Variables as `NAME=value`.
    #[serde(rename = "Env", deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    /// `user[:group]`, names or numbers; empty means root.
    #[serde(rename = "User", deserialize_with = "null_is_default")]
    pub user: String,
    /// Working directory; empty means `/`.
    #[serde(rename = "WorkingDir", deserialize_with = "null_is_default")]
    pub working_dir: String,
    /// The signal that asks the container to stop, as `SIGTERM`, `TERM` or a number; empty means `SIGTERM`.
    #[serde(rename = "StopSignal", deserialize_with = "null_is_default")]
    pub stop_signal: String,
    /// The ports on which the image's program listens, as `80/tcp`.
    #[serde(rename = "ExposedPorts", deserialize_with = "null_is_default")]
    pub exposed_ports: BTreeMap<String, serde_json::Value>,
}

/// The image's configuration does not follow the specification.
#[derive(Debug, thiserror::Error)]
#[error("the image's configuration cannot be read: {0}; the image was built wrongly")]
pub struct ImageConfigError(#[from] serde_json::Error);

impl ImageConfig {
    /// Reads the configuration blob that a manifest's `config` descriptor names. An image without a `config`
    /// object is allowed, and gets the defaults.
    ///
    /// # Errors
    /// If the blob is not such a configuration.
    pub fn from_blob(blob: &[u8]) -> Result<Self, ImageConfigError> {
        Ok(Blob::into_config(serde_json::from_slice(blob)?))
    }

    /// Reads a configuration blob that is parsed already.
    ///
    /// # Errors
    /// If the blob is not such a configuration.
    pub fn from_json(blob: &serde_json::Value) -> Result<Self, ImageConfigError> {
        Ok(Blob::into_config(Blob::deserialize(blob)?))
    }

    /// The ports of the image that are to be published on any free port of the host, beside these.
    pub(crate) fn ports_to_publish(&self, asked: &[PortRequest]) -> Vec<PortRequest> {
        let exposed = self
            .exposed_ports
            .keys()
            .filter_map(|text| Protocol::exposed(text));
        let requests = exposed.flatten().map(|(container, protocol)| PortRequest {
            address: Ipv4Addr::UNSPECIFIED,
            host: HostPorts::Any,
            container,
            protocol,
        });
        let is_asked = |request: &PortRequest| {
            asked
                .iter()
                .any(|one| (one.container, one.protocol) == (request.container, request.protocol))
        };
        requests.filter(|request| !is_asked(request)).collect()
    }

    /// The signal that asks the container to stop.
    pub(crate) fn stop_signal(&self) -> Result<StopSignal, SignalParseError> {
        match self.stop_signal.as_str() {
            "" => Ok(StopSignal::default()),
            name => name.parse(),
        }
    }
}

#[derive(Deserialize)]
struct Blob {
    #[serde(default)]
    config: Option<ImageConfig>,
}

impl Blob {
    fn into_config(self) -> ImageConfig {
        self.config.unwrap_or_default()
    }
}

fn null_is_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_as_builders_write_it() {
        let blob = br#"{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/entry.sh"],"Cmd":null,
            "Env":["PATH=/bin","A=b=c"],"User":"www:www","WorkingDir":"/srv","StopSignal":"SIGQUIT",
            "ExposedPorts":{"80/tcp":{}},"Labels":null},"rootfs":{"type":"layers","diff_ids":[]}}"#;
        let config = ImageConfig::from_blob(blob).unwrap();
        assert_eq!(config.entrypoint, ["/entry.sh"]);
        assert!(config.cmd.is_empty());
        assert_eq!(config.env, ["PATH=/bin", "A=b=c"]);
        assert_eq!(config.user, "www:www");
        assert_eq!(config.working_dir, "/srv");
        assert_eq!(config.stop_signal().unwrap().number(), 3);
        let asked = PortRequest::parse("8080:80").unwrap();
        assert_eq!(config.ports_to_publish(&asked), []);
        assert_eq!(config.ports_to_publish(&[]), PortRequest::parse("80").unwrap());
    }

    #[test]
    fn a_configuration_may_be_empty_but_must_be_json() {
        assert_eq!(ImageConfig::from_blob(b"{}").unwrap(), ImageConfig::default());
        assert_eq!(
            ImageConfig::from_blob(br#"{"config":null}"#).unwrap(),
            ImageConfig::default()
        );
        assert_eq!(ImageConfig::default().stop_signal().unwrap().number(), 15);
        assert!(ImageConfig::from_blob(b"not json").is_err());
        assert!(ImageConfig::from_blob(br#"{"config":{"Cmd":"a string"}}"#).is_err());
    }
}
