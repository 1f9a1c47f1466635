//! Commands that make images of containers and push them.

use clap::Args;
use xebec_commit::Change;

/// `xebec commit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec commit web registry.example.com/web:2\n  \
    xebec commit -m \"new theme\" -c 'CMD [\"serve\"]' -c 'ENV MODE=production' web registry.example.com/web:2\n  \
    xebec push registry.example.com/web:2")]
pub(crate) struct CommitArgs {
    /// The container, by its name or id. It runs, or has ended.
    pub(crate) container: String,
    /// The name of the image: NAME[:TAG].
    pub(crate) image: String,
    /// A note for the image's history.
    #[arg(short, long)]
    pub(crate) message: Option<String>,
    /// The author, for the image's history.
    #[arg(short, long)]
    pub(crate) author: Option<String>,
    /// Change the configuration by an instruction of a Dockerfile, such as CMD, ENV, LABEL or USER. Repeatable.
    #[arg(short, long = "change", value_name = "INSTRUCTION")]
    pub(crate) changes: Vec<Change>,
    /// Let a container that runs go on meanwhile. Files that it writes then may be in the image half written.
    #[arg(long)]
    pub(crate) no_pause: bool,
    /// How the layer is compressed: gzip, which every runtime reads, or zstd.
    #[arg(long, value_name = "CODEC", default_value = "gzip")]
    pub(crate) compression: String,
    /// The level of compression: 1 to 9 for gzip (6), 1 to 19 for zstd (3).
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec push`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    xebec push web:2 mirror.example.com/team/web:2      to another registry, under another name\n\n\
    An xebec-registry that keeps each file once gets only the files of a new layer that it lacks.")]
pub(crate) struct PushArgs {
    /// The image, by the name that it was committed by, or by its manifest's digest.
    pub(crate) image: String,
    /// Where to push it, if not to the place of its name: NAME[:TAG].
    pub(crate) target: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
