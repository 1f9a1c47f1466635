//! The daemon.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use xebec_protocol::settings::{LogFormat, Overrides, Settings};

use super::json::Json;

/// `xebec daemon`.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Show process ids, mounts, queue and counters.
    Status(Json),
    /// Print the daemon's metrics, as Prometheus gets them.
    Metrics,
    /// Stop the daemon, unless a view is mounted or still read.
    Stop {
        /// Unmount views that are in use, too. Processes that still read get EIO for missing pages. The daemon stops after
        /// the last of them.
        #[arg(long)]
        force: bool,
    },
    /// Replace the running daemon by another version of its program. Readers wait for a moment.
    Upgrade {
        /// The new program; by default the one that runs this command.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Run the keeper in the foreground (other commands start it by themselves).
    Start(StartArgs),
    /// Print which journals this program can take over.
    #[command(hide = true)]
    JournalVersion,
    /// Run a worker; only the keeper does.
    #[command(hide = true)]
    Worker,
}

/// `xebec daemon start`. Options that are not given are taken from `daemon.toml` in the root directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    /// Keep the cache below this size by evicting layers that are not in use (512m, 20GiB, 500GB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache_size: Option<String>,
    /// How long a reader waits for missing bytes before it gets an error (default 10m).
    #[arg(long, value_name = "TIME")]
    pub(crate) fill_wait: Option<String>,
    /// Log each process that waits longer than this (default 10s).
    #[arg(long, value_name = "TIME")]
    pub(crate) slow_reader: Option<String>,
    /// How long a view stays mounted for the next start after its last user ended (default 5m; 0s: not at all).
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Keep profiles of starts with a probe for `xebec record --merge`, at most one for each service in ten minutes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) learn: Option<String>,
    /// The format of log lines: text or json.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<String>,
}

impl StartArgs {
    /// The format of the log; errors in the settings are reported later.
    pub(crate) fn log_format(&self, root: &Path) -> LogFormat {
        Settings::load(&root.join("daemon.toml"), &self.overrides())
            .map_or(LogFormat::Text, |settings| settings.log)
    }

    /// The options that were given, by their names in the file.
    pub(crate) fn overrides(&self) -> Overrides {
        let given = [
            ("cache_size", &self.cache_size),
            ("fill_wait", &self.fill_wait),
            ("slow_reader", &self.slow_reader),
            ("linger", &self.linger),
            ("metrics", &self.metrics),
            ("log", &self.log),
            ("learn", &self.learn),
        ];
        let given = given.into_iter().filter_map(|(name, value)| {
            let value = value.clone()?;
            Some((name.to_owned(), value.into()))
        });
        given.collect()
    }
}
