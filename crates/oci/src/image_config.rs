//! The config of an image: what to run, and the digests of the layers' plain tars.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use crate::manifest::null_is_empty;
use xebec_format::platform::Platform;

/// Largest image config that is read; containerd's limit for content that it holds in memory.
pub const MAX_CONFIG_SIZE: u64 = 8 << 20;

/// An image config (OCI image spec, "config.md"; Docker's is the same where Xebec reads it).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Processor, in Go's words.
    #[serde(default)]
    pub architecture: String,
    /// Operating system, in Go's words.
    #[serde(default)]
    pub os: String,
    /// Variant of the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// When the image was made, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// How to run it.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: RunConfig,
    /// The diff IDs of the layers.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub rootfs: RootFs,
}

/// How a container of the image is to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    /// `user[:group]`, names or numbers; empty is root.
    #[serde(deserialize_with = "null_is_empty")]
    pub user: String,
    /// `KEY=value`.
    #[serde(deserialize_with = "null_is_empty")]
    pub env: Vec<String>,
    /// The beginning of the command line, before the command.
    #[serde(deserialize_with = "null_is_empty")]
    pub entrypoint: Vec<String>,
    /// The command, or the arguments of the entrypoint.
    #[serde(deserialize_with = "null_is_empty")]
    pub cmd: Vec<String>,
    /// Directory to start in; empty is `/`.
    #[serde(deserialize_with = "null_is_empty")]
    pub working_dir: String,
    /// For example `SIGQUIT` or `3`; empty is `SIGTERM`.
    #[serde(deserialize_with = "null_is_empty")]
    pub stop_signal: String,
    /// Facts about the image.
    #[serde(deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Keys such as `80/tcp`; the values are empty.
    #[serde(deserialize_with = "null_is_empty")]
    pub exposed_ports: BTreeMap<String, serde_json::Value>,
    /// Keys are paths; the values are empty.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
}

/// The plain contents of the layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Digests of the uncompressed tars, lowest first: one for each layer.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Reads a config.
    ///
    /// # Errors
    /// If the bytes are not JSON of that shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The platform that the image runs on; `None` if the config does not name it.
    pub fn platform(&self) -> Option<Platform> {
        if self.os.is_empty() || self.architecture.is_empty() {
            return None;
        }
        let variant = self.variant.clone().filter(|variant| !variant.is_empty());
        Some(Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_docker_writes() {
        let bytes = br#"{"architecture":"amd64","os":"linux","container":"x","config":{"Env":["A=b"],"Cmd":null,
            "Entrypoint":["/e"],"WorkingDir":"","ExposedPorts":{"80/tcp":{}},"StopSignal":"SIGQUIT","Labels":null,
            "OnBuild":null,"ArgsEscaped":true},"rootfs":{"type":"layers","diff_ids":
            ["sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]},"history":[]}"#;
        let config = ImageConfig::parse(bytes).unwrap();
        assert_eq!(config.config.env, ["A=b"]);
        assert!(config.config.cmd.is_empty());
        assert_eq!(config.config.stop_signal, "SIGQUIT");
        assert!(config.config.exposed_ports.contains_key("80/tcp"));
        assert_eq!(config.rootfs.diff_ids.len(), 1);
        assert_eq!(config.platform().unwrap().to_string(), "linux/amd64");
    }

    #[test]
    fn everything_may_be_absent_or_null() {
        assert_eq!(ImageConfig::parse(b"{}").unwrap().platform(), None);
        assert_eq!(
            ImageConfig::parse(br#"{"config":null,"rootfs":null}"#).unwrap(),
            ImageConfig::default()
        );
    }
}
