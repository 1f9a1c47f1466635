//! The cache of layers.

use clap::{Args, Subcommand};
use xebec_protocol::settings::Size;

use super::image::ImageArgs;
use super::json::Json;

/// `xebec cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is cached, what uses it, and what can be evicted.
    Stat(Json),
    /// Evict layers that are not in use, longest unused first, until the cache is below its limit.
    Gc(GcArgs),
    /// Never evict an image's layers.
    Pin(ImageArgs),
    /// Allow again that an image's layers are evicted.
    Unpin(ImageArgs),
}

/// `xebec cache gc`.
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Print what would be evicted, and evict nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Evict down to this size instead of the limit (512m, 20GiB, 500GB, 0).
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) to: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    text.parse().map(|size: Size| size.0)
}
