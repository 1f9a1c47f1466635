//! The choice of the image in an index that fits a host.
//!
//! Matching follows containerd's `platforms` package. A host names its best platform first and then the others that it can run (older
//! ARM variants, lower x86-64 levels, 32-bit on 64-bit). The first entry of that list that an index offers is taken.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An operating system and a processor, in the words of Go (`GOOS`, `GOARCH`) as the OCI specification has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// For example `linux`.
    pub os: String,
    /// For example `amd64` or `arm64`.
    pub architecture: String,
    /// For example `v7` of `arm`. The usual variant of an architecture (`v8` of `arm64`) may be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Why a text is no platform.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a platform: expected \"os/architecture\" or \"os/architecture/variant\"")]
pub struct PlatformError(String);

impl Platform {
    /// A Linux platform without a variant.
    pub fn linux(architecture: &str) -> Self {
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    /// The platform that this binary was built for.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", None),
            "arm" => ("arm", Some("v7")),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "powerpc64" => ("ppc64", None),
            "loongarch64" => ("loong64", None),
            "mips64" if cfg!(target_endian = "little") => ("mips64le", None),
            other => (other, None),
        };
        Self {
            variant: variant.map(str::to_owned),
            ..Self::linux(architecture)
        }
    }

    /// The same platform with one spelling: aliases resolved, variants that are the normal case left out,
    /// except that 32-bit ARM always has one (containerd's `normalizeArch`).
    pub fn normalized(&self) -> Self {
        let variant = self.variant.as_deref().map(str::to_ascii_lowercase);
        let variant = variant.as_deref().filter(|variant| !variant.is_empty());
        let architecture = self.architecture.to_ascii_lowercase();
        let (architecture, variant) = match (architecture.as_str(), variant) {
            ("x86_64" | "x86-64" | "amd64", None | Some("v1")) => ("amd64", None),
            ("x86_64" | "x86-64" | "amd64", other) => ("amd64", other),
            ("i386" | "i486" | "i586" | "i686" | "386", _) => ("386", None),
            ("aarch64" | "arm64", None | Some("8" | "v8" | "v8.0")) => ("arm64", None),
            ("aarch64" | "arm64", Some("9" | "9.0" | "v9.0")) => ("arm64", Some("v9")),
            ("aarch64" | "arm64", other) => ("arm64", other),
            ("armhf", _) => ("arm", Some("v7")),
            ("armel", _) => ("arm", Some("v6")),
            ("arm", None | Some("7")) => ("arm", Some("v7")),
            ("arm", Some("5")) => ("arm", Some("v5")),
            ("arm", Some("6")) => ("arm", Some("v6")),
            ("arm", Some("8")) => ("arm", Some("v8")),
            (other, variant) => (other, variant),
        };
        let os = self.os.to_ascii_lowercase();
        Self {
            os: if os == "macos" { "darwin".to_owned() } else { os },
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    /// The platforms whose images a host of this platform can run, best first (containerd's `platformVector`).
    pub fn runs(&self) -> Vec<Platform> {
        let own = self.normalized();
        let with = |architecture: &str, variant: Option<String>| Platform {
            os: own.os.clone(),
            architecture: architecture.to_owned(),
            variant,
        };
        let level = |text: &str| text.strip_prefix('v').and_then(|level| level.parse::<u8>().ok());
        let arm_from = |top: u8| {
            (5..=top)
                .rev()
                .map(|level| with("arm", Some(format!("v{level}"))))
        };
        let mut list = vec![own.clone()];
        match (own.architecture.as_str(), own.variant.as_deref()) {
            ("amd64", variant) => {
                // Levels above v4 do not exist; the limit keeps a made-up one from building a long list.
                let top = variant.and_then(level).unwrap_or(1).min(8);
                list.extend(
                    (2..top)
                        .rev()
                        .map(|level| with("amd64", Some(format!("v{level}")))),
                );
                if top > 1 {
                    list.push(with("amd64", None));
                }
                list.push(with("386", None));
            }
            ("arm", Some(variant)) => {
                let top = level(variant).unwrap_or(0).min(9);
                list.extend(arm_from(top.saturating_sub(1)));
            }
            ("arm64", variant) => {
                if variant.is_some() {
                    list.push(with("arm64", None));
                }
                list.extend(arm_from(8));
            }
            _ => {}
        }
        list
    }

    /// How well an image for `offered` fits this host: 0 is best; `None`: it does not run here.
    pub fn rank(&self, offered: &Platform) -> Option<usize> {
        let offered = offered.normalized();
        self.runs().iter().position(|can| *can == offered)
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let fine = |part: &&str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        };
        let parts: Vec<&str> = text.split('/').collect();
        if !parts.iter().all(fine) {
            return Err(PlatformError(text.to_owned()));
        }
        let (os, architecture, variant) = match parts.as_slice() {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some((*variant).to_owned())),
            _ => return Err(PlatformError(text.to_owned())),
        };
        Ok(Self {
            os: (*os).to_owned(),
            architecture: (*architecture).to_owned(),
            variant,
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}
