//! One error type that names registry, repository, object, cause, and what to do.
//!
//! A [`Fault`] is what went wrong in one try; most are worth another one. When a call gives up, the last fault
//! becomes the cause of a [`ClientError`], which says what was asked for ([`Target`]) and how often.

mod fault;
mod target;

use std::path::{Path, PathBuf};
use std::time::Duration;

use xebec_format::digest::Digest;

use crate::credentials::SentLogin;
use crate::manifest::ManifestError;
use fault::explain;

pub use fault::Fault;
pub(crate) use target::Object;
pub use target::Target;

/// A number of tries in words.
fn tries(number: u32) -> String {
    match number {
        1 => "1 try".to_owned(),
        number => format!("{number} tries"),
    }
}

/// Registries do not tell strangers which repositories they have.
fn or_misspelt(login: &SentLogin) -> &'static str {
    match login {
        SentLogin::Sent { .. } => " again, or check the name of the repository",
        _ => ", or check the name of the repository: registries answer the same where there is none",
    }
}

/// Advice to the user about a registry that cannot be reached.
fn reach_advice(cause: &Fault, target: &Target, settings: &Path) -> String {
    let (registry, settings) = (&target.registry, settings.display());
    match cause {
        // A server without TLS answers with bytes that look like none of its messages.
        Fault::Tls(text) if text.contains("InvalidMessage") || text.contains("corrupt message") => format!(
            "it does not seem to speak TLS: if that is right, write plain_http = [{registry:?}] into {settings}"
        ),
        Fault::Tls(_) => format!(
            "if its certificate is right, name the file of the authority that issued it under ca_files in {settings}"
        ),
        // TLS was not tried where nothing answered, and is not tried with this host itself unless it is asked for.
        Fault::UnknownHost(_) | Fault::NobodyThere(_) | Fault::Connect(_) if is_hub_or_here(registry) => {
            "check its name and port, the network, and the proxy settings".to_owned()
        }
        _ => format!(
            "check its name and port, the network, and the proxy settings; if it speaks no TLS, write plain_http = \
             [{registry:?}] into {settings}"
        ),
    }
}

/// Whether nobody needs to be told how a registry is spoken to: Docker Hub speaks TLS, and this host's own is spoken to without.
fn is_hub_or_here(registry: &str) -> bool {
    registry == crate::reference::DEFAULT_REGISTRY || crate::config::is_loopback(registry)
}

