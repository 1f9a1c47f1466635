//! `xebec inspect`.

use std::path::PathBuf;

use clap::Args;

use super::image::{ImageArgs, PLATFORM};
use crate::template::Format;

/// `xebec inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec inspect web                                                           the record of a container, as JSON\n  \
    xebec inspect --format '{{.State.Status}}' web db                           one field of it, of two containers\n  \
    xebec inspect registry.example.com/app:1.4                                  its layers\n  \
    xebec inspect --runtime-image registry.example.com/app:1.4                  its services\n  \
    xebec inspect --runtime-image --svg start.svg registry.example.com/app:1.4  a picture of one")]
pub(crate) struct InspectArgs {
    /// Containers by name or id, and images: NAME[:TAG][@DIGEST].
    #[arg(id = "subject", value_name = "CONTAINER|IMAGE", required = true)]
    pub(crate) names: Vec<String>,
    #[arg(long, value_name = "OS/ARCH", help = PLATFORM)]
    pub(crate) platform: Option<String>,
    /// Print JSON: a list of what was found. Containers are always shown so.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a line for each, of fields as {{.State.Status}} or {{json .State}} and text; json: all fields.
    #[arg(short, long, value_name = "FORMAT", conflicts_with_all = ["json", "runtime_image"])]
    pub(crate) format: Option<Format>,
    /// The type of the names. By default a container, if one has this name or id, and else an image.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<InspectType>,
    /// Show the recorded services of one image instead: what a start of each fetches, and its recording's root of trust.
    #[arg(long)]
    pub(crate) runtime_image: bool,
    /// Draw what one service reads, file by file in the order of first access, as SVG into FILE (-: standard output).
    #[arg(
        long,
        value_name = "FILE",
        requires = "runtime_image",
        conflicts_with = "json"
    )]
    pub(crate) svg: Option<PathBuf>,
    /// The service to draw: a part of its command line, or its recording's digest. By default the newest.
    #[arg(long, value_name = "WORDS", requires = "svg")]
    pub(crate) service: Option<String>,
}

impl InspectArgs {
    /// Whether a name may be that of a container or of an image.
    pub(crate) fn may_be_a_container(&self) -> bool {
        self.kind.is_none() && !self.runtime_image && self.platform.is_none()
    }

    /// The image of that name.
    pub(crate) fn image(&self, name: &str) -> ImageArgs {
        ImageArgs {
            image: name.to_owned(),
            platform: self.platform.clone(),
        }
    }
}

/// The types that `xebec inspect` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InspectType {
    /// A container.
    Container,
    /// An image.
    Image,
}
