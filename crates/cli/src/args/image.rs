//! Arguments that most commands have: the image, and when to pull it.

use clap::{Args, ValueEnum};
use xebec_protocol::wire::PullPolicy;

/// The help of `--platform`.
pub(super) const PLATFORM: &str = "The platform to choose from a multi-platform image, such as linux/arm64";

/// Which image, and how to reach it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImageArgs {
    /// The image: NAME[:TAG][@DIGEST], with or without a registry.
    pub(crate) image: String,
    /// The platform.
    #[arg(long, value_name = "OS/ARCH", help = PLATFORM)]
    pub(crate) platform: Option<String>,
}

/// When the registry is asked what an image is.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Pull {
    /// At each start, since a tag may have moved. If the registry cannot be reached, use the image that this host knows.
    Always,
    /// Only if this host does not know the image. Missing contents still come from the registry.
    Missing,
    /// Never. An image that this host does not know is not found.
    Never,
}

impl From<Pull> for PullPolicy {
    fn from(pull: Pull) -> Self {
        match pull {
            Pull::Always => Self::Always,
            Pull::Missing => Self::Missing,
            Pull::Never => Self::Never,
        }
    }
}
