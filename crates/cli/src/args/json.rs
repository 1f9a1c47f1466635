//! The option that many commands have.

use clap::Args;

/// Output for scripts.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Json {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