/// Why a call gave up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings cannot be used.
    #[error("registry settings: {0}")]
    Config(String),
    /// A file with certificate authorities cannot be used.
    #[error("cannot read certificates from {path}: {reason}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// The reason why it cannot be used.
        reason: String,
    },
    /// The registry does not have it.
    #[error("{target} was not found{}; check the name, and that it was pushed there", explain(.message))]
    NotFound {
        /// The content that was asked for.
        target: Box<Target>,
        /// The message of the registry.
        message: String,
    },
    /// The repository does not have the tag.
    #[error("{repository} has no tag {tag:?}; {offered}")]
    NoTag {
        /// The repository, with its registry.
        repository: String,
        /// The tag.
        tag: String,
        /// The tags that the repository has instead, in words.
        offered: String,
    },
    /// The registry does not have the repository.
    #[error("there is no repository {repository}; check the spelling of its name")]
    NoRepository {
        /// The repository, with its registry.
        repository: String,
    },
    /// The registry wants credentials, or others.
    #[error("{target}: not authorized ({cause}){login}; run `xebec login {}`{}", .target.registry, or_misspelt(.login))]
    Unauthorized {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// The last answer.
        cause: Fault,
        /// The login that was sent.
        login: Box<SentLogin>,
    },
    /// The registry knows the client and refuses.
    #[error("{target}: access denied{}{login}; ask the owner of the repository for access, or run `xebec login {}` \
             as someone who has it", explain(.message), .target.registry)]
    Denied {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// The message of the registry.
        message: String,
        /// The login that was sent.
        login: Box<SentLogin>,
    },
    /// The registry asked to be left alone for longer than the call may last.
    #[error(
        "{target}: the registry limits requests and still did so after {} ({cause}); wait, run \
             `xebec login {}` for a higher limit, or configure a mirror", tries(*attempts), .target.registry
    )]
    RateLimited {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// Tries, the first included.
        attempts: u32,
        /// The last answer.
        cause: Fault,
    },
    /// The registry could not be reached.
    #[error(
        "{target}: the registry cannot be reached after {} ({cause}); {}",
        tries(*attempts), reach_advice(.cause, .target, .settings)
    )]
    Unreachable {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// Tries, the first included.
        attempts: u32,
        /// The last fault.
        cause: Fault,
        /// The file of the settings that may help.
        settings: PathBuf,
    },
    /// There is no such host.
    #[error(
        "{target}: there is no host named {host}; check the spelling of the name, and which DNS server this \
             host asks (/etc/resolv.conf)"
    )]
    UnknownHost {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// Its name.
        host: String,
    },
    /// The registry answered, but never with what was asked for.
    #[error(
        "{target}: gave up after {}: {cause}; see `xebec doctor {}` for what this registry can do",
        tries(*attempts), .target.registry
    )]
    Failed {
        /// The content or action that was asked for.
        target: Box<Target>,
        /// Tries, the first included.
        attempts: u32,
        /// The last fault.
        cause: Fault,
    },
    /// The content is not what its digest says.
    #[error(
        "{target}: the registry sent content with digest {got} in {}; its storage or a proxy \
             on the way is damaged or dishonest", tries(*attempts)
    )]
    WrongDigest {
        /// The content that was asked for by its digest.
        target: Box<Target>,
        /// The digest of the bytes that came.
        got: Digest,
        /// Tries, the first included.
        attempts: u32,
    },
    /// The content is larger than Xebec reads for its kind.
    #[error("{target}: {size} bytes is more than the limit of {limit}")]
    TooLarge {
        /// The content that was asked for.
        target: Box<Target>,
        /// Its length, or a lower bound of it.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The manifest cannot be used.
    #[error("{target}: {source}")]
    Manifest {
        /// The manifest.
        target: Box<Target>,
        /// The fault of the manifest.
        source: ManifestError,
    },
    /// The image's config cannot be used.
    #[error("{target}: the image config cannot be used: {reason}")]
    ImageConfig {
        /// The config.
        target: Box<Target>,
        /// The fault of the config.
        reason: String,
    },
    /// The manifest is not of a container image.
    #[error("{target} is not a container image but an artifact with config type {media_type:?}")]
    NotAnImage {
        /// The manifest.
        target: Box<Target>,
        /// Type of its config.
        media_type: String,
    },
    /// The image is not made for this platform.
    #[error("{target} has no image for {platform}; it has: {}", .offered.join(", "))]
    NoPlatform {
        /// The index or image.
        target: Box<Target>,
        /// The platform that the caller wants.
        platform: String,
        /// The platforms that the index offers.
        offered: Vec<String>,
    },
    /// The range asked for is empty, reversed or too long.
    #[error("{target}: a range must have between 1 and {limit} bytes")]
    InvalidRange {
        /// The content that was asked for.
        target: Box<Target>,
        /// Longest range.
        limit: u64,
    },
    /// A file to be pushed cannot be read.
    #[error("{target}: cannot read {path}: {source}")]
    Source {
        /// The content that was to be pushed.
        target: Box<Target>,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ClientError {
    /// The error of a call whose last try ended in `fault`.
    pub(crate) fn from_fault(target: Target, attempts: u32, fault: Fault) -> Self {
        let target = Box::new(target);
        match fault {
            Fault::Status {
                code: 404 | 410,
                message,
                ..
            } => Self::NotFound { target, message },
            Fault::Status { code: 401, .. } | Fault::Credentials(_) => Self::Unauthorized {
                target,
                cause: fault,
                login: Box::default(),
            },
            Fault::Status {
                code: 403, message, ..
            } => Self::Denied {
                target,
                message,
                login: Box::default(),
            },
            Fault::Status { code: 429, .. } => Self::RateLimited {
                target,
                attempts,
                cause: fault,
            },
            Fault::UnknownHost(host) => Self::UnknownHost { target, host },
            Fault::Connect(_) | Fault::NobodyThere(_) | Fault::Tls(_) => Self::Unreachable {
                target,
                attempts,
                cause: fault,
                settings: PathBuf::from(crate::config::SETTINGS_FILE),
            },
            Fault::WrongDigest { got, .. } => Self::WrongDigest {
                target,
                got,
                attempts,
            },
            Fault::TooLarge { limit } => Self::TooLarge {
                target,
                size: limit.saturating_add(1),
                limit,
            },
            cause => Self::Failed {
                target,
                attempts,
                cause,
            },
        }
    }

    /// Whether the same call could succeed later without anyone changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::WrongDigest { .. } => true,
            Self::Unreachable { cause, .. } | Self::Failed { cause, .. } => cause.is_retryable(),
            _ => false,
        }
    }

    /// For how long the call waited for an answer, if it gave up because none came.
    pub fn silence(&self) -> Option<Duration> {
        match self {
            Self::Failed {
                cause: Fault::Timeout(_, time),
                ..
            } => Some(*time),
            _ => None,
        }
    }

    /// Whether the same call could succeed later: passing faults, and refusals, which somebody can lift by a login
    /// without touching what waits. Not answers to another question than was asked.
    pub fn may_heal(&self) -> bool {
        let nonsense = matches!(self, Self::Failed { cause, .. } if cause.is_nonsense());
        (self.is_retryable() && !nonsense)
            || matches!(
                self,
                Self::Unauthorized { .. } | Self::Denied { .. } | Self::UnknownHost { .. }
            )
    }

    /// The content or action that was asked for, if a registry was asked.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Config(_) | Self::CaFile { .. } | Self::NoTag { .. } | Self::NoRepository { .. } => None,
            Self::NotFound { target, .. }
            | Self::Unauthorized { target, .. }
            | Self::Denied { target, .. }
            | Self::RateLimited { target, .. }
            | Self::Unreachable { target, .. }
            | Self::UnknownHost { target, .. }
            | Self::Failed { target, .. }
            | Self::WrongDigest { target, .. }
            | Self::TooLarge { target, .. }
            | Self::Manifest { target, .. }
            | Self::ImageConfig { target, .. }
            | Self::NotAnImage { target, .. }
            | Self::NoPlatform { target, .. }
            | Self::InvalidRange { target, .. }
            | Self::Source { target, .. } => Some(target),
        }
    }
}
