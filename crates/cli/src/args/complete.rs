//! `xebec complete`, which completion scripts run.

use clap::Args;

/// `xebec complete`.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The kinds of the names to offer.
    #[arg(required = true)]
    pub(crate) kinds: Vec<NameKind>,
    /// The word that is being completed.
    #[arg(last = true)]
    pub(crate) word: Option<String>,
}

/// The kinds of things that have names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameKind {
    /// Images that this host knows.
    Images,
    /// Containers that run, or whose files are kept.
    Containers,
    /// Networks of their own.
    Networks,
    /// All that `--network` takes.
    Reachable,
    /// Named volumes.
    Volumes,
}
