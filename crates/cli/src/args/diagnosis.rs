//! `xebec doctor`, which names faults of a host or a registry, and `xebec explain`, which names the reasons why readers waited.

use clap::Args;

/// `xebec doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A registry (host[:port]) or an image to check as well.
    pub(crate) registry: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `xebec explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xebec explain --slow web                 the reads of a container that took long\n  \
    xebec explain --start                    what the last start read, and how much its recording helped\n  \
    xebec explain --start --json web         the same for a container's start, as JSON\n\n\
    Waits are for the registry (to answer, to send, to come back after a fault), a token, a turn (queue), \
    decoding and digests (verify), and the cache's disk. The last 8,192 are in the daemon's memory, some 5,000 in the history \
    below the root directory, which is read without a daemon, too. Reads of pages that are there already never wait.")]
pub(crate) struct ExplainArgs {
    /// A container, also one that is gone, a view or where it is mounted, or an image by reference or digest. Of containers of one
    /// name the newest is meant; the others are NAME@RUN.
    #[arg(
        id = "subject",
        value_name = "CONTAINER|IMAGE",
        required_unless_present = "start"
    )]
    pub(crate) name: Option<String>,
    /// Show what a start read until it was ready, and how much of its recording it used. Name a container, or an image for
    /// its last start; without a name, the last start of all. Starts stay in the history when the daemon has ended.
    #[arg(long, conflicts_with = "slow")]
    pub(crate) start: bool,
    /// Show only waits longer than slow_reader in daemon.toml (10s by default), longest first.
    #[arg(long)]
    pub(crate) slow: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
