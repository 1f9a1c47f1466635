//! Commands that mount, index, pull, check and remove images.

use std::path::PathBuf;

use clap::Args;

use super::image::{ImageArgs, Pull};

/// `xebec mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// The directory to mount the image on: one that is empty, or shows this image already.
    pub(crate) dir: PathBuf,
    /// When to ask the registry which image a tag names.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub(crate) pull: Pull,
    /// Fail if a layer must be read whole before the mount.
    #[arg(long)]
    pub(crate) require_lazy: bool,
    /// Fetch the rest of the image in the background; with a deadline, slowly enough to end by then (90s, 10m).
    #[arg(long, value_name = "DEADLINE", num_args = 0..=1, require_equals = true, default_missing_value = "0s",
        value_parser = crate::text::parse_duration)]
    pub(crate) complete: Option<std::time::Duration>,
    /// Honour setuid bits and file capabilities of the image's programs. Every user who can reach the directory can then
    /// become root.
    #[arg(long)]
    pub(crate) suid: bool,
    /// Let processes open the image's device nodes.
    #[arg(long)]
    pub(crate) dev: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec index`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec index --push registry.example.com/app:1.4\n  \
    xebec index --bind registry.example.com/app:1.4     the tag then names an image index that binds both\n  \
    xebec index --sign cosign.key registry.example.com/app:1.4")]
pub(crate) struct IndexArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Push the indexes to the image's repository as an artifact that refers to the image (a referrer).
    #[arg(long, conflicts_with = "local")]
    pub(crate) push: bool,
    /// Keep the indexes on this host only (the default).
    #[arg(long)]
    pub(crate) local: bool,
    /// Push an image index that names the image and its layer indexes, so that one digest covers both, and move the tag
    /// to it.
    #[arg(long, conflicts_with = "local")]
    pub(crate) bind: bool,
    /// Sign the indexes with this private key (PEM or cosign's; its password is taken from COSIGN_PASSWORD).
    #[arg(long, value_name = "KEY", conflicts_with = "local")]
    pub(crate) sign: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch the whole image before the command ends. It then needs neither registry nor daemon.
    #[arg(long)]
    pub(crate) complete: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec prefetch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec prefetch registry.example.com/app:1.4                   all services that were recorded\n  \
    xebec prefetch --service \"nginx -g\" registry.example.com/app:1.4\n  \
    xebec prefetch --complete=30m registry.example.com/app:1.4    and then all of the image, within about half an hour\n\n\
    The list [[prefetch]] in daemon.toml does the same whenever a tag moves.")]
pub(crate) struct PrefetchArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Only services whose command lines begin with this; may be given several times.
    #[arg(long = "service", value_name = "COMMAND")]
    pub(crate) services: Vec<String>,
    /// Fetch the rest of the image, too; with a deadline, slowly enough to end by then (90s, 10m).
    #[arg(long, value_name = "DEADLINE", num_args = 0..=1, require_equals = true, default_missing_value = "0s",
        value_parser = crate::text::parse_duration)]
    pub(crate) complete: Option<std::time::Duration>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec images`.
#[derive(Debug, Args)]
pub(crate) struct ListImagesArgs {
    /// Print manifests' digests only.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The image.
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Fetch the whole image, and verify all of it.
    #[arg(long)]
    pub(crate) all: bool,
    /// Fetch the whole image, rebuild each exact layer from it, and compare the layer with its digest. The layer's index
    /// is proven then.
    #[arg(long)]
    pub(crate) prove: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec rmi`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec rmi registry.example.com/app:1.3              remove the name; and the image if it has no other name\n  \
    xebec rmi sha256:0123…                              remove the image with all its names")]
pub(crate) struct RmiArgs {
    /// The images, by name or by their manifest's digest.
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// Remove an image, too, of which there are containers that do not run. To start one of them again, its image is asked for
    /// at its registry.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
