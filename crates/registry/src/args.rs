//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use xebec_kernel::size::Bytes;
use xebec_settings::period::Period;

const EXAMPLES: &str = "Examples:
  xebec-registry serve --listen :5000 --root /var/lib/xebec-registry
  xebec-registry serve --config /etc/xebec-registry.toml
  xebec-registry check-config /etc/xebec-registry.toml
  xebec-registry gc --dry-run --config /etc/xebec-registry.toml
  xebec-registry backup /backup/registry --config /etc/xebec-registry.toml
  xebec-registry user add anna --config /etc/xebec-registry.toml

Exit codes: 0, all is well; 1, an error; 2, the command line is wrong; 3, something that is kept is damaged or missing.

A configuration with every key and its meaning is docs/registry.toml.";

/// A container registry whose images start lazily by themselves.
#[derive(Debug, Parser)]
#[command(name = "xebec-registry", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more in the log; twice: still more.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer clients until the process is told to end.
    Serve(Serve),
    /// Say what is wrong with a configuration, and in which line.
    #[command(name = "check-config")]
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Delete what the rules let go (retention, copies of upstreams), then collect what nothing refers to; also while a registry serves.
    Gc(Collect),
    /// Read everything again, compare it with its digest, and mend what is wrong; also while a registry serves.
    Scrub(Scrub),
    /// Copy everything to a directory, also while a registry serves.
    Backup(Backup),
    /// Restore a backup to an empty directory, and compare all of it with its digests.
    Restore(Restore),
    /// Say whether everything works that this registry needs, with the cause and the next step of what does not.
    Doctor(Doctor),
    /// Add, change, remove and list the users of an htpasswd file.
    User(Users),
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory.
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry user add anna --htpasswd /etc/xebec-registry.htpasswd
  pwgen 24 1 | xebec-registry user add ci --config /etc/xebec-registry.toml
  xebec-registry user list --config /etc/xebec-registry.toml

A registry that serves meanwhile reads the file again by itself.")]
pub(crate) struct Users {
    #[command(subcommand)]
    pub(crate) action: UserAction,
    /// The htpasswd file, instead of the configuration's (auth.htpasswd).
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) htpasswd: Option<PathBuf>,
    /// The configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "XEBEC_REGISTRY_CONFIG",
        global = true
    )]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// Add a user, or change the password of one. The password comes from the terminal, or from standard input.
    Add {
        /// The user's name.
        name: String,
    },
    /// Remove a user.
    Rm {
        /// The user's name.
        name: String,
    },
    /// Print the users' names, a line each.
    List,
}

/// Where the registry keeps its data.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", env = "XEBEC_REGISTRY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The directory for blobs and the embedded database, instead of the configuration's.
    #[arg(long, value_name = "DIR", env = "XEBEC_REGISTRY_ROOT")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry serve --listen :5000 --root /var/lib/xebec-registry
  xebec-registry serve --listen :443 --config /etc/xebec-registry.toml

SIGTERM and SIGINT end it: requests that are under way are finished. SIGHUP reads the certificate again.")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where clients connect, as 127.0.0.1:5000, or :5000 for all addresses of this host. May be given several times.
    #[arg(
        short,
        long,
        value_name = "ADDR",
        env = "XEBEC_REGISTRY_LISTEN",
        value_delimiter = ','
    )]
    pub(crate) listen: Vec<String>,
    /// The certificate in PEM, with --tls-key; without, plain HTTP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry gc --dry-run --root /var/lib/xebec-registry
  xebec-registry gc --config /etc/xebec-registry.toml")]
pub(crate) struct Collect {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Say what would be deleted, by which rule, and how much; delete nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry scrub --rate 50m --config /etc/xebec-registry.toml
  xebec-registry scrub --not-within 7d --root /var/lib/xebec-registry

A blob with wrong bytes counts as absent from then on. One of an upstream's image is fetched again at once; any other is mended by the
next push of an image that has it. The exit code is 3 while something is damaged.")]
pub(crate) struct Scrub {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Read so many bytes a second at most, as 50m.
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<Bytes>,
    /// Leave out blobs that were read within this time, as 7d: so a scrub that was ended goes on.
    #[arg(long, value_name = "TIME")]
    pub(crate) not_within: Option<Period>,
    /// Only report: fetch nothing from upstreams.
    #[arg(long)]
    pub(crate) no_mend: bool,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry backup /backup/registry --config /etc/xebec-registry.toml

An earlier backup in the same directory is brought up to date: what it has already is not copied again. On the file system of the
registry, files are linked instead of copied: that guards against deletion, and not against a broken disk.
The configuration, the htpasswd file and the token key are not in it.")]
pub(crate) struct Backup {
    /// The directory for the backup. It is made if it is missing.
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry restore /backup/registry --root /var/lib/xebec-registry

A restore that was broken off is begun again by the same command. If something in the backup is damaged, it is listed, there is no
registry in the directory, and the exit code is 3.")]
pub(crate) struct Restore {
    /// The directory of the backup.
    pub(crate) backup: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  xebec-registry doctor --config /etc/xebec-registry.toml

It looks at the configuration, the directory, its room, the clock, the database, the objects, the addresses, the certificate, the
upstreams with their logins, and the keys of those who issue tokens. The exit code is 1 if something does not work. The database is opened
as `serve` opens it: its schema is brought up to date.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_but_an_address_and_a_directory_is_needed() {
        let cli =
            Cli::try_parse_from(["xebec-registry", "serve", "--listen", ":5000", "--root", "/r"]).unwrap();
        let Command::Serve(serve) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(serve.listen, [":5000"]);
        assert_eq!(serve.place.root, Some(PathBuf::from("/r")));
    }

    #[test]
    fn a_certificate_comes_with_its_key() {
        assert!(Cli::try_parse_from(["xebec-registry", "serve", "--tls-cert", "c"]).is_err());
    }
}
